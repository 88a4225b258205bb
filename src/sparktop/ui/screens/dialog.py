"""A dialog of lines that scroll, with its answers below: what all screens of operating are made of."""

from __future__ import annotations

from typing import ClassVar, Generic, Self, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button

from sparktop.ui.widgets.ink import Line
from sparktop.ui.widgets.sheet import BAR_CELLS, Sheet

Answer = TypeVar("Answer")
PAGES = 10_000
"""More than any dialog has."""


class Words(Sheet):
    """A sheet of lines that are given to it by width."""

    def __init__(self, dialog: Dialog[Answer]) -> None:
        super().__init__()
        self._dialog = dialog

    def content(self, width: int) -> list[Line]:
        return self._dialog.content(width)

    def watched(self, lines: list[Line]) -> int | None:
        return self._dialog.watched_line

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._dialog.clicked(self.line_at(event.y))


class Pinned(Sheet):
    """Lines above those that scroll, in sight at all times; without any it takes no room."""

    def __init__(self, dialog: Dialog[Answer]) -> None:
        super().__init__(classes="pinned")
        self._dialog = dialog

    def content(self, width: int) -> list[Line]:
        news = self._dialog.news
        told = [Line.of((f"✖ new: {news}", "critical")).cut(width)] if news else []
        return [*told, *self._dialog.pinned(width)]


class Dialog(ModalScreen[Answer], Generic[Answer]):
    """Subclasses say what it shows, which answers it has and what its keys do; Esc is always the way out."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", show=False),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home,g", f"page(-{PAGES})", "First", show=False),
        Binding("end,G", f"page({PAGES})", "Last", show=False),
        Binding("left", "app.focus_previous", "The answer before", show=False),
        Binding("right", "app.focus_next", "The next answer", show=False),
    ]
    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > .dialog { width: 106; max-width: 100%; height: auto; max-height: 100%; }
    Dialog .pinned { margin-bottom: 1; }
    Dialog Horizontal.answers { height: 1; margin-top: 1; align-horizontal: right; }
    Dialog Horizontal.answers Button { margin-left: 2; }
    """
    FRAME_ROWS = 2
    is_opaque: ClassVar[bool] = True
    """As pages are: over a translucent screen Textual blends the whole console anew at each of its paints."""
    news = ""
    """What has come up since it was opened: one line."""
    watched_line: int | None = None
    """Of its lines, the one that stays in sight."""

    def heading(self) -> str:
        """What stands in the frame's upper edge; remote text in it is sanitised."""
        raise NotImplementedError

    def content(self, width: int) -> list[Line]:
        """Its lines at a width in cells."""
        raise NotImplementedError

    def pinned(self, width: int) -> list[Line]:
        """Lines above those, which don't scroll."""
        return []

    def clicked(self, line: int) -> None:
        """One of its lines was."""

    def keys(self) -> str:
        """What can be pressed, for the frame's lower edge."""
        return "Esc close"

    def answers(self) -> list[Button]:
        """The buttons, from left to right."""
        return []

    def below(self) -> list[Widget]:
        """What stands between the lines and the answers."""
        return []

    def tell(self, text: str) -> None:
        """Something critical is new: said in the dialog, where a toast would lie over it and its answers."""
        self.news = text
        self.renew()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Pinned(self)
            yield Words(self)
            yield from self.below()
            if answers := self.answers():
                with Horizontal(classes="answers"):
                    yield from answers

    def on_mount(self) -> None:
        self.app.clear_notifications()  # what was said before would lie over its answers
        self.renew()

    def on_resize(self, event: events.Resize) -> None:
        self.renew()

    def renew(self) -> None:
        """Something of what it says is another: title, lines, keys."""
        if not self.is_attached or not self.query(Words):
            return
        box = self.query_one(".dialog")
        box.border_title = Text(self.heading())
        words, head = self.query_one(Words), self.query_one(Pinned)
        head.display = bool(head.content(max(1, (words.size.width or 1) - BAR_CELLS)))
        rest = head.changed() + 1 if head.display else 0
        others = (part for part in box.children if part not in (words, head) and part.display)
        rest += sum(max(1, part.outer_size.height) + 1 for part in others)
        most = max(3, self.app.size.height - self.FRAME_ROWS - 1 - rest)
        words.styles.max_height = most
        more = "↑↓ scroll   " if words.changed() > most else ""
        box.border_subtitle = Text(more + self.keys())

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As Textual's, but for regions: those are what was painted on the console below, where nobody sees it."""
        if regions and self.is_opaque:
            return self
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self.query_one(Words).scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self.query_one(Words).scroll_pages(pages)
