"""The screen that sets up a launch: verdict and memory picture, choices, checks; it leads to the review."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widgets import Input

from sparktop.clock import Clock
from sparktop.documents.recipe import one_line
from sparktop.documents.step_text import masked
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Lever, OnDisk
from sparktop.model.state import State
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.recipe import operator_secrets
from sparktop.recipe.parameters import get
from sparktop.text.lines import BLANK, Line
from sparktop.text.sentences import listed
from sparktop.ui.dialogs.page import CoveringScreen
from sparktop.ui.screens.launch_choices import (
    WHERE,
    ChoiceRow,
    LaunchState,
    check_lines,
    failed_gate_lines,
    head_lines,
    index_of,
    levers,
    name_cells,
    placeholder,
    rows,
)
from sparktop.ui.screens.launch_draft import Draft, Stoppable, applied
from sparktop.ui.screens.launch_planning import LivePlanning, NodeBasis, Planner, has_moved, node_bases
from sparktop.ui.widgets.line_widget import Sheet


class LaunchChoices(Sheet):
    """The rows to choose from; a parameter's input field covers its row while it is edited."""

    def __init__(self, screen: LaunchScreen) -> None:
        super().__init__(screen.choices, id="launch-choices")
        self._screen = screen
        self.field = Input(id="launch-field", compact=True)

    def compose(self) -> ComposeResult:
        yield self.field

    def watched(self, lines: list[Line]) -> int | None:
        return self._screen.watched_line

    def row_y(self, line: int) -> int:
        """The row of the widget in which this line is drawn."""
        return line - self._top

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._screen.clicked(self.line_at(event.y))


BESIDE_CELLS = 110
"""Screen width from which the checks are shown beside the choices."""


_ONCE = "It is used for this launch only, never shown, and never written to a log, plan or archive."
FRESH_S = 45.0
"""A plan older than this is made anew before the review."""


RECHECK_S = 5.0
"""Seconds between checks whether the fleet has changed since the plan."""


class LaunchScreen(CoveringScreen[Plan | None]):
    """Set up a launch; answers the reviewed plan to run, None when the operator left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", show=False, priority=True),
        Binding("q", "close", "Back", show=False),
        Binding("ctrl+s", "review", "Review", show=False, priority=True),
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("home,g", "move(-10000)", "First", show=False),
        Binding("end,G", "move(10000)", "Last", show=False),
        Binding("pagedown", "page(1)", "Further down", show=False),
        Binding("pageup", "page(-1)", "Further up", show=False),
        Binding("enter", "choose", "Choose", show=False),
        Binding("space", "choose", "Choose", show=False),
        Binding("backspace,delete", "unset", "The recipe's own", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(
        self,
        draft: Draft,
        *,
        plan: Planner,
        picture: Callable[[], FleetState],
        clock: Clock,
        secrets: Mapping[str, str],
    ) -> None:
        """`secrets`: name -> where its value is from, "" when missing; those that the recipe takes."""
        super().__init__(id="launch-screen")
        self.draft = draft
        self._picture = picture
        self._secrets = dict(secrets)
        self.planning = LivePlanning(plan, self.renew, clock)
        self._is_unfolded = False
        self._cursor: tuple[str, str] | None = None
        self._row_of_line: dict[int, int] = {}
        """Line of the choices -> index of its row."""
        self._editing = ""
        self._waits_for_review = False
        self._planned_bases: dict[str, NodeBasis] = {}
        self.watched_line = 0
        self.news = ""
        self._head_sheet = Sheet(self.head, id="launch-head")
        self._check_sheet = Sheet(self.checks, id="launch-told")

    # Drawing

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet-frame"):
            yield self._head_sheet
            with Container(id="launch-body"):
                yield LaunchChoices(self)
                yield self._check_sheet

    def on_mount(self) -> None:
        self.app.clear_notifications()
        self.run_worker(self.planning.run(), name="planning", group="planning")
        self.set_interval(RECHECK_S, self._plan_if_changed)
        self._request_plan()
        self.renew()

    def on_resize(self, event: events.Resize) -> None:
        self.renew()

    def renew(self) -> None:
        """Render everything again after a change; open the review if it waited for the plan."""
        if not self.is_attached or not self._check_sheet.is_attached:
            return
        frame = self.query_one(".sheet-frame")
        nodes = listed(masked(name) for name in self.draft.nodes)
        status = "   ▸ looking again …" if self.planning.is_planning and self.planning.answer is not None else ""
        frame.border_title = Text(
            f"launch  {one_line(self.draft.recipe.title or self.draft.recipe.id)}  on {nodes}{status}"
        )
        frame.border_subtitle = Text(self._keys())
        self._check_sheet.display = self._is_wide
        self._head_sheet.changed()
        self.query_one(LaunchChoices).redraw()
        self._check_sheet.redraw()
        self._lay_out_field()
        if self._waits_for_review and not self.planning.is_planning:
            self.call_later(self.action_review)

    @property
    def _is_wide(self) -> bool:
        return self.app.size.width >= BESIDE_CELLS

    def _keys(self) -> str:
        if self._editing:
            return "Enter set   empty: the recipe's value   Esc keep it"
        row = self._selected()
        verb = {
            "review": "review", "lever": "set it", "node": "take it", "parameter": "edit",
            "more": "fold" if self._is_unfolded else "unfold",
            "model": "take it", "stop": "check", "secret": "type it",
        }.get(row.kind, "")  # fmt: skip
        unset_key = (
            "⌫ recipe's   " if row.kind == "parameter" and get(self.draft.values, str(row.value)) is not None else ""
        )
        review_key = "" if row.kind == "review" else "Ctrl+S review   "
        return f"Enter {verb}   {unset_key}{review_key}PgDn more   y copy   Esc back"

    def launch_state(self) -> LaunchState:
        """The state that the rows and lines are drawn from."""
        return LaunchState(
            draft=self.draft,
            fleet=self._picture(),
            answer=self.planning.answer,
            is_planning=self.planning.is_planning,
            secrets=self._secrets,
            is_unfolded=self._is_unfolded,
        )

    def tell(self, text: str) -> None:
        """Show a new critical finding above the verdict, as a toast would cover the choices."""
        self.news = text
        self.renew()

    def head(self, width: int) -> list[Line]:
        """The fixed upper part: the verdict and the picture of memory."""
        news_lines = [Line.of((f"✖ {self.news}", "critical")).cut(width)] if self.news else []
        return [*news_lines, *head_lines(self.launch_state(), width, self.app.size.height)]

    def checks(self, width: int) -> list[Line]:
        """The right part: the checks of the plan, remedies, downloads, known risks."""
        return check_lines(self.launch_state(), width)

    def choices(self, width: int) -> list[Line]:
        """The rows as lines; on a narrow screen with the checks: failed ones near the top, all of them at the end."""
        choice_rows = rows(self.launch_state(), width - 2)
        cursor_index = index_of(choice_rows, self._cursor)
        lines: list[Line] = []
        self._row_of_line = {}
        for index, row in enumerate(choice_rows):
            if (
                row.heading == WHERE
                and not self._is_wide
                and (failed := failed_gate_lines(self.launch_state(), width - 1))
            ):
                lines += [BLANK, *(Line.of(" ") + line for line in failed)]
            if row.heading:
                lines += [BLANK, Line.of((f" {row.heading}", "title"), (f"   {row.aside}", "quiet")).cut(width)]
            first_line = len(lines)
            is_at = index == cursor_index
            for line in row.lines:
                drawn = line.fit(width - 1)
                cursor_mark = Line.of(("▌" if is_at else " ", "frame-focus"))
                lines.append(cursor_mark + (drawn.on("cursor") if is_at else drawn))
            if row.can_be_chosen:
                self._row_of_line |= dict.fromkeys(range(first_line, len(lines)), index)
            if is_at:
                self.watched_line = first_line
        if not self._is_wide and (lines_of_checks := self.checks(width - 1)):
            lines += [BLANK, *(Line.of(" ") + line for line in lines_of_checks)]
        return lines

    # The cursor

    def _rows(self) -> list[ChoiceRow]:
        return rows(self.launch_state(), 60)

    def _selected(self) -> ChoiceRow:
        choice_rows = self._rows()
        return choice_rows[index_of(choice_rows, self._cursor)]

    def action_move(self, steps: int) -> None:
        if self._editing:
            self._take_value()
        choice_rows = self._rows()
        cursor_index = index_of(choice_rows, self._cursor)
        selectable = [index for index, row in enumerate(choice_rows) if row.can_be_chosen]
        position = max(0, min(len(selectable) - 1, selectable.index(cursor_index) + steps))
        self._cursor = choice_rows[selectable[position]].key
        self.renew()

    def action_page(self, pages: int) -> None:
        if self._is_wide:
            self._check_sheet.scroll_pages(pages)
        else:
            self.action_move(pages * max(1, self.query_one(LaunchChoices).size.height // 2))

    def clicked(self, line: int) -> None:
        """A line was clicked: move the cursor to its row and choose it."""
        index = self._row_of_line.get(line)
        if index is not None:
            self._leave_field()
            self._cursor = self._rows()[index].key
            self.renew()
            self.action_choose()

    # Choosing

    def action_choose(self) -> None:
        row = self._selected()
        value = row.value
        match row.kind:
            case "review":
                self.action_review()
            case "lever" if isinstance(value, Lever):
                self._set(applied(self.draft, value, self._picture()))
            case "node" if isinstance(value, tuple):
                self._set(self.draft.on(value))
            case "parameter":
                self._edit(str(value))
            case "more":
                self._is_unfolded = not self._is_unfolded
                self.renew()
            case "model" if isinstance(value, OnDisk):
                self._set(self.draft.set("model", "" if value.is_wanted else value.setting))
            case "stop" if isinstance(value, Stoppable):
                is_on = self.draft.is_stopped(value, self.launch_state().used)
                self._set(self.draft.stopping(value.name, not is_on))
            case "secret":
                self._ask_secret(str(value))

    def action_unset(self) -> None:
        row = self._selected()
        if row.kind == "parameter":
            self._set(self.draft.set(str(row.value), ""))

    def on_key(self, event: events.Key) -> None:
        """A digit applies the lever of that number."""
        if self._editing or not event.key.isdigit():
            return
        applicable = [lever for lever in levers(self.launch_state()) if lever.can_be_applied]
        number = int(event.key)
        if 0 < number <= len(applicable):
            event.stop()
            self._set(applied(self.draft, applicable[number - 1], self._picture()))

    def _set(self, draft: Draft) -> None:
        self._waits_for_review = False
        if draft == self.draft:
            self.renew()
            return
        self.draft = draft
        self._request_plan()

    def _request_plan(self) -> None:
        fleet = self._picture()
        self._planned_bases = node_bases(fleet)
        self.planning.want(self.draft.request(fleet, self.launch_state().used))

    def _plan_if_changed(self) -> None:
        """Plan again when the nodes have changed since the plan: engines came or went, memory moved."""
        if not self.is_current or self.planning.is_planning or self._editing:
            return
        bases = node_bases(self._picture())
        if any(has_moved(self._planned_bases.get(name), basis) for name, basis in bases.items()):
            self._request_plan()
        else:
            self.renew()  # the rows of the nodes show the available memory

    # A parameter's field

    def _edit(self, name: str) -> None:
        self._editing = name
        field = self.query_one("#launch-field", Input)
        field.value = get(self.draft.values, name) or ""
        field.placeholder = masked(placeholder(self.launch_state(), name)) or "computed"
        field.cursor_position = len(field.value)
        field.display = True
        self.renew()
        field.focus()

    def _lay_out_field(self) -> None:
        if not self._editing:
            return
        pane = self.query_one(LaunchChoices)
        field = self.query_one("#launch-field", Input)
        width = pane.size.width - 2
        left = 1 + name_cells(width - 2) + 2
        field.styles.offset = (left, max(0, pane.row_y(self.watched_line)))
        field.styles.width = max(8, width - left)

    def _take_value(self) -> None:
        name, value = self._editing, self.query_one("#launch-field", Input).value
        self._leave_field()
        self._set(self.draft.set(name, value))

    def _leave_field(self) -> None:
        field = self.query_one("#launch-field", Input)
        self._editing = ""
        field.display = False
        self.set_focus(None)

    @on(Input.Submitted, "#launch-field")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._take_value()

    # Secrets

    def _ask_secret(self, name: str, then: Callable[[], None] | None = None) -> None:
        from sparktop.ui.dialogs.prompts import NamedSecret

        def take(value: str | None) -> None:
            if value:
                self._secrets[name] = "as typed, for this launch alone"
                self._set(self.draft.with_secret(name, value))
                if then is not None:
                    then()

        self.app.push_screen(NamedSecret(name, use=_ONCE), take)

    # The review

    def action_review(self) -> None:
        """Open the review of the plan; while it is being made, or is outdated, wait for the next one."""
        if self._editing:
            self._take_value()
        answer = self.planning.answer
        if self.planning.is_planning:
            self._waits_for_review = True
            return
        if self.planning.age_s > FRESH_S and not self._waits_for_review:
            self._waits_for_review = True
            self._request_plan()
            return
        self._waits_for_review = False
        if isinstance(answer, Plan):
            self._open_review(answer)
        elif isinstance(answer, Refusal):
            self._show_refusal(answer)

    def _open_review(self, plan: Plan) -> None:
        from sparktop.ui.screens.review import ReviewScreen

        def decided(verdict: str | None) -> None:
            if verdict == "run":
                self.dismiss(plan)

        self.app.push_screen(ReviewScreen(plan, settings="choices"), decided)

    def _show_refusal(self, refusal: Refusal) -> None:
        """It stays here: why not is above. A secret that is missing is asked for; else the cursor goes to a lever."""
        if (missing := self._missing_secret(refusal)) is not None:
            self._ask_secret(missing, self.action_review)
            return
        lever_row = next((row for row in self._rows() if row.kind == "lever"), None)
        if lever_row is not None:
            self._cursor = lever_row.key
            self.renew()
        self.notify("not possible as it is: the reason is above", severity="warning", markup=False, timeout=4)

    def _missing_secret(self, refusal: Refusal) -> str | None:
        """A secret without which it can't be launched: the recipe takes it, or a gate that failed names it."""
        gates = refusal.prospect.gates if refusal.prospect is not None else ()
        by_gates = {name for gate in gates if gate.state is State.FAILED for name in gate.secrets}
        needed = by_gates.union(operator_secrets.names_required(self.draft.recipe))
        missing = (name for name, source in self._secrets.items() if not source)
        return next((name for name in missing if name in needed), None)

    # Leaving

    def action_leave(self) -> None:
        """Out of a field first, then back to the list."""
        if self._editing:
            self._leave_field()
            self.renew()
        else:
            self.dismiss(None)

    def copied(self) -> tuple[str, str]:
        return self.draft.typed(self._picture(), self.launch_state().used), "the command that does the same"
