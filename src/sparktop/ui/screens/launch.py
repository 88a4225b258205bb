"""The launch of one recipe: the verdict above, what can be chosen on the left, what was found on the right.

Each choice is planned anew by itself; nothing is changed before the review's Run is pressed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Self

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.geometry import Region
from textual.screen import Screen
from textual.widgets import Input

from sparktop.clock import Clock
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal
from sparktop.model.prospect import GateState, OnDisk
from sparktop.operate.wording import masked
from sparktop.recipe import ownsecrets
from sparktop.recipe.alternatives import use
from sparktop.recipe.parameters import get
from sparktop.ui.panes.recipe_rows import said
from sparktop.ui.screens.launch_choices import WHERE, Known, Row, index_of, levers, name_cells, placeholder, rows
from sparktop.ui.screens.launch_draft import Draft, Lever, Stoppable, applied
from sparktop.ui.screens.launch_lines import found_lines, head_lines, in_the_way
from sparktop.ui.screens.launch_parts import LaunchChoices, LaunchHead, LaunchTold
from sparktop.ui.screens.launch_planning import Answering, LivePlanning, Seen, has_moved, seen
from sparktop.ui.widgets.ink import BLANK, Line

BESIDE_CELLS = 110
"""From this many on what was found stands beside what can be chosen."""
FRESH_S = 45.0
"""A plan that is older is made anew before it is reviewed."""
LOOK_AGAIN_S = 5.0
"""How often the picture is compared with the one that was planned from."""


class LaunchScreen(Screen[Plan | None]):
    """Answers the plan that was reviewed and is to be run; None when it was left."""

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
        Binding("y,c", "copy", "Copy", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(
        self,
        draft: Draft,
        *,
        plan: Answering,
        picture: Callable[[], FleetState],
        clock: Clock,
        secrets: Mapping[str, str],
    ) -> None:
        """`secrets` are the names that matter here, and where each came from; empty: it is missing."""
        super().__init__(id="launch-screen")
        self.draft = draft
        self._picture = picture
        self._secrets = dict(secrets)
        self.planning = LivePlanning(plan, self.renew, clock)
        self._is_unfolded = False
        self._cursor: tuple[str, str] | None = None
        self._places: dict[int, int] = {}
        """Line -> row."""
        self._editing = ""
        self._waits_for_review = False
        self._seen: dict[str, Seen] = {}
        self.watched_line = 0
        self.news = ""

    # What it consists of

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet-frame"):
            yield LaunchHead(self)
            with Container(id="launch-body"):
                yield LaunchChoices(self)
                yield LaunchTold(self)

    def on_mount(self) -> None:
        self.app.clear_notifications()
        self.run_worker(self.planning.run(), name="planning", group="planning")
        self.set_interval(LOOK_AGAIN_S, self._look_again)
        self._want()
        self.renew()

    def on_resize(self, event: events.Resize) -> None:
        self.renew()

    def renew(self) -> None:
        """Something of it is another."""
        if not self.is_attached or not self.query(LaunchTold):
            return
        frame = self.query_one(".sheet-frame")
        nodes = " and ".join(masked(name) for name in self.draft.nodes)
        again = "   ▸ looking again …" if self.planning.is_looking and self.planning.answer is not None else ""
        frame.border_title = Text(f"launch  {said(self.draft.recipe.title or self.draft.recipe.id)}  on {nodes}{again}")
        frame.border_subtitle = Text(self._keys())
        told = self.query_one(LaunchTold)
        told.display = self._is_wide
        self.query_one(LaunchHead).changed()
        self.query_one(LaunchChoices).redraw()
        told.redraw()
        self._place_field()
        if self._waits_for_review and not self.planning.is_looking:
            self.call_later(self.action_review)

    @property
    def _is_wide(self) -> bool:
        return self.app.size.width >= BESIDE_CELLS

    def _keys(self) -> str:
        if self._editing:
            return "Enter take it   empty: the recipe's   Esc leave it"
        row = self._selected()
        verb = {
            "review": "review", "lever": "set it", "node": "take it", "parameter": "edit", "more": "unfold",
            "model": "take it", "stop": "check", "secret": "type it",
        }.get(row.kind, "")  # fmt: skip
        own = "⌫ recipe's   " if row.kind == "parameter" and get(self.draft.values, str(row.value)) is not None else ""
        other = "" if row.kind == "review" else "Ctrl+S review   "
        return f"Enter {verb}   {own}{other}PgDn more   y copy   Esc back"

    def known(self) -> Known:
        """What everything here is drawn from."""
        return Known(
            draft=self.draft,
            fleet=self._picture(),
            answer=self.planning.answer,
            is_looking=self.planning.is_looking,
            secrets=self._secrets,
            is_unfolded=self._is_unfolded,
        )

    def tell(self, text: str) -> None:
        """Something critical is new: said above, where a toast would lie over the choices."""
        self.news = text
        self.renew()

    def head(self, width: int) -> list[Line]:
        told = [Line.of((f"✖ new: {self.news}", "critical")).cut(width)] if self.news else []
        return [*told, *head_lines(self.known(), width, self.app.size.height)]

    def found(self, width: int) -> list[Line]:
        return found_lines(self.known(), width)

    def choices(self, width: int) -> list[Line]:
        """The rows as lines; on a narrow screen what was found stands below the review and at the end."""
        made = rows(self.known(), width - 2)
        at = index_of(made, self._cursor)
        lines: list[Line] = []
        self._places = {}
        for index, row in enumerate(made):
            if row.heading == WHERE and not self._is_wide and (bad := in_the_way(self.known(), width - 1)):
                lines += [BLANK, *(Line.of(" ") + line for line in bad)]
            if row.heading:
                lines += [BLANK, Line.of((f" {row.heading}", "title"), (f"   {row.aside}", "quiet")).cut(width)]
            begin = len(lines)
            is_at = index == at
            for line in row.lines:
                drawn = line.fit(width - 1)
                mark = Line.of(("▌" if is_at else " ", "frame-focus"))
                lines.append(mark + (drawn.on("cursor") if is_at else drawn))
            if row.can_be_chosen:
                self._places |= dict.fromkeys(range(begin, len(lines)), index)
            if is_at:
                self.watched_line = begin
        if not self._is_wide and (found := self.found(width - 1)):
            lines += [BLANK, *(Line.of(" ") + line for line in found)]
        return lines

    # The cursor

    def _rows(self) -> list[Row]:
        return rows(self.known(), 60)

    def _selected(self) -> Row:
        made = self._rows()
        return made[index_of(made, self._cursor)]

    def action_move(self, by: int) -> None:
        if self._editing:
            self._take()
        made = self._rows()
        at = index_of(made, self._cursor)
        open_ = [index for index, row in enumerate(made) if row.can_be_chosen]
        place = max(0, min(len(open_) - 1, open_.index(at) + by))
        self._cursor = made[open_[place]].key
        self.renew()

    def action_page(self, pages: int) -> None:
        if self._is_wide:
            self.query_one(LaunchTold).scroll_pages(pages)
        else:
            self.action_move(pages * max(1, self.query_one(LaunchChoices).size.height // 2))

    def clicked(self, line: int) -> None:
        """A row was: the cursor goes there, and what is under it is chosen."""
        index = self._places.get(line)
        if index is not None:
            self._leave_field()
            self._cursor = self._rows()[index].key
            self.renew()
            self.action_choose()

    # What is chosen

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
                self._set(self.draft.set("model", "" if value.is_wanted else use(value)))
            case "stop" if isinstance(value, Stoppable):
                is_on = self.draft.is_stopped(value, self.known().used)
                self._set(self.draft.stopping(value.name, not is_on))
            case "secret":
                self._ask_secret(str(value))

    def action_unset(self) -> None:
        row = self._selected()
        if row.kind == "parameter":
            self._set(self.draft.set(str(row.value), ""))

    def on_key(self, event: events.Key) -> None:
        """A digit applies its lever."""
        if self._editing or not event.key.isdigit():
            return
        offered = [one for one in levers(self.known()) if one.can_be_applied]
        number = int(event.key)
        if 0 < number <= len(offered):
            event.stop()
            self._set(applied(self.draft, offered[number - 1], self._picture()))

    def _set(self, draft: Draft) -> None:
        self._waits_for_review = False
        if draft == self.draft:
            self.renew()
            return
        self.draft = draft
        self._want()

    def _want(self) -> None:
        fleet = self._picture()
        self._seen = seen(fleet)
        self.planning.want(self.draft.request(fleet, self.known().used))

    def _look_again(self) -> None:
        """The nodes are another than when they were asked: engines came or went, memory moved."""
        if not self.is_current or self.planning.is_looking or self._editing:
            return
        now = seen(self._picture())
        if any(has_moved(self._seen.get(name), one) for name, one in now.items()):
            self._want()
        else:
            self.renew()  # what is available stands beside the nodes

    # A parameter's field

    def _edit(self, name: str) -> None:
        self._editing = name
        field = self.query_one("#launch-field", Input)
        field.value = get(self.draft.values, name) or ""
        field.placeholder = masked(placeholder(self.known(), name)) or "computed"
        field.cursor_position = len(field.value)
        field.display = True
        self.renew()
        field.focus()

    def _place_field(self) -> None:
        if not self._editing:
            return
        pane = self.query_one(LaunchChoices)
        field = self.query_one("#launch-field", Input)
        width = pane.size.width - 2
        left = 1 + name_cells(width - 2) + 2
        field.styles.offset = (left, max(0, pane.row_y(self.watched_line)))
        field.styles.width = max(8, width - left)

    def _take(self) -> None:
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
        self._take()

    # Secrets

    def _ask_secret(self, name: str, then: Callable[[], None] | None = None) -> None:
        from sparktop.ui.screens.launch_secret import LaunchSecret

        def given(value: str | None) -> None:
            if value:
                self._secrets[name] = "as typed, for this launch alone"
                self._set(self.draft.with_secret(name, value))
                if then is not None:
                    then()

        self.app.push_screen(LaunchSecret(name), given)

    # The review

    def action_review(self) -> None:
        """The plan as it stands; where it isn't one yet, or is old, when it has come."""
        if self._editing:
            self._take()
        answer = self.planning.answer
        if self.planning.is_looking:
            self._waits_for_review = True
            return
        if self.planning.age_s > FRESH_S and not self._waits_for_review:
            self._waits_for_review = True
            self._want()
            return
        self._waits_for_review = False
        if isinstance(answer, Plan):
            self._open_review(answer)
        elif isinstance(answer, Refusal):
            self._refused(answer)

    def _open_review(self, plan: Plan) -> None:
        from sparktop.ui.screens.review import ReviewScreen

        def decided(verdict: str | None) -> None:
            if verdict == "run":
                self.dismiss(plan)

        self.app.push_screen(ReviewScreen(plan, settings="choices"), decided)

    def _refused(self, refusal: Refusal) -> None:
        """It stays here: why not is above. A secret that is missing is asked for; else the cursor goes to a lever."""
        if (missing := self._missing(refusal)) is not None:
            self._ask_secret(missing, self.action_review)
            return
        first = next((row for row in self._rows() if row.kind == "lever"), None)
        if first is not None:
            self._cursor = first.key
            self.renew()
        self.notify("not as it stands: why is told above", severity="warning", markup=False, timeout=4)

    def _missing(self, refusal: Refusal) -> str | None:
        """A secret without which it can't be launched: the recipe takes it, or a gate that failed names it."""
        gates = refusal.prospect.gates if refusal.prospect is not None else ()
        said = " ".join(f"{gate.detail} {gate.remedy}" for gate in gates if gate.state is GateState.FAILED)
        needed = ownsecrets.needed(self.draft.recipe)
        missing = (name for name, source in self._secrets.items() if not source)
        return next((name for name in missing if name in needed or name in said), None)

    # Leaving

    def action_leave(self) -> None:
        """Out of a field first, then back to the list."""
        if self._editing:
            self._leave_field()
            self.renew()
        else:
            self.dismiss(None)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        """The same as a command line."""
        self.app.copy_to_clipboard(masked(self.draft.typed(self._picture(), self.known().used)))
        self.notify("Copied the command that does the same.", markup=False, timeout=3)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As Textual's, but for regions: those are what was painted on the console below, where nobody sees it."""
        return self if regions else super().refresh(repaint=repaint, layout=layout, recompose=recompose)
