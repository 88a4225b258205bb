"""A widget that draws itself as lines, hidden and shown again."""

from __future__ import annotations

import pytest
from tests.ui.svg import plain
from textual.app import App, ComposeResult
from textual.containers import Vertical

from sparktop.text.lines import Line
from sparktop.ui.widgets.line_widget import LineWidget


class Words(LineWidget):
    DEFAULT_CSS = "Words { height: 5; }"
    words = ("one", "two", "three", "four", "five")

    def draw(self, width: int, height: int) -> list[Line]:
        return [Line.of(word) for word in self.words]


class Hiding(App[None]):
    CSS = "Screen { layout: vertical; }"

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Words()


@pytest.mark.parametrize("new", [("one", "zwei", "three", "four", "fünf"), ("eins", "zwei", "drei", "vier", "fünf")])
@pytest.mark.parametrize("is_redrawn", [True, False])
async def test_what_changed_while_it_was_hidden_is_shown_whole(new: tuple[str, ...], is_redrawn: bool) -> None:
    async with Hiding().run_test(size=(20, 8)) as pilot:
        app, words = pilot.app, pilot.app.query_one(Words)
        around = app.query_one(Vertical)
        words.redraw()
        await pilot.pause()
        assert tuple(line.strip() for line in plain(app)[:5]) == Words.words
        around.display = False
        await pilot.pause()
        words.words = new
        words.redraw()
        around.display = True
        if is_redrawn:
            words.redraw()
        await pilot.pause()
        assert tuple(line.strip() for line in plain(app)[:5]) == new
