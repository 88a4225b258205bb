"""The values of a launch that somebody else wrote: known, a setting that the person gives, or a problem.

A variable that nothing sets becomes a setting of the recipe, with the line that uses it. What may be any number of
words is none, and told. What a command computes is asked for where it is a flag's whole value; else, as what a loop
sets, it is a problem with its line, never a guess.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container

from sparktop import sanitise
from sparktop.cmdline.engine_flags import Arity, spec_of
from sparktop.cmdline.source import Item
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.masking import is_secret_name, mask_text
from sparktop.recipe.parameters import main_name
from sparktop.recipe.problems import Problem, ProblemKind, shown

UNKNOWN = re.compile(r"\$[\w{(@*#?!-]|`")
_REFERENCE = re.compile(r"\$(?:(\d|[A-Za-z_]\w*)|\{(\d|[A-Za-z_]\w*)(?:-|:-|:?\?[^{}`]*)?\})")
"""`$NAME`, `${NAME}`, `${1:?usage}`, `${NAME:-}`: one value, where it isn't set."""
_ARGUMENTS = re.compile(
    r"(?s)\$(?:[@*]|\{[@*]\}|(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:\[[@*]\])?(?:[:+-].*)?\})"
)
"""What stands for any number of words."""
_SOURCED = re.compile(r"(?m)^\s*(?:source|\.|eval)\s")
_COMPUTED = re.compile(r"(?s)\$\(.*\)|`[^`]*`")
OPEN, _CLOSE = "\ue000", "\ue001"
"""Around a setting's name, until braces of the file's own are doubled: then `{NAME}`."""


class SourceValues:
    """What is known of one launch, what the person has to give, and what the recipe leaves out."""

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.problems: list[Problem] = []
        self.risks: list[str] = []
        self.shared_risks: list[str] = []
        """Those that the launch has without the recipe, too."""
        self.settings: dict[str, str] = {}
        """Name -> where it is used: "run.sh:12"."""
        self.doubted: set[str] = set()
        """Variables of whose defaults a risk tells already, with what they are for."""

    @property
    def source(self) -> str:
        """The name of the file."""
        return shown(self.spec.document.name.rpartition("/")[2], 120)

    def line(self, item: Item | None) -> int:
        return self.spec.line_of(item) or 1

    def refuse(self, item: Item | None, text: str, remedy: str = "", *, key: str = "") -> None:
        """A value that isn't known, or a launch that can't be one of ours."""
        self.problems.append(
            Problem(
                file=self.spec.document.name,
                line=self.line(item),
                key=key,
                text=sanitise.line(mask_text(str(with_braces(text)))),
                remedy=sanitise.line(remedy),
                kind=ProblemKind.MISSING,
            )
        )

    def leave(self, item: Item | None, text: str) -> None:
        """What the recipe leaves out or changes: shown before each launch."""
        place = "" if self.spec.kind is SourceKind.INSPECT else f" ({self.source}:{self.line(item)})"
        self.risks.append(sanitise.line(f"{mask_text(str(with_braces(text)))}{place}"))

    def warn(self, item: Item | None, text: str) -> None:
        """What holds however it is started."""
        self.leave(item, text)
        self.shared_risks.append(self.risks[-1])

    def known(self, item: Item, key: str, value: str | None = None) -> str:
        """The value of an item; a setting for each variable that nothing sets, refused where a command computes it."""
        text = (item.value or "") if value is None else value
        settled = self.settled(item, text)
        flag = main_name(key).upper()
        if _COMPUTED.fullmatch(settled) and key.startswith("--") and not is_secret_name(flag):
            settled = self.setting(item, flag)
        if UNKNOWN.search(settled):
            what = "a command computes it" if _COMPUTED.search(settled) else "it is set elsewhere"
            self.refuse(item, f"`{shown(text)}` isn't known: {what}", how_to_set(self.spec), key=key)
        elif settled == text and (doubt := self.spec.doubt(item)):
            self.leave(item, f"{key} is `{shown(text)}`, as the file has it: {doubt} may change it")
            self.doubted |= self.spec.variables(item)
        return settled

    def settled(self, item: Item | None, text: str, names: Container[str] | None = None) -> str:
        """The text with a setting for each variable of these names; None: of any name."""
        return _REFERENCE.sub(lambda match: self.setting(item, match, names), text)

    def setting(self, item: Item | None, variable: re.Match[str] | str, names: Container[str] | None = None) -> str:
        """What stands for a variable that nothing sets, or for a flag that a command computes; a secret is none,
        nor is what a loop sets."""
        name = variable if isinstance(variable, str) else variable[1] or variable[2]
        looped = rf"(?m)^[^#\n]*\b(?:(?:for|select)\s+{name}\s+in\b|read\s+(?:-\S+\s+)*{name}\b)"
        is_looped = self.spec.kind is SourceKind.SHELL and re.search(looped, self.spec.document.text) is not None
        name = f"ARG{name}" if name.isdecimal() else name.upper() if name.islower() else name
        if is_secret_name(name) or is_looped or (names is not None and name not in names):
            return variable if isinstance(variable, str) else variable[0]
        self.settings.setdefault(name, f"{self.source}:{self.line(item)}")
        return f"{OPEN}{name}{_CLOSE}"

    def is_empty(self, text: str) -> bool:
        """Whether the words are a script's own arguments, or those of a variable that nothing sets: none, and told."""
        if (match := _ARGUMENTS.fullmatch(text)) is None:
            return False
        name, whole = match["plain"] or match["name"], self.spec.document.text
        is_script = self.spec.kind is SourceKind.SHELL
        if is_script and name and (_SOURCED.search(whole) or re.search(rf"(?<![\w$])(?<!\$\{{){name}\b", whole)):
            return text.endswith("-}")
        why = f"{name} isn't set" if name else "it is started without arguments of its own"
        self.leave(None, f"{shown(text)} is taken as nothing: {why}")
        return True

    def is_conditional(self, item: Item) -> bool:
        """Whether it is given in a branch alone, by a variable that nothing sets: left out then, and told."""
        has_value = bool(item.value) and not _REFERENCE.search(item.value or "")
        is_switch = item.value is None and spec_of(item.name, self.spec.engine).arity is Arity.SWITCH
        if has_value or is_switch or not self.spec.is_in_branch(item):
            return False
        text = f"{item.name} {shown(item.value or '')}".strip()
        self.leave(item, f"{text} is left out: nothing sets the variable that gives it")
        return True


def with_braces(value: object) -> object:
    """With `{NAME}` for each setting."""
    if isinstance(value, dict):
        return {name: with_braces(one) for name, one in value.items()}
    if isinstance(value, list):
        return [with_braces(one) for one in value]
    return value.replace(OPEN, "{").replace(_CLOSE, "}") if isinstance(value, str) else value


def how_to_set(spec: LaunchSpec) -> str:
    if spec.kind is SourceKind.COMPOSE:
        return f"set it in {shown(posixpath.join(posixpath.dirname(spec.document.name), '.env'))}, or export it"
    return "write it into the file or export it, or start it and adopt the running container"
