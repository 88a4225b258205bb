"""Recover the values that the shell gave to a Compose project, from the container that was created.

Each template in the files (`${NAME}` in a variable, a word of the command, the image, a port) is compared with what
Docker has in its place. Only values that make a difference are given again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.cmdline.shell import Dialect, ShellWord, tokens
from sparktop.cmdline.variables import filled, recover_values, references
from sparktop.operate.relaunch.rank_change import CannotChange, RankChange
from sparktop.sanitise import items, mapping

UNUSED = "not-given"
"""Value for a variable that Compose demands for other services: `up --no-deps` doesn't use it."""


def values_from_shell(
    rank_change: RankChange,
    definitions: Sequence[Mapping[str, Any]],
    documents: Sequence[Any],
    variables: Mapping[str, str | None],
) -> tuple[dict[str, str], list[str]]:
    """(values that the shell has to provide, notes for the review).

    Args:
        definitions: the service in each file that has it, in order.
        documents: the same files, parsed as a whole.
        variables: from the env files; None for a value that isn't known.

    Raises:
        CannotChange: a value that is needed can't be recovered.
    """
    service: dict[str, Any] = {}
    for definition in definitions:
        overlay(service, {**definition, "environment": environment_of(definition)})
    values: dict[str, str] = {}
    unsure: set[str] = set()
    for template, actual in _template_pairs(rank_change, service):
        for name, value in (recover_values(template, actual) or {}).items():
            if values.setdefault(name, value) != value:
                unsure.add(name)
    shell_values, notes = dict[str, str](), list[str]()
    for name, value in values.items():
        if name in unsure or variables.get(name) == value:
            continue
        if name in variables and variables[name] is not None:
            notes.append(f"{name} has changed in its env file: the container's own value is kept.")
        elif name not in variables and not _makes_difference(name, value, service):
            continue
        shell_values[name] = value
    around = [mapping(document).get(key) for document in documents for key in _AROUND]
    missing = missing_variables([service, *around], {*variables, *(values.keys() - unsure)})
    if missing:
        raise CannotChange(
            f"its files take {', '.join(missing)} from the shell, and the container doesn't tell what was given",
            f"put it into {rank_change.origin.working_dir}/.env, and plan again",
        )
    services = [mapping(document).get("services") for document in documents]
    known_names = {*variables, *values}
    demanded = missing_variables(services, known_names, demanded=True)
    # Compose v2 refuses a whole project in which one service's image is empty; 1.29 lets it be.
    for name in sorted({*demanded, *missing_variables(list(_images(services)), known_names)}):
        shell_values[name] = UNUSED
        notes.append(f"compose demands {name} for services that don't change here: it gets a placeholder.")
    return shell_values, notes


_AROUND = ("networks", "volumes", "configs", "secrets")


def environment_of(definition: Mapping[str, Any]) -> dict[str, str | None]:
    """Variables of a service's definition, as templates; None for one that is passed through from the shell."""
    raw = definition.get("environment")
    if isinstance(raw, Mapping):
        return {str(name): None if value is None else str(value) for name, value in raw.items()}
    pairs = (str(pair).partition("=") for pair in items(raw))
    return {name: value if equals else None for name, equals, value in pairs}


def overlay(base: dict[str, Any], definition: Mapping[str, Any]) -> None:
    """Merge `definition` into `base` as Compose does: mappings by key, lists by entry, anything else is replaced."""
    for key, value in definition.items():
        current = base.get(key)
        if isinstance(value, Mapping) and isinstance(current, Mapping):
            base[key] = dict(current)
            overlay(base[key], value)
        elif isinstance(value, list) and isinstance(current, list) and key not in ("command", "entrypoint"):
            known = set(map(repr, current))
            base[key] = [*current, *(entry for entry in value if repr(entry) not in known)]
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def missing_variables(value: Any, known_names: set[str], *, demanded: bool = False) -> list[str]:
    references_by_name = {ref.name: ref for text in _scalars(value) for ref in references(text)}
    return sorted(
        name
        for name, ref in references_by_name.items()
        if name not in known_names
        and (ref.is_demanded if demanded else not (ref.has_default or ref.form.endswith("+")))
    )


def _images(sections: Sequence[Any]) -> Iterator[Any]:
    for section in sections:
        yield from (mapping(service).get("image") for service in mapping(section).values())


def _makes_difference(name: str, value: str, service: Mapping[str, Any]) -> bool:
    """Whether the value changes the service: a default, or nothing, may give the same."""
    passed = environment_of(service)
    if name in passed and passed[name] is None:
        return True
    return any(
        filled(text, {}) != filled(text, {name: value})
        for text in _scalars(service)
        if any(ref.name == name for ref in references(text))
    )


def _template_pairs(rank_change: RankChange, service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(template in the files, the container's value in its place)."""
    config, host = rank_change.config, rank_change.host
    actual = dict(str(pair).partition("=")[::2] for pair in config.get("Env") or ())
    for name, template in environment_of(service).items():
        if name in actual:
            yield (f"${{{name}}}" if template is None else template), actual[name]
        elif template is not None and any(references(template)):
            yield template, ""
    if isinstance(service.get("image"), str):
        yield service["image"], rank_change.image_name
    for key, words in (("command", rank_change.command), ("entrypoint", rank_change.entrypoint)):
        yield from _word_pairs(_words(service.get(key)), words)
    yield from _mount_pairs(service.get("volumes"), host.get("Binds"))
    yield from _port_pairs(service.get("ports"), host.get("PortBindings"))
    for key, name in (("network_mode", "NetworkMode"), ("ipc", "IpcMode"), ("user", "User")):
        if isinstance(service.get(key), str):
            yield service[key], str(host.get(name) or config.get(name) or "")


def _word_pairs(templates: Sequence[str], actual: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The same for a command, word by word; nothing where the command differs by now."""
    pairs = list(zip(templates, actual, strict=False))
    if len(templates) == len(actual) and all(
        recover_values(template, word) is not None or any(references(template)) for template, word in pairs
    ):
        yield from pairs


def _words(value: Any) -> list[str]:
    """A command's words as templates; a text is split as Compose does it, with references kept whole."""
    if isinstance(value, list):
        return [str(word) for word in value]
    if not isinstance(value, str):
        return []
    return [
        "".join(value[piece.start : piece.end] if piece.text is None else piece.text for piece in token.pieces)
        for token in tokens(value, Dialect.PLAIN)
        if isinstance(token, ShellWord)
    ]


def _mount_pairs(volumes: Any, binds: Any) -> Iterator[tuple[str, str]]:
    """The same for bind mounts, matched by their target."""
    rows = (str(bind).split(":") for bind in items(binds))
    actual = {row[1]: row[0] for row in rows if len(row) > 1}
    for source, target in _sides(volumes, "source"):
        if target in actual and source.startswith(("/", "$")):
            yield source, actual[target]


def _port_pairs(ports: Any, bindings: Any) -> Iterator[tuple[str, str]]:
    for outside, inside in _sides(ports, "published"):
        rows = items(mapping(bindings).get(inside if "/" in inside else f"{inside}/tcp"))
        if len(rows) == 1 and ":" not in outside:
            yield outside, str(mapping(rows[0]).get("HostPort") or "")


def _sides(entries: Any, outside: str) -> Iterator[tuple[str, str]]:
    """(the node's side, the container's side) of volumes or ports, each in its long or its short form."""
    for entry in items(entries):
        if isinstance(entry, Mapping):
            yield str(entry.get(outside) or ""), str(entry.get("target") or "")
        else:
            yield _split_at_colon(str(entry))


def _split_at_colon(text: str) -> tuple[str, str]:
    """Split at the first colon outside of a reference: "${A:-b}:c" is ("${A:-b}", "c")."""
    depth = 0
    for index, char in enumerate(text):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == ":" and depth == 0:
            return text[:index], text[index + 1 :].partition(":")[0]
    return text, ""


def _scalars(value: Any) -> Iterator[str]:
    """Every text in a definition except keys; a shared part (a YAML alias) once."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping | list) and id(item) not in seen:
            seen.add(id(item))
            pending += item.values() if isinstance(item, Mapping) else item
