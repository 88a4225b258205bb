"""The help page: all keys, from the table of commands, and what the signs on the screen mean."""

from __future__ import annotations

from functools import lru_cache

from sparktop.documents.engine_table import STATES as ENGINE_SIGNS
from sparktop.documents.finding_tree import SIGNS as SEVERITY_SIGNS
from sparktop.documents.node_figures import SIGNS as LINK_SIGNS
from sparktop.text.lines import BLANK, Line, flowed, hanging
from sparktop.ui.commands import Command, bound, by_group, keys_text
from sparktop.ui.dialogs.dialog import Dialog

KEY_CELLS = 10
TITLE_CELLS = 16
DESCRIPTION_FROM = 64
"""Page width from which a command's description is shown beside its title."""
OFF = "Off, read-only"
OTHER_SIGNS = (
    ("g G", "in a log: to its first line, to its newest"),
    ("← →", "in a log: sideways, while lines are not wrapped"),
    ("E W", "before a log line: an error, a warning"),
    ("‹ ›", "next to a log line: it continues there"),
    ("↑ ◆ ⊘", "below a chart: an engine's start, a run of sparktop, the guard's kill"),
    ("n/a", "can't be read here; the reason is next to it or in the details"),
)


RECIPE_KEYS = (
    ("Enter", "in the list of recipes: launch it"),
    ("/", "in the list of recipes: filter by a word; Esc shows all"),
    ("Enter", "on a row of a launch: edit, choose, check or review it"),
    ("1 to 9", "in a launch: set what would change it"),
    ("⌫", "on a changed parameter: back to the recipe's value"),
    ("Ctrl+S", "in a launch: review it, wherever the cursor is"),
    ("y, c", "in a launch: copy the command that does the same"),
    ("PgDn PgUp", "scroll its details"),
    ("Esc", "one step back; your choices stay while the console runs"),
)
"""Keys of the screens for recipes and launches."""


@lru_cache(maxsize=8)
def help_lines(width: int, *, read_only: bool = False, is_of_recipes: bool = False) -> tuple[Line, ...]:
    """The page at a width in cells; `read_only` marks the keys that are off, `is_of_recipes` puts RECIPE_KEYS first."""
    recipe_lines = [Line.of(("Recipes and their launch", "title"))]
    for named, meaning in RECIPE_KEYS:
        recipe_lines += hanging(Line.of((f"{named:<{KEY_CELLS}} ", "key")), meaning, width, "quiet")
    lines: list[Line] = recipe_lines if is_of_recipes else []
    for group, commands in by_group():
        lines += [BLANK, Line.of((group, "title"))] if lines else [Line.of((group, "title"))]
        for command in commands:
            lines += _command(command, width, is_off=read_only and command.changes)
    if not is_of_recipes:
        lines += [BLANK, *recipe_lines]
    lines += [BLANK, Line.of(("Signs", "title"))]
    for signs in (SEVERITY_SIGNS, LINK_SIGNS, ENGINE_SIGNS):
        lines += flowed([Line.of((f"{sign} ", tone), (str(state), "")) for state, (sign, tone) in signs.items()], width)
    for sign, meaning in OTHER_SIGNS:
        lines += hanging(Line.of((f"{sign:<{KEY_CELLS}} ", "key")), meaning, width, "quiet")
    return tuple(lines)


def _command(command: Command, width: int, *, is_off: bool) -> list[Line]:
    tones = ("faint", "quiet") if is_off else ("key", "value")
    head = Line.of((f"{keys_text(command):<{KEY_CELLS}} ", tones[0]), (f"{command.title:<{TITLE_CELLS}} ", tones[1]))
    if width < DESCRIPTION_FROM:
        return [(head + Line.of((OFF if is_off else "", "quiet"))).cut(width)]
    return hanging(head, f"{OFF}. {command.description}" if is_off else command.description, width, "quiet")


class HelpScreen(Dialog[None]):
    """The keys and signs; Esc, q or ? closes it."""

    BINDINGS = bound(close="q,question_mark,f1")

    def __init__(self, *, read_only: bool = False, is_of_recipes: bool = False) -> None:
        """`is_of_recipes`: it is opened from the screens for recipes or launches."""
        super().__init__("help")
        self._read_only = read_only
        self._is_of_recipes = is_of_recipes

    def content(self, width: int) -> list[Line]:
        return list(help_lines(width, read_only=self._read_only, is_of_recipes=self._is_of_recipes))
