"""`sparktop audit`: prints what was done to the Sparks from this machine, who did it, and how it ended.

One block per run, the newest last: time, operator, nodes, title, result; then failed steps and the figures before and
after. The guards' entries are between the runs, by time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.documents.run import RUN_SIGNS
from sparktop.headless.terminal import draw, say, width_of
from sparktop.operate.audit.interrupted_runs import kept_figures
from sparktop.operate.audit_file import READ_AT_MOST_BYTES, AuditError, audit_path, entries, is_under_way
from sparktop.operate.run.run_text import figures_text
from sparktop.operate.step.placeholders import fill_command
from sparktop.text.lines import Line, hanging, wrapped
from sparktop.text.units import span

FOLLOW_S = 0.5
_SIGNS = {str(state): sign for state, sign in RUN_SIGNS.items()}
Entry = Mapping[str, Any]


def audit(
    *, count: int = 20, node: str = "", as_json: bool = False, follow: bool = False, path: Path | None = None
) -> int:
    """Print the last `count` runs and guard entries, of one node if `node` is given; the exit code, 1 where nothing of
    the file could be read.

    `as_json` prints the entries of the file in an object with "version" and "entries"; with `follow` one entry per
    line, until interrupted.

    Raises:
        AuditError: the file exists and can't be read.
    """
    path = path or audit_path()
    log_entries, damaged = entries(path)
    runs = _runs(log_entries, node)[-count:]
    if as_json and not follow:
        shown_entries = [entry for run in runs for entry in run]
        print(json.dumps({"version": 1, "entries": shown_entries}, ensure_ascii=True))
    else:
        for run in runs:
            if as_json:
                print("\n".join(json.dumps(entry, ensure_ascii=True) for entry in run))
            else:
                draw(_block(run, path, width_of(sys.stdout)), sys.stdout)
    sys.stdout.flush()
    if damaged:
        say(f"sparktop: {damaged} damaged line{'s' if damaged > 1 else ''} passed over")
    is_lost = bool(damaged) and not log_entries
    if is_lost:
        say(f"sparktop: nothing in {path} can be read: what has been done is lost")
    elif not log_entries and not as_json:
        say(f"sparktop: nothing has been done yet ({path})")
    if follow:
        _follow(path, node, printed_count=len(log_entries), as_json=as_json)
    return int(is_lost)


def last_run_on(target: str, nodes: Collection[str]) -> str:
    """How the last run on that engine ended, and where its log and settings are: a hint where the engine is gone.

    Empty where none is known on these nodes, or the audit can't be read.
    """
    try:
        log_entries, _ = entries()
    except AuditError:
        return ""
    last, evidence_path = "", ""
    for run in _runs(log_entries, ""):
        intent = next((entry for entry in run if entry["kind"] == "intent"), {})
        end = next((entry for entry in run if entry["kind"] == "end"), {})
        if intent.get("target") != target or not set(_texts(intent.get("nodes"))) & set(nodes):
            continue
        evidence_path = next((_text(entry["evidence"]) for entry in run if entry.get("evidence")), evidence_path)
        how = f"{_text(end.get('state')) or 'not ended'}. {_text(end.get('message')).partition('. ')[0].rstrip('.')}"
        last = f"The last run on it, {_when(run[0])}: {_text(intent.get('title'))}: {how.rstrip('. ')}."
    kept = f" Its log and settings from before: {evidence_path}" if last and evidence_path else ""
    return last + kept


def _runs(log_entries: Iterable[Entry], node: str) -> list[list[Entry]]:
    """The entries grouped by run, in the order of each run's first entry."""
    runs: dict[object, list[Entry]] = {}
    for number, entry in enumerate(log_entries):
        run = entry.get("run")
        runs.setdefault(run if isinstance(run, str) else number, []).append(entry)
    return [run for run in runs.values() if not node or any(_is_on(entry, node) for entry in run)]


def _is_on(entry: Entry, node: str) -> bool:
    nodes = entry.get("nodes")
    return entry.get("node") == node or (isinstance(nodes, list) and node in nodes)


def _block(run: Sequence[Entry], path: Path, width: int) -> list[Line]:
    """One run: when, who, where, what and how it ended; then what the state leaves open, failed steps, figures."""
    if run[0]["kind"] == "guard":
        return wrapped(_guard(run[0]), width)
    intent = next((entry for entry in run if entry["kind"] == "intent"), {})
    end = next((entry for entry in run if entry["kind"] == "end"), None)
    goes_on = end is None and is_under_way(str(run[0].get("run", "")), path)
    state = _text(end.get("state")) if end else "under way" if goes_on else "not ended"
    first = run[0]
    took = f" in {span(end['wall_s'] - first['wall_s'])}" if end and intent else ""
    nodes = ", ".join(_texts(intent.get("nodes"))) or "?"
    title = _text(intent.get("title")) or _text(first.get("run"))
    sign, tone = _SIGNS.get(state, ("?", "warning"))
    head = f"{_when(first)}  {_text(first.get('who'))}  {nodes}  {title}: {state}{took}"
    texts: list[str] = []
    if end is None:
        texts += [] if goes_on else ["the console ended before the run did"]
        texts += [f"done: {line}" for line in _finished_steps(run, intent)]
    elif state != "done":
        texts += [text for key in ("message", "hint") if (text := _text(end.get(key)))]
    texts += [line for entry in run if entry["kind"] == "step" for line in _step(entry)]
    texts += [f"{_when(entry)[11:]}  {_note(entry)}" for entry in run if entry["kind"] == "note"]
    texts += _figure_changes(end or {})
    lines = hanging(Line.of((f"{sign} ", tone)), head, width)
    return [*lines, *(line for text in texts for line in hanging(Line.of("    "), text, width))]


def _finished_steps(run: Sequence[Entry], intent: Entry) -> Iterator[str]:
    """The finished steps of a run without an end, each with how to undo it."""
    planned = intent.get("steps")
    steps = [step for step in planned if isinstance(step, dict)] if isinstance(planned, list) else []
    undone_by = {step.get("step"): _text(step.get("undone_by")) for step in steps if isinstance(step.get("step"), str)}
    saved: dict[str, dict[str, str]] = {}
    for entry in run:
        if entry["kind"] == "step" and entry.get("state") == "done":
            name = entry.get("step")
            ids = saved.setdefault(_text(entry.get("node")), {})
            ids |= {key: _text(value) for key, value in sanitise.mapping(entry.get("saved")).items()}
            how = fill_command(undone_by.get(name, ""), ids) if isinstance(name, str) else ""
            yield f"{_text(entry.get('title'))}{f' (undone by: {how})' if how else ''}"


def _step(entry: Entry) -> Iterator[str]:
    state, evidence = _text(entry.get("state")), _text(entry.get("evidence"))
    if state not in ("done", "skipped"):
        yield f"{state}: {_text(entry.get('title'))}: {_text(entry.get('detail'))}"
    if evidence:
        yield f"evidence: {evidence}"
    if figures := kept_figures(entry.get("figures")):
        yield sanitise.line(f"measured on {_text(entry.get('node'))}: {figures_text(figures, {})}")


def _note(entry: Entry) -> str:
    why = _text(entry.get("why"))
    return f"{_text(entry.get('text'))}{': ' + why if why else ''}"


def _guard(entry: Entry) -> str:
    available = entry.get("available_gib")
    available_text = f" at {available} GiB available" if isinstance(available, int | float) else ""
    detail = _text(entry.get("detail"))
    container = _text(entry.get("container"))
    condition = f": {container} below {entry.get('floor_gib', '?')} GiB" if container else ""
    event = f"guard {_text(entry.get('phase'))}{condition}"
    line = sanitise.line(f"{event}{available_text}{'; ' + detail if detail else ''}")
    return f"◆ {_when(entry)}  {_text(entry.get('who'))}  {_text(entry.get('node'))}  {line}"


def _figure_changes(end: Entry) -> Iterator[str]:
    """The figures that changed, one line per node."""
    before, after = end.get("before"), end.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    for node in after:
        figures_before, figures_after = before.get(node), after[node]
        if not isinstance(figures_before, dict) or not isinstance(figures_after, dict):
            continue
        if line := sanitise.line(figures_text(figures_before, figures_after)):
            yield f"{_text(node)}: {line}"


def _when(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["wall_s"]))


def _text(value: object) -> str:
    """A value of the file as sanitised text; "" for any other type."""
    return sanitise.line(value, limit=1000) if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [_text(item) for item in value] if isinstance(value, list) else []


def _follow(path: Path, node: str, *, printed_count: int, as_json: bool) -> None:
    """Print each new entry on a line of its own, until interrupted."""
    printed_lines = {json.dumps(entry) for entry in entries(path)[0][:printed_count]}
    of_node: set[object] = set()
    while True:
        for entry in entries(path, limit_bytes=READ_AT_MOST_BYTES // 8)[0]:
            line = json.dumps(entry)
            if line in printed_lines:
                continue
            printed_lines.add(line)
            if _is_on(entry, node):
                of_node.add(entry.get("run"))
            if not node or _is_on(entry, node) or entry.get("run") in of_node:
                print(line if as_json else _entry_line(entry), flush=True)
        time.sleep(FOLLOW_S)


def _entry_line(entry: Entry) -> str:
    if entry["kind"] == "guard":
        return _guard(entry)
    texts = {"intent": _text(entry.get("title")), "end": f"{_text(entry.get('state'))}: {_text(entry.get('message'))}"}
    text = texts.get(entry["kind"]) or "; ".join(_step(entry)) or _note(entry) or f"done: {_text(entry.get('title'))}"
    if entry["kind"] == "step" and entry.get("state") == "done":
        text = f"done: {_text(entry.get('title'))}"
    return f"{_when(entry)}  {_text(entry.get('run'))}  {text}"
