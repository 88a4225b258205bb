"""The list of recipes, with the selected one's details at the right, or below on a narrow screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import on

from sparktop.documents.recipe import Group, RecipeRow, available_line, columns, detail_lines, row_line, searched_text
from sparktop.documents.step_text import masked
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit
from sparktop.text.lines import BLANK, Line, hanging
from sparktop.text.table import heading
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.page import ListAndDetail
from sparktop.ui.widgets.line_widget import CursorList, marked


class RecipeTable(CursorList[RecipeRow]):
    """The table of recipes with a cursor."""

    head_rows = 1

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

    def key(self, row: RecipeRow) -> object:
        return row.group, row.node, row.path, row.id

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
            line = row_line(self._rows[index], table_columns, width - 2, self._fits)
            lines.append(marked(line, width, is_at=index == self._at))
        return lines


class RecipesScreen(ListAndDetail[RecipeRow | None, RecipeTable]):
    """Choose a recipe; answers its row, None when the operator left."""

    BINDINGS = bound(choose="enter,L")

    def __init__(
        self,
        shelved: Sequence[RecipeRow],
        *,
        fleet: FleetState,
        fits: Mapping[str, Fit],
        at: str = "",
        why_not: str = "",
        unread: Sequence[str] = (),
    ) -> None:
        """`fits`: recipe id -> verdict of this session; `at`: id of the recipe to begin on; `why_not`: why
        nothing can be launched, empty: it can; `unread`: unreadable folders, with the reason."""
        super().__init__("recipes", RecipeTable(fits))
        self._all = shelved
        self._fleet = fleet
        self._why_not = why_not
        self._unread = unread
        self._first_id = at

    def add(self, found: Sequence[RecipeRow]) -> None:
        """Show what was found on the nodes before the recipes; the cursor begins there where it hasn't moved yet."""
        is_at_first = bool(found) and not self._first_id and self.table.selected in (None, *self._all[:1])
        self._all = (*found, *self._all)
        if self.is_attached:
            self.refill()
            if is_at_first:
                self.table.action_first()

    def on_mount(self) -> None:
        self.refill()
        self.table.select(next((index for index, row in enumerate(self._all) if row.id == self._first_id), 0))

    def refill(self) -> None:
        self.table.show_rows(self.matching(self._all, searched_text))
        self.show_detail()
        self.lay_out()

    def list_lines(self, room: int) -> int:
        return min(self.table.wanted_lines, max(4, room * 2 // 5))

    def heading(self) -> str:
        title = "launch" if self._all and self._all[0].group is not Group.RECIPES else "recipes"
        return f"{title}  {len(self._all)}"

    def keys(self) -> Sequence[str]:
        row = self.table.selected
        can_launch = row is not None and row.recipe is not None and not self._why_not
        return ("PgDn more", "/ filter", *(("Enter launch …",) if can_launch else ()), "Esc close")

    def content(self, width: int) -> list[Line]:
        """The lines of the details, below warnings."""
        row = self.table.selected
        lines: list[Line] = []
        for text in filter(None, (*self._unread, self._why_not)):
            lines += [*hanging(Line.of(("▲ ", "warning")), masked(text), width), BLANK]
        if row is None:
            return lines
        lines += detail_lines(row, width)
        if row.recipe is not None:
            lines += [BLANK, available_line(self._fleet).cut(width)]
        return lines

    def copied(self) -> tuple[str, str]:
        return super().copied()[0], "the recipe"

    @on(RecipeTable.Opened)
    def action_choose(self) -> None:
        row = self.table.selected
        if row is None:
            return
        if row.recipe is None:
            self.say("this recipe can't be launched: its errors are listed with it")
        elif self._why_not:
            self.say("nothing can be launched from here: the details begin with the reason")
        else:
            self.dismiss(row)
