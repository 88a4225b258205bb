"""The edges of a framed pane: a title and a state above, with a rule between them, and a note below."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from sparktop.ui.theme import tones
from sparktop.ui.widgets.ink import Line


class Edge:
    """Sets a widget's border titles, and only when they changed: each setting paints the whole widget again."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._shown: tuple[object, ...] = ()

    def show(self, left: Line, right: Line, below: Line) -> None:
        """The upper edge's two parts and the lower edge's note; Text objects only, nothing is read as markup."""
        widget = self._widget
        is_focused = widget.has_focus_within
        room = widget.outer_size.width - 6
        if room < 1:
            return  # not laid out yet: a title cut to nothing would stand until something else changed
        shown = (left, right, below, room, is_focused, widget.app.theme)
        if shown == self._shown:
            return
        self._shown = shown
        widget.border_title = self._upper(left, right, room, is_focused)
        widget.border_subtitle = self._text(below.cut(max(1, room))) if below.runs else ""

    def _upper(self, left: Line, right: Line, room: int, is_focused: bool) -> Text:
        left = left.cut(max(1, room))
        spare = room - left.width - right.width - 2
        if spare < 1 or not right.runs:
            return self._text(left)
        rule = (f" {'─' * spare} ", "frame-focus" if is_focused else "frame")
        return self._text(Line((*left.runs, rule, *right.runs)))

    def _text(self, line: Line) -> Text:
        styles = tones(self._widget.app, self._widget.background_colors[0])
        text = Text(no_wrap=True, end="")
        for run, tone in line.runs:
            text.append(run, styles[tone])
        return text


def count_text(count: int) -> str:
    """A count that moves, short and still: "940", "12 k", "1.2 M"."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:.0f} k" if count < 1_000_000 else f"{count / 1e6:.1f} M"
