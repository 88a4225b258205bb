"""The review of a plan before it runs, and the refusal that says why there is no plan.

Run has the focus, and Cancel where something can be lost. A destructive plan can only run once the node's name is
typed, and the field for it has the focus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from rich.text import Text
from textual import on
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from sparktop.documents.plan import closing_lines, plan_lines, plan_text, refusal_lines, refusal_text
from sparktop.documents.step_text import masked
from sparktop.model.request import Risk
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.text.lines import BLANK, Line
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.dialog import Dialog, button
from sparktop.ui.widgets.line_widget import Sheet

OTHER_ROWS = 7
"""Frame, buttons and the blank lines between."""
PLAN_ROWS = 4
"""At least so many lines of the plan stay in sight above its warnings."""
Glance = Callable[[int], list[Line]]
"""The verdict and the nodes' memory now, in lines of a width."""
Verdict = Literal["run", "set", "cancel"]
"""Run the plan; change its settings and plan again; neither."""


class _AnswerScreen(Dialog[Verdict]):
    """Shows the planner's answer; the key o answers "set"."""

    BINDINGS = bound(set="o")
    closed = "cancel"

    def __init__(self, title: str, settings: str) -> None:
        """`settings` names what the key o changes: "options", "change", "choices"; empty: nothing."""
        super().__init__(title)
        self._settings = settings

    def state_keys(self) -> Sequence[str]:
        return (*((f"o {self._settings}",) if self._settings else ()), "Esc close")

    def action_set(self) -> None:
        if self._settings:
            self.dismiss("set")


class ReviewScreen(_AnswerScreen):
    """Shows one plan; the button Run answers "run"."""

    BINDINGS = bound(exact="r")
    has_glance = True
    """The verdict and the memory are in sight above its lines."""
    AUTO_FOCUS = ""

    def __init__(self, plan: Plan, *, settings: str = "", glance: Glance = lambda width: []) -> None:
        super().__init__(f"review  {masked(plan.title, plan.secrets)}", settings)
        self.plan = plan
        self._is_safe = plan.risk is Risk.SAFE
        self._is_exact = False
        self._glance = glance

    def pinned(self, width: int) -> list[Line]:
        return self._glance(width)

    def on_mount(self) -> None:
        self.query_one("#typed" if self.plan.typed else "#run" if self._is_safe else "#cancel").focus()
        self.set_interval(1.0, self.renew)

    def state_keys(self) -> Sequence[str]:
        answers = "Tab answers" if self.plan.typed else "Enter run" if self._is_safe else "Tab, Enter run"
        calls = "commands" if self._is_exact else "exact calls"
        return (f"r {calls}", *super().state_keys()[:-1], answers, "Esc cancel")

    def content(self, width: int) -> list[Line]:
        lines, decision = plan_lines(self.plan, width, is_exact=self._is_exact), closing_lines(self.plan, width)
        return [*lines, BLANK, *decision] if len(decision) > self._decision_rows else lines

    def _decision(self, width: int) -> list[Line]:
        lines, rows = closing_lines(self.plan, width), self._decision_rows
        return (
            lines
            if len(lines) <= rows
            else [*lines[: rows - 1], Line.of(("  … whole at the end of the plan: ", "quiet"), ("PgDn", "key"))]
        )

    @property
    def _decision_rows(self) -> int:
        """The most lines of verdict and warnings above the buttons; more are told whole at the end of the plan."""
        other_rows = OTHER_ROWS + (2 if self.plan.typed else 0)
        if glance := self._glance(self.app.size.width):
            other_rows += len(glance) + 1
        return max(3, self.app.size.height - other_rows - PLAN_ROWS)

    def action_exact(self) -> None:
        """Show every call and check of the plan, or what a person would type."""
        self._is_exact = not self._is_exact
        self.renew()

    def below(self) -> list[Widget]:
        closing: list[Widget] = [Sheet(self._decision, classes="closing")]
        if not self.plan.typed:
            return closing
        label = Label(Text(f"Type {masked(self.plan.typed)} to confirm: "), markup=False)
        return [*closing, Horizontal(label, Input(id="typed", compact=True), classes="typed")]

    def answers(self) -> list[Button]:
        run = button("Run")
        run.disabled = bool(self.plan.typed)
        return [run, button("Cancel")]

    @on(Input.Changed, "#typed")
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#run", Button).disabled = event.value.strip() != self.plan.typed

    @on(Input.Submitted, "#typed")
    def _submitted(self) -> None:
        """Enter runs the plan once the name is typed, which is the confirmation."""
        if not self.query_one("#run", Button).disabled:
            self.dismiss("run")

    @on(Button.Pressed, "#run")
    def _run(self) -> None:
        self.dismiss("run")

    def copied(self) -> tuple[str, str]:
        return plan_text(self.plan), "the commands"


class RefusalScreen(_AnswerScreen):
    """Shows why there is no plan, and what would make one possible."""

    BINDINGS = bound(close="q")
    AUTO_FOCUS = "#close"

    def __init__(self, refusal: Refusal, *, title: str, settings: str = "") -> None:
        super().__init__(f"not possible  {title}", settings)
        self.refusal = refusal

    def content(self, width: int) -> list[Line]:
        return refusal_lines(self.refusal, width)

    def answers(self) -> list[Button]:
        return [button("Close")]

    def copied(self) -> tuple[str, str]:
        return refusal_text(self.refusal), "the reason"
