"""A launch change as typed lines: in the console's editor and as arguments of `sparktop act`. Pure.

--gpu-memory-utilization=0.70       a flag
--enforce-eager                     a switch
NCCL_IB_GID_INDEX=3                 an environment variable
HF_TOKEN                            a variable with its value from this machine's environment
unset --enforce-eager               removes a flag; the same with a variable's name
option IpcMode=host                 a container option, by its name in Docker's HostConfig
option --device=/dev/infiniband     a device; --ulimit=memlock=-1 a limit
image vllm/vllm-openai:v0.14.1      another image
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.cmdline.engine_flags import Arity, spec_of
from sparktop.dataclass import dataclass
from sparktop.model.change import Change

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION = re.compile(r"[A-Z][A-Za-z0-9]*")
FORMS = "--flag=value, --switch, NAME=value, NAME (from here), unset NAME, option Name=value, image NAME"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one line."""

    line: int
    """Line number, from 1."""
    text: str


def lines_of(change: Change) -> tuple[str, ...]:
    """The change as lines, from which `read` makes the same change."""
    lines = [f"unset {name}" if value is None else f"{name}={value}" if value else name
             for name, value in change.flags.items()]  # fmt: skip
    lines += [f"unset {name}" if value is None else f"{name}={value}" for name, value in change.environment.items()]
    lines += [line for name, value in change.options.items() for line in _option_lines(name, value)]
    lines += [f"image {change.image}"] if change.image else []
    node_lines = [f"@{node} {line}" for node, node_change in change.by_node.items() for line in lines_of(node_change)]
    return (*lines, *node_lines)


def _option_lines(name: str, value: Any) -> tuple[str, ...]:
    """An option as `docker run` has it, where that says all of it, else by its name in Docker's HostConfig."""
    items = value if isinstance(value, list) else []
    words = [_RUN_WORDS[name](item) for item in items] if name in _RUN_WORDS else []
    if words and all(_RUN_OPTION.fullmatch(word) and _run_option(word) == (name, item)
                     for word, item in zip(words, items, strict=True)):  # fmt: skip
        return tuple(f"option {word}" for word in words)
    return (f"option {name}={value if isinstance(value, str) and _value(value) == value else json.dumps(value)}",)


_RUN_OPTION = re.compile(r"--device=(?P<path>/[\w./-]+)|--ulimit=(?P<limit>\w+)=(?P<number>-?\d{1,18})")
_RUN_WORDS: Mapping[str, Callable[[Any], str]] = {
    "Devices": lambda item: f"--device={item.get('PathOnHost')}" if isinstance(item, dict) else "",
    "Ulimits": lambda item: f"--ulimit={item.get('Name')}={item.get('Soft')}" if isinstance(item, dict) else "",
}


def _run_option(word: str) -> tuple[str, dict[str, Any]] | None:
    """(the option's name, the item it adds) of `--device=PATH` and `--ulimit=NAME=NUMBER`; None of anything else."""
    found = _RUN_OPTION.fullmatch(word)
    if found is None:
        return None
    if path := found["path"]:
        return "Devices", {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"}
    return "Ulimits", {"Name": found["limit"], "Soft": int(found["number"]), "Hard": int(found["number"])}


def read(lines: Sequence[str], environment: Mapping[str, str]) -> tuple[Change, tuple[Problem, ...]]:
    """The change that the lines describe, and the problems of lines that can't be read; blank lines and comments are
    skipped.

    `environment` is this machine's, for variables given without a value, so that no secret need be typed.
    """
    lines_by_node: dict[str, list[tuple[int, str]]] = {}
    nameless: list[Problem] = []
    for number, raw in enumerate(lines, 1):
        text = raw.strip()
        node, _, rest = text[1:].partition(" ") if text.startswith("@") else ("", "", text)
        if text.startswith("@") and not (node and rest.strip()):
            nameless.append(Problem(number, "@ wants a node's name and its change, as @spark1 --flag=value"))
            continue
        lines_by_node.setdefault(node, []).append((number, rest.strip()))
    change, problems = _read(lines_by_node.pop("", []), environment)
    problems += nameless
    by_node = {}
    for node, node_lines in lines_by_node.items():
        by_node[node], node_problems = _read(node_lines, environment)
        problems += node_problems
    return replace(change, by_node=by_node), tuple(sorted(problems, key=lambda problem: problem.line))


def _read(lines: Sequence[tuple[int, str]], environment: Mapping[str, str]) -> tuple[Change, list[Problem]]:
    """The change of one scope (all nodes, or one), from its numbered lines."""
    flags: dict[str, str | None] = {}
    variables: dict[str, str | None] = {}
    options: dict[str, Any] = {}
    image: str | None = None
    problems: list[Problem] = []
    for number, text in lines:
        word, _, argument = text.partition(" ")
        argument = argument.strip()
        if not text or text.startswith("#"):
            continue
        if "\x00" in text:
            problems.append(Problem(number, "holds a character that no command line can"))
        elif word == "image":
            if not argument or " " in argument or argument.startswith("-"):
                problems.append(Problem(number, "image wants the name of one image"))
            else:
                image = argument
        elif word == "option":
            name, equals, value = argument.partition("=")
            if (item := _run_option(argument)) is not None:
                held = options.get(item[0])
                options[item[0]] = [*(held if isinstance(held, list) else []), item[1]]
            elif not equals or not _OPTION.fullmatch(name):
                problems.append(Problem(number, "option wants Name=value, as IpcMode=host, or --device=PATH"))
            else:
                options[name] = _value(value)
        elif word == "unset":
            if _FLAG.fullmatch(argument):
                flags[argument] = None
            elif _VARIABLE.fullmatch(argument):
                variables[argument] = None
            else:
                problems.append(Problem(number, "unset wants one flag or one variable"))
        elif text.startswith("-"):
            name = re.split(r"[= ]", text, maxsplit=1)[0]
            value = text[len(name) + 1 :].strip()
            if re.match(r"\d\S*\s", value) and spec_of(name.lstrip("-")).arity is Arity.ONE:
                problems.append(Problem(number, f"{name} takes one number: each change on a line of its own"))
            elif _FLAG.fullmatch(name):
                flags[name] = value
            else:
                problems.append(Problem(number, f"{name} is no flag"))
        else:
            _read_variable(text, number, variables, environment, problems)
    return Change(flags=flags, environment=variables, options=options, image=image), problems


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
    """The text as JSON where it is valid, else as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
