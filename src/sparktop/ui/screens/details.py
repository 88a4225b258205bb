"""A dialog that says all there is to say about one thing: sections of facts and paragraphs, nothing to decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktop.ui.theme import tones
from sparktop.ui.widgets.ink import Line
from sparktop.ui.widgets.log_file import mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with facts, paragraphs, or both below it; text is shown as it is, never as markup."""

    heading: str
    facts: tuple[tuple[str, str], ...] = ()
    """(label, value) pairs; the values stand in one column."""
    paragraphs: tuple[Line, ...] = ()
    """Each is wrapped to the width there is."""

    def plain(self) -> str:
        """For the clipboard."""
        rows = [self.heading, *(f"{label}: {value}" for label, value in self.facts)]
        return "\n".join([*rows, *(line.plain for line in self.paragraphs)])


class DetailsScreen(ModalScreen[None]):
    """Shows sections; Esc, q, d or Enter closes it, y copies it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,d,enter", "close", "Close", show=False),
        Binding("y,c", "copy", "Copy", show=False),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
    ]
    DEFAULT_CSS = """
    DetailsScreen { align: center middle; }
    DetailsScreen > .dialog { width: 100; max-width: 94%; height: auto; max-height: 92%; }
    DetailsScreen VerticalScroll { height: auto; max-height: 100%; }
    DetailsScreen .section { height: auto; }
    """

    def __init__(self, title: str, sections: tuple[Section, ...], *, tone: str = "title") -> None:
        super().__init__()
        self._heading = title
        self._sections = sections
        self._tone = tone

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Text(self._heading)
            box.border_subtitle = Text("Esc close   y copy   ↑↓ scroll")
            with VerticalScroll(can_focus=False):
                yield from (Static(classes="section", markup=False) for _ in self._sections)

    def on_mount(self) -> None:
        for place, section in zip(self.query(".section").results(Static), self._sections, strict=True):
            place.update(self._text(section))

    def _text(self, section: Section) -> Text:
        styles = tones(self.app, self.query_one(".dialog").background_colors[1])
        text = Text().append(section.heading, styles["title"])
        widest = max((len(label) for label, _ in section.facts), default=0)
        for label, value in section.facts:
            text.append(f"\n{label:<{widest}}  ", styles["quiet"])
            text.append(value, styles[""])
        for paragraph in section.paragraphs:
            text.append("\n")
            for run, tone in paragraph.runs:
                text.append(run, styles[tone])
        return text

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        body = "\n\n".join([self._heading, *(section.plain() for section in self._sections)])
        self.app.copy_to_clipboard(mask(body))
        self.notify("Copied.", markup=False, timeout=3)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        body = self.query_one(VerticalScroll)
        body.scroll_relative(y=pages * max(1, body.size.height - 1), animate=False)
