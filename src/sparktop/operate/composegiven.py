"""What a shell gave to a compose project when it brought it up, told by the container that was made of it. Pure.

What the files say in each place (`${NAME}` in a variable, a word of the command, the image, a port) is compared with
what Docker has there. Only what makes a difference is given again; what is shadowed by a later file makes none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.operate.changing import Changing
from sparktop.operate.composevalues import filled, references, told

UNUSED = "not-given"
"""For a variable that compose demands of services that are left alone: `up --no-deps` takes nothing of it."""
_WHOLE = ("command", "entrypoint")


class NotTold(ValueError):
    """Variables whose values the container doesn't tell."""


def given_by_shell(
    one: Changing,
    definitions: Sequence[Mapping[str, Any]],
    documents: Sequence[Any],
    variables: Mapping[str, str | None],
) -> tuple[dict[str, str], list[str]]:
    """(what has to be given again, notes).

    Args:
        definitions: the service in each file that has it, in their order.
        documents: those files whole.
        variables: of the env files; None for a value that isn't known.

    Raises:
        NotTold: one that has to be given can't be told; names them.
    """
    whole = _laid(definitions)
    known: dict[str, str] = {}
    unsure: set[str] = set()
    for template, actual in _pairs(one, whole):
        for name, value in (told(template, actual) or {}).items():
            if known.setdefault(name, value) != value:
                unsure.add(name)
    given, notes = dict[str, str](), list[str]()
    for name, value in known.items():
        if name in unsure or variables.get(name) == value:
            continue
        if name in variables and variables[name] is not None:
            notes.append(f"{name} is another value in its env file by now: the container's own is kept.")
        elif name not in variables and not _matters(name, value, whole):
            continue
        given[name] = value
    around = [each.get(key) for each in documents if isinstance(each, Mapping) for key in _AROUND]
    lacking = _lacking([whole, *around], {*variables, *(known.keys() - unsure)})
    if lacking:
        raise NotTold(", ".join(lacking))
    rest = [each.get("services") for each in documents if isinstance(each, Mapping)]
    for name in _lacking(rest, {*variables, *known}, demanded=True):
        given[name] = UNUSED
        notes.append(f"{name} is demanded for what is left alone here: the call is given a word in its place.")
    return given, notes


_AROUND = ("networks", "volumes", "configs", "secrets")


def environment_of(definition: Mapping[str, Any]) -> dict[str, str | None]:
    """Variables of a service's definition, as templates; None for one that is taken from the shell by its name."""
    raw = definition.get("environment")
    if isinstance(raw, Mapping):
        return {str(name): None if value is None else str(value) for name, value in raw.items()}
    pairs = (str(each).partition("=") for each in raw) if isinstance(raw, list) else ()
    return {name: value if equals else None for name, equals, value in pairs}


def _laid(definitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One definition over the other, as compose does it, as far as it matters for what a variable can reach."""
    out: dict[str, Any] = {}
    for each in definitions:
        for key, value in each.items():
            there = out.get(key)
            if key == "environment":
                out[key] = {**(there or {}), **environment_of(each)}
            elif isinstance(value, list) and isinstance(there, list) and key not in _WHOLE:
                out[key] = [*there, *value]
            elif isinstance(value, Mapping) and isinstance(there, Mapping):
                out[key] = {**there, **value}
            else:
                out[key] = value
    return out


def _lacking(value: Any, known: set[str], *, demanded: bool = False) -> list[str]:
    found = {ref.name: ref for text in _scalars(value) for ref in references(text)}
    return sorted(
        name
        for name, ref in found.items()
        if name not in known and (ref.is_demanded if demanded else not (ref.has_default or ref.form.endswith("+")))
    )


def _matters(name: str, value: str, whole: Mapping[str, Any]) -> bool:
    """Whether a value makes a difference: a default, or nothing, may be the same."""
    passed = environment_of(whole)
    if name in passed and passed[name] is None:
        return True
    return any(
        filled(text, {}) != filled(text, {name: value})
        for text in _scalars(whole)
        if any(ref.name == name for ref in references(text))
    )


def _pairs(one: Changing, whole: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(what the files say, what the container has in its place)."""
    config, host = one.raw.get("Config") or {}, one.raw.get("HostConfig") or {}
    actual = dict(str(pair).partition("=")[::2] for pair in config.get("Env") or ())
    for name, template in environment_of(whole).items():
        if name in actual:
            yield (f"${{{name}}}" if template is None else template), actual[name]
        elif template is not None and any(references(template)):
            yield template, ""
    if isinstance(whole.get("image"), str):
        yield whole["image"], one.image_name
    for key, words in (("command", config.get("Cmd")), ("entrypoint", config.get("Entrypoint"))):
        yield from _worded(_words(whole.get(key)), [str(word) for word in words or ()])
    yield from _bound(whole.get("volumes"), host.get("Binds"))
    yield from _published(whole.get("ports"), host.get("PortBindings"))
    for key, name in (("network_mode", "NetworkMode"), ("ipc", "IpcMode"), ("user", "User")):
        if isinstance(whole.get(key), str):
            yield whole[key], str(host.get(name) or config.get(name) or "")


def _worded(templates: Sequence[str], actual: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Word by word; nothing where it is another command by now."""
    pairs = list(zip(templates, actual, strict=False))
    if len(templates) == len(actual) and all(
        told(one, other) is not None or any(references(one)) for one, other in pairs
    ):
        yield from pairs


def _words(value: Any) -> list[str]:
    """A command's words as templates; a text is split as compose does it, references kept whole."""
    if isinstance(value, list):
        return [str(each) for each in value]
    if not isinstance(value, str):
        return []
    held: list[str] = []

    def hold(match: re.Match[str]) -> str:
        held.append(match[0])
        return f"\x01{len(held) - 1}\x02"

    try:
        words = shlex.split(re.sub(r"\$\{[^{}]*\}", hold, value))
    except ValueError:
        return []
    return [re.sub(r"\x01(\d+)\x02", lambda match: held[int(match[1])], word) for word in words]


def _bound(volumes: Any, binds: Any) -> Iterator[tuple[str, str]]:
    """By where they are mounted."""
    actual = {}
    for bind in binds or ():
        source, _, rest = str(bind).partition(":")
        actual[rest.partition(":")[0]] = source
    for volume in volumes if isinstance(volumes, list) else ():
        if isinstance(volume, Mapping):
            source, target = str(volume.get("source") or ""), str(volume.get("target") or "")
        else:
            source, target = _halves(str(volume))
        if target in actual and source.startswith(("/", "$")):
            yield source, actual[target]


def _published(ports: Any, bindings: Any) -> Iterator[tuple[str, str]]:
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, Mapping):
            outside, inside = str(port.get("published") or ""), str(port.get("target") or "")
        else:
            outside, inside = _halves(str(port))
        key = inside if "/" in inside else f"{inside}/tcp"
        rows = bindings.get(key) if isinstance(bindings, Mapping) else None
        if isinstance(rows, list) and len(rows) == 1 and isinstance(rows[0], Mapping) and ":" not in outside:
            yield outside, str(rows[0].get("HostPort") or "")


def _halves(text: str) -> tuple[str, str]:
    """At the first colon outside of a reference: "${A:-b}:c" is ("${A:-b}", "c")."""
    depth = 0
    for at, sign in enumerate(text):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == ":" and depth == 0:
            return text[:at], text[at + 1 :].partition(":")[0]
    return text, ""


def _scalars(value: Any) -> Iterator[str]:
    """Every text of a definition, its keys left out; each shared part (an alias) once."""
    seen: set[int] = set()
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping | list) and id(one) not in seen:
            seen.add(id(one))
            left += one.values() if isinstance(one, Mapping) else one
