"""Command templates: `{parameters}` filled in, and the text split as a shell would, into an argv that no shell sees.

As sparkrun does it (facts/engines.md section 5.2): a value may name parameters again, a doubled brace is a literal one
where the template doubles any, and every other brace stays as it is, so that JSON can be written plainly. What only a
shell could do (`&&`, `|`, `$NAME` ...) is refused by name. A value never changes how the text around it is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Recipe, Scalar
from sparktop.recipe.problems import nearest, shown
from sparktop.recipe.rendered import CannotRender

MAX_DEPTH = 10
"""Values within values."""
MAX_TOKENS = 200_000
"""Characters looked at for one command, all values unfolded."""

_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
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
_VARIABLE_START = re.compile(r"[A-Za-z0-9_{(@*#?!$'\"-]")
ONE_COMMAND = "a recipe's command is one command, without a shell: set variables in `env`, put scripts into the image"

Token = tuple[str, int, bool]
"""A character or a parameter's name, its offset in the template, whether it is a parameter."""


class TemplateError(CannotRender):
    """A template that can't become an argv, and where in it that is."""

    def __init__(self, offset: int, reason: str, *remedies: str, nearest: str = "") -> None:
        super().__init__(reason, *remedies)
        self.offset = offset
        self.nearest = nearest


def tokens(template: str) -> list[Token]:
    """The template's characters and parameters; doubled braces are single ones by then."""
    is_doubled = "{{" in template
    found: list[Token] = []
    index = 0
    while index < len(template):
        char = template[index]
        if is_doubled and char in "{}" and template.startswith(char * 2, index):
            found.append((char, index, False))
            index += 2
        elif char == "{" and (match := _PARAMETER.match(template, index)):
            found.append((match[1], index, True))
            index = match.end()
        else:
            found.append((char, index, False))
            index += 1
    return found


def parameters(template: str) -> tuple[str, ...]:
    """The names of a template's parameters, in their order, each once."""
    return tuple(dict.fromkeys(name for name, _, is_parameter in tokens(template) if is_parameter))


def used(template: str, values: Mapping[str, Scalar]) -> frozenset[str]:
    """All parameters a template takes, those named by values included."""
    found: set[str] = set()
    left = list(parameters(template))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += parameters(text_of(values[name])) if name in values else ()
    return frozenset(found)


def known_values(recipe: Recipe, given: Mapping[str, str] | None = None) -> dict[str, Scalar]:
    """What every parameter of the recipe stands for: what was given, else its defaults, else its own fields."""
    values: dict[str, Scalar] = {"model": recipe.model, "container": recipe.container}
    if recipe.model_revision:
        values["model_revision"] = recipe.model_revision
    if recipe.served_name:
        values["served_model_name"] = recipe.served_name
    values |= recipe.defaults
    values |= given or {}
    values.setdefault("resolved_model_path", values["model"])
    return values


def text_of(value: Scalar) -> str:
    """A value as it stands in a command."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """A text that no shell reads (a variable's value), its parameters filled in.

    Raises:
        TemplateError: it names one that isn't there, or one that stands for itself.
    """
    return _Splitting(values).plain(text, 0, 0)


def render(template: str, values: Mapping[str, Scalar]) -> tuple[str, ...]:
    """The argv of a command template.

    Raises:
        TemplateError: it names a parameter that isn't there, wants a shell, or isn't one command.
    """
    reading = _Splitting(values)
    words = reading.words(template.strip("\n"), len(template) - len(template.lstrip("\n")))
    words = words[1:] if words[:1] == ["exec"] else words
    if words[:1] == ["env"] and reading.set_before:
        words = words[1:]
    if words and (reading.set_before or _ASSIGNMENT.match(words[0])):
        words = ["env", *reading.set_before, *words]
    if not words:
        raise TemplateError(0, "the command is empty")
    return tuple(words)


def server_of(argv: Collection[str]) -> EngineKind | None:
    """Which engine's server an argv starts; None where it starts none that we know."""
    words = list(argv)
    if words[:1] == ["env"]:
        words = words[1:]
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
    first, *rest = words or [""]
    program = first.rsplit("/", 1)[-1]
    if program in ("vllm", "sglang") and rest[:1] == ["serve"]:
        return EngineKind(program)
    if re.fullmatch(r"python(3(\.\d+)?)?", program):
        rest = [word for word in rest if word not in ("-u", "-O", "-s", "-I")]
        module = rest[1] if rest[:1] == ["-m"] and len(rest) > 1 else ""
        if module == "sglang.launch_server" or (module == "sglang" and rest[2:3] == ["serve"]):
            return EngineKind.SGLANG
        if module == "vllm.entrypoints.openai.api_server" or (
            module in ("vllm.entrypoints.cli.main", "vllm") and rest[2:3] == ["serve"]
        ):
            return EngineKind.VLLM
    return None


@dataclass(slots=True)
class _Splitting:
    """A text on its way to words."""

    values: Mapping[str, Scalar]
    done: list[str] = field(default_factory=list)
    open: list[str] | None = None
    """The word that is being read; None between words."""
    left: int = MAX_TOKENS
    has_ended: bool = False
    """Whether a line ended that wasn't continued: nothing may follow it."""
    set_before: list[str] = field(default_factory=list)
    """NAME=value of `export` before the command."""

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
                here = offset if depth else offset + at
                pieces.append(self.plain(self._value(token, here, depth), here, depth + 1))
            else:
                pieces.append(token)
        return "".join(pieces)

    def _taken(self, text: str) -> list[Token]:
        self.left -= len(text) + 1
        if self.left < 0:
            raise TemplateError(0, "the command is too long, its values unfolded", "shorten the values")
        return tokens(text)

    def _value(self, name: str, offset: int, depth: int) -> str:
        if name not in self.values:
            meant = nearest(name, self.values)
            remedy = f"give it a value: `defaults: {shown(name)}: ...`, or --set {shown(name)}=..."
            raise TemplateError(
                offset, f"`{{{shown(name)}}}` is a parameter that has no value", "" if meant else remedy, nearest=meant
            )
        if depth >= MAX_DEPTH:
            raise TemplateError(offset, f"`{{{shown(name)}}}` stands for itself", "give it a value of its own")
        return text_of(self.values[name])

    def _split(self, text: str, offset: int, depth: int, within: str) -> None:
        """Read a text on; `within`: the parameter whose value it is."""
        read = self._taken(text)
        quote, index = "", 0
        opened_at = offset
        while index < len(read):
            char, at, is_parameter = read[index]
            here = offset if depth else offset + at
            following = ("{" if read[index + 1][2] else read[index + 1][0]) if index + 1 < len(read) else ""
            index += 1
            if is_parameter:
                self._parameter(char, here, depth, is_quoted=bool(quote))
            elif quote == "'":
                if char == "'":
                    quote = ""
                else:
                    self._put(char)
            elif char == "\\" and (not quote or following in ('"', "\\", "$", "`", "\n")):
                index += self._escaped(read, index, is_quoted=bool(quote))
            elif char == "$" and _VARIABLE_START.match(following) and not (quote and following in "'\""):
                self._refuse(here, "a shell's variable or substitution (`$`)", within)
            elif char == "`":
                self._refuse(here, _OPERATORS[char], within)
            elif quote:
                if char == quote:
                    quote = ""
                else:
                    self._put(char)
            elif char in "'\"":
                quote, opened_at = char, here
                self._begin(here)
            elif char == "\n":
                self._close()
                if not within and not self._took_setting():
                    self.has_ended = bool(self.done)
            elif char.isspace():
                self._close()
            elif char == "#" and self.open is None:
                while index < len(read) and read[index][0] != "\n":
                    index += 1
            elif char in _OPERATORS:
                self._close()
                if within or not (char == ";" or (char, following) == ("&", "&")) or not self._took_setting():
                    self._refuse(here, _OPERATORS[char], within)
                index += char == "&"
            else:
                self._begin(here)
                self._put(char)
        if quote:
            raise TemplateError(opened_at, "a quote is opened here and never closed")

    def _parameter(self, name: str, here: int, depth: int, *, is_quoted: bool) -> None:
        value = self._value(name, here, depth)
        if is_quoted:
            self._put(self.plain(value, here, depth + 1))
        elif value.startswith(("{", "[")) and _is_json(filled := self.plain(value, here, depth + 1)):
            # A shell would take its quotes away; nobody means that.
            self._begin(here)
            self._put(filled)
        elif value:
            self._begin(here) if not value[0].isspace() else None
            self._split(value, here, depth + 1, name)

    def _escaped(self, read: list[Token], index: int, *, is_quoted: bool) -> int:
        """What follows a backslash; returns how many tokens that took."""
        ahead = index
        while ahead < len(read) and not read[ahead][2] and read[ahead][0] in " \t\r":
            ahead += 1
        if ahead == len(read):
            return ahead - index
        if read[ahead][0] == "\n" and (not is_quoted or ahead == index):
            # A blank behind the backslash is no argument: nobody can see it, nobody means it.
            if ahead > index:
                self._close()
            return ahead - index + 1
        token, at, is_parameter = read[index]
        if is_parameter:
            return 0
        self._begin(at)
        self._put(token)
        return 1

    def _begin(self, here: int) -> None:
        if self.open is None:
            if self.has_ended:
                raise TemplateError(
                    here,
                    "a second command, or a line before it that doesn't end in a backslash",
                    "end every line but the last with ` \\`; nothing may stand between them, comments neither",
                )
            self.open = []

    def _took_setting(self) -> bool:
        """Whether what was read so far is no command yet but a setting before it, which is then put aside."""
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
    def _refuse(here: int, what: str, within: str) -> None:
        where = f" in the value of `{shown(within)}`" if within else ""
        raise TemplateError(here, f"{what}{where}: no shell runs the command", ONE_COMMAND)


def _is_json(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict | list)
    except (ValueError, RecursionError):
        return False
