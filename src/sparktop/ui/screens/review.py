"""The review: what would be done, whole, before anything is; and the refusal, which says why not.

Cancel has the focus. What destroys something wants the node's name typed before it can be run.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from sparktop.model.plan import Plan, Refusal
from sparktop.operate.wording import masked
from sparktop.ui.panes.plan_lines import plan_lines, plan_text, refusal_lines, refusal_text
from sparktop.ui.screens.dialog import Dialog
from sparktop.ui.widgets.ink import Line

Verdict = Literal["run", "set", "cancel"]
"""Run it; set its options and plan anew; neither."""


class ReviewScreen(Dialog[Verdict]):
    """One plan; "run" is what the button says, "set" what `o` does where the action has something to be set."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,c", "copy", "Copy", show=False),
        Binding("o", "set", "Options", show=False),
    ]
    AUTO_FOCUS = "#cancel"

    def __init__(self, plan: Plan, *, settings: str = "") -> None:
        """`settings` is the word for what can be set of it: "options", "the change"; empty: nothing."""
        super().__init__()
        self.plan = plan
        self._settings = settings

    def heading(self) -> str:
        return f"review  {masked(self.plan.title, self.plan.secrets)}"

    def keys(self) -> str:
        own = f"o {self._settings}   " if self._settings else ""
        return f"{own}y copy   Tab answers   Esc cancel"

    def content(self, width: int) -> list[Line]:
        return plan_lines(self.plan, width)

    def below(self) -> list[Widget]:
        if not self.plan.typed:
            return []
        label = Label(Text(f"Type {masked(self.plan.typed)} to be able to run it: "), markup=False)
        return [Horizontal(label, Input(id="typed", compact=True), classes="typed")]

    def answers(self) -> list[Button]:
        run = Button(Text("Run"), id="run", compact=True, disabled=bool(self.plan.typed))
        return [Button(Text("Cancel"), id="cancel", compact=True), run]

    @on(Input.Changed, "#typed")
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#run", Button).disabled = event.value.strip() != self.plan.typed

    @on(Input.Submitted, "#typed")
    def _submitted(self) -> None:
        """Enter runs nothing yet: it leads to the button."""
        run = self.query_one("#run", Button)
        if not run.disabled:
            run.focus()

    @on(Button.Pressed, "#run")
    def _run(self) -> None:
        self.dismiss("run")

    @on(Button.Pressed, "#cancel")
    def action_close(self) -> None:
        self.dismiss("cancel")

    def action_set(self) -> None:
        if self._settings:
            self.dismiss("set")

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(plan_text(self.plan))
        self.notify("Copied the commands.", markup=False, timeout=3)


class RefusalScreen(Dialog[Literal["set"] | None]):
    """Why there is no plan, and what would make one possible."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,c", "copy", "Copy", show=False),
        Binding("o", "set", "Options", show=False),
        Binding("q", "close", "Close", show=False),
    ]
    AUTO_FOCUS = "#close"

    def __init__(self, refusal: Refusal, *, title: str, settings: str = "") -> None:
        super().__init__()
        self.refusal = refusal
        self._title = title
        self._settings = settings

    def heading(self) -> str:
        return f"not possible  {self._title}"

    def keys(self) -> str:
        own = f"o {self._settings}   " if self._settings else ""
        return f"{own}y copy   Esc close"

    def content(self, width: int) -> list[Line]:
        return refusal_lines(self.refusal, width)

    def answers(self) -> list[Button]:
        return [Button(Text("Close"), id="close", compact=True)]

    @on(Button.Pressed, "#close")
    def action_close(self) -> None:
        self.dismiss(None)

    def action_set(self) -> None:
        if self._settings:
            self.dismiss("set")

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(refusal_text(self.refusal))
        self.notify("Copied.", markup=False, timeout=3)
