"""What a node still knows of its previous boot: the end of that boot's journal, and crash dumps (pstore).

Read when the console asks, once a boot, by the kernel log's child: only that child waits.
"""

from __future__ import annotations

import json
import os
import re

from sparktop.masking import mask_text
from sparktop.probe.remote.parsers import log_text, parse_dmesg, parse_journal
from sparktop.probe.remote.programs import capture, is_program, may_sudo
from sparktop.probe.remote.system import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = list[Any]

JOURNAL = "/var/log/journal"
PSTORES = ("/sys/fs/pstore", "/var/lib/systemd/pstore")
_END_FIELDS = (
    "--output-fields=MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_TRANSPORT,_COMM,_UID,"
    "_SOURCE_MONOTONIC_TIMESTAMP,_SOURCE_BOOTTIME_TIMESTAMP"
)
_END = ["journalctl", "-b", "-1", "-r", "-o", "json", "--no-pager", "-q", _END_FIELDS, "-n"]
SYSTEM_LINES, KERNEL_LINES = 600, 300
"""How many are read, from the end; a shutdown logs some 200 after who ordered it."""
OUTPUT_BYTES = 1 << 20
KEPT_BYTES = 16 * 1024
"""Of each of the two logs, so that the answer doesn't hold up a slow line for long."""
TAIL = 20
"""The last lines, kept whoever wrote them; of earlier ones, those that tell of an order to go down."""
END_CHARS = 300
_TELLING = re.compile(r"reboot|shut.?down|power|halt\b|kexec|Ctrl-Alt-Del|earlyoom|systemd-oomd", re.IGNORECASE)


def previous_boot() -> dict[str, Any]:
    """The `previous` message."""
    message: dict[str, Any] = {"kind": "previous", "boot_id": "", "kernel": [], "system": [], "reason": ""}
    message["pstore"], message["dump"] = crash_dumps()
    prefix, message["reason"] = reader()
    if prefix is None:
        return message
    status, output = capture([*prefix, *_END, str(SYSTEM_LINES)], most_bytes=OUTPUT_BYTES)
    lines = output.split(b"\n")
    message["system"], message["boot_id"] = system_rows(lines)
    if not message["boot_id"]:
        message["reason"] = (
            "the journal didn't answer within 10 s" if status is None else "its journal holds no boot before this one"
        )
        return message
    _, output = capture([*prefix, *_END, str(KERNEL_LINES), "_TRANSPORT=kernel"], most_bytes=OUTPUT_BYTES)
    rows = [row for line in output.split(b"\n") if line and (row := parse_journal(line)) is not None]
    message["kernel"] = _newest(rows)
    return message


def reader() -> tuple[list[str] | None, str]:
    """(what journalctl is run by, "") or (None, why this user can't read the journal of an earlier boot)."""
    if not is_program("journalctl"):
        return None, "there is no journalctl"
    try:
        files = [f"{JOURNAL}/{machine}/system.journal" for machine in os.listdir(JOURNAL)]
    except OSError:
        files = []
    if any(os.access(file, os.R_OK) for file in files):
        return [], ""
    if not any(map(os.path.exists, files)):
        return None, f"its journal doesn't outlast a boot: {JOURNAL} is empty or missing"
    # Without the right to the system's journal, journalctl shows the user's own lines, which end as if cut off.
    return (["sudo", "-n"], "") if may_sudo() else (None, "this user may not read the system's journal")


def system_rows(lines: list[bytes]) -> tuple[list[Row], str]:
    """([[wall, sender, text]] of lines of `journalctl -r -o json` that aren't the kernel's, oldest first; boot id)."""
    rows: list[Row] = []
    boot_id = ""
    for line in lines:
        try:
            entry = json.loads(line)
            boot_id = boot_id or str(entry["_BOOT_ID"])
            wall, text = int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry["MESSAGE"]
            if entry["_TRANSPORT"] == "kernel" or not isinstance(text, str):
                continue
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        sender, owner = str(entry.get("SYSLOG_IDENTIFIER") or entry.get("_COMM") or "?"), entry.get("_UID")
        if len(rows) >= TAIL and not _TELLING.search(f"{sender} {text}"):
            continue
        if owner != "0" and not sender == entry.get("_COMM") == "sudo":  # any user may call himself systemd-logind
            sender = f"{sender} (uid {owner})"
        rows.append([round(wall, 3), sender[:80], text.strip()])
    return _newest(rows), boot_id


def _newest(rows: list[Row]) -> list[Row]:
    """As many of the first rows as KEPT_BYTES hold, in reverse: oldest first."""
    kept, size = [], 0
    for row in rows:
        row[-1] = mask_text(log_text(row[-1])[:END_CHARS])
        size += len(row[-1].encode()) + 40
        if size > KEPT_BYTES:
            break
        kept.append(row)
    return kept[::-1]


def crash_dumps() -> tuple[list[Row], list[Row]]:
    """([[path, modified]] of the newest files in pstore; lines of the newest dump that this user may read)."""
    found: list[Row] = []
    for root in PSTORES:
        for folder, _, names in os.walk(root):
            for name in names[:50]:
                try:
                    found.append([f"{folder}/{name}", round(os.stat(f"{folder}/{name}").st_mtime, 3)])
                except OSError:
                    continue
            if len(found) > 200:
                break
    found = sorted(found, key=lambda row: -row[1])[:10]
    for path, _ in found:
        if "dmesg" in path:
            try:
                lines = read_file(path, 65536).split(b"\n")
            except OSError:
                break
            return found, _newest([row for line in reversed(lines) if (row := parse_dmesg(line, 0.0)) is not None])
    return found, []
