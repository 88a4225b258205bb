"""A container as a systemd unit that waits for memory, starts it, and gives up after a few failures. Pure.

Facts: facts/engines.md OPS-02, C13, 6.6. An engine that ended holds memory for a minute and more, so a restart waits; a
wait is bounded, and TimeoutStartSec is longer; three failed starts in an hour end the loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.recipe import argv as flags
from sparktop.recipe.rendered import ContainerSpec, Rank, Rendered
from sparktop.recipe.runline import run_words

WAIT_S = 300
START_S = 900
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
WAIT = (
    "until awk -v share=\"$1\" '/^MemTotal:/ {t=$2} /^MemAvailable:/ {a=$2} END {exit !(a >= t * share)}' "
    "/proc/meminfo; do sleep 5; done"
)
"""Its parameter: which share of all memory has to be available."""
DEFAULT_SHARE = "0.75"


def unit_file(container: ContainerSpec, rank: Rank, rendered: Rendered, comments: Iterable[str]) -> str:
    """The unit's text; its secrets are in /etc/sparktop/NAME.env."""
    share = flags.value_of(rank.argv, "gpu-memory-utilization", "mem-fraction-static")
    share = share or flags.value_of(rendered.head.argv, "gpu-memory-utilization", "mem-fraction-static") or ""
    share = share if re.fullmatch(r"0?\.\d+|1(?:\.0+)?", share) else DEFAULT_SHARE
    wait = ["/usr/bin/timeout", str(WAIT_S), "/bin/sh", "-c", WAIT, "wait-for-memory", share]
    run = ["/usr/bin/docker", *run_words(container, is_detached=False)[1:]]
    lines = [
        *(f"# {line}" for line in comments),
        "[Unit]",
        f"Description={_plain(f'{container.name}: {rendered.served_name}')}",
        "Requires=docker.service",
        "After=docker.service network-online.target",
        "Wants=network-online.target",
        "StartLimitIntervalSec=3600",
        "StartLimitBurst=3",
        "",
        "[Service]",
        *([f"EnvironmentFile=/etc/sparktop/{container.name}.env"] if container.secret_names else []),
        f"ExecStartPre={_words(wait)}",
        f"ExecStartPre=-{_words(['/usr/bin/docker', 'rm', container.name])}",
        f"ExecStart={_words(run)}",
        f"ExecStop={_words(['/usr/bin/docker', 'stop', '-t', '60', container.name])}",
        "Restart=on-failure",
        "RestartSec=60",
        f"TimeoutStartSec={START_S}",
        "TimeoutStopSec=90",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _words(words: Iterable[str]) -> str:
    return " ".join(_word(word) for word in words)


def _word(text: str) -> str:
    """One word as systemd reads it: quoted where it has to be, no specifier, no variable."""
    literal = text.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(text):
        return literal
    escaped = literal.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", escaped)
    return f'"{escaped}"'


def _plain(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).replace("%", "%%")
