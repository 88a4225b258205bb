"""`sparktop report`: the account of a recording as a page, HTML or Markdown, by two templates.

The template library escapes what the page says, and each text passes `sanitise` before that: a recording may be
anybody's. The page has no script, and loads nothing.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sparktop import __version__, sanitise
from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import cause_of
from sparktop.diagnose.since_served import changed_since_served
from sparktop.documents.finding_tree import SIGNS, nodes_text
from sparktop.errors import UsageError
from sparktop.headless.report.account import Account, Outage, account_of
from sparktop.headless.report.plots import node_plots, ticks
from sparktop.headless.terminal import write_page, written
from sparktop.masking import mask_argv
from sparktop.model.event import Event, EventKind, Severity
from sparktop.observe.replay.replay import Replay
from sparktop.text.units import OTHER_DAY_S, clock_time, day_time, span

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")
_MOMENT = "%Y-%m-%d %H:%M:%S %Z"
TEXT_CHARS = 16_000
"""Of one text: an engine's command, a line of a log."""
RUN = 6
"""Of more events of one kind in a row, only the ends are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the timeline."""

    event: Event
    more: int = 0
    """How many of its kind follow that aren't told, the last at `until_s`."""
    until_s: float = 0.0


def report(replay: Replay, *, since_s: float, until_s: float, out: Path, notes: Sequence[str] = ()) -> int:
    """Write what a recording tells between two moments, as the file's name ends; Markdown on standard output.

    Args:
        notes: what is said of the recordings themselves.

    Raises:
        UsageError: nothing was recorded then, or the page can't be written.
    """
    if str(out) != "-" and out.suffix not in (*HTML, *MARKDOWN):
        raise UsageError(f"{out} ends in neither .html nor .md", hint="-o report.html, -o report.md or -o -")
    account = account_of(replay.play(until_s, seen=False), since_s)
    if account is None:
        raise UsageError(f"nothing was recorded from {day_time(since_s)} on", hint="`sparktop replay` lists what was")
    text = page(account, is_html=out.suffix in HTML, notes=notes)
    if str(out) == "-":
        written(text, sys.stdout, end="")
    else:
        write_page(out, text, option="-o")
    return 0


def page(account: Account, *, is_html: bool, notes: Sequence[str] = ()) -> str:
    """The whole page; `notes`: what is said of the recordings themselves."""
    environment = Environment(
        autoescape=is_html,  # noqa: S701 - what Markdown would read is escaped by `finalize`
        finalize=_clean if is_html else _markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

    def clock(at_s: float) -> str:
        """A moment: its time, with the day where the page has more than one."""
        far = max(account.end_s - min(at_s, account.begin_s), at_s - account.end_s)
        return f"{day_time(at_s)[:6]} {clock_time(at_s)}" if far > OTHER_DAY_S else clock_time(at_s)

    environment.filters.update(clock=clock, span=span, fenced=_fenced)
    name = "report.html.j2" if is_html else "report.md.j2"
    template = environment.from_string(Path(__file__).with_name(name).read_text("utf-8"))
    findings = [one.finding for one in account.occurrences]
    numbers = {finding.key: number for number, finding in enumerate(findings, 1)}
    causes = {finding.key: cause_of(finding, findings) for finding in findings}
    hosts = [node.name for node in account.fleet.nodes]
    problem = next((one for one in account.occurrences if one.finding.severity is not Severity.INFO), None)
    return template.render(
        hosts=hosts,
        begin=time.strftime(_MOMENT, time.localtime(account.begin_s)),
        end=time.strftime(_MOMENT, time.localtime(account.end_s)),
        lasted=span(account.end_s - account.begin_s),
        account=account,
        notes=notes,
        worst=problem,
        of_nodes=nodes_text(problem.finding, hosts) if problem else "",
        plots=[node_plots(node, account) for node in account.fleet.nodes],
        signs=SIGNS,
        silences=silences(account.outages),
        ticks=ticks(account.begin_s, account.end_s),
        rows=folded(event for event in account.events if event.kind is not EventKind.ACTION),
        actions=[event for event in account.events if event.kind is EventKind.ACTION],
        causes={key: numbers[cause.key] if cause is not None else None for key, cause in causes.items()},
        versions=versions(account),
        engines=[
            (node, engine, shlex.join(mask_argv(engine.argv)), changed_since_served(engine, node))
            for node, engine in account.engines
        ],
        made_by=f"sparktop {__version__}",
    )


def folded(events: Iterable[Event]) -> list[Row]:
    """The events as rows; of a long run of one kind the first two and the last."""
    rows: list[Row] = []
    for _, run in groupby(events, key=_kind):
        alike = [Row(event=event) for event in run]
        if len(alike) > RUN:
            first, second, *middle, last = alike
            alike = [first, replace(second, more=len(middle), until_s=middle[-1].event.at_s), last]
        rows += alike
    return rows


def _kind(event: Event) -> tuple[object, ...]:
    is_finding = event.kind in (EventKind.FOUND, EventKind.WORSE, EventKind.RESOLVED)
    kind = "finding" if is_finding else event.kind
    return kind, event.nodes, "" if event.kind is EventKind.LINK else event.subject


def silences(outages: Iterable[Outage]) -> list[tuple[Outage, int]]:
    """The longest of each node, and how many others it had."""
    of_node = groupby(sorted(outages, key=lambda one: one.node), key=lambda one: one.node)
    rows = [sorted(each, key=lambda one: (one.end_s or float("inf")) - one.begin_s) for _, each in of_node]
    return [(each[-1], len(each) - 1) for each in rows]


def versions(account: Account) -> list[tuple[str, list[str], bool]]:
    """(What, its version on each node, whether they differ)."""
    nodes = account.fleet.nodes
    rows = [(what, [getattr(node.facts, field, None) or "" for node in nodes]) for what, field in _FACTS.items()]
    rows.append(("driver", [node.driver_version for node in nodes]))
    for kind in sorted({engine.kind for _, engine in account.engines}):
        there = [(view.name, engine.version or "") for view, engine in account.engines if engine.kind is kind]
        own = [{version for name, version in there if name == node.name} for node in nodes]
        rows.append((kind, [", ".join(sorted(each)) if each else "none" for each in own]))
    known = [(what, cells, {*cells} - {"", "none"}) for what, cells in rows]
    return [(what, [cell or "not known" for cell in cells], len(values) > 1) for what, cells, values in known if values]


_FACTS = {"product": "product", "DGX OS": "dgx_release", "OS": "os_name", "kernel": "kernel"}


def _clean(value: object) -> object:
    return sanitise.line(value, limit=TEXT_CHARS) if isinstance(value, str) and not isinstance(value, Markup) else value


def _markdown(value: object) -> object:
    """A text that Markdown shows as it is."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = sanitise.line(value, limit=TEXT_CHARS)
    text = re.sub(r"^(\s*\d+)([.)])(?=\s|$)", r"\1\\\2", re.sub(r"[\\`*_{}\[\]<>#|~!&$]", r"\\\g<0>", text))
    return re.sub(r"^(\s*)([-+=])", r"\1\\\2", text)


def _fenced(lines: Sequence[str]) -> Markup:
    """Lines as a block of code, whatever backticks are in them."""
    text = "\n".join(sanitise.line(each, limit=TEXT_CHARS) for each in lines)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return Markup(f"{fence}text\n{text}\n{fence}")  # noqa: S704 - no HTML: the fence is longer than any in the text
