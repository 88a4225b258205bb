"""The review of a plan before it runs, and the refusal that says why there is no plan.

Cancel has the focus. A destructive plan can only run once the node's name is typed.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from sparktop.documents.plan import plan_lines, plan_text, refusal_lines, refusal_text
from sparktop.documents.step_text import masked
from sparktop.model.plan import Plan, Refusal
from sparktop.text.lines import Line
from sparktop.ui.dialogs.dialog import Dialog, button

Verdict = Literal["run", "set", "cancel"]
"""Run the plan; change its settings and plan again; neither."""


class _AnswerScreen(Dialog[Verdict]):
    """Shows the planner's answer; the key o answers "set", the key y copies it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,c", "copy", "Copy", show=False),
        Binding("o", "set", "Options", show=False),
    ]
    KEYS = "Esc close"

    def __init__(self, title: str, settings: str) -> None:
        """`settings` names what the key o changes: "options", "change", "choices"; empty: nothing."""
        super().__init__(title)
        self._settings = settings

    def keys(self) -> str:
        settings_key = f"o {self._settings}   " if self._settings else ""
        return f"{settings_key}y copy   {self.KEYS}"

    def action_close(self) -> None:
        self.dismiss("cancel")

    def action_set(self) -> None:
        if self._settings:
            self.dismiss("set")


class ReviewScreen(_AnswerScreen):
    """Shows one plan; the button Run answers "run"."""

    AUTO_FOCUS = "#cancel"
    KEYS = "Tab answers   Esc cancel"

    def __init__(self, plan: Plan, *, settings: str = "") -> None:
        super().__init__(f"review  {masked(plan.title, plan.secrets)}", settings)
        self.plan = plan

    def content(self, width: int) -> list[Line]:
        return plan_lines(self.plan, width)

    def below(self) -> list[Widget]:
        if not self.plan.typed:
            return []
        label = Label(Text(f"Type {masked(self.plan.typed)} to be able to run it: "), markup=False)
        return [Horizontal(label, Input(id="typed", compact=True), classes="typed")]

    def answers(self) -> list[Button]:
        run = button("Run")
        run.disabled = bool(self.plan.typed)
        return [button("Cancel"), run]

    @on(Input.Changed, "#typed")
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#run", Button).disabled = event.value.strip() != self.plan.typed

    @on(Input.Submitted, "#typed")
    def _submitted(self) -> None:
        """Enter doesn't run the plan: it moves the focus to Run."""
        run = self.query_one("#run", Button)
        if not run.disabled:
            run.focus()

    @on(Button.Pressed, "#run")
    def _run(self) -> None:
        self.dismiss("run")

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(plan_text(self.plan))
        self.notify("Copied the commands.", markup=False, timeout=3)


class RefusalScreen(_AnswerScreen):
    """Shows why there is no plan, and what would make one possible."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "close", "Close", show=False)]
    AUTO_FOCUS = "#close"

    def __init__(self, refusal: Refusal, *, title: str, settings: str = "") -> None:
        super().__init__(f"not possible  {title}", settings)
        self.refusal = refusal

    def content(self, width: int) -> list[Line]:
        return refusal_lines(self.refusal, width)

    def answers(self) -> list[Button]:
        return [button("Close")]

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(refusal_text(self.refusal))
        self.notify("Copied.", markup=False, timeout=3)
