"""The screen that sets up a launch: verdict and memory picture, choices, checks; it leads to the review."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widgets import Input

from sparktop.clock import Clock
from sparktop.documents.recipe import one_line
from sparktop.documents.step_text import masked
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.request import Request
from sparktop.model.state import State
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.recipe import operator_secrets
from sparktop.recipe.parameters import get
from sparktop.recipe.settings import missing
from sparktop.text.lines import BLANK, Line
from sparktop.text.sentences import listed
from sparktop.text.units import GIB
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.page import Body, CoveringScreen
from sparktop.ui.screens.launch_choices import (
    WHERE,
    ChoiceRow,
    LaunchState,
    check_lines,
    failed_gate_lines,
    head_lines,
    index_of,
    name_cells,
    placeholder,
    rows,
    unknown,
)
from sparktop.ui.screens.launch_draft import Draft
from sparktop.ui.widgets.line_widget import Sheet, marked


class LaunchChoices(Body):
    """The rows to choose from; a parameter's input field covers its row while it is edited."""

    def __init__(self, screen: LaunchScreen) -> None:
        super().__init__(screen, id="launch-choices")
        self.field = Input(id="launch-field", compact=True)

    def compose(self) -> ComposeResult:
        yield self.field

    def row_y(self, line: int) -> int:
        """The row of the widget in which this line is drawn."""
        return line - self._top


BESIDE_CELLS = 110
"""Screen width from which the checks are shown beside the choices."""


_ONCE = "It is used for this launch only, never shown, and never written to a log, plan or archive."
FRESH_S = 45.0
"""A plan older than this is made anew before the review."""


RECHECK_S = 5.0
"""Seconds between checks whether the fleet has changed since the plan."""
QUIET_S = 0.35
"""Seconds without a change before the nodes are asked again."""
MOVED_BYTES = 2 * GIB
"""A change of available memory that makes a plan outdated."""
Planner = Callable[[Request], Awaitable[Plan | Refusal]]


def has_moved(planned: NodeView | None, now: NodeView) -> bool:
    """Whether a plan is outdated: a node's link or an engine changed, or much memory was taken or freed."""
    if planned is None or (planned.link.state, _engines(planned)) != (now.link.state, _engines(now)):
        return True
    before, after = (view.sample.memory.available_bytes if view.sample is not None else 0 for view in (planned, now))
    return abs(before - after) > MOVED_BYTES


def _engines(view: NodeView) -> list[tuple[str, bool]]:
    return [(engine.name, is_alive(engine)) for engine in view.engines]


class LaunchScreen(CoveringScreen[Plan | None]):
    """Set up a launch; answers the reviewed plan to run, None when the operator left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False, priority=True),
        Binding("ctrl+s", "review", show=False, priority=True),
        *bound(close="q", choose="enter,space", unset="backspace,delete"),
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
        self._plan = plan
        self._clock = clock
        self.answer: Plan | Refusal | None = None
        """The newest; while `is_planning`, it is of an earlier draft."""
        self.is_planning = False
        self._answered_s = 0.0
        self._planned_for = picture()
        self._is_unfolded = False
        self._cursor: tuple[str, str] | None = None
        self._row_of_line: dict[int, int] = {}
        """Line of the choices -> index of its row."""
        self._editing = ""
        self._waits_for_review = False
        self.watched_line = 0
        self._choices = LaunchChoices(self)
        self._head_sheet = Sheet(self.head, id="launch-head")
        self._check_sheet = Sheet(self.checks, id="launch-told")

    # Drawing

    def compose(self) -> ComposeResult:
        with Vertical(classes="frame"):
            yield self._head_sheet
            with Container(id="launch-body"):
                yield self._choices
                yield self._check_sheet

    def on_mount(self) -> None:
        self.set_interval(RECHECK_S, self._plan_if_changed)
        self._request_plan()

    def renew(self) -> None:
        """Render everything again after a change; open the review if it waited for the plan."""
        if not self.is_attached or not self._check_sheet.is_attached:
            return
        self.write_frame()
        self._check_sheet.display = self._is_wide
        self._head_sheet.changed()
        self._choices.redraw()
        self._check_sheet.redraw()
        self._lay_out_field()
        if self._waits_for_review and not self.is_planning:
            self.call_later(self.action_review)

    @property
    def _is_wide(self) -> bool:
        return self.app.size.width >= BESIDE_CELLS

    def heading(self) -> str:
        nodes = listed(masked(name) for name in self.draft.nodes)
        status = "   ▸ looking again …" if self.is_planning and self.answer is not None else ""
        return f"launch  {one_line(self.draft.recipe.title or self.draft.recipe.id)}  on {nodes}{status}"

    def keys(self) -> Sequence[str]:
        if self._editing:
            return ("empty: the recipe's value", "Enter set", "Esc keep it")
        row = self._selected()
        is_set = row.kind == "parameter" and get(self.draft.values, row.name) is not None
        unset_key = ("⌫ recipe's",) if is_set else ()
        review_key = () if row.kind == "review" else ("Ctrl+S review",)
        return ("y copy", "PgDn more", *unset_key, *review_key, f"Enter {row.verb}", "Esc back")

    def launch_state(self) -> LaunchState:
        """The state that the rows and lines are drawn from."""
        return LaunchState(
            draft=self.draft,
            fleet=self._picture(),
            answer=self.answer,
            is_planning=self.is_planning,
            secrets=self._secrets,
            is_unfolded=self._is_unfolded,
        )

    def head(self, width: int) -> list[Line]:
        """The fixed upper part: the verdict and the picture of memory."""
        return [*self.alert_lines(width), *head_lines(self.launch_state(), width, self.app.size.height)]

    def checks(self, width: int) -> list[Line]:
        """The right part: the checks of the plan, remedies, downloads, known risks."""
        return check_lines(self.launch_state(), width)

    def content(self, width: int) -> list[Line]:
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
            lines += [marked(line, width, is_at=is_at) for line in row.lines]
            if row.verb:
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

    def action_scroll(self, lines: int) -> None:
        """Move the cursor by so many rows."""
        if self._editing:
            self._take_value()
        choice_rows = self._rows()
        cursor_index = index_of(choice_rows, self._cursor)
        selectable = [index for index, row in enumerate(choice_rows) if row.verb]
        position = max(0, min(len(selectable) - 1, selectable.index(cursor_index) + lines))
        self._cursor = choice_rows[selectable[position]].key
        self.renew()

    def action_page(self, pages: int) -> None:
        if self._is_wide:
            self._check_sheet.scroll_pages(pages)
        else:
            self.action_scroll(pages * max(1, self._choices.size.height // 2))

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
        if row.draft is not None:
            self._set(row.draft)
        elif row.kind == "review":
            self.action_review()
        elif row.kind == "parameter":
            self._edit(row.name)
        elif row.kind == "secret":
            self._ask_secret(row.name)
        else:
            self._is_unfolded = not self._is_unfolded
            self.renew()

    def action_unset(self) -> None:
        row = self._selected()
        if row.kind == "parameter":
            self._set(self.draft.set(row.name, ""))

    def on_key(self, event: events.Key) -> None:
        """A digit applies the lever of that number."""
        if self._editing or not event.key.isdigit():
            return
        lever_drafts = [row.draft for row in self._rows() if row.kind == "lever"]
        for draft in filter(None, lever_drafts[int(event.key) - 1 : int(event.key)]):
            event.stop()
            self._set(draft)

    def _set(self, draft: Draft) -> None:
        self._waits_for_review = False
        if draft == self.draft:
            self.renew()
            return
        self.draft = draft
        self._request_plan()

    def _request_plan(self) -> None:
        """Plan the draft; a plan under way is dropped."""
        self._planned_for = self._picture()
        self.is_planning = True
        request = self.draft.request(self._planned_for, self.launch_state().used)
        self.run_worker(self._plan_anew(request), name="planning", group="planning", exclusive=True)
        self.renew()

    async def _plan_anew(self, request: Request) -> None:
        if self.answer is not None:
            await asyncio.sleep(QUIET_S)  # the operator may go on choosing
        self.answer = await self._plan(request)
        self._answered_s = self._clock.monotonic()
        self.is_planning = False
        self.renew()

    def _plan_if_changed(self) -> None:
        """Plan again when the nodes have changed since the plan: engines came or went, memory moved."""
        if not self.is_current or self.is_planning or self._editing:
            return
        if any(has_moved(self._planned_for.node(view.name), view) for view in self._picture().nodes):
            self._request_plan()
        else:
            self.renew()  # the rows of the nodes show the available memory

    # A parameter's field

    def _edit(self, name: str) -> None:
        self._editing = name
        field = self._choices.field
        field.value = get(self.draft.values, name) or ""
        field.placeholder = masked(placeholder(self.launch_state(), name)) or unknown(name)
        field.cursor_position = len(field.value)
        field.display = True
        self.renew()
        field.focus()

    def _lay_out_field(self) -> None:
        if not self._editing:
            return
        field = self._choices.field
        width = self._choices.size.width - 2
        left = 1 + name_cells(width - 2) + 2
        field.styles.offset = (left, max(0, self._choices.row_y(self.watched_line or 0)))
        field.styles.width = max(8, width - left)

    def _take_value(self) -> None:
        name, value = self._editing, self._choices.field.value
        self._leave_field()
        self._set(self.draft.set(name, value))

    def _leave_field(self) -> None:
        self._editing = ""
        self._choices.field.display = False
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
        if self.is_planning:
            self._waits_for_review = True
            return
        if self._clock.monotonic() - self._answered_s > FRESH_S and not self._waits_for_review:
            self._waits_for_review = True
            self._request_plan()
            return
        self._waits_for_review = False
        if isinstance(self.answer, Plan):
            self._open_review(self.answer)
        elif self.answer is not None:
            self._show_refusal(self.answer)

    def _open_review(self, plan: Plan) -> None:
        from sparktop.ui.screens.review import ReviewScreen

        def decided(verdict: str | None) -> None:
            if verdict == "run":
                self.dismiss(plan)

        self.app.push_screen(ReviewScreen(plan, settings="choices"), decided)

    def _show_refusal(self, refusal: Refusal) -> None:
        """It stays: why not is above. What is missing is asked for, a setting or a secret; else a lever is at hand."""
        if unset := next(iter(missing(self.draft.order)), ""):
            self._cursor = ("parameter", unset)
            self._edit(unset)
            return
        if (secret := self._missing_secret(refusal)) is not None:
            self._ask_secret(secret, self.action_review)
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
