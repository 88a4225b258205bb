"""The recipes: a list with what there is to know of each beside it, or below where the screen is narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.geometry import Region
from textual.screen import Screen
from textual.widgets import Input

from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit
from sparktop.model.recipe import Recipe
from sparktop.operate.wording import masked
from sparktop.ui.panes.recipe_rows import Shelved, available_line, columns, detail_lines, heading, matches, row_line
from sparktop.ui.widgets.ink import BLANK, Line, LineWidget, wrapped
from sparktop.ui.widgets.sheet import Sheet

BESIDE_CELLS = 150
"""From this many on the detail stands beside the list."""
READ_ONLY = (
    "read-only: this console looks and changes nothing, so nothing is planned or launched from here. "
    "Start it without --read-only, or take read_only out of config.toml."
)


class RecipeTable(LineWidget):
    """A heading, and a row a recipe; the cursor's in sight."""

    def __init__(self, fits: Mapping[str, Fit]) -> None:
        super().__init__(id="recipe-table")
        self._rows: Sequence[Shelved] = ()
        self._fits = fits
        self._top = 0
        self.at = 0

    @property
    def selected(self) -> Shelved | None:
        """What the cursor is on."""
        return self._rows[self.at] if self._rows else None

    @property
    def wanted_lines(self) -> int:
        return 1 + max(1, len(self._rows))

    def show(self, rows: Sequence[Shelved]) -> None:
        """These rows; the cursor stays on its recipe where that is among them."""
        before = self.selected
        self._rows = rows
        ids = [row.id for row in rows]
        self.at = ids.index(before.id) if before is not None and before.id in ids else 0
        self.redraw()

    def move(self, by: int) -> None:
        """The cursor down by so many, or up."""
        self.at = max(0, min(len(self._rows) - 1, self.at + by))
        self.redraw()

    def row_at(self, y: int) -> int | None:
        """Which row stands in a line of the widget."""
        index = self._top + y - 1
        return index if y >= 1 and index < len(self._rows) else None

    def draw(self, width: int, height: int) -> list[Line]:
        if not self._rows:
            return [Line.of((" no recipe matches", "quiet"))]
        shown = columns(self._rows, width - 2, has_fits=bool(self._fits))
        room = max(1, height - 1)
        self._top = max(0, min(self._top, self.at, len(self._rows) - room))
        self._top = max(self._top, self.at - room + 1)
        lines = [Line.of(" ") + heading(shown)]
        for index, row in enumerate(self._rows[self._top : self._top + room], self._top):
            line = row_line(row, shown, width - 2, self._fits).fit(width - 1)
            lines.append(Line.of(("▌", "frame-focus")) + line.on("cursor") if index == self.at else Line.of(" ") + line)
        return lines


class Detail(Sheet):
    """What the recipe under the cursor says of itself."""

    def __init__(self, screen: RecipesScreen) -> None:
        super().__init__(id="recipe-detail")
        self._screen = screen

    def content(self, width: int) -> list[Line]:
        return self._screen.told(width)

    def to_top(self) -> None:
        self.scroll_lines(-10_000)


class RecipesScreen(Screen[Recipe | None]):
    """Answers the recipe that was chosen; None when it was left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", show=False),
        Binding("q", "close", "Close", show=False),
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("home,g", "move(-10000)", "First", show=False),
        Binding("end,G", "move(10000)", "Last", show=False),
        Binding("pagedown,space", "page(1)", "The detail down", show=False),
        Binding("pageup", "page(-1)", "The detail up", show=False),
        Binding("slash", "filter", "Filter", show=False),
        Binding("enter,L", "choose", "Launch", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(
        self,
        shelved: Sequence[Shelved],
        *,
        fleet: FleetState,
        fits: Mapping[str, Fit],
        at: str = "",
        is_read_only: bool = False,
        unread: Sequence[str] = (),
    ) -> None:
        """`fits` are verdicts of this session by recipe id, `at` the recipe the cursor begins on, `unread` says why
        recipes lack here."""
        super().__init__(id="recipes-screen")
        self._all = shelved
        self._fleet = fleet
        self._is_read_only = is_read_only
        self._unread = unread
        self._begin = at
        self.news = ""
        self.table = RecipeTable(fits)
        self.detail = Detail(self)
        self._field = Input(id="recipe-filter", compact=True, placeholder="name, model, engine, quantisation …")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet-frame"):
            yield self._field
            with Container(id="recipes"):
                yield self.table
                yield self.detail

    def on_mount(self) -> None:
        self.app.clear_notifications()
        self._field.display = False
        self.table.show(self._all)
        self.table.at = next((n for n, row in enumerate(self._all) if row.id == self._begin), 0)
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.app.size
        beside = width >= BESIDE_CELLS
        self.query_one("#recipes").set_class(beside, "-beside")
        room = max(3, height - 4)
        self.table.styles.height = "1fr" if beside else min(self.table.wanted_lines, max(4, room * 2 // 5))
        self.renew()

    def renew(self) -> None:
        """Another recipe under the cursor, or other recipes."""
        if not self.is_attached or not self.query(".sheet-frame"):
            return
        frame = self.query_one(".sheet-frame")
        shown, every = len(self.table._rows), len(self._all)
        frame.border_title = Text(f"recipes  {shown} of {every}" if shown != every else f"recipes  {every}")
        row = self.table.selected
        verb = "Enter launch …   " if row is not None and row.recipe is not None and not self._is_read_only else ""
        frame.border_subtitle = Text(f"{verb}/ filter   PgDn more   Esc close")
        self.table.redraw()
        self.detail.redraw()

    def tell(self, text: str) -> None:
        """Something critical is new: said above the detail, where a toast would lie over it."""
        self.news = text
        self.detail.to_top()
        self.renew()

    def told(self, width: int) -> list[Line]:
        """The detail's lines."""
        row = self.table.selected
        lines = [Line.of((f"✖ new: {self.news}", "critical")).cut(width), BLANK] if self.news else []
        for text in (*self._unread, *([READ_ONLY] if self._is_read_only else [])):
            first, *rest = wrapped(masked(text), width - 2, "")
            lines += [Line.of(("▲ ", "warning")) + first, *(Line.of("  ") + line for line in rest), BLANK]
        if row is None:
            return lines
        lines += detail_lines(row, width)
        if row.recipe is not None:
            lines += [BLANK, available_line(self._fleet).cut(width)]
        return lines

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As Textual's, but for regions: those are what was painted on the console below, where nobody sees it."""
        return self if regions else super().refresh(repaint=repaint, layout=layout, recompose=recompose)

    def action_move(self, by: int) -> None:
        self.table.move(by)
        self.detail.to_top()
        self.renew()

    def action_page(self, pages: int) -> None:
        self.detail.scroll_pages(pages)

    def action_filter(self) -> None:
        self._field.display = True
        self._field.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.table.show([row for row in self._all if matches(row, event.value)])
        self.detail.to_top()
        self._arrange()

    @on(Input.Submitted)
    def _filtered(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_focus(None)

    def action_choose(self) -> None:
        row = self.table.selected
        if row is None:
            return
        if row.recipe is None:
            self._say("this recipe can't be launched as it stands: what is wrong with it is told with it")
        elif self._is_read_only:
            self._say(READ_ONLY)
        else:
            self.dismiss(row.recipe)

    def on_click(self, event: events.Click) -> None:
        if event.widget is not self.table:
            return
        index = self.table.row_at(event.y)
        if index is None:
            return
        was = self.table.at
        self.action_move(index - was)
        if was == index and event.chain == 2:
            self.action_choose()

    def action_leave(self) -> None:
        """Out of the filter first, then out of the list."""
        if self._field.display:
            self._field.display = False
            self._field.value = ""
            self.set_focus(None)
            self.table.show(self._all)
            self._arrange()
        else:
            self.dismiss(None)

    def action_close(self) -> None:
        self.dismiss(None)

    def _say(self, text: str) -> None:
        self.notify(text, severity="warning", markup=False, timeout=6)
