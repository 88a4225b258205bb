"""The console's keys that lead to a change: each is handed on, with what is selected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktop.model.finding import Finding

if TYPE_CHECKING:
    from sparktop.operate.wishes import Selection
    from sparktop.ui.acting import Acting
    from sparktop.ui.panes.verdict import Verdict


class ActingKeys:
    """Part of the console's screen, which knows the verdict and what is selected."""

    acting: Acting | None = None
    """Set by the app once there is one."""
    verdict: Verdict

    def selection(self) -> Selection:
        """Where the operator is."""
        raise NotImplementedError

    def fix(self, finding: Finding | None) -> None:
        """Do something about this finding."""
        if self.acting is not None:
            self.acting.fix(finding, self.verdict.roots)

    def action_fix(self) -> None:
        """Of the verdict's first line."""
        self.fix(self.verdict.first)

    def action_act(self, name: str) -> None:
        if self.acting is not None:
            self.acting.act(name, self.selection())

    def action_actions(self) -> None:
        if self.acting is not None:
            self.acting.choose(self.selection())

    def action_launch(self) -> None:
        if self.acting is not None:
            self.acting.launch(self.selection())

    def action_runs(self) -> None:
        if self.acting is not None:
            self.acting.open_run()
