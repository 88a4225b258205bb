"""YAML (and JSON, a subset of it) as nodes whose scalars know the position of each character."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from sparktop.cmdline.source import Document, Word, joined
from sparktop.errors import ConfigError

Node = yaml.Node | None

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
MAX_MERGES = 100


class UnreadableYaml(ConfigError):
    """Invalid YAML: the line (1 where unknown), and what is wrong there."""

    def __init__(self, document: Document, line: int | None, what: str, *, hint: str | None = None) -> None:
        super().__init__(f"{document.name}:{line}: {what}" if line else f"{document.name}: {what}", hint=hint)
        self.line = line or 1
        self.what = what


def root_of(document: Document) -> yaml.Node | None:
    """The first document's root node; None for an empty document.

    Raises:
        UnreadableYaml: the document is not valid YAML.
    """
    try:
        loader = yaml.SafeLoader(document.text)
        try:
            if "\n---" not in document.text:
                return loader.get_single_node()
            return loader.get_node() if loader.check_node() else None
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
