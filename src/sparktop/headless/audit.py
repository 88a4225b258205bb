"""`sparktop audit`: what was done to the Sparks from this machine, who did it, and how it ended.

    audit(count=20, node="", as_json=False, follow=False, path=None, out=None, err=None) -> int

Newest last. One block a run: when, where, what, how it ended; then the steps that didn't go well, and the figures
before and after. What guards did stands between them, by time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sparktop import sanitise
from sparktop.operate.audit import READ_AT_MOST_BYTES, audit_path, entries, is_under_way
from sparktop.operate.beforeafter import told

FOLLOW_S = 0.5
_MARKS = {"done": "✓", "rolled back": "↩", "aborted": "◌", "refused": "◌", "did not help": "▲", "failed": "✖"}
Entry = Mapping[str, Any]


def audit(
    *,
    count: int = 20,
    node: str = "",
    as_json: bool = False,
    follow: bool = False,
    path: Path | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """The last `count` runs (and guards' doings), of one node where one is named.

    `as_json` writes the entries as they stand in the file, an object with "version" and "entries"; with `follow` one
    entry a line, until interrupted.

    Raises:
        AuditError: the file is there and can't be read.
    """
    out, err = out or sys.stdout, err or sys.stderr
    found, damaged = entries(path)
    runs = _last(_runs(found, node), count)
    if as_json and not follow:
        kept = [entry for run in runs for entry in run]
        print(json.dumps({"version": 1, "entries": kept}, ensure_ascii=True), file=out)
    else:
        for run in runs:
            print("\n".join(_as_json(run) if as_json else _block(run, path or audit_path())), file=out)
    out.flush()
    if damaged:
        print(f"sparktop: {damaged} damaged line{'s' if damaged > 1 else ''} passed over", file=err)
    if not found and not as_json:
        print(f"sparktop: nothing has been done yet ({path or audit_path()})", file=err)
    if follow:
        _follow(path or audit_path(), node, seen=len(found), as_json=as_json, out=out)
    return 0


def _runs(found: Iterable[Entry], node: str) -> list[list[Entry]]:
    """Entries that belong together, in the order of their first."""
    runs: dict[object, list[Entry]] = {}
    for number, entry in enumerate(found):
        run = entry.get("run")
        runs.setdefault(run if isinstance(run, str) else number, []).append(entry)
    return [run for run in runs.values() if not node or any(_is_on(entry, node) for entry in run)]


def _is_on(entry: Entry, node: str) -> bool:
    nodes = entry.get("nodes")
    return entry.get("node") == node or (isinstance(nodes, list) and node in nodes)


def _last(runs: list[list[Entry]], count: int) -> list[list[Entry]]:
    return runs[-count:] if count > 0 else []


def _as_json(run: Sequence[Entry]) -> list[str]:
    return [json.dumps(entry, ensure_ascii=True) for entry in run]


def _block(run: Sequence[Entry], path: Path) -> list[str]:
    if run[0]["kind"] == "guard":
        return [_guard(run[0])]
    intent = next((entry for entry in run if entry["kind"] == "intent"), {})
    end = next((entry for entry in run if entry["kind"] == "end"), None)
    goes_on = end is None and is_under_way(str(run[0].get("run", "")), path)
    state = _text(end.get("state")) if end else "under way" if goes_on else "not ended"
    first = run[0]
    took = f" in {_span(end['wall_s'] - first['wall_s'])}" if end and intent else ""
    nodes = ", ".join(_texts(intent.get("nodes"))) or "?"
    title = _text(intent.get("title")) or _text(first.get("run"))
    lines = [f"{_MARKS.get(state, '?')} {_when(first)}  {_text(first.get('who'))}  {nodes}  {title}: {state}{took}"]
    if end is None:
        if not goes_on:
            lines.append("    the console ended before the run did")
        lines += [f"    done: {line}" for line in _done(run, intent)]
    elif state != "done":
        lines += [f"    {text}" for key in ("message", "hint") if (text := _text(end.get(key)))]
    lines += [f"    {line}" for entry in run if entry["kind"] == "step" for line in _step(entry)]
    lines += [f"    {_when(entry)[11:]}  {_note(entry)}" for entry in run if entry["kind"] == "note"]
    lines += [f"    {line}" for line in _change(end or {})]
    return lines


def _done(run: Sequence[Entry], intent: Entry) -> Iterator[str]:
    """What was done of a run that nobody has ended, each with how it would be undone."""
    planned = intent.get("steps")
    steps = [one for one in planned if isinstance(one, dict)] if isinstance(planned, list) else []
    undone_by = {one.get("step"): _text(one.get("undone_by")) for one in steps if isinstance(one.get("step"), str)}
    for entry in run:
        if entry["kind"] == "step" and entry.get("state") == "done":
            name = entry.get("step")
            how = undone_by.get(name) if isinstance(name, str) else ""
            yield f"{_text(entry.get('title'))}{f' (undone by: {how})' if how else ''}"


def _step(entry: Entry) -> Iterator[str]:
    state, evidence = _text(entry.get("state")), _text(entry.get("evidence"))
    if state not in ("done", "skipped"):
        yield f"{state}: {_text(entry.get('title'))}: {_text(entry.get('detail'))}"
    if evidence:
        yield f"evidence: {evidence}"


def _note(entry: Entry) -> str:
    why = _text(entry.get("why"))
    return f"{_text(entry.get('text'))}{': ' + why if why else ''}"


def _guard(entry: Entry) -> str:
    available = entry.get("available_gib")
    at = f" at {available} GiB available" if isinstance(available, int | float) else ""
    detail = _text(entry.get("detail"))
    container = _text(entry.get("container"))
    over = f": {container} below {entry.get('floor_gib', '?')} GiB" if container else ""
    what = f"guard {_text(entry.get('phase'))}{over}"
    line = sanitise.line(f"{what}{at}{'; ' + detail if detail else ''}")
    return f"◆ {_when(entry)}  {_text(entry.get('who'))}  {_text(entry.get('node'))}  {line}"


def _change(end: Entry) -> Iterator[str]:
    """Figures that moved, a line for each node."""
    before, after = end.get("before"), end.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    for node in after:
        old, new = before.get(node), after[node]
        if not isinstance(old, dict) or not isinstance(new, dict):
            continue
        if line := sanitise.line(told(old, new)):
            yield f"{_text(node)}: {line}"


def _when(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["wall_s"]))


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _text(value: object) -> str:
    """The file is somebody's: whatever stands in it is only text."""
    return sanitise.line(value, limit=1000) if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [_text(each) for each in value] if isinstance(value, list) else []


def _follow(path: Path, node: str, *, seen: int, as_json: bool, out: TextIO) -> None:
    """Each entry as it comes, on a line of its own, until interrupted."""
    old: set[str] = set()
    for entry in entries(path)[0][:seen]:
        old.add(json.dumps(entry))
    of_node: set[object] = set()
    while True:
        for entry in entries(path, limit_bytes=READ_AT_MOST_BYTES // 8)[0]:
            line = json.dumps(entry)
            if line in old:
                continue
            old.add(line)
            if _is_on(entry, node):
                of_node.add(entry.get("run"))
            if not node or _is_on(entry, node) or entry.get("run") in of_node:
                print(line if as_json else _one(entry), file=out, flush=True)
        time.sleep(FOLLOW_S)


def _one(entry: Entry) -> str:
    if entry["kind"] == "guard":
        return _guard(entry)
    what = {"intent": _text(entry.get("title")), "end": f"{_text(entry.get('state'))}: {_text(entry.get('message'))}"}
    text = what.get(entry["kind"]) or "; ".join(_step(entry)) or _note(entry) or f"done: {_text(entry.get('title'))}"
    if entry["kind"] == "step" and entry.get("state") == "done":
        text = f"done: {_text(entry.get('title'))}"
    return f"{_when(entry)}  {_text(entry.get('run'))}  {text}"
