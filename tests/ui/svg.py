"""The screen as an SVG picture: every cell at its place, braille as dots, so that any renderer shows it aligned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

import pytest
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from textual.app import App
from textual.pilot import Pilot
from textual.strip import Strip

CELL_W, CELL_H, SIZE = 9.03, 17.5, 15
BASE = 13.9
"""The text's base line below the top of its cell."""
_WORDS = re.compile(r"(\s+|[\u2801-\u28ff]+)")
_DOTS = ((0x01, 0, 0), (0x02, 0, 1), (0x04, 0, 2), (0x40, 0, 3), (0x08, 1, 0), (0x10, 1, 1), (0x20, 1, 2), (0x80, 1, 3))


def strips_of(app: App[object]) -> list[Strip]:
    """What the terminal would show now, dialogs included."""
    return app.screen._compositor.render_strips()


def plain(app: App[object]) -> list[str]:
    """The same as text, a string a row."""
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips_of(app)]


def _hex(colour: Color | None, fallback: str) -> str:
    return colour.get_truecolor().hex if colour is not None else fallback


def ground_of(app: App[object]) -> str:
    """The colour behind everything."""
    return app.theme_variables["background"].lower()


def rows(app: App[object]) -> list[str]:
    """The elements of each row of the screen as it is."""
    return ["\n".join(_row(row, strip, ground_of(app))) for row, strip in enumerate(strips_of(app))]


def picture(app: App[object]) -> str:
    """An SVG of the screen as it is."""
    return page(app.size, ground_of(app), [row for row in rows(app) if row])


def page(cells: tuple[int, int], ground: str, body: list[str], css: Sequence[str] = ()) -> str:
    """An SVG of so many cells with these elements on its ground."""
    size = f"{cells[0] * CELL_W + 16:g}", f"{cells[1] * CELL_H + 16:g}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
        f'width="{size[0]}" height="{size[1]}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}" xml:space="preserve">'
    )
    out = [head, *(["<style>", *css, "</style>"] if css else [])]
    out += [f'<rect width="100%" height="100%" rx="6" fill="{ground}"/>', '<g transform="translate(8 8)">']
    return "\n".join([*out, *_patterns(body), *body, "</g>", "</svg>", ""])


def _row(row: int, strip: Iterable[Segment], ground: str) -> list[str]:
    behind: list[str] = []
    front: list[str] = []
    x, y = 0, row * CELL_H
    for text, style, _ in strip:
        cells = cell_len(text)
        fore = _hex(style.color if style else None, "#808080")
        back = _hex(style.bgcolor if style else None, ground)
        if style and style.reverse:
            fore, back = back, fore
        if back != ground:
            behind.append(
                f'<rect x="{x * CELL_W:.5g}" y="{y:g}" width="{cells * CELL_W:.5g}" height="{CELL_H:g}" fill="{back}"/>'
            )
        weight = ' font-weight="bold"' if style and style.bold else ""
        dots: list[str] = []
        at = x
        # A word a text element: renderers disagree on what blanks inside one are worth.
        for word in _WORDS.split(text):
            if word and 0x2800 < ord(word[0]) <= 0x28FF:
                for index, char in enumerate(word):
                    bits = ord(char) - 0x2800
                    dots.append(f'<use href="#b{bits}" x="{(at + index) * CELL_W:.5g}" y="{y:g}"/>')
            elif not word.isspace() and word:
                place = f'<text x="{at * CELL_W:.5g}" y="{y + BASE:g}" fill="{fore}"{weight}>'
                front.append(f"{place}{escape(word)}</text>")
            at += cell_len(word)
        if dots:
            front.append(f'<g fill="{fore}">{"".join(dots)}</g>')
        x += cells
    return [*behind, *front]


def _patterns(body: list[str]) -> list[str]:
    """Each braille pattern in use once, to be referred to by its cells."""
    used = sorted({int(found) for line in body for found in re.findall(r'href="#b(\d+)"', line)})
    shapes = [
        "".join(
            f"M{1.2 + 4.5 * column:g} {1.2 + 4.4 * line:g}h2.4v2.4h-2.4z" for bit, column, line in _DOTS if bits & bit
        )
        for bits in used
    ]
    return [
        "<defs>",
        *(f'<path id="b{bits}" d="{shape}"/>' for bits, shape in zip(used, shapes, strict=True)),
        "</defs>",
    ]


async def settle(pilot: Pilot[Any], condition: Callable[[], object]) -> None:
    """Let the app run until something is so."""
    for _ in range(200):
        await pilot.pause(0.02)
        if condition():
            return
    pytest.fail("it did not come; the screen was:\n" + "\n".join(plain(pilot.app)))
