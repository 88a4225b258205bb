"""The list of recipes, with the selected one's details at the right, or below on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from sparktop.documents.recipe import Group, RecipeRow, available_line, columns, detail_lines, matches, row_line
from sparktop.documents.step_text import masked
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit
from sparktop.text.lines import BLANK, CLIPBOARD_CELLS, Line, hanging, plain
from sparktop.text.table import heading
from sparktop.ui.screens.list_and_detail import ListAndDetail
from sparktop.ui.widgets.line_widget import CursorList, Sheet

READ_ONLY = (
    "read-only: this console looks and changes nothing, so nothing is planned or launched from here. "
    "Start it without --read-only, or take read_only out of config.toml."
)


class RecipeTable(CursorList[RecipeRow]):
    """The table of recipes with a cursor."""

    HEAD_ROWS = 1

    def __init__(self, fits: Mapping[str, Fit]) -> None:
        super().__init__(id="recipe-table")
        self._fits = fits
        self._shown: list[int | None] = []
        """The index of the row on each line; None: a heading."""

    @property
    def wanted_lines(self) -> int:
        return 1 + max(1, len(self._rows)) + len(self._groups)

    @property
    def _groups(self) -> Sequence[Group]:
        """The groups with a heading: where there is more than one."""
        groups = tuple(dict.fromkeys(row.group for row in self._rows))
        return groups if len(groups) > 1 else ()

    def show(self, rows: Sequence[RecipeRow], at: str = "") -> None:
        """Show these rows; the cursor goes to the recipe of the id `at`, else stays on its own, else to the first."""
        selected = self.selected
        kept = [index for index, row in enumerate(rows) if not at and selected is not None and _is_same(row, selected)]
        self._rows = rows
        self._at = next(iter((*kept, *(index for index, row in enumerate(rows) if row.id == at))), 0)
        self.redraw()

    def row_at(self, y: int) -> int | None:
        return self._shown[y] if y < len(self._shown) else None

    def draw(self, width: int, height: int) -> list[Line]:
        if not self._rows:
            return [Line.of((" no recipe matches", "quiet"))]
        table_columns = columns(self._rows, width - 2, has_fits=bool(self._fits))
        lines = [Line.of(" ") + heading(table_columns)]
        self._shown, groups, group = [None], self._groups, None
        for index in self.window(max(1, height - 1 - len(groups))):
            if groups and self._rows[index].group is not group:
                group = self._rows[index].group
                lines.append(Line.of((f" {group.value}", "title")).cut(width))
                self._shown.append(None)
            self._shown.append(index)
            line = row_line(self._rows[index], table_columns, width - 2, self._fits).fit(width - 1)
            is_at = index == self._at
            lines.append(Line.of(("▌", "frame-focus")) + line.on("cursor") if is_at else Line.of(" ") + line)
        return lines


def _is_same(row: RecipeRow, other: RecipeRow) -> bool:
    return (row.group, row.node, row.id) == (other.group, other.node, other.id)


class RecipesScreen(ListAndDetail[RecipeRow | None, RecipeTable]):
    """Choose a recipe; answers its row, None when the operator left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", show=False),
        Binding("q", "close", "Close", show=False),
        Binding("slash", "filter", "Filter", show=False),
        Binding("enter,L", "choose", "Launch", show=False),
    ]

    def __init__(
        self,
        shelved: Sequence[RecipeRow],
        *,
        fleet: FleetState,
        fits: Mapping[str, Fit],
        at: str = "",
        is_read_only: bool = False,
        unread: Sequence[str] = (),
    ) -> None:
        """`fits`: recipe id -> verdict of this session; `at`: id of the recipe to begin on; `unread`: unreadable
        folders, with the reason."""
        super().__init__("recipes", RecipeTable(fits), Sheet(self.recipe_lines, id="recipe-detail"))
        self._all = shelved
        self._fleet = fleet
        self._is_read_only = is_read_only
        self._unread = unread
        self._first_id = at
        self.news = ""
        self._field = Input(id="recipe-filter", compact=True, placeholder="name, model, engine, quantisation …")

    def add(self, found: Sequence[RecipeRow]) -> None:
        """Show what was found on the nodes before the recipes; the cursor begins there where it hasn't moved yet."""
        is_at_first = bool(found) and not self._first_id and self.table.selected in (None, *self._all[:1])
        self._all = (*found, *self._all)
        if self.is_attached:
            self.table.show([row for row in self._all if matches(row, self._field.value)])
            if is_at_first:
                self.table.action_first()
            self.lay_out()

    def above(self) -> Iterator[Widget]:
        yield self._field

    def on_mount(self) -> None:
        self.app.clear_notifications()
        self._field.display = False
        self.table.show(self._all, self._first_id)
        self.lay_out()

    def list_lines(self, room: int) -> int:
        return min(self.table.wanted_lines, max(4, room * 2 // 5))

    def write_frame(self, frame: Widget) -> None:
        shown_count, total = len(self.table.rows), len(self._all)
        title = "launch" if self._all and self._all[0].group is not Group.RECIPES else "recipes"
        frame.border_title = Text(f"{title}  {shown_count} of {total}" if shown_count != total else f"{title}  {total}")
        row = self.table.selected
        verb = "Enter launch …   " if row is not None and row.recipe is not None and not self._is_read_only else ""
        frame.border_subtitle = Text(f"{verb}/ filter   PgDn more   Esc close")

    def tell(self, text: str) -> None:
        """Show a new critical finding above the details, as a toast would cover them."""
        self.news = text
        self.show_detail()

    def recipe_lines(self, width: int) -> list[Line]:
        """The lines of the details, below warnings."""
        row = self.table.selected
        lines = [Line.of((f"✖ {self.news}", "critical")).cut(width), BLANK] if self.news else []
        for text in (*self._unread, *([READ_ONLY] if self._is_read_only else [])):
            lines += [*hanging(Line.of(("▲ ", "warning")), masked(text), width), BLANK]
        if row is None:
            return lines
        lines += detail_lines(row, width)
        if row.recipe is not None:
            lines += [BLANK, available_line(self._fleet).cut(width)]
        return lines

    def copied(self) -> tuple[str, str]:
        return plain(self.recipe_lines(CLIPBOARD_CELLS)), "the recipe"

    def action_filter(self) -> None:
        self._field.display = True
        self._field.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.table.show([row for row in self._all if matches(row, event.value)])
        self.show_detail()
        self.lay_out()

    @on(Input.Submitted)
    def _filtered(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_focus(None)

    @on(RecipeTable.Opened)
    def action_choose(self) -> None:
        row = self.table.selected
        if row is None:
            return
        if row.recipe is None:
            self.say("this recipe can't be launched: its errors are listed with it")
        elif self._is_read_only:
            self.say(READ_ONLY)
        else:
            self.dismiss(row)

    def action_leave(self) -> None:
        """Close the filter if it is open, else the list."""
        if self._field.display:
            self._field.display = False
            self._field.value = ""
            self.set_focus(None)
            self.table.show(self._all)
            self.lay_out()
        else:
            self.dismiss(None)
