"""The forms in which a program's line, or the kernel's, comes to somebody who copies it: each prints it in its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

Carrier = Callable[[str], str]


def _of(prefix: str) -> Carrier:
    return lambda line: prefix + line


def _journal(name: str, extra: Mapping[str, str]) -> Carrier:
    fields = {"__REALTIME_TIMESTAMP": "1772528400123456", "_SYSTEMD_UNIT": f"{name}.service", **extra}
    return lambda line: json.dumps({**fields, "MESSAGE": line})


ANY: Mapping[str, Carrier] = {
    "bare": _of(""),
    "docker logs --timestamps": _of("2026-03-03T10:00:00.123456789Z "),
    "Docker's json-file": lambda line: json.dumps(
        {"log": line + "\n", "stream": "stderr", "time": "2026-03-03T10:00:00Z"}
    ),
    "docker compose": _of("vllm-1  | "),
    "docker compose --timestamps": _of("vllm-1  | 2026-03-03T10:00:00.123456789Z "),
    "CRI": _of("2026-03-03T10:00:00.123456789+01:00 stderr F "),
    "kubectl --prefix": _of("[pod/vllm-0/engine] "),
    "grep -n": _of("1207:"),
    "grep -H": _of("vllm.log:"),
    "grep -Hn": _of("logs/vllm.log:1207:"),
    "quoted": _of("> "),
    "coloured": lambda line: f"\x1b[0;31m{line}\x1b[0m",
    "CRLF": lambda line: line + "\r",
    "GitHub Actions": _of("2026-03-03T10:00:00.1234567Z "),
    "docker build": _of("0.695 "),
    "docker build --progress=plain": _of("#10 460.5 "),
    "torchrun": _of("[0] [1] "),
}
"""For each program."""

PROGRAM: Mapping[str, Carrier] = {
    "journalctl": _of("Mar 03 10:00:00 spark1 vllm[4711]: "),
    "journalctl -o short-iso": _of("2026-03-03T10:00:00+0100 spark1 vllm[4711]: "),
    "journalctl -o short-precise": _of("Mar 03 10:00:00.123456 spark1 vllm[4711]: "),
    "journalctl -o short-iso-precise": _of("2026-03-03T10:00:00.123456+0100 spark1 vllm[4711]: "),
    "journalctl -o short-full": _of("Tue 2026-03-03 10:00:00 CET spark1 vllm[4711]: "),
    "journalctl -o short-monotonic": _of("[  900.123456] spark1 vllm[4711]: "),
    "journalctl -o short-unix": _of("1772528400.123456 spark1 vllm[4711]: "),
    "journalctl -o with-unit": _of("Tue 2026-03-03 10:00:00 CET spark1 vllm.service[4711]: "),
    "journalctl -o json": _journal("vllm", {"SYSLOG_IDENTIFIER": "vllm"}),
    "journalctl -o verbose": _of("    MESSAGE="),
    "journalctl in another language": _of("3月 03 10:00:00 spark1 vllm[4711]: "),
    "syslog": _of("<14>Mar  3 10:00:00 spark1 vllm[4711]: "),
    "syslog, RFC 5424": _of("<14>1 2026-03-03T10:00:00.123456+01:00 spark1 vllm 4711 - - "),
}

KERNEL: Mapping[str, Carrier] = {
    "dmesg": _of("[  900.123456] "),
    "dmesg -T": _of("[Tue Mar  3 10:00:00 2026] "),
    "dmesg -x": _of("kern  :err   : [  900.123456] "),
    "dmesg -d": _of("[  900.123456 <    0.000021>] "),
    "dmesg --time-format iso": _of("2026-03-03T10:00:00,123456+01:00 "),
    "dmesg -r": _of("<3>[  900.123456] "),
    "/dev/kmsg": _of("3,1207,900123456,-;"),
    "journalctl -k": _of("Mar 03 10:00:00 spark1 kernel: "),
    "journalctl -k -o short-iso": _of("2026-03-03T10:00:00+0100 spark1 kernel: "),
    "journalctl -k -o short-monotonic": _of("[  900.123456] spark1 kernel: "),
    "journalctl -k -o short-full": _of("Tue 2026-03-03 10:00:00 CET spark1 kernel: "),
    "journalctl -k -o short-unix": _of("1772528400.123456 spark1 kernel: "),
    "journalctl -k -o json": _journal("kernel", {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}),
    "journalctl -k -o verbose": _of("    MESSAGE="),
    "syslog": _of("<3>Mar  3 10:00:00 spark1 kernel: "),
    "syslog, RFC 5424": _of("<3>1 2026-03-03T10:00:00.123456+01:00 spark1 kernel - - - "),
    "rsyslog with its time since boot": _of("Mar  3 10:00:00 spark1 kernel: [  900.123456] "),
}
