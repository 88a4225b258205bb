"""YAML (and JSON, a subset of it), read safely: as values, or as nodes whose scalars know where each character stands.

Every YAML text is read here. A few lines of aliases of aliases stand for gigabytes, so what they expand to is counted
before anything walks or copies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from sparktop.cmdline.source import Document, Word, joined
from sparktop.errors import ConfigError

Node = yaml.Node | None

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
MAX_MERGES = 100
MAX_ALIASED = 20_000
"""How many values aliases may add to those that are written."""
MAX_LEVELS = 100


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


def values_of(text: str, loader_class: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The one document of a YAML text as Python's own values.

    Raises:
        ValueError: it is no YAML, or stands for too much.
    """
    try:
        loader = loader_class(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check_size(root)
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"no YAML that can be read ({type(error).__name__})") from error


def _check_size(root: yaml.Node) -> None:
    """Count what stands under each node with every alias written out, without writing any out.

    Raises:
        TooLarge: that is too much, too deep, or without end.
    """
    sizes: dict[int, tuple[int, int]] = {}
    """Of each node that is counted: values, levels."""
    counting: set[int] = set()
    left: list[yaml.Node] = [root]
    while left:
        node = left[-1]
        key = id(node)
        if key in sizes:
            left.pop()
            continue
        inner = _inner(node)
        missing = [child for child in inner if id(child) not in sizes]
        if missing:
            if key in counting or any(id(child) in counting for child in missing):
                raise TooLarge("an alias stands inside what it is an alias of", node.start_mark)
            counting.add(key)
            left += missing
            continue
        counting.discard(key)
        values = 1 + sum(sizes[id(child)][0] for child in inner)
        levels = 1 + max((sizes[id(child)][1] for child in inner), default=0)
        if levels > MAX_LEVELS:
            raise TooLarge(f"more than {MAX_LEVELS} levels stand inside one another", node.start_mark)
        if values > len(sizes) + MAX_ALIASED:
            raise TooLarge(f"its aliases stand for more than {MAX_ALIASED:,} values", node.start_mark)
        sizes[key] = values, levels
        left.pop()


def _inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def root_of(document: Document) -> yaml.Node | None:
    """The first document's root node; None for an empty document.

    Raises:
        UnreadableYaml: the document is not valid YAML.
    """
    try:
        loader = yaml.SafeLoader(document.text)
        try:
            if "\n---" not in document.text:
                root = loader.get_single_node()
            else:
                root = loader.get_node() if loader.check_node() else None
            if root is not None:
                _check_size(root)
            return root
        finally:
            loader.dispose()
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


def pairs(node: Node, merged: set[int] | None = None) -> Iterator[tuple[Word, yaml.Node]]:
    """A mapping's keys and values, those merged by `<<` first; nothing for any other node.

    `merged` are the nodes merged already: each counts once, so that anchors can't multiply.
    """
    merged = set() if merged is None else merged
    if not isinstance(node, yaml.MappingNode) or id(node) in merged or len(merged) > MAX_MERGES:
        return
    merged.add(id(node))
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<":
            for source in items(value) or (value,):
                yield from pairs(source, merged)
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            yield _scalar_key(key), value


def items(node: Node) -> tuple[yaml.Node, ...]:
    """A sequence's nodes; nothing for any other node."""
    return tuple(node.value) if isinstance(node, yaml.SequenceNode) else ()


def get(node: Node, *path: str) -> Node:
    """The node under these keys, one below the other; None where there is none."""
    for key in path:
        node = next((value for name, value in reversed(list(pairs(node))) if name.text == key), None)
    return node


def text_at(document: Document, node: Node) -> Word | None:
    """A scalar as a text with positions; None for any other node, and for null."""
    if not isinstance(node, yaml.ScalarNode) or (node.tag == "tag:yaml.org,2002:null" and not node.style):
        return None
    start, end = node.start_mark.index, node.end_mark.index
    raw = document.whole.part(start, end)
    if node.style is None:
        return raw if raw.text == node.value or "\n" in raw.text else _unlocated(node, start)
    if node.style == "'":
        return _checked(node, _single_quoted(raw.part(1, -1)), start)
    if node.style == '"':
        return _checked(node, _double_quoted(raw.part(1, -1)), start)
    return _block(node, raw) or _unlocated(node, start)


def scalar(document: Document, node: Node) -> str:
    """A scalar's text; empty for everything else."""
    word = text_at(document, node)
    return word.text.strip() if word else ""


def _scalar_key(key: yaml.ScalarNode) -> Word:
    start = key.start_mark.index + (1 if key.style else 0)
    return Word(str(key.value), range(start, start + len(key.value)))


def _block(node: yaml.ScalarNode, raw: Word) -> Word | None:
    """A block scalar's value (folded, unindented) aligned with its source text; None where they don't match."""
    lines = raw.text.split("\n")[1:]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    indent = indents[0] if indents else 0
    position = raw.text.find("\n") + 1
    at: list[int] = []
    is_begin = True
    for char in node.value:
        while True:
            if is_begin:
                margin = raw.text[position : position + indent]
                position += len(margin) - len(margin.lstrip(" "))
                is_begin = False
            source_char = raw.text[position : position + 1]
            if source_char == char or (char == " " and source_char == "\n"):
                break
            if source_char not in ("\n", "\r"):
                return None
            position += 1
            is_begin = source_char == "\n"
        at.append(raw.at[position])
        is_begin = source_char == "\n"
        position += 1
    return Word(node.value, at)


def _unlocated(node: yaml.ScalarNode, start: int) -> Word:
    """Text whose characters can't be located one by one: all have the position of its start."""
    return Word(node.value, [start] * len(node.value))


def _checked(node: yaml.ScalarNode, word: Word, start: int) -> Word:
    return word if word.text == node.value or "\n" in word.text else _unlocated(node, start)


def _single_quoted(raw: Word) -> Word:
    pieces, index = [], 0
    while index < len(raw.text):
        pieces.append(raw.part(index, index + 1))
        index += 2 if raw.text.startswith("''", index) else 1
    return joined(pieces)


def _double_quoted(raw: Word) -> Word:
    pieces, index = [], 0
    while index < len(raw.text):
        char = raw.text[index]
        if char == "\\" and index + 1 < len(raw.text):
            following = raw.text[index + 1]
            if following in "\r\n":
                index += 2
                continue
            width = {"x": 4, "u": 6, "U": 10}.get(following)
            if width:
                try:
                    text = chr(int(raw.text[index + 2 : index + width], 16))
                except (ValueError, OverflowError):
                    text = ""
            else:
                text = _ESCAPES.get(following, following)
            pieces.append(Word(text, raw.at[index : index + 1] if text else ()))
            index += width or 2
            continue
        pieces.append(raw.part(index, index + 1))
        index += 1
    return joined(pieces)
