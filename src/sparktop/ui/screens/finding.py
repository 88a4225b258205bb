"""The details of one finding, updated with each fleet state while they are open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from sparktop.documents.finding import FindingView, details, evidence_log
from sparktop.model.finding import Finding, Phase
from sparktop.text.lines import Line
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.dialog import Dialog

Next = Literal["snooze", "log", "fix"]
"""What the console does with the finding once its details are closed."""


class FindingScreen(Dialog[Next]):
    """All of one finding."""

    BINDINGS = bound(close="q,d,enter", acknowledge="a", snooze="z", place="l", fix="f")

    def __init__(self, finding_view: FindingView, *, acknowledge: Callable[[Finding], None]) -> None:
        super().__init__("finding")
        self._finding_view = finding_view
        self._acknowledge = acknowledge

    @property
    def finding(self) -> Finding:
        """The finding as last shown."""
        return self._finding_view.finding

    def show(self, finding_view: FindingView) -> None:
        """Show the same finding as in the newest fleet state."""
        self._finding_view = finding_view
        self.renew()

    def state_keys(self) -> Sequence[str]:
        log_key = ("l its log",) if evidence_log(self.finding) else ()
        attention_keys = () if self.finding.phase is Phase.RESOLVED else ("a acknowledge", "z snooze")
        fix_key = ("f fix",) if self.finding.remedies else ()
        return (*log_key, *attention_keys, *fix_key, "Esc close")

    def content(self, width: int) -> list[Line]:
        return details(self._finding_view, width)

    def action_acknowledge(self) -> None:
        self._acknowledge(self.finding)

    def action_snooze(self) -> None:
        self.dismiss("snooze")

    def action_place(self) -> None:
        if evidence_log(self.finding) is not None:
            self.dismiss("log")

    def action_fix(self) -> None:
        self.dismiss("fix")
