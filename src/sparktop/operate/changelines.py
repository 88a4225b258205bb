"""A change of a launch as lines that are typed: in the console's editor and as `sparktop act`'s arguments. Pure.

--gpu-memory-utilization=0.70       a flag
--enforce-eager                     a switch
NCCL_IB_GID_INDEX=3                 an environment variable
HF_TOKEN                            one whose value is taken from this machine's environment
unset --enforce-eager               takes a flag away; the same with a variable's name
option IpcMode=host                 a container option, by its name in Docker's HostConfig
image vllm/vllm-openai:v0.14.1      another image
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparktop.model.change import Change

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION = re.compile(r"[A-Z][A-Za-z0-9]*")
FORMS = "--flag=value, --switch, NAME=value, NAME (from here), unset NAME, option Name=value, image NAME"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one line."""

    line: int
    """From 1."""
    text: str


def lines_of(change: Change) -> tuple[str, ...]:
    """A change as lines, of which `read` makes the same change."""
    lines = [f"unset {name}" if value is None else f"{name}={value}" if value else name
             for name, value in change.flags.items()]  # fmt: skip
    lines += [f"unset {name}" if value is None else f"{name}={value}" for name, value in change.environment.items()]
    lines += [
        f"option {name}={value if isinstance(value, str) and _value(value) == value else json.dumps(value)}"
        for name, value in change.options.items()
    ]
    lines += [f"image {change.image}"] if change.image else []
    own = [f"@{node} {line}" for node, one in change.by_node.items() for line in lines_of(one)]
    return (*lines, *own)


def read(lines: Sequence[str], environment: Mapping[str, str]) -> tuple[Change, tuple[Problem, ...]]:
    """What the lines say, and what is wrong with those that say nothing; blank lines and comments are left out.

    `environment` is this machine's, for variables that are named without a value: so a secret is typed nowhere.
    """
    own: dict[str, list[tuple[int, str]]] = {}
    for number, raw in enumerate(lines, 1):
        text = raw.strip()
        node, _, rest = text[1:].partition(" ") if text.startswith("@") else ("", "", text)
        own.setdefault(node, []).append((number, rest.strip()))
    change, problems = _read(own.pop("", []), environment)
    by_node = {}
    for node, mine in own.items():
        by_node[node], more = _read(mine, environment)
        problems += more
    return replace(change, by_node=by_node), tuple(sorted(problems, key=lambda problem: problem.line))


def _read(lines: Sequence[tuple[int, str]], environment: Mapping[str, str]) -> tuple[Change, list[Problem]]:
    """Numbered lines of one scope."""
    flags: dict[str, str | None] = {}
    variables: dict[str, str | None] = {}
    options: dict[str, Any] = {}
    image: str | None = None
    problems: list[Problem] = []
    for number, text in lines:
        word, _, rest = text.partition(" ")
        rest = rest.strip()
        if not text or text.startswith("#"):
            continue
        if "\x00" in text:
            problems.append(Problem(number, "holds a character that no command line can"))
        elif word == "image":
            if not rest or " " in rest or rest.startswith("-"):
                problems.append(Problem(number, "image wants the name of one image"))
            else:
                image = rest
        elif word == "option":
            name, equals, value = rest.partition("=")
            if not equals or not _OPTION.fullmatch(name):
                problems.append(Problem(number, "option wants Name=value, as IpcMode=host"))
            else:
                options[name] = _value(value)
        elif word == "unset":
            if _FLAG.fullmatch(rest):
                flags[rest] = None
            elif _VARIABLE.fullmatch(rest):
                variables[rest] = None
            else:
                problems.append(Problem(number, "unset wants one flag or one variable"))
        elif text.startswith("-"):
            _read_flag(text, number, flags, problems)
        else:
            _read_variable(text, number, variables, environment, problems)
    return Change(flags=flags, environment=variables, options=options, image=image), problems


def _read_flag(text: str, number: int, flags: dict[str, str | None], problems: list[Problem]) -> None:
    name = re.split(r"[= ]", text, maxsplit=1)[0]
    if _FLAG.fullmatch(name):
        flags[name] = text[len(name) + 1 :].strip()
    else:
        problems.append(Problem(number, f"{name} is no flag"))


def _read_variable(
    text: str, number: int, variables: dict[str, str | None], environment: Mapping[str, str], problems: list[Problem]
) -> None:
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        problems.append(Problem(number, f"neither a flag nor NAME=value; known are {FORMS}"))
    elif equals:
        variables[name] = value
    elif name in environment:
        variables[name] = environment[name]
    else:
        problems.append(Problem(number, f"{name} is not set here: give it a value, or unset it"))


def _value(text: str) -> Any:
    """As JSON where it is, else as the text that stands there."""
    try:
        return json.loads(text)
    except ValueError:
        return text
