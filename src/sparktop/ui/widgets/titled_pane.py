"""A framed pane with its titles in the frame's edges."""

from __future__ import annotations

from typing import Any, Self

from textual.containers import Vertical
from textual.geometry import Region

from sparktop.text.lines import Line
from sparktop.ui.theme import styled, tones
from sparktop.ui.widgets.line_widget import CursorList
from sparktop.ui.widgets.log_view import LogView


class TitledPane(Vertical):
    """A pane whose titles are drawn again when its size, its focus or the theme changes."""

    DEFAULT_CSS = "TitledPane { border: round $foreground 30%; padding: 0 0 0 1; }"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._shown_titles: dict[str, tuple[object, ...]] = {}
        self._edge: tuple[Region, ...] = ()
        """The edge whose title is being set, by its place in the content: Textual would repaint the whole widget."""

    def moving(self) -> CursorList[Any] | LogView:
        """What takes the focus, and what the keys move."""
        raise NotImplementedError

    def focus(self, scroll_visible: bool = True) -> Self:
        self.moving().focus(scroll_visible)
        return self

    def action_move(self, rows: int) -> None:
        self.moving().action_move(rows)

    def action_page(self, pages: int) -> None:
        self.moving().action_page(pages)

    def action_first(self) -> None:
        self.moving().action_first()

    def action_last(self) -> None:
        self.moving().action_last()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Repaint these regions, or all of it; while a title is set, only its edge."""
        return super().refresh(*(regions or self._edge), repaint=repaint, layout=layout, recompose=recompose)

    def _retitle(self) -> None:
        """Draw the titles."""
        raise NotImplementedError

    def _restyle(self) -> None:
        """Draw all that isn't drawn by the children, in the theme's colours."""
        self._retitle()

    def show_titles(self, left: Line, right: Line, below: Line) -> None:
        """Set the two parts of the upper edge and the note in the lower edge where they changed; no markup is parsed,
        and only the edge is repainted."""
        width, height = self.outer_size
        room = width - 6
        if room < 1:
            return  # not laid out yet: an empty title would stay until something else changed
        left = left.cut(room)
        if right.runs and (spare := room - left.width - right.width - 2) >= 1:
            tone = "frame-focus" if self.has_focus_within else "frame"
            left = left + Line.of((f" {'─' * spare} ", tone)) + right
        styles = tones(self.app, self.background_colors[0])
        x, y = self.content_offset
        for name, line, row in (("border_title", left, 0), ("border_subtitle", below.cut(room), height - 1)):
            state = (line, room, self.has_focus_within, self.app.theme)
            if state == self._shown_titles.get(name):
                continue
            self._shown_titles[name] = state
            self._edge = (Region(-x, row - y, width, 1),)
            try:
                setattr(self, name, styled([line], styles))
            finally:
                self._edge = ()

    def on_mount(self) -> None:
        self._restyle()
        self._retitle_later()
        self.watch(self.app, "theme", self._recolour, init=False)

    def _recolour(self) -> None:
        self.call_after_refresh(self._restyle)  # the theme's colours are set only then

    def on_resize(self) -> None:
        self._retitle()
        self._retitle_later()  # the event may come before the new size

    def _retitle_later(self) -> None:
        self.call_after_refresh(self._retitle)

    on_show = on_descendant_focus = on_descendant_blur = _retitle_later
