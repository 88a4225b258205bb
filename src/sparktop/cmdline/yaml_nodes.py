"""YAML (and JSON, a subset of it), read safely: as values, or as nodes whose scalars know where each character stands;
and written as people write it, several lines as a block, nothing folded.

Every YAML text is read here. A few lines of aliases of aliases stand for gigabytes, so what they expand to is counted
before anything walks or copies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from sparktop.cmdline.source import Document, Word
from sparktop.errors import ConfigError

Node = yaml.Node | None

MAX_ALIASED = 20_000
"""How many values aliases may add to those that are written."""
MAX_LEVELS = 100
_NEEDS_QUOTES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\xa0\u2028\u2029\ufeff]")
"""Characters that YAML folds or takes for a line end."""


class UnreadableYaml(ConfigError):
    """Invalid YAML: the line (1 where unknown), and what is wrong there."""

    def __init__(self, document: Document, line: int | None, what: str, *, hint: str | None = None) -> None:
        super().__init__(f"{document.name}:{line}: {what}" if line else f"{document.name}: {what}", hint=hint)
        self.line = line or 1
        self.what = what


class TooLarge(yaml.YAMLError):
    """A document whose aliases stand for too much, or that is nested too deeply."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem)
        self.problem = problem
        self.problem_mark = mark


class Loader(yaml.SafeLoader):
    """A loader that counts what stands under each node with every alias written out, without writing any out."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = self._aliased = 0
        self._levels = [0]
        """Under each node that is open: the levels of its deepest child so far."""
        self._sizes: dict[int, tuple[int, int]] = {}
        """Of each node that is closed: values, levels."""

    def compose_node(self, parent: Node, index: Any) -> Node:
        """The next node.

        Raises:
            TooLarge: it stands for too much, is too deep, or without end.
        """
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        is_alias, before = self.check_event(yaml.AliasEvent), self._values
        self._levels.append(0)
        self._check_levels(mark)
        node = super().compose_node(parent, index)
        levels = 1 + self._levels.pop()
        if not is_alias:
            self._values += 1
            self._sizes[id(node)] = self._values - before, levels
        elif id(node) not in self._sizes:
            raise TooLarge("an alias stands inside what it is an alias of", mark)
        else:
            values, levels = self._sizes[id(node)]
            self._values += values
            self._aliased += values
            if self._aliased > MAX_ALIASED:
                raise TooLarge(f"its aliases stand for more than {MAX_ALIASED:,} values", mark)
            self._check_levels(mark, levels)
        self._levels[-1] = max(self._levels[-1], levels)
        return node

    def _check_levels(self, mark: yaml.Mark, more: int = 0) -> None:
        if len(self._levels) - 1 + more > MAX_LEVELS:
            raise TooLarge(f"more than {MAX_LEVELS} levels stand inside one another", mark)


def values_of(text: str, loader_class: type[Loader] = Loader) -> Any:
    """The one document of a YAML text as Python's own values.

    Raises:
        ValueError: it is no YAML, or stands for too much.
    """
    try:
        return loader_class(text).get_single_data()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"no YAML that can be read ({type(error).__name__})") from error


def root_of(document: Document) -> yaml.Node | None:
    """The first document's root node; None for an empty document.

    Raises:
        UnreadableYaml: the document is not valid YAML.
    """
    try:
        loader = Loader(document.text)
        if "\n---" not in document.text:
            return loader.get_single_node()
        return loader.get_node() if loader.check_node() else None
    except yaml.YAMLError as error:
        raise _yaml_error(document, error) from error
    except (RecursionError, ValueError) as error:
        raise UnreadableYaml(document, None, f"no YAML that can be read ({type(error).__name__})") from error


def _yaml_error(document: Document, error: yaml.YAMLError) -> UnreadableYaml:
    """The error, at the line where the problem began rather than where the parser gave up."""
    mark, began = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it can't be read"
    if isinstance(error, TooLarge):
        return UnreadableYaml(document, document.line_of(mark.index) if mark else None, error.problem)
    if "\\t" in what and mark is not None:
        text = "no YAML: a tab stands in the indentation"
        return UnreadableYaml(document, document.line_of(mark.index), text, hint="YAML takes only spaces")
    if "quoted scalar" in (getattr(error, "context", None) or "") and began is not None:
        return UnreadableYaml(
            document, document.line_of(began.index), "no YAML: the quote that opens here is never closed"
        )
    return UnreadableYaml(document, document.line_of(mark.index) if mark else None, f"no YAML: {what}")


def pairs(node: Node) -> Iterator[tuple[Word, yaml.Node]]:
    """A mapping's keys and values, each key once, those merged by `<<` first; nothing for any other node.

    A key of its own wins over a merged one, and of several merged the first.
    """
    merged: dict[str, tuple[Word, yaml.Node]] = {}
    own: dict[str, tuple[Word, yaml.Node]] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode) and key.value == "<<":
            for source in reversed(items(value) or (value,)):
                merged |= {word.text: (word, below) for word, below in pairs(source)}
        elif isinstance(key, yaml.ScalarNode):
            own[key.value] = (_scalar_key(key), value)
    yield from {**merged, **own}.values()


def items(node: Node) -> tuple[yaml.Node, ...]:
    """A sequence's nodes; nothing for any other node."""
    return tuple(node.value) if isinstance(node, yaml.SequenceNode) else ()


def get(node: Node, *path: str) -> Node:
    """The node under these keys, one below the other; None where there is none."""
    for key in path:
        node = next((value for name, value in pairs(node) if name.text == key), None)
    return node


def text_at(document: Document, node: Node) -> Word | None:
    """A scalar as a text with positions; None for any other node, and for null."""
    if not isinstance(node, yaml.ScalarNode) or (node.tag == "tag:yaml.org,2002:null" and not node.style):
        return None
    raw = document.whole.part(node.start_mark.index, node.end_mark.index)
    inside = raw.part(1, -1) if node.style in ("'", '"') else raw
    return inside if inside.text == node.value else _aligned(node, inside)


def scalar(document: Document, node: Node) -> str:
    """A scalar's text; empty for everything else."""
    word = text_at(document, node)
    return word.text.strip() if word else ""


def _scalar_key(key: yaml.ScalarNode) -> Word:
    start = key.start_mark.index + (1 if key.style else 0)
    return Word(str(key.value), range(start, start + len(key.value)))


def _aligned(node: yaml.ScalarNode, source: Word) -> Word:
    """A scalar's value (folded, without indent, escapes written out) aligned with its source text; where they don't
    match, all its characters stand where it begins."""
    sign = {"'": "''|", '"': r"\\(?:x..|u.{4}|U.{8}|.)|"}.get(node.style, "")
    margin, begin = "*", 0
    if node.style in ("|", ">"):
        first = re.search(r"\n( *)[^ \n]", source.text)
        margin, begin = f"{{0,{len(first[1]) if first else 0}}}", source.text.find("\n")
    at: list[int] = []
    left = iter(node.value)
    wanted = next(left, None)
    for match in re.compile(rf"{sign}\n[ \t]{margin}|.", re.DOTALL).finditer(source.text, max(begin, 0)):
        text = _meant(match[0], node.style)
        if match.start() == begin and margin != "*":
            continue  # the end of the line with the sign
        if wanted == text or (wanted == " " and text == "\n"):
            at.append(source.at[match.start()])
            wanted = next(left, None)
        elif wanted is not None and text.strip():
            break
    return Word(node.value, at if wanted is None else [node.start_mark.index] * len(node.value))


def _meant(written: str, style: str) -> str:
    """The character that a piece of a scalar's source stands for; an escaped line's end for none."""
    if style != '"' or written[0] != "\\":
        return written[0]
    if written[1] in yaml.scanner.Scanner.ESCAPE_CODES:
        return chr(int(written.lstrip("\\xuU"), base=16))
    return str(yaml.scanner.Scanner.ESCAPE_REPLACEMENTS.get(written[1], ""))


class _Dumper(yaml.SafeDumper):
    """YAML dumper that keeps texts of several lines readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _NEEDS_QUOTES.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dumped(data: Mapping[str, object]) -> str:
    """The YAML text of a mapping, in its order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=110, allow_unicode=True)
