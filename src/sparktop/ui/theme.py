"""The colours: two themes, and the tones that panes draw in; and ASCII. No colour is written anywhere else.

A tone never carries meaning alone: whatever is toned also has a glyph or a word (NO_COLOR, colour blindness).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.color import Color, ColorParseError
from textual.filter import LineFilter
from textual.theme import Theme

from sparktop.errors import ConfigError
from sparktop.text.ascii import ascii_text
from sparktop.text.lines import Line

if TYPE_CHECKING:
    from typing import Any

    from textual.app import App

COLOURS = {
    "severity-info": ("#7fb4e6", "#1f6aa8"),
    "severity-warning": ("#f0b54a", "#8f5b00"),
    "severity-critical": ("#ff6f66", "#b3231b"),
    "ok": ("#7ccf8a", "#1f7a35"),
    "strong": ("#f4f7fb", "#0d1620"),
    "body": ("#c9d2dd", "#2a3644"),
    "quiet": ("#8794a4", "#5d6b7b"),
    "faint": ("#4d5867", "#a3aebb"),
    "frame": ("#354050", "#bcc6d1"),
    "frame-focus": ("#76b9ed", "#1f6aa8"),
    "brand": ("#8fd14f", "#3f7d10"),
    "cursor": ("#22344a", "#d3e4f5"),
    "graph": ("#5fa8e0", "#2f7fc1"),
    "graph-fill": ("#2c5578", "#a9cdea"),
    "graph-power": ("#d9a066", "#a8641c"),
    "bar-text": ("#0e1319", "#f8fafc"),
    "hold-text": ("#f2f6fa", "#0d1620"),
    "hold-engine": ("#2f6fb3", "#8fc1ee"),
    "hold-gpu": ("#7a5cc0", "#c3b0f0"),
    "hold-desktop": ("#2b857d", "#93d6cd"),
    "hold-processes": ("#5b7a35", "#bcd693"),
    "hold-kernel": ("#6b6357", "#d2c8b6"),
    "hold-unaccounted": ("#a8485f", "#f0a9b8"),
    "hold-cache": ("#44566a", "#c4d0dd"),
    "hold-free": ("#1e2630", "#eef2f6"),
}
"""Variable -> (its colour in the dark theme, in the light one)."""
GROUNDS = {
    "background": ("#0e1319", "#f8fafc"),
    "surface": ("#131a22", "#f1f4f8"),
    "panel": ("#18212b", "#e6ebf1"),
    "scrollbar": ("#2b3643", "#c3ccd6"),
}
DARK_VARIABLES = {name: dark for name, (dark, _) in COLOURS.items()}
LIGHT_VARIABLES = {name: light for name, (_, light) in COLOURS.items()}


def _theme(name: str, *, is_dark: bool) -> Theme:
    colours = DARK_VARIABLES if is_dark else LIGHT_VARIABLES
    grounds = {ground: dark if is_dark else light for ground, (dark, light) in GROUNDS.items()}
    return Theme(
        name=name,
        dark=is_dark,
        primary=colours["frame-focus"],
        secondary="#5f7f9f",
        accent=colours["brand"],
        foreground=colours["body"],
        background=grounds["background"],
        surface=grounds["surface"],
        panel=grounds["panel"],
        success=colours["ok"],
        warning=colours["severity-warning"],
        error=colours["severity-critical"],
        variables={
            **colours,
            "border": colours["frame-focus"],
            "border-blurred": colours["frame"],
            "block-cursor-background": colours["cursor"],
            "block-cursor-foreground": colours["strong"],
            "footer-key-foreground": colours["brand"],
            "scrollbar": grounds["scrollbar"],
            "scrollbar-background": grounds["background"],
            "scrollbar-corner-color": grounds["background"],
        },
    )


DARK = _theme("sparktop-dark", is_dark=True)
LIGHT = _theme("sparktop-light", is_dark=False)
THEMES = (DARK, LIGHT)

HOLDERS = ("engine", "gpu", "desktop", "processes", "kernel", "unaccounted", "cache")
TONES: Mapping[str, tuple[str, str, str]] = {
    "": ("body", "", ""),
    **{
        name: (name, "", "")
        for name in ("quiet", "faint", "ok", "frame", "frame-focus", "graph", "graph-fill", "graph-power")
    },
    "strong": ("strong", "", "bold"),
    "value": ("strong", "", ""),
    "info": ("severity-info", "", ""),
    "warning": ("severity-warning", "", "bold"),
    "critical": ("severity-critical", "", "bold"),
    "verdict-ok": ("ok", "", "bold"),
    "verdict-info": ("severity-info", "", "bold"),
    "brand": ("brand", "", "bold"),
    "key": ("brand", "", ""),
    "title": ("strong", "", "bold"),
    "cursor": ("strong", "cursor", ""),
    "tab": ("strong", "cursor", "bold"),
    **{
        f"bar-{tone}{'-bold' if style else ''}": ("bar-text", f"severity-{tone}", style)
        for tone in ("info", "warning", "critical")
        for style in ("", "bold")
    },
    "log-error": ("severity-critical", "", ""),
    "log-warning": ("severity-warning", "", ""),
    "hit": ("strong", "cursor", "underline"),
    "hit-current": ("severity-warning", "", "bold reverse"),
    "graph-warning": ("severity-warning", "", ""),
    "graph-critical": ("severity-critical", "", ""),
    **{f"hold-{kind}": ("hold-text", f"hold-{kind}", "") for kind in HOLDERS},
    "hold-free": ("quiet", "hold-free", ""),
    **{f"mark-{kind}": (f"hold-{kind}", "", "") for kind in HOLDERS},
    "mark-free": ("faint", "", ""),
    **{
        f"fill-{lower}-{upper}": (f"hold-{lower}", f"hold-{upper}", "")
        for lower, upper in combinations(("engine", "processes", "unaccounted", "cache"), 2)
    },
}
"""Tone -> (colour of the text, colour behind it or "" for the widget's own, text style); colours by variable name.

Each also comes faded, with "~" before its name, for outdated figures, and on the cursor's background, with "@cursor"
after it.
"""

FADE = 0.45
"""How far faded colours move towards the background, 0 to 1."""


SHORT_NAMES = {"dark": DARK.name, "light": LIGHT.name}


def named_theme(name: str, available: Iterable[str]) -> str:
    """The theme of this name, or of a short one.

    Raises:
        ConfigError: there is none; the hint has all names.
    """
    full_name = SHORT_NAMES.get(name, name)
    if full_name not in available:
        names = ", ".join((*SHORT_NAMES, *sorted(set(available) - set(SHORT_NAMES.values()))))
        raise ConfigError(f"there is no theme {name!r}", hint=f"themes: {names}")
    return full_name


class AsciiFilter(LineFilter):
    """Draws everything in ASCII: borders, bars, graphs, signs and remote text."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_text(segment.text), segment.style, segment.control) for segment in segments]


def variable_defaults(theme: Theme) -> dict[str, str]:
    """Our colour variables for one of Textual's own themes, dark or light."""
    return dict(DARK_VARIABLES if theme.dark else LIGHT_VARIABLES)


def styled(lines: Iterable[Line], styles: Mapping[str, Style]) -> Text:
    """The lines as rich text, in the styles of their tones."""
    return Text("\n").join(Text.assemble(*((run, styles[tone]) for run, tone in line.runs)) for line in lines)


def tones(app: App[Any], background: Color) -> Mapping[str, Style]:
    """Tone name -> terminal style on this background in the app's theme; with the faded and cursor variants."""
    values = tuple(app.theme_variables.get(name, "") for name in DARK_VARIABLES)
    return _tones(app.theme, values, background, app.no_color)


_LOUD = ("severity-warning", "severity-critical")


@lru_cache(maxsize=64)
def _tones(theme: str, values: tuple[str, ...], background: Color, no_color: bool) -> Mapping[str, Style]:
    colours = dict(zip(DARK_VARIABLES, values, strict=True))

    def parse(name: str) -> Color:
        try:
            return Color.parse(colours[name])
        except ColorParseError:
            return Color.parse(DARK_VARIABLES[name])

    styles: dict[str, Style] = {}
    for tone, (name, background_name, style) in TONES.items():
        # Without colour, red and amber would be darker greys than plain text: they become the brightest tone, and a
        # bar is plain text reversed.
        names = ["strong" if no_color and name in _LOUD else name for name in (name, background_name)]
        text_colour, tone_background = parse(names[0]), parse(names[1]) if background_name else background
        colour = Style(color=text_colour.rich_color, bgcolor=tone_background.rich_color)
        styles[tone] = colour + Style.parse(style)
        styles[f"~{tone}"] = Style(
            color=background.blend(text_colour, 1 - FADE).rich_color,
            bgcolor=background.blend(tone_background, 1 - FADE).rich_color,
        )
    cursor = parse("cursor").rich_color
    styles |= {f"{tone}@cursor": style + Style(bgcolor=cursor) for tone, style in styles.items()}
    return styles
