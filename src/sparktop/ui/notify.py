"""Tells the operator of a new critical finding who looks elsewhere: a toast, the terminal, a program of theirs.

A finding is told once, until it is resolved. The first is told at once, what comes in the next two seconds together.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktop import sanitise
from sparktop.diagnose.order import cause_of
from sparktop.diagnose.shape import as_data
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Run, StepState
from sparktop.operate.asked import stops
from sparktop.ui.attention import Attention, Standing
from sparktop.ui.panes.finding_rows import SIGNS

if TYPE_CHECKING:
    from textual.app import App

GATHER_S = 2.0
COMMAND_LIMIT_S = 10.0
TOAST_S = 10.0
TERMINAL_CHARS = 200
_SECRET_NAME = re.compile(r"(?i)token|secret|passw|passphrase|api_?key|private_?key|credential")
_PLACEHOLDER = re.compile(r"\{(severity|title|nodes|rule|explanation)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifying:
    """How the operator wants to be told (config.CHANNELS), and the program to run."""

    channels: tuple[str, ...] = ("toast", "bell", "title")
    command: tuple[str, ...] = ()


class News:
    """Which findings have not been told yet: pure but for its memory of what was."""

    def __init__(self) -> None:
        self._told: set[object] = set()

    def of(
        self, findings: Sequence[Finding], attention: Attention, under_way: Iterable[Run] = ()
    ) -> tuple[Finding, ...]:
        """Critical ones that fire now, were not told since they last began, and are not known to the operator.

        What follows from another critical one is no news of its own: the cause is told. Nor is it that a rank has ended
        which a run `under_way` stops with the others; it is, where it still is so when the run is over.
        """
        runs = tuple(under_way)
        firing = [
            one
            for one in findings
            if one.phase is Phase.FIRING
            and one.severity is Severity.CRITICAL
            and not any(is_own_doing(one, run) for run in runs)
        ]
        self._told &= {one.key for one in firing}
        new = tuple(
            one
            for one in firing
            if one.key not in self._told and attention.standing(one) is Standing.OPEN and cause_of(one, firing) is None
        )
        # One that is put off now would be no news either when the hour is over: it has been seen.
        self._told |= {one.key for one in firing}
        return new


def is_own_doing(finding: Finding, run: Run) -> bool:
    """Whether a run's own steps stop what the finding tells of: one rank after the other, on each of its nodes."""
    return finding.rule == "cluster.rank-died" and any(
        one.state is not StepState.WAITING
        and stops(one.step.act)
        and finding.subject in one.step.title.replace(",", "").split()
        for one in run.steps
    )


class Notifier:
    """Follows the pictures and tells what is new through the channels asked for."""

    def __init__(
        self,
        app: App[int],
        notifying: Notifying,
        attention: Attention,
        under_way: Callable[[], Iterable[Run]] = tuple,
    ) -> None:
        self._app = app
        self._under_way = under_way
        self._channels = notifying.channels
        self._command = notifying.command
        self._attention = attention
        self._news = News()
        self._waiting: list[Finding] = []
        self._is_gathering = False
        self._title = ""
        self._has_complained = False

    def follow(self, fleet: FleetState) -> None:
        """Take a picture in."""
        if "title" in self._channels:
            self._entitle(window_title(fleet, self._attention))
        new = self._news.of(fleet.findings, self._attention, self._under_way())
        if not new:
            return
        if self._is_gathering:
            self._waiting += new
            return
        self._is_gathering = True
        self._app.set_timer(GATHER_S, self._gathered)
        self._tell(new)

    def _gathered(self) -> None:
        self._is_gathering = False
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._tell(tuple(waiting))

    def _tell(self, findings: tuple[Finding, ...]) -> None:
        text = headline(findings)
        if "toast" in self._channels:
            brief = findings[0].figures if len(findings) == 1 else ""
            keys = "f fix  d details" if any(one.remedies for one in findings) else "d details"
            said = "\n".join(part for part in (text, brief, keys) if part)
            # A toast would lie over a dialog's answers.
            if (tell := getattr(self._app.screen, "tell", None)) is not None:
                tell(text.removeprefix("✖ "))
            else:
                self._app.notify(said, severity="error", markup=False, timeout=TOAST_S)
        if "bell" in self._channels:
            self._app.bell()
        if "osc9" in self._channels:
            self._write(f"\x1b]9;sparktop: {for_terminal(text)}\x07")
        if "osc777" in self._channels:
            self._write(f"\x1b]777;notify;sparktop;{for_terminal(text).replace(';', ',')}\x07")
        if self._command:
            self._app.run_worker(self._run(findings), name="notify-command", exit_on_error=False)

    async def _run(self, findings: tuple[Finding, ...]) -> None:
        data = json.dumps({"version": 1, "findings": [as_data(one) for one in findings]}, ensure_ascii=False)
        wrong = await run_command(filled(self._command, findings), data.encode())
        if wrong and not self._has_complained:
            self._has_complained = True
            text = f"notify_command failed and is not spoken of again: {wrong}"
            self._app.notify(text, severity="warning", markup=False, timeout=TOAST_S)

    def _entitle(self, title: str) -> None:
        if title == self._title:
            return
        if not self._title:
            self._write("\x1b[22;2t")  # the terminal keeps the title it had
        self._title = title
        self._write(f"\x1b]2;{for_terminal(title)}\x07")

    def leave(self) -> None:
        """Give the window the title it had."""
        if self._title:
            self._write("\x1b[23;2t")
            self._title = ""

    def _write(self, sequence: str) -> None:
        driver = self._app._driver
        if driver is not None and not self._app.is_headless:
            driver.write(sequence)


def headline(findings: Sequence[Finding]) -> str:
    """The first of them, and how many more."""
    first = findings[0]
    where = f"{' + '.join(first.nodes)}: " if first.nodes and not first.names_its_nodes else ""
    more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
    return f"✖ {where}{first.title}{more}"


def window_title(fleet: FleetState, attention: Attention) -> str:
    """The worst that is so now, and who is watched."""
    names = " ".join(view.name for view in fleet.nodes)
    open_ones = [one for one in fleet.findings if attention.standing(one) is Standing.OPEN]
    for severity in (Severity.CRITICAL, Severity.WARNING):
        said = [notice.text for notice in fleet.notices if notice.severity is severity]
        said += [one.title for one in open_ones if one.severity is severity]
        if said:
            more = f" +{len(said) - 1}" if said[1:] else ""
            return f"{SIGNS[severity][0]} {said[0][:80]}{more} · sparktop {names}"
    return f"sparktop {names}"


def for_terminal(text: str) -> str:
    """Text that can stand inside an operating system command: no control of any kind, and not long."""
    clean = sanitise.line(text, limit=TERMINAL_CHARS * 4)[:TERMINAL_CHARS]
    return "".join(char for char in clean if char.isprintable())


def filled(argv: Sequence[str], findings: Sequence[Finding]) -> list[str]:
    """The command with its placeholders filled in, each argument staying one argument, and never becoming an option."""
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
    values = {
        "severity": first.severity.value,
        "title": first.title + more,
        "nodes": " ".join(first.nodes),
        "rule": first.rule,
        "explanation": first.explanation,
    }
    made = []
    for argument in argv:
        text = _PLACEHOLDER.sub(lambda found: values[found[1]], argument).replace("\0", "")
        made.append(f" {text}" if text.startswith("-") and not argument.startswith("-") else text)
    return made


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What the program may see of ours: nothing whose name says that it is a secret."""
    return {name: value for name, value in variables.items() if not _SECRET_NAME.search(name)}


async def run_command(argv: Sequence[str], data: bytes, *, limit_s: float = COMMAND_LIMIT_S) -> str:
    """Run a program with the findings on its standard input; "" or what went wrong. It is ended after the limit."""
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            env=environment(os.environ),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"{argv[0]}: {error}"
    try:
        async with asyncio.timeout(limit_s):
            await process.communicate(data)
    except TimeoutError:
        return f"{argv[0]} took longer than {limit_s:g} s and was ended"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return f"{argv[0]} ended with code {process.returncode}" if process.returncode else ""
