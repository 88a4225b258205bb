"""A recipe's mappings, key by key: every value is typed and placed, and a key that nobody asked for is unknown."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

from sparktop.diagnose.lint.place import Document
from sparktop.diagnose.lint.yamlnodes import pairs
from sparktop.model.recipe import Scalar
from sparktop.recipe.problems import Problem, ProblemKind, nearest, shown

MAX_VALUES = 5_000
"""Of one recipe, its aliases followed: more is no recipe, but may be a small file all the same."""
MAX_DEPTH = 12
MAX_PROBLEMS = 100
MAX_NAMED = 30
"""Keys that are listed where one isn't known and none is near."""
_TAG = "tag:yaml.org,2002:"
_PLAIN = re.compile(r"\d{1,9}\.\d{1,9}")
_constructor = yaml.constructor.SafeConstructor()

Plain = Scalar | list["Plain"] | dict[str, "Plain"] | None


class Figure(float):
    """A fraction that is shown as it was typed: "0.70", which a float would make 0.7."""

    __slots__ = ("typed",)
    typed: str

    @classmethod
    def of(cls, value: float, typed: str) -> float:
        """With its text, where that is a plain one."""
        if not _PLAIN.fullmatch(typed):
            return value
        made = cls(value)
        made.typed = typed
        return made

    def __str__(self) -> str:
        return self.typed


class Entry(NamedTuple):
    """A key's place and its value."""

    offset: int
    node: yaml.Node


class Endless(Exception):
    """Values that would never end: an anchor within itself, or anchors that multiply."""


@dataclass(slots=True)
class Sheet:
    """A recipe file while it is read: its text, and what is wrong with it so far."""

    document: Document
    problems: list[Problem] = field(default_factory=list)
    values_left: int = MAX_VALUES

    def add(self, offset: int, key: str, text: str, *, kind: ProblemKind, nearest: str = "", remedy: str = "") -> None:
        """Note a problem at an offset of the text, while there are few enough to be read."""
        if self.is_full:
            return
        self.problems.append(
            Problem(
                file=self.document.name,
                line=max(self.document.line_of(offset), 1),
                key=shown(key, 120),
                text=text,
                nearest=nearest,
                remedy=remedy,
                kind=kind,
            )
        )

    def is_there(self, key: str) -> None:
        """A key that was told as missing stands there, misspelt: that alone is to be mended."""
        self.problems[:] = [one for one in self.problems if (one.kind, one.key) != (ProblemKind.MISSING, key)]

    @property
    def is_full(self) -> bool:
        """Whether so much is wrong that more would help nobody: what is named is to be mended first."""
        return len(self.problems) >= MAX_PROBLEMS and any(each.is_error for each in self.problems)

    def plain(self, node: yaml.Node, depth: int = 0) -> Plain:
        """A value as Python has it; a time stays the text it was.

        Raises:
            Endless: more values, or deeper ones, than a recipe has.
            ValueError: a number that is none, or a tag of somebody's own.
        """
        self.values_left -= 1
        if self.values_left < 0 or depth > MAX_DEPTH:
            raise Endless
        if isinstance(node, yaml.ScalarNode):
            return scalar_of(node)
        if not node.tag.startswith(_TAG) or "/" in node.tag:
            raise ValueError(f"the tag {shown(node.tag, 30)} isn't YAML's own")
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(each, depth + 1) for each in node.value]
        return {key.text: self.plain(value, depth + 1) for key, value in pairs(node)}


def scalar_of(node: yaml.ScalarNode) -> Scalar | None:
    """A scalar by its tag, as YAML 1.1 resolves it.

    Raises:
        ValueError: no number, not finite, or a tag that isn't YAML's own.
    """
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return bool(_constructor.construct_yaml_bool(node))
    if kind == "int":
        number = int(_constructor.construct_yaml_int(node))
        if abs(number) >= 1 << 63:
            raise ValueError("the number is too large")
        return number
    if kind == "float":
        real = float(_constructor.construct_yaml_float(node))
        if not math.isfinite(real):
            raise ValueError("the number isn't finite")
        return Figure.of(real, str(node.value))
    if kind in ("str", "timestamp", "value", "merge"):
        text = str(node.value)
        if unwanted := next((char for char in text if _is_unwanted(char)), ""):
            raise ValueError(f"there is a control character in it (U+{ord(unwanted):04X})")
        return text
    raise ValueError(f"the tag {shown(node.tag)} isn't YAML's own")


def _is_unwanted(char: str) -> bool:
    """Whether a text with it could be made to look like another one, or script a terminal."""
    return (char not in "\n\t\u00ad" and unicodedata.category(char) in ("Cc", "Cs")) or char in _BIDI


_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff")


class Fields:
    """One mapping of a recipe."""

    def __init__(self, sheet: Sheet, node: yaml.Node, path: str = "", offset: int = 0) -> None:
        self.sheet = sheet
        self.path = path
        self.offset = offset
        self._entries: dict[str, Entry] = {}
        self._asked: set[str] = set()
        self._note_twice(node)
        for key, value in pairs(node):
            self._entries[key.text] = Entry(key.at[0] if key.at else offset, value)

    def _note_twice(self, node: yaml.Node) -> None:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            start = key.start_mark.index
            if not isinstance(key, yaml.ScalarNode):
                self.sheet.add(start, self.path, "a key that is no text", kind=ProblemKind.WRONG)
            elif key.value in seen:
                text = "the key stands here a second time: YAML readers differ in which they take"
                self.sheet.add(start, self.dotted(key.value), text, kind=ProblemKind.TWICE, remedy="keep one of them")
            else:
                seen.add(key.value)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def dotted(self, name: str) -> str:
        """The key from the file's top."""
        return f"{self.path}.{name}" if self.path else name

    def place(self, name: str) -> int:
        """The offset of a key, or of the mapping where it isn't there."""
        return self._entries[name].offset if name in self._entries else self.offset

    def node(self, name: str) -> yaml.Node | None:
        """A key's value; None where there is none. The key counts as known from here on."""
        self._asked.add(name)
        entry = self._entries.get(name)
        return entry.node if entry else None

    def add(
        self,
        name: str,
        text: str,
        *,
        kind: ProblemKind = ProblemKind.WRONG,
        nearest: str = "",
        remedy: str = "",
    ) -> None:
        """Note a problem with a key."""
        self.sheet.add(self.place(name), self.dotted(name), text, kind=kind, nearest=nearest, remedy=remedy)

    def plain(self, name: str) -> Plain:
        """Whatever stands there; None where nothing does or where it can't be read, which is noted."""
        node = self.node(name)
        if node is None:
            return None
        try:
            return self.sheet.plain(node)
        except Endless:
            self.add(name, "too many values, or too deep, for a recipe", remedy="write it out without anchors")
        except ValueError as error:
            self.add(name, shown(error))
        return None

    def text(self, name: str, default: str = "", *, is_any: bool = False) -> str:
        """A text; with `is_any` a number or a date as it is written too."""
        node = self.node(name)
        if node is None:
            return default
        value = self.plain(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        if is_any and isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self._wrong(name, "a text", node)
        return default

    def word(self, name: str, *, is_any: bool = False) -> str:
        """A text without white space in or around it, as names of models and images are."""
        value = self.text(name, is_any=is_any).strip()
        if value.startswith("-") or any(char.isspace() for char in value):
            self.add(name, f"`{shown(value)}` is no name", remedy="it has no spaces, and no dash in front")
            return ""
        return value

    def number(self, name: str, *, least: float = 0.0, most: float = 1e15) -> float | None:
        """A number within its limits."""
        value = self.plain(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            if least <= value <= most:
                return float(value)
            limits = f"from {least:g} to {most:g}" if most < 1e15 else f"{least:g} or more"
            self.add(name, f"{value} is out of range: {limits}")
            return None
        self._wrong(name, "a number", self._entries[name].node)
        return None

    def whole(self, name: str, *, least: int = 0, most: int = 1 << 40) -> int | None:
        """A whole number within its limits."""
        value = self.number(name, least=least, most=most)
        if value is None:
            return None
        if value != int(value):
            self.add(name, f"{value:g} is no whole number")
            return None
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.plain(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        self._wrong(name, "true or false", self._entries[name].node)
        return default

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.plain(name)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(str(each) for each in value)
        self._wrong(name, "a list of texts", self._entries[name].node)
        return ()

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """One of the known words; empty where nothing stands there."""
        value = self.text(name).strip()
        if value and value not in known:
            text = f"`{shown(value)}` is none of {', '.join(known)}"
            self.add(name, text, nearest=nearest(value, known))
            return ""
        return value

    def section(self, name: str) -> Fields | None:
        """A mapping below this one; None where there is none."""
        node = self.node(name)
        if node is None or _is_null(node):
            return None
        if isinstance(node, yaml.MappingNode):
            return Fields(self.sheet, node, self.dotted(name), self.place(name))
        self._wrong(name, "a mapping of keys", node)
        return None

    def sections(self, name: str) -> tuple[Fields, ...]:
        """A list of mappings below this one."""
        node = self.node(name)
        if node is None or _is_null(node):
            return ()
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(e, yaml.MappingNode) for e in node.value):
            self._wrong(name, "a list of mappings", node)
            return ()
        if len(node.value) > MAX_VALUES // 10:
            self.add(name, "too many for a recipe")
            return ()
        dotted = self.dotted(name)
        return tuple(
            Fields(self.sheet, each, f"{dotted}[{index}]", each.start_mark.index)
            for index, each in enumerate(node.value)
        )

    def finish(self, *, elsewhere: dict[str, str] | None = None, meant: str = "") -> None:
        """Note every key that nobody asked for; `elsewhere`: where some belong, `meant`: what else to say of them."""
        for name in self._entries:
            if name in self._asked or self.sheet.is_full:
                continue
            place = (elsewhere or {}).get(name, "")
            near = "" if place else nearest(name, self._asked)
            known = f"known here: {', '.join(sorted(self._asked))}" if len(self._asked) <= MAX_NAMED else ""
            if near:
                self.sheet.is_there(self.dotted(near))
            self.add(
                name,
                "unknown key",
                kind=ProblemKind.UNKNOWN,
                nearest=place or (self.dotted(near) if near else ""),
                remedy="" if place or near else meant or known,
            )

    def _wrong(self, name: str, wanted: str, node: yaml.Node) -> None:
        self.add(name, f"wants {wanted}, and has {_said(node)}")


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def _said(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    kind = node.tag.removeprefix(_TAG)
    what = {"str": "the text ", "int": "the number ", "float": "the number ", "bool": "the truth value "}.get(kind, "")
    return f"{what}`{shown(node.value)}`"
