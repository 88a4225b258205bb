"""What findings offer, done on a machine and looked at from outside: systemctl, docker inspect, curl, /proc."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from tests.integration.terminal import sparktop, terminal
from tests.real.console import act, bringup, do, looked, type_in
from tests.real.engines import docker_run
from tests.real.machine import Machine
from tests.real.parts import ENGINE_IMAGE

NAME = "vllm"
KEY = "canary-5f1c90"
SERVE = ("vllm", "serve", "tiny", "--gpu-memory-utilization", "0.1")


def started(spark: Machine, *options: str) -> None:
    spark.run(*docker_run(NAME, "--env", "ENGINE_LOAD_S=0.3", *options), ENGINE_IMAGE, *SERVE)


def inspected(spark: Machine) -> Any:
    return json.loads(spark.run("docker", "inspect", NAME))[0]


def test_a_restart_loop_is_broken(spark: Machine) -> None:
    started(spark, "--env", "ENGINE_FAILS=load", "--restart", "always")
    spark.until(lambda: inspected(spark)["RestartCount"] >= 3, what="a loop")
    act("break-restart-loop", "spark1")
    after = inspected(spark)
    assert (after["HostConfig"]["RestartPolicy"]["Name"], after["State"]["Running"]) == ("no", False)


def test_a_stopped_engine_stays_stopped(spark: Machine) -> None:
    started(spark, "--restart", "unless-stopped")
    act("stop-engine", "spark1", "--set", "grace_s=5")
    assert not inspected(spark)["State"]["Running"]
    spark.run("systemctl", "restart", "docker")
    assert not inspected(spark)["State"]["Running"]


def test_a_holder_of_gpu_memory_is_ended(spark: Machine) -> None:
    spark.run("systemd-run", "--property=Type=exec", "--unit=holder", "--uid=spark", "sleep", "1000")
    pid = spark.run("systemctl", "show", "--property=MainPID", "--value", "holder").strip()
    spark.gb10(f"{pid} {64 * 2**20} sleep", sm=0)
    act("end-holder", "spark1", "--pid", pid)
    assert not spark.run("sh", "-c", f"ps -p {pid} -o comm= || true").strip()


def test_an_engine_is_exposed_by_nginx_with_a_key_and_no_more(spark: Machine) -> None:
    started(spark)
    spark.run("systemctl", "start", "nginx")
    words = ("expose", "llm.example.org", "spark1", "--on", "spark1", "--yes")
    done = sparktop(*words, environment={"SPARKTOP_API_KEY": KEY})
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    # nginx reloads while its former workers still answer
    spark.until(lambda: [answered(spark, key) for key in ("", "wrong", KEY)] == ["401", "401", "200"], what="a key")
    removed = sparktop("expose", "llm.example.org", "--on", "spark1", "--remove", "--yes")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    spark.until(lambda: answered(spark, KEY) != "200", what="its removal")
    assert not (spark.root / "etc/nginx/sparktop/llm.example.org.key").exists()


def answered(spark: Machine, key: str) -> str:
    """The status that the proxy gives."""
    words = (
        "curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--header",
        "Host: llm.example.org",
    )  # fmt: skip
    return spark.run(*words, "--header", f"Authorization: Bearer {key}", "http://127.0.0.1/v1/models")


def test_a_stopped_docker_is_named(spark: Machine) -> None:
    spark.run("systemctl", "stop", "docker.socket", "docker")
    looked(lambda one: (one := one["nodes"][0]["containers"])["detail"] and not one["available"], "spark1")


DESKTOP = {
    "gdm.service": "[Service]\nExecStart=/bin/sleep infinity\n"
    "[Install]\nWantedBy=graphical.target\nAlias=display-manager.service\n",
    "gnome-shell.service": "[Unit]\nPartOf=gdm.service\nAfter=gdm.service\n"
    "[Service]\nUser=spark\nExecStart=/usr/local/bin/gnome-shell infinity\nRestart=always\nRestartSec=0\n"
    "[Install]\nWantedBy=gdm.service\n",
}
"""Units as Ubuntu has them, of programs that only sleep: a display manager, and a shell that ends by HUP."""


def test_a_desktop_is_recovered_in_each_way_beside_an_engine(spark: Machine) -> None:
    started(spark)
    spark.run("cp", "/bin/sleep", "/usr/local/bin/gnome-shell")
    for name, text in DESKTOP.items():
        (spark.root / "etc/systemd/system" / name).write_text(text)
    spark.run("systemctl", "daemon-reload")
    spark.run("systemctl", "--quiet", "enable", "--now", *DESKTOP)
    engine = inspected(spark)["State"]["StartedAt"]

    manager, shell = main_pid(spark, "gdm"), main_pid(spark, "gnome-shell")
    act("recover-desktop", "spark1", "--set", "way=shell")
    spark.until(lambda: main_pid(spark, "gnome-shell") not in ("0", shell), what="another shell")
    assert main_pid(spark, "gdm") == manager

    shell = main_pid(spark, "gnome-shell")
    spark.run("kill", "-s", "STOP", shell)
    act("recover-desktop", "spark1")
    assert "T" not in spark.run("ps", "-o", "state=", "-p", shell)
    assert main_pid(spark, "gnome-shell") == shell, "one that is only stopped goes on"

    act("recover-desktop", "spark1", "--set", "way=manager")
    assert main_pid(spark, "gdm") not in ("0", manager)
    spark.until(lambda: main_pid(spark, "gnome-shell") not in ("0", shell), what="a shell of the new session")

    act("recover-desktop", "spark1", "--set", "way=console")
    states = lambda: {active(spark, unit) for unit in ("graphical.target", "gdm", "gnome-shell")}  # noqa: E731
    spark.until(lambda: states() == {"inactive"}, what="no desktop")  # systemd waits for the target alone
    spark.run("systemctl", "isolate", "graphical.target")
    spark.until(lambda: states() == {"active"}, what="the desktop again")
    assert inspected(spark)["State"]["StartedAt"] == engine


def main_pid(spark: Machine, unit: str) -> str:
    return spark.run("systemctl", "show", "--property=MainPID", "--value", unit).strip()


def active(spark: Machine, unit: str) -> str:
    return spark.run("sh", "-c", f"systemctl is-active {unit} || true").strip()


UNIT = f"""[Unit]
Requires=docker.service
After=docker.service
[Service]
ExecStart=/usr/bin/docker run --rm --name {NAME} --network host --env ENGINE_LOAD_S=0.3 {ENGINE_IMAGE} {" ".join(SERVE)}
Restart=on-failure
RestartSec=1
"""


def test_a_unit_that_would_stay_down_and_a_stopped_docker_are_put_right_by_hand(spark: Machine) -> None:
    (spark.root / f"etc/systemd/system/{NAME}.service").write_text(UNIT)
    spark.run("systemctl", "start", NAME)
    pid = main_pid(spark, NAME)
    do(access(spark, "access.restart"))
    assert spark.run("systemctl", "show", "--property=Restart", "--value", NAME).strip() == "always"
    assert main_pid(spark, NAME) == pid, "it stops nothing"
    spark.run("systemctl", "stop", "docker.socket", "docker")
    remedy = access(spark, "access.docker")
    do({**remedy, "steps": [step for step in remedy["steps"] if "systemctl status" not in step]})
    assert active(spark, "docker") == "active"
    left = lambda: {one["check"] for one in bringup("spark1", "--only", "access") if one["state"] in BAD}  # noqa: E731
    spark.until(lambda: left() == {"access.gpu-runtime", "access.cdi"}, what="nothing else left")


BAD = ("failed", "unknown")


def access(spark: Machine, check: str) -> Any:
    """The remedy of a check that found something."""
    found: list[Any] = []

    def is_bad() -> bool:
        found[:] = [one for one in bringup("spark1", "--only", "access") if one["check"] == check]
        return found[0]["state"] in ("warning", "failed")

    spark.until(is_bad, what=check)
    return found[0]["remedies"][0]


def test_a_key_is_installed_by_who_came_with_a_password(spark: Machine) -> None:
    spark.run("chpasswd", said="spark:sesame\n")
    (spark.root / "home/spark/.ssh/authorized_keys").unlink()
    folder = Path.home() / ".ssh"
    (folder / "config").write_text(f"Host spark1\n  HostName {spark.address}\n  User spark\n")
    type_in(f"ssh-keygen -q -t ed25519 -N '' -f {folder}/id_ed25519")
    with terminal("bringup", "spark1", "--only", "reach") as at:
        at.reads("assword")
        at.types("sesame\n")
        at.reads("Login:")
        at.ends()
    words = next(line for line in at.text.splitlines() if "sparktop act install-key spark1" in line)
    with terminal(*shlex.split(words)[1:], "--yes") as at:
        at.reads("assword")
        at.types("sesame\n")
        assert at.ends() == 0, at.text
    installed = (spark.root / "home/spark/.ssh/authorized_keys").read_text().splitlines()
    assert installed == [(folder / "id_ed25519.pub").read_text().strip()]
    assert type_in("ssh -o BatchMode=yes spark1 hostname").strip() == "spark1"
    spark.until(lambda: {one["state"] for one in bringup("spark1", "--only", "reach")} == {"passed"}, what="passed")
