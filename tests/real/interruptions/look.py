"""What is seen of machines from outside: docker inspect, systemctl, the files that changed, ip, the engine's port."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping

from tests.real.interruptions.plans import PORT
from tests.real.machine import CABLE, Machine

Facts = Mapping[str, str]
"""What is seen of the machines from outside: "spark1 container vllm" -> "was vllm, running, unless-stopped, 5ec5"."""
SETTLES_WITHIN_S = 30.0
"""An engine starts, a step that was begun is completed or reverted."""
STANDS = 4
"""Looks, a second apart, that see the same: nothing comes any more."""

STAMP = re.compile(r"\d{8}T\d{6}")
_RANDOM = re.compile(
    rb"AAAA[\w+/=]{40,}|\|1\|[\w+/=|]+|(?<=PRIVATE KEY-----\n)[\w+/=\n]+|\d{8}T\d{6}|[0-9a-f]{64}|10\.77\.\d+"
)
"""In files: keys, hashed names, stamps, container ids, the number of a machine."""
_OF_THE_SYSTEM = re.compile(
    r"etc/(machine-id|\.updated|\.pwd\.lock|ld\.so\.cache|resolv\.conf|ssh/ssh_host.*|.*-|fake-hwclock\.data|mtab)|"
    r"home/spark/\.ssh/id_ed25519(\.pub)?|"  # of ssh-mesh: it may stay, it says
    r"home/spark/\.(cache|sudo_as_admin_successful|bash_history).*|root/\.(cache|bash_history).*"
)


def seen(machines: tuple[Machine, ...], ids: Mapping[str, str]) -> Facts:
    """Of all machines; `ids`: container id -> the name that it had before."""
    out: dict[str, str] = {}
    for spark in machines:
        out |= {f"{spark.hostname} {key}": value for key, value in _seen(spark, ids)}
    return out


LOOK = f"""
timeout 10 docker ps -aq --no-trunc | xargs -r timeout 10 docker inspect || exit 9
echo =; ip -j addr show {CABLE}
echo =; for unit in $1; do echo $unit `systemctl is-active $unit` `systemctl is-enabled $unit 2>/dev/null`; done
echo =; systemctl list-units --all --plain --no-legend '*sparktop*'
echo =; find /run/netplan /run/systemd/transient -type f -name '*sparktop*' 2>/dev/null
echo =; curl -s -o /dev/null -m 3 -w '%{{http_code}}' http://127.0.0.1:{PORT}/v1/models
exit 0
"""
"""Run in a machine with the names of its own units; 9 where Docker doesn't answer."""


def _seen(spark: Machine, ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    changed = dict(files(spark))
    own = [path.rpartition("/")[2] for path in changed if re.fullmatch(r"etc/systemd/system/[^/]+\.service", path)]
    boxes, ports, units, listed, runs, code = looked(spark, *own)
    for one in json.loads(boxes or "[]"):
        state, policy = one["State"]["Status"], one["HostConfig"]["RestartPolicy"]["Name"] or "no"
        if "-failed-" in one["Name"] and (state, policy) == ("exited", "no"):
            continue  # set aside for its log, as the end says
        old = f"was {ids[one['Id']]}" if one["Id"] in ids else "new"
        what = hashlib.sha256(json.dumps([one["Config"]["Cmd"], one["Config"]["Image"]]).encode()).hexdigest()[:4]
        yield f"container {STAMP.sub('#', one['Name'].lstrip('/'))}", f"{old}, {state}, {policy}, {what}"
    for path, text in changed.items():
        yield f"file {path}", text
    for path in runs.split():
        yield f"file {path}", "there"
    for line in units.splitlines():
        yield f"unit {line.split()[0]}", ", ".join(line.split()[1:])
    for line in listed.splitlines():
        if not line.startswith("run-"):
            yield f"unit {line.split()[0]}", ", ".join(line.split()[2:4])
    (port,) = json.loads(ports)
    addresses = [one["local"] for one in port["addr_info"] if one["scope"] == "global"]
    yield f"port {CABLE}", f"{' '.join(addresses) or 'no address'}, mtu {port['mtu']}"
    if code != "000":
        yield f"port {PORT}", f"answers {code}"


def looked(spark: Machine, *units: str) -> list[str]:
    """What LOOK prints, part by part, once Docker answers."""
    parts: list[str] = []

    def looks() -> bool:
        argv = spark.inside("sh", "-c", LOOK, "sh", " ".join(units))
        ended = subprocess.run(argv, capture_output=True, text=True, check=False)
        parts[:] = re.split(r"^=\n", ended.stdout, flags=re.MULTILINE)
        return ended.returncode == 0

    spark.until(looks, what="Docker answers")
    return [part.strip() for part in parts]


def files(spark: Machine) -> Iterator[tuple[str, str]]:
    """What its disk has otherwise than the tree that all start from."""
    for folder in ("etc", "home", "root"):
        for path in sorted((spark.folder / "upper" / folder).rglob("*")):
            name = str(path.relative_to(spark.folder / "upper"))
            if _OF_THE_SYSTEM.fullmatch(name) or "/.local/state/sparktop/runs/" in name:  # what a run notes stays
                continue
            with contextlib.suppress(FileNotFoundError):
                mode = path.lstat()
                if name.endswith("known_hosts") and not mode.st_size:
                    continue
                if stat.S_ISREG(mode.st_mode):
                    text = hashlib.sha256(_RANDOM.sub(b"#", path.read_bytes())).hexdigest()[:8]
                    yield name, f"{text} {stat.S_IMODE(mode.st_mode):o}"
                elif stat.S_ISLNK(mode.st_mode):
                    yield name, f"-> {os.readlink(path)}"
                elif stat.S_ISCHR(mode.st_mode):
                    yield name, "deleted"


def difference(before: Facts, after: Facts) -> list[str]:
    return [
        f"{key}: {before.get(key, 'none')} -> {after.get(key, 'none')}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def settled(machines: tuple[Machine, ...], ids: Mapping[str, str], wanted: tuple[Facts, ...]) -> Facts:
    """What is seen once nothing of ours works there any more: one of the wanted, or what it is after a while."""
    until = time.monotonic() + SETTLES_WITHIN_S
    for spark in machines:
        while time.monotonic() < until and spark.pids_of("sparktop-"):
            time.sleep(0.2)
    last: Facts = {}
    equal = 0
    while True:
        facts = seen(machines, ids)
        equal = equal + 1 if facts == last else 0
        last = facts
        if equal >= (1 if facts in wanted or not wanted else STANDS) or time.monotonic() > until:
            return facts
        time.sleep(1)
