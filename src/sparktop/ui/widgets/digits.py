"""Large digits, three lines high, for the one figure the eye should find first."""

from __future__ import annotations

_GLYPHS = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"),
    "1": ("╺┓ ", " ┃ ", "╺┻╸"),
    "2": ("╺━┓", "┏━┛", "┗━╸"),
    "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"),
    "5": ("┏━╸", "┗━┓", "╺━┛"),
    "6": ("┏━╸", "┣━┓", "┗━┛"),
    "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"),
    "9": ("┏━┓", "┗━┫", "╺━┛"),
    ".": (" ", " ", "."),
    " ": ("   ", "   ", "   "),
}


def large(text: str) -> tuple[str, str, str]:
    """Three lines that show digits, points and spaces; any other character stands on the last line as it is."""
    columns = [_GLYPHS.get(char, (" ", " ", char)) for char in text]
    top, middle, bottom = ("".join(column[row] for column in columns) for row in range(3))
    return top, middle, bottom
