"""The colours: two themes of our own, and the tones that panes draw in. The only place where colours are written.

A tone never carries meaning alone: whatever is toned also has a glyph or a word (NO_COLOR, colour-blind eyes).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import Theme

if TYPE_CHECKING:
    from typing import Any

    from textual.app import App

DARK_VARIABLES = {
    "severity-info": "#7fb4e6",
    "severity-warning": "#f0b54a",
    "severity-critical": "#ff6f66",
    "ok": "#7ccf8a",
    "strong": "#f4f7fb",
    "body": "#c9d2dd",
    "quiet": "#8794a4",
    "faint": "#4d5867",
    "frame": "#354050",
    "frame-focus": "#76b9ed",
    "brand": "#8fd14f",
    "cursor": "#22344a",
    "graph": "#5fa8e0",
    "graph-fill": "#2c5578",
    "graph-power": "#d9a066",
    "hold-text": "#f2f6fa",
    "hold-engine": "#2f6fb3",
    "hold-gpu": "#7a5cc0",
    "hold-desktop": "#2b857d",
    "hold-processes": "#5b7a35",
    "hold-kernel": "#6b6357",
    "hold-unaccounted": "#a8485f",
    "hold-cache": "#44566a",
    "hold-free": "#1e2630",
}
LIGHT_VARIABLES = {
    "severity-info": "#1f6aa8",
    "severity-warning": "#8f5b00",
    "severity-critical": "#b3231b",
    "ok": "#1f7a35",
    "strong": "#0d1620",
    "body": "#2a3644",
    "quiet": "#5d6b7b",
    "faint": "#a3aebb",
    "frame": "#bcc6d1",
    "frame-focus": "#1f6aa8",
    "brand": "#3f7d10",
    "cursor": "#d3e4f5",
    "graph": "#2f7fc1",
    "graph-fill": "#a9cdea",
    "graph-power": "#a8641c",
    "hold-text": "#0d1620",
    "hold-engine": "#8fc1ee",
    "hold-gpu": "#c3b0f0",
    "hold-desktop": "#93d6cd",
    "hold-processes": "#bcd693",
    "hold-kernel": "#d2c8b6",
    "hold-unaccounted": "#f0a9b8",
    "hold-cache": "#c4d0dd",
    "hold-free": "#eef2f6",
}

DARK = Theme(
    name="sparktop-dark",
    dark=True,
    primary="#76b9ed",
    secondary="#5f7f9f",
    accent="#8fd14f",
    foreground="#c9d2dd",
    background="#0e1319",
    surface="#131a22",
    panel="#18212b",
    success="#7ccf8a",
    warning="#f0b54a",
    error="#ff6f66",
    variables={
        **DARK_VARIABLES,
        "border": "#76b9ed",
        "border-blurred": "#354050",
        "block-cursor-background": "#22344a",
        "block-cursor-foreground": "#f4f7fb",
        "footer-key-foreground": "#8fd14f",
        "scrollbar": "#2b3643",
        "scrollbar-background": "#0e1319",
        "scrollbar-corner-color": "#0e1319",
    },
)
LIGHT = Theme(
    name="sparktop-light",
    dark=False,
    primary="#1f6aa8",
    secondary="#5f7f9f",
    accent="#3f7d10",
    foreground="#2a3644",
    background="#f8fafc",
    surface="#f1f4f8",
    panel="#e6ebf1",
    success="#1f7a35",
    warning="#8f5b00",
    error="#b3231b",
    variables={
        **LIGHT_VARIABLES,
        "border": "#1f6aa8",
        "border-blurred": "#bcc6d1",
        "block-cursor-background": "#d3e4f5",
        "block-cursor-foreground": "#0d1620",
        "footer-key-foreground": "#3f7d10",
        "scrollbar": "#c3ccd6",
        "scrollbar-background": "#f8fafc",
        "scrollbar-corner-color": "#f8fafc",
    },
)
THEMES = (DARK, LIGHT)

TONES: Mapping[str, tuple[str, str, str]] = {
    "": ("body", "", ""),
    "strong": ("strong", "", "bold"),
    "value": ("strong", "", ""),
    "quiet": ("quiet", "", ""),
    "faint": ("faint", "", ""),
    "info": ("severity-info", "", ""),
    "warning": ("severity-warning", "", "bold"),
    "critical": ("severity-critical", "", "bold"),
    "ok": ("ok", "", ""),
    "verdict-ok": ("ok", "", "bold"),
    "verdict-info": ("severity-info", "", "bold"),
    "brand": ("brand", "", "bold"),
    "key": ("brand", "", ""),
    "frame": ("frame", "", ""),
    "frame-focus": ("frame-focus", "", ""),
    "title": ("strong", "", "bold"),
    "cursor": ("strong", "cursor", ""),
    "cursor-quiet": ("body", "cursor", ""),
    "tab": ("strong", "cursor", "bold"),
    "graph": ("graph", "", ""),
    "graph-fill": ("graph-fill", "", ""),
    "graph-power": ("graph-power", "", ""),
    "graph-warning": ("severity-warning", "", ""),
    "graph-critical": ("severity-critical", "", ""),
    **{
        f"hold-{kind}": ("hold-text", f"hold-{kind}", "")
        for kind in ("engine", "gpu", "desktop", "processes", "kernel", "unaccounted", "cache")
    },
    "hold-free": ("quiet", "hold-free", ""),
    **{
        f"mark-{kind}": (f"hold-{kind}", "", "")
        for kind in ("engine", "gpu", "desktop", "processes", "kernel", "unaccounted", "cache")
    },
    "mark-free": ("faint", "", ""),
}
"""Tone -> (colour of the text, colour behind it or "" for the widget's own, text style); colours by variable name.

Each has a faded twin, "~" before its name, for figures that are not of now, and one on the cursor's background,
"@cursor" after it.
"""

FADE = 0.45
"""How far faded colours move towards the background."""


def variable_defaults(theme: Theme) -> dict[str, str]:
    """Our variables for a theme that isn't ours: by whether it is dark."""
    return dict(DARK_VARIABLES if theme.dark else LIGHT_VARIABLES)


def tones(app: App[Any], background: Color) -> Mapping[str, Style]:
    """Every tone, and its faded twin, as a terminal style on this background, in the app's present theme."""
    values = tuple(app.theme_variables.get(name, "") for name in DARK_VARIABLES)
    return _tones(app.theme, values, background, app.no_color)


@lru_cache(maxsize=64)
def _tones(theme: str, values: tuple[str, ...], background: Color, no_color: bool) -> Mapping[str, Style]:
    colours = dict(zip(DARK_VARIABLES, values, strict=True))

    def parse(name: str) -> Color:
        try:
            return Color.parse(colours[name])
        except ColorParseError:
            return Color.parse(DARK_VARIABLES[name])

    found: dict[str, Style] = {}
    for tone, (name, behind, style) in TONES.items():
        # As greys the alarming colours would be darker than plain text: without colour they are the brightest.
        front = "strong" if no_color and name in ("severity-warning", "severity-critical") else name
        fore, under = parse(front), parse(behind) if behind else background
        found[tone] = Style(color=fore.rich_color, bgcolor=under.rich_color, bold="bold" in style or None)
        found[f"~{tone}"] = Style(
            color=background.blend(fore, 1 - FADE).rich_color, bgcolor=background.blend(under, 1 - FADE).rich_color
        )
    cursor = parse("cursor").rich_color
    found |= {f"{tone}@cursor": style + Style(bgcolor=cursor) for tone, style in found.items()}
    return found
