"""Command templates: `{parameters}` are filled in and the text is split into an argv, as a shell would split it.

As sparkrun does it (docs/facts/engines.md section 5.2): a value may name parameters again; a doubled brace is a literal
one where the template doubles any; every other brace stays as it is, so that JSON can be written plainly. What only a
shell could do (`&&`, another line, `$NAME`) is refused by name. A value never changes how the text around it is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import NoReturn

from sparktop.cmdline import shell
from sparktop.dataclass import dataclass
from sparktop.errors import nearest
from sparktop.model.recipe import Recipe, Scalar
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.problems import shown

MAX_DEPTH = 10
"""How deep values may name further parameters."""
MAX_TOKENS = 200_000
"""The most characters one command may have, with all values filled in."""

_PARAMETER_REFERENCE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATORS = {
    "&": "`&` and `&&`",
    "|": "a pipe",
    ";": "`;`",
    "<": "redirection",
    ">": "redirection",
    "(": "a subshell",
    ")": "a subshell",
    "`": "a command substitution",
}
ONE_COMMAND = "write one command without a shell: set variables in `env`, put scripts into the image"

Token = tuple[str, int, bool]
"""A character or a parameter's name, its offset in the template, whether it is a parameter."""


def tokens(template: str) -> list[Token]:
    """The template's characters and parameters, with doubled braces already reduced to single ones."""
    is_doubled = "{{" in template
    result: list[Token] = []
    index = 0
    while index < len(template):
        char = template[index]
        if is_doubled and char in "{}" and template.startswith(char * 2, index):
            result.append((char, index, False))
            index += 2
        elif char == "{" and (match := _PARAMETER_REFERENCE.match(template, index)):
            result.append((match[1], index, True))
            index = match.end()
        else:
            result.append((char, index, False))
            index += 1
    return result


@lru_cache(maxsize=1024)
def parameters(template: str) -> tuple[str, ...]:
    """The names of a template's parameters in their order, each once."""
    return tuple(dict.fromkeys(name for name, _, is_parameter in tokens(template) if is_parameter))


def used(template: str, values: Mapping[str, Scalar]) -> frozenset[str]:
    """All parameters a template uses, with those that their values name."""
    names: set[str] = set()
    pending = list(parameters(template))
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            pending += parameters(text_of(values[name])) if name in values else ()
    return frozenset(names)


def known_values(recipe: Recipe) -> dict[str, Scalar]:
    """The value of every parameter: the recipe's defaults first, then its own fields."""
    values: dict[str, Scalar] = {"model": recipe.model, "container": recipe.container}
    if recipe.model_revision:
        values["model_revision"] = recipe.model_revision
    if recipe.served_name:
        values["served_model_name"] = recipe.served_name
    values |= recipe.defaults
    values.setdefault("resolved_model_path", values["model"])
    return values


def text_of(value: Scalar) -> str:
    """A value as it is written in a command."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """Fill in the parameters of a text that is not split, such as a variable's value.

    Raises:
        CannotRender: it names an unknown parameter, or one that refers to itself.
    """
    return _Splitter(values).plain(text, 0, 0)


def render(template: str, values: Mapping[str, Scalar]) -> tuple[str, ...]:
    """The argv of a command template.

    Raises:
        CannotRender: it names an unknown parameter, needs a shell, or isn't one command.
    """
    return _rendered(template, tuple((name, text_of(value)) for name, value in values.items()))


@lru_cache(maxsize=256)  # one launch is asked many times what its engine starts with
def _rendered(template: str, values: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    splitter = _Splitter(dict(values))
    words = splitter.words(template.strip("\n"), len(template) - len(template.lstrip("\n")))
    words = words[1:] if words[:1] == ["exec"] else words
    if words[:1] == ["env"] and splitter.set_before:
        words = words[1:]
    if words and (splitter.set_before or _ASSIGNMENT.match(words[0])):
        words = ["env", *splitter.set_before, *words]
    if not words:
        raise CannotRender("the command is empty")
    return tuple(words)


def split_env(argv: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the command, the variables that `env NAME=value` before it sets)."""
    words, own = tuple(argv), dict[str, str]()
    if words[:1] == ("env",):
        words = words[1:]
        while words and _ASSIGNMENT.match(words[0]):
            name, _, own[name] = words[0].partition("=")
            words = words[1:]
    return words, own


@dataclass(slots=True)
class _Splitter:
    """The state of splitting one text into words."""

    values: Mapping[str, Scalar]
    done: list[str] = field(default_factory=list)
    open: list[str] | None = None
    """The unfinished word; None between words."""
    left: int = MAX_TOKENS
    has_ended: bool = False
    """Whether a line ended without a continuation: nothing may follow it."""
    set_before: list[str] = field(default_factory=list)
    """NAME=value words of an `export` before the command."""

    def words(self, text: str, offset: int) -> list[str]:
        self._split(text, offset, 0, "")
        self._close()
        return self.done

    def plain(self, text: str, offset: int, depth: int) -> str:
        pieces: list[str] = []
        for token, at, is_parameter in self._taken(text):
            if is_parameter and pieces[-1:] == ["$"]:
                pieces.append(f"{{{token}}}")  # ${NAME} is a shell's, and no parameter of ours
            elif is_parameter:
                position = offset if depth else offset + at
                pieces.append(self.plain(self._value(token, position, depth), position, depth + 1))
            else:
                pieces.append(token)
        return "".join(pieces)

    def _taken(self, text: str) -> list[Token]:
        self.left -= len(text) + 1
        if self.left < 0:
            raise CannotRender("the command is too long once its values are filled in", "shorten the values")
        return tokens(text)

    def _value(self, name: str, offset: int, depth: int) -> str:
        if name not in self.values:
            meant = nearest(name, self.values)
            remedy = f"set it: `defaults: {shown(name)}: ...`, or --set {shown(name)}=..."
            text = f"the parameter `{{{shown(name)}}}` has no value"
            raise CannotRender(text, "" if meant else remedy, nearest=meant, offset=offset)
        if depth >= MAX_DEPTH:
            raise CannotRender(f"`{{{shown(name)}}}` refers to itself", "set its value", offset=offset)
        return text_of(self.values[name])

    def _split(self, text: str, offset: int, depth: int, within: str) -> None:
        """Split a text further; `within`: the parameter whose value it is."""
        characters = self._taken(text)
        source = "".join("x" if is_parameter else char for char, _, is_parameter in characters)
        end = 0
        try:
            for token in shell.tokens(source, shell.Dialect.TEMPLATE):
                position = offset if depth else offset + characters[token.start][1]
                if token.start > end:
                    self._close()
                if isinstance(token, shell.Operator):
                    end = token.start + len(token.text)
                    self._operator(token, position, within)
                else:
                    end = token.end
                    self._word(token, characters, offset, depth, within)
        except shell.UnclosedQuote as error:
            opened_at = offset if depth else offset + characters[error.offset][1]
            raise CannotRender("this quote is never closed", offset=opened_at) from error
        if end < len(source):
            self._close()

    def _word(self, word: shell.ShellWord, characters: list[Token], offset: int, depth: int, within: str) -> None:
        for piece in word.pieces:
            position = offset if depth else offset + characters[min(piece.start, len(characters) - 1)][1]
            if piece.text is None:
                sign = characters[piece.start][0]
                self._refuse(position, _OPERATORS.get(sign, "a shell variable or substitution (`$`)"), within)
            if piece.is_quoted:
                self._begin(position)
            if len(piece.text) != piece.end - piece.start:  # an escape in $'...'
                self._put(piece.text)
                continue
            for char, at, is_parameter in characters[piece.start : piece.end]:
                position = offset if depth else offset + at
                if is_parameter:
                    self._parameter(char, position, depth, is_quoted=piece.is_quoted)
                else:
                    self._begin(position)
                    self._put(char)
        if word.array is not None:
            self._refuse(offset if depth else offset + characters[word.start][1], _OPERATORS["("], within)

    def _operator(self, operator: shell.Operator, position: int, within: str) -> None:
        self._close()
        if operator.text == "\n":
            if not within and not self._took_setting():
                self.has_ended = bool(self.done)
        elif operator.is_redirection:
            self._refuse(position, _OPERATORS[">"], within)
        elif within or operator.text not in (";", "&&") or not self._took_setting():
            self._refuse(position, _OPERATORS[operator.text[0]], within)

    def _parameter(self, name: str, position: int, depth: int, *, is_quoted: bool) -> None:
        value = self._value(name, position, depth)
        if is_quoted:
            self._put(self.plain(value, position, depth + 1))
        elif value.startswith(("{", "[")) and _is_json(filled := self.plain(value, position, depth + 1)):
            # A shell would take its quotes away; nobody means that.
            self._begin(position)
            self._put(filled)
        else:
            self._split(value, position, depth + 1, name)

    def _begin(self, position: int) -> None:
        if self.open is None:
            if self.has_ended:
                raise CannotRender(
                    "a second command, or the line before lacks a backslash at its end",
                    "end every line but the last with ` \\`, with nothing between them, not even comments",
                    offset=position,
                )
            self.open = []

    def _took_setting(self) -> bool:
        """Whether the words so far only set something (`export`, `set`); they are then put aside."""
        if self.done[:1] == ["export"] and len(self.done) > 1 and all(map(_ASSIGNMENT.match, self.done[1:])):
            self.set_before += self.done[1:]
        elif self.done[:1] != ["set"] or not all(word[:1] in "-+" or word == "pipefail" for word in self.done[1:]):
            return False
        self.done.clear()
        return True

    def _put(self, text: str) -> None:
        if self.open is None:
            self.open = []
        self.open.append(text)

    def _close(self) -> None:
        if self.open is not None:
            self.done.append("".join(self.open))
            self.open = None

    @staticmethod
    def _refuse(position: int, construct: str, within: str) -> NoReturn:
        where = f" in the value of `{shown(within)}`" if within else ""
        raise CannotRender(f"{construct}{where}: no shell runs the command", ONE_COMMAND, offset=position)


def _is_json(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict | list)
    except (ValueError, RecursionError):
        return False
