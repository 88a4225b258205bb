"""Read a recipe's mappings key by key: values are checked and keep their place; keys nobody read are reported."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

import yaml

from sparktop.cmdline.source import Document
from sparktop.cmdline.yaml_nodes import pairs
from sparktop.dataclass import dataclass
from sparktop.errors import nearest
from sparktop.model.recipe import Scalar
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.problems import Problem, ProblemKind, shown

MAX_PROBLEMS = 100
MAX_NAMED = 30
"""The most known keys listed in the problem of an unknown one."""
_TAG = "tag:yaml.org,2002:"
_PLAIN = re.compile(r"\d{1,9}\.\d{1,9}")
_constructor = yaml.constructor.SafeConstructor()

_T = TypeVar("_T")
Plain = Scalar | list["Plain"] | dict[str, "Plain"] | None


class Figure(float):
    """A fraction that prints as it was typed: "0.70", which a float would print as 0.7."""

    __slots__ = ("typed",)
    typed: str

    @classmethod
    def of(cls, value: float, typed: str) -> float:
        """The value with its text, where that is a plain fraction."""
        if not _PLAIN.fullmatch(typed):
            return value
        figure = cls(value)
        figure.typed = typed
        return figure

    def __str__(self) -> str:
        return self.typed


class Entry(NamedTuple):
    """A key's offset in the file, and its value."""

    offset: int
    node: yaml.Node


@dataclass(slots=True)
class Sheet:
    """A recipe file while it is being read: its text, and its problems so far."""

    document: Document
    problems: list[Problem] = field(default_factory=list)

    def add(self, offset: int, key: str, text: str, *, kind: ProblemKind, nearest: str = "", remedy: str = "") -> None:
        """Report a problem at an offset of the text; ignored once there are too many."""
        if self.is_full or (kind is ProblemKind.NOTE and len(self.problems) >= MAX_PROBLEMS):
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
        """Drop the "missing" problem of a key that is there but misspelt: the typo alone is reported."""
        self.problems[:] = [
            problem for problem in self.problems if (problem.kind, problem.key) != (ProblemKind.MISSING, key)
        ]

    @property
    def is_full(self) -> bool:
        """Whether there are so many problems that more would not help."""
        return len(self.problems) >= MAX_PROBLEMS and any(problem.is_error for problem in self.problems)


def value_of(node: yaml.Node) -> Plain:
    """A node's value as Python has it; a timestamp stays text. How much it can be, the loader has limited.

    Raises:
        ValueError: an invalid number, or a custom tag.
    """
    if isinstance(node, yaml.ScalarNode):
        return scalar_of(node)
    if not node.tag.startswith(_TAG) or "/" in node.tag:
        raise ValueError(f"the tag {shown(node.tag, 30)} is not a standard YAML tag")
    if isinstance(node, yaml.SequenceNode):
        return [value_of(item) for item in node.value]
    return {key.text: value_of(value) for key, value in pairs(node)}


def scalar_of(node: yaml.ScalarNode) -> Scalar | None:
    """A scalar by its tag, as YAML 1.1 resolves it.

    Raises:
        ValueError: an invalid or infinite number, or a custom tag.
    """
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return bool(_made(_constructor.construct_yaml_bool, node))
    if kind == "int":
        number = int(_made(_constructor.construct_yaml_int, node))
        if abs(number) >= 1 << 63:
            raise ValueError("the number is too large")
        return number
    if kind == "float":
        real = float(_made(_constructor.construct_yaml_float, node))
        if not math.isfinite(real):
            raise ValueError("the number is not finite")
        return Figure.of(real, str(node.value))
    if kind in ("str", "timestamp", "value", "merge"):
        text = str(node.value)
        if forbidden := next((char for char in text if _is_forbidden(char)), ""):
            raise ValueError(f"it has a control character (U+{ord(forbidden):04X})")
        return text
    raise ValueError(f"the tag {shown(node.tag)} is not a standard YAML tag")


def _made(make: Callable[[yaml.ScalarNode], Any], node: yaml.ScalarNode) -> Any:
    """The value of an explicit tag, which the library reads without a look at the text: `!!int` may have none."""
    try:
        return make(node)
    except (IndexError, KeyError) as error:
        raise ValueError(f"{shown(str(node.value))} is no {node.tag.removeprefix(_TAG)}") from error


def _is_forbidden(char: str) -> bool:
    """Whether the character could disguise a text or send control codes to a terminal."""
    return (char not in "\n\t\u00ad" and unicodedata.category(char) in ("Cc", "Cs")) or char in _BIDI


_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff")


class Fields:
    """One mapping of a recipe."""

    def __init__(self, sheet: Sheet, node: yaml.Node | None, path: str = "", offset: int = 0) -> None:
        self.sheet = sheet
        self.path = path
        self.offset = offset
        self._entries: dict[str, Entry] = {}
        self._read_names: set[str] = set()
        self._report_duplicates(node)
        for key, value in pairs(node):
            self._entries[key.text] = Entry(key.at[0] if key.at else offset, value)

    def _report_duplicates(self, node: yaml.Node | None) -> None:
        seen: dict[str, yaml.Node] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            start = key.start_mark.index
            if not isinstance(key, yaml.ScalarNode):
                self.sheet.add(start, self.path, "a key must be a text", kind=ProblemKind.WRONG)
            elif key.value in seen and is_same(value, seen[key.value]):
                self.sheet.add(start, self.dotted(key.value), "stands here a second time", kind=ProblemKind.NOTE)
            elif key.value in seen:
                text = "the key is here a second time, and YAML readers differ in which one they use"
                self.sheet.add(start, self.dotted(key.value), text, kind=ProblemKind.TWICE, remedy="keep one")
            else:
                seen[key.value] = value

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def dotted(self, name: str) -> str:
        """The key's full path from the top of the file."""
        return f"{self.path}.{name}" if self.path else name

    def place(self, name: str) -> int:
        """The offset of a key, or of the mapping where the key is missing."""
        return self._entries[name].offset if name in self._entries else self.offset

    def node(self, name: str) -> yaml.Node | None:
        """A key's value; None where it is missing. Marks the key as read."""
        self._read_names.add(name)
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
        """Report a problem with a key."""
        self.sheet.add(self.place(name), self.dotted(name), text, kind=kind, nearest=nearest, remedy=remedy)

    def note(self, name: str, text: str, remedy: str = "") -> None:
        """Tell of something that is taken, perhaps not as its author means it."""
        self.add(name, text, kind=ProblemKind.NOTE, remedy=remedy)

    def missing(self, name: str, text: str, remedy: str = "") -> None:
        """Report what has to be there."""
        self.add(name, text, kind=ProblemKind.MISSING, remedy=remedy)

    def unsupported(self, name: str, text: str, remedy: str) -> None:
        """Refuse what sparktop knows and doesn't support."""
        self.add(name, text, kind=ProblemKind.UNSUPPORTED, remedy=remedy)

    def refused(
        self, name: str, error: CannotRender, kind: ProblemKind = ProblemKind.WRONG, offset: int | None = None
    ) -> None:
        """Report why no launch can be made of a key's value, at the key, or at this offset of the text."""
        kind = ProblemKind.UNSUPPORTED if error.is_unsupported else kind
        place = self.place(name) if offset is None else offset
        remedy = "; ".join(filter(None, error.remedies))
        self.sheet.add(place, self.dotted(name), error.text, kind=kind, nearest=error.nearest, remedy=remedy)

    def plain(self, name: str) -> Plain:
        """The value of any type; None where it is missing or unreadable, which is reported."""
        node = self.node(name)
        if node is None:
            return None
        try:
            return value_of(node)
        except ValueError as error:
            self.add(name, shown(error))
        return None

    def _of(self, name: str, kinds: type[_T] | tuple[type[_T], ...], expected: str) -> _T | None:
        """The value of one of these types; None where it is missing, or of another type, which is reported."""
        value = self.plain(name)
        if value is None or (isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool))):
            return value
        self._add_wrong_type(name, expected, self._entries[name].node)
        return None

    def text(self, name: str, default: str = "", *, is_any: bool = False) -> str:
        """A text; with `is_any` also a number or a date, as written."""
        node = self.node(name)
        if is_any and isinstance(node, yaml.ScalarNode):
            return default if self.plain(name) is None else str(node.value)
        value = self._of(name, str, "a text")
        return default if value is None else value

    def word(self, name: str, *, is_any: bool = False) -> str:
        """A text without white space, such as the name of a model or an image."""
        value = self.text(name, is_any=is_any).strip()
        if value.startswith("-") or any(char.isspace() for char in value):
            self.add(name, f"`{shown(value)}` is not a name", remedy="use no spaces and no leading dash")
            return ""
        return value

    def number(self, name: str, *, least: float = 0.0, most: float = 1e15) -> float | None:
        """A number within its limits."""
        value = self._of(name, (int, float), "a number")
        if value is None or least <= value <= most:
            return value if value is None else float(value)
        limits = f"from {least:g} to {most:g}" if most < 1e15 else f"{least:g} or more"
        self.add(name, f"{value} is out of range: {limits}")
        return None

    def whole(self, name: str, *, least: int = 0, most: int = 1 << 40) -> int | None:
        """A whole number within its limits."""
        value = self.number(name, least=least, most=most)
        if value is None:
            return None
        if value != int(value):
            self.add(name, f"{value:g} is not a whole number")
            return None
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self._of(name, bool, "true or false")
        return default if value is None else value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._of(name, list, "a list of texts") or ()
        if not all(isinstance(item, str) for item in value):
            self._add_wrong_type(name, "a list of texts", self._entries[name].node)
            return ()
        return tuple(map(str, value))

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of the choices; empty where the key is missing."""
        value = self.text(name).strip()
        if value and value not in choices:
            text = f"`{shown(value)}` is not one of {', '.join(choices)}"
            self.add(name, text, nearest=nearest(value, choices))
            return ""
        return value

    def section(self, name: str) -> Fields:
        """The mapping under a key; one without keys where there is none."""
        node = self.node(name)
        if node is not None and not isinstance(node, yaml.MappingNode) and not _is_null(node):
            self._add_wrong_type(name, "a mapping of keys", node)
            node = None
        return Fields(self.sheet, node, self.dotted(name), self.place(name))

    def sections(self, name: str) -> tuple[Fields, ...]:
        """The list of mappings under a key."""
        node = self.node(name)
        if node is None or _is_null(node):
            return ()
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(e, yaml.MappingNode) for e in node.value):
            self._add_wrong_type(name, "a list of mappings", node)
            return ()
        dotted = self.dotted(name)
        return tuple(
            Fields(self.sheet, item, f"{dotted}[{index}]", item.start_mark.index)
            for index, item in enumerate(node.value)
        )

    def finish(
        self,
        *,
        elsewhere: Mapping[str, str] | None = None,
        meant: str = "",
        may_have_others: bool = False,
    ) -> None:
        """Report every key that was not read; `elsewhere`: where some of them belong, `meant`: a general hint,
        `may_have_others`: only one that is a known key but for a letter or two is an error."""
        for name in self._entries:
            if name in self._read_names or self.sheet.is_full:
                continue
            location = (elsewhere or {}).get(name, "")
            nearest_key = "" if location else nearest(name, self._read_names, least=0.8 if may_have_others else 0.6)
            if may_have_others and not location and not nearest_key:
                self.add(name, "unknown key: sparktop ignores it", kind=ProblemKind.NOTE)
                continue
            known_keys = (
                f"known keys: {', '.join(sorted(self._read_names))}" if len(self._read_names) <= MAX_NAMED else ""
            )
            if nearest_key:
                self.sheet.is_there(self.dotted(nearest_key))
            self.add(
                name,
                "unknown key",
                kind=ProblemKind.UNKNOWN,
                nearest=location or (self.dotted(nearest_key) if nearest_key else ""),
                remedy="" if location or nearest_key else meant or known_keys,
            )

    def _add_wrong_type(self, name: str, expected: str, node: yaml.Node) -> None:
        self.add(name, f"must be {expected}, but is {_description(node)}")


def is_same(node: yaml.Node, other: yaml.Node) -> bool:
    """Whether two scalars have one value; anything larger counts as different."""
    return isinstance(node, yaml.ScalarNode) and (node.tag, node.value) == (other.tag, other.value)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def _description(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    kind = node.tag.removeprefix(_TAG)
    type_name = {"str": "the text ", "int": "the number ", "float": "the number ", "bool": "the truth value "}.get(
        kind, ""
    )
    return f"{type_name}`{shown(node.value)}`"
