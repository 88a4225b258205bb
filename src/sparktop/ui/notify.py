"""Notifies the operator of new critical findings: by toast, bell, terminal title or escape code, or a program.

Each finding is announced once until it is resolved: the first at once, those of the next two seconds together. One that
was resolved and fires again is announced as such, and once in a run: a relaunch often brings the same fault back.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import as_data
from sparktop.diagnose.incidents import Change, Incidents
from sparktop.documents.attention import Attention
from sparktop.documents.finding import headline
from sparktop.documents.finding_tree import SIGNS, AttentionState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, FindingKey, Phase
from sparktop.model.fleet import FleetState
from sparktop.operate.step.run import Run
from sparktop.operate.step.step_result import StepState
from sparktop.transport.outgoing.program import run_command

if TYPE_CHECKING:
    from textual.app import App

GATHER_S = 2.0
TOAST_S = 10.0
TERMINAL_CHARS = 200
_PLACEHOLDER = re.compile(r"\{(severity|title|nodes|rule|explanation)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyOptions:
    """The notification channels (config.CHANNELS), and the program to run."""

    channels: tuple[str, ...] = ("toast", "bell", "title")
    command: tuple[str, ...] = ()


class NewFindings:
    """Remembers which findings were announced, and picks the new ones."""

    def __init__(self) -> None:
        self._incidents = Incidents(Severity.CRITICAL)
        self._onsets: Counter[FindingKey] = Counter()
        """How often each finding has begun to fire."""
        self._again_in_run: set[FindingKey] = set()
        """Those that have fired again since a run began."""

    def of(
        self, findings: Sequence[Finding], attention: Attention, under_way: Iterable[Run] = ()
    ) -> tuple[Finding, ...]:
        """The critical findings that fire now, weren't announced yet, and aren't acknowledged or snoozed.

        Left out: the consequences of another critical finding, and a dead rank that a run `under_way` stops; that
        one is announced if it is still so when the run is over. A finding that comes back during a run is announced
        once. A snoozed finding was seen: it isn't announced when the snooze ends either.
        """
        runs = tuple(under_way)
        before = self._incidents.firing
        news = self._incidents.update([one for one in findings if not any(is_own_doing(one, run) for run in runs)])
        new_findings = tuple(
            incident.root
            for change, incident in news
            if change is not Change.RESOLVED
            and attention.standing(incident.root) is AttentionState.OPEN
            and incident.root.key not in self._again_in_run
        )
        self._onsets.update(self._incidents.firing - before)
        self._again_in_run |= {finding.key for finding in new_findings if self.is_back(finding)}
        if not runs:
            self._again_in_run.clear()
        return new_findings

    def is_back(self, finding: Finding) -> bool:
        """Whether the finding has fired before, and was resolved in between."""
        return self._onsets[finding.key] > 1


def is_own_doing(finding: Finding, run: Run) -> bool:
    """Whether the finding is a dead rank that this run's own steps stop."""
    return finding.rule == "cluster.rank-died" and any(
        step_run.state is not StepState.WAITING and step_run.step.stops == finding.subject for step_run in run.steps
    )


class Notifier:
    """Announces the new findings of each fleet state through the chosen channels."""

    def __init__(
        self,
        app: App[int],
        notifying: NotifyOptions,
        attention: Attention,
        under_way: Callable[[], Iterable[Run]] = tuple,
        is_shown: Callable[[Finding], bool] = lambda _: False,
    ) -> None:
        """`is_shown` tells whether the screen has a line of a finding: a toast would repeat it."""
        self._app = app
        self._is_shown = is_shown
        self._under_way = under_way
        self._channels = notifying.channels
        self._command = notifying.command
        self._attention = attention
        self._new_findings = NewFindings()
        self._waiting: list[Finding] = []
        self._is_gathering = False
        self._told_in_dialog: frozenset[FindingKey] = frozenset()
        """The findings in the newest line of an open dialog."""
        self._title = ""
        self._has_complained = False

    def follow(self, fleet: FleetState) -> None:
        """Announce what is new in this fleet state, and update the window title."""
        if "title" in self._channels:
            self._set_title(window_title(fleet, self._attention))
        self._untell(fleet)
        new_findings = self._new_findings.of(fleet.findings, self._attention, self._under_way())
        if not new_findings:
            return
        if self._is_gathering:
            self._waiting += new_findings
            return
        self._is_gathering = True
        self._app.set_timer(GATHER_S, self._announce_waiting)
        self._announce(new_findings)

    def _untell(self, fleet: FleetState) -> None:
        """Take the line out of an open dialog once none of its findings fires: it would stand there as if it did."""
        firing = {finding.key for finding in fleet.findings if finding.phase is Phase.FIRING}
        if self._told_in_dialog and self._told_in_dialog.isdisjoint(firing):
            self._told_in_dialog = frozenset()
            if (tell := getattr(self._app.screen, "tell", None)) is not None:
                tell("")

    def _announce_waiting(self) -> None:
        self._is_gathering = False
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._announce(tuple(waiting))

    def _announce(self, findings: tuple[Finding, ...]) -> None:
        findings = tuple(sorted(findings, key=self._new_findings.is_back))  # the headline is a new one's
        is_back = self._new_findings.is_back(findings[0])
        text = f"✖ {'again: ' if is_back else ''}{headline(findings)}"
        if "toast" in self._channels:
            self._show(tuple(finding for finding in findings if not self._is_shown(finding)))
        if "bell" in self._channels:
            self._app.bell()
        if "osc9" in self._channels:
            self._write(f"\x1b]9;sparktop: {for_terminal(text)}\x07")
        if "osc777" in self._channels:
            self._write(f"\x1b]777;notify;sparktop;{for_terminal(text).replace(';', ',')}\x07")
        if self._command:
            self._app.run_worker(self._run_program(findings), name="notify-command", exit_on_error=False)

    def _show(self, unseen: Sequence[Finding]) -> None:
        """Tell of those that have no line on the screen; in a dialog's own line, as a toast would cover its buttons."""
        if not unseen:
            return
        again = "again: " if self._new_findings.is_back(unseen[0]) else ""
        if (tell := getattr(self._app.screen, "tell", None)) is not None:
            tell(f"{again or 'new: '}{headline(unseen)}")
            self._told_in_dialog = frozenset(finding.key for finding in unseen)
            return
        brief = unseen[0].figures if len(unseen) == 1 else ""
        keys = "f fix  d details" if any(finding.remedies for finding in unseen) else "d details"
        message = "\n".join(line for line in (f"✖ {again}{headline(unseen)}", brief, keys) if line)
        self._app.notify(message, severity="error", markup=False, timeout=TOAST_S)

    async def _run_program(self, findings: tuple[Finding, ...]) -> None:
        data = json.dumps({"version": 1, "findings": [as_data(finding) for finding in findings]}, ensure_ascii=False)
        problem = await run_command(filled(self._command, findings), data.encode())
        if problem and not self._has_complained:
            self._has_complained = True
            text = f"notify_command failed; further failures are not reported: {problem}"
            self._app.notify(text, severity="warning", markup=False, timeout=TOAST_S)

    def _set_title(self, title: str) -> None:
        if title == self._title:
            return
        if not self._title:
            self._write("\x1b[22;2t")  # push the terminal's own title
        self._title = title
        self._write(f"\x1b]2;{for_terminal(title)}\x07")

    def leave(self) -> None:
        """Restore the terminal's own title."""
        if self._title:
            self._write("\x1b[23;2t")
            self._title = ""

    def _write(self, sequence: str) -> None:
        driver = self._app._driver
        if driver is not None and not self._app.is_headless:
            driver.write(sequence)


def window_title(fleet: FleetState, attention: Attention) -> str:
    """The worst open notice or finding, and the watched nodes."""
    names = " ".join(view.name for view in fleet.nodes)
    open_findings = [finding for finding in fleet.findings if attention.standing(finding) is AttentionState.OPEN]
    for severity in (Severity.CRITICAL, Severity.WARNING):
        titles = [notice.text for notice in fleet.notices if notice.severity is severity]
        titles += [finding.title for finding in open_findings if finding.severity is severity]
        if titles:
            more = f" +{len(titles) - 1}" if titles[1:] else ""
            return f"{SIGNS[severity][0]} {titles[0][:80]}{more} · sparktop {names}"
    return f"sparktop {names}"


def for_terminal(text: str) -> str:
    """Text that is safe inside a terminal's OSC sequence: no control characters, at most TERMINAL_CHARS long."""
    clean = sanitise.line(text, limit=TERMINAL_CHARS * 4)[:TERMINAL_CHARS]
    return "".join(char for char in clean if char.isprintable())


def filled(argv: Sequence[str], findings: Sequence[Finding]) -> list[str]:
    """The command with its placeholders filled in; an argument stays one argument and never becomes an option."""
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
    values = {
        "severity": first.severity.value,
        "title": first.title + more,
        "nodes": " ".join(first.nodes),
        "rule": first.rule,
        "explanation": first.explanation,
    }
    arguments = []
    for argument in argv:
        text = _PLACEHOLDER.sub(lambda match: values[match[1]], argument).replace("\0", "")
        arguments.append(f" {text}" if text.startswith("-") and not argument.startswith("-") else text)
    return arguments
