"""A service's files as `systemctl cat` prints them, and the drop-in that a relaunch lays over them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sparktop.operate.unitwords import Unreadable, quoted, split

NAME = "sparktop.conf"
HEAD = """\
# Written by sparktop: what its relaunches have changed of this service. To undo: remove this file, then
# systemctl daemon-reload and start the service anew.
"""
_SECTION = re.compile(r"\[([^\]]+)\]")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What its files say, one laid over the other."""

    command: str = field(repr=False)
    """The one ExecStart, as it stands, continued lines joined."""
    source: str = ""
    """The file that has it."""
    has_environment_file: bool = False
    """Whose variables win over Environment=."""
    files: tuple[str, ...] = ()


def read(text: str, paths: Collection[str]) -> Service:
    """The service of `systemctl cat`'s text.

    Args:
        paths: the unit's file and its drop-ins, as systemd knows them.

    Raises:
        Unreadable: it has no command, or several.
    """
    commands: list[tuple[str, str]] = []
    has_file = False
    files: list[str] = []
    for source, section, name, value in _settings(text, paths):
        if source not in files:
            files.append(source)
        if section != "Service":
            continue
        if name == "ExecStart":
            commands = [*commands, (source, value)] if value else []
        elif name == "EnvironmentFile":
            has_file = bool(value)
    if len(commands) != 1:
        raise Unreadable(f"it has {len(commands) or 'no'} commands (ExecStart=)")
    source, command = commands[0]
    return Service(command=command, source=source, has_environment_file=has_file, files=tuple(files))


def variables(text: str | None) -> dict[str, str]:
    """Environment= of a drop-in that we wrote.

    Raises:
        Unreadable: somebody else wrote it.
    """
    if text is None:
        return {}
    if not text.startswith(HEAD.partition("\n")[0]):
        raise Unreadable(f"{NAME} is there already, and was not written by sparktop")
    out: dict[str, str] = {}
    for _, section, name, value in _settings(text, ()):
        if section == "Service" and name == "Environment":
            for word in split(value, fills=False):
                if match := _ASSIGNED.fullmatch(word):
                    out[match[1]] = match[2]
    return out


def unset(text: str | None) -> tuple[str, ...]:
    """UnsetEnvironment= of a drop-in that we wrote."""
    rows = _settings(text or "", ())
    return tuple(word for _, section, name, value in rows if (section, name) == ("Service", "UnsetEnvironment")
                 for word in split(value, fills=False))  # fmt: skip


def written(command: str, environment: Mapping[str, str | None]) -> str:
    """The drop-in: a command in the place of the service's own, and variables; None for one that is taken away."""
    rows = ["[Service]"]
    rows += [
        f"Environment={quoted(f'{name}={value}', fills=False)}"
        for name, value in environment.items()
        if value is not None
    ]
    rows += [f"UnsetEnvironment={quoted(name, fills=False)}" for name, value in environment.items() if value is None]
    rows += ["ExecStart=", f"ExecStart={command}"]
    return HEAD + "\n".join(rows) + "\n"


def later(service: Service, own: str) -> str:
    """A drop-in with a command that systemd reads after ours, and that would win; empty where there is none."""
    source = service.source
    is_drop_in = source.endswith(".conf") and source != own
    return source if is_drop_in and source.rpartition("/")[2] > NAME else ""


def _settings(text: str, paths: Collection[str]) -> Iterator[tuple[str, str, str, str]]:
    """(file, section, name, value), continued lines joined as systemd does it."""
    source, section, held = "", "", ""
    for row in text.splitlines():
        line = row.strip()
        if row.startswith("# ") and row[2:].strip() in paths and not held:
            source, section = row[2:].strip(), ""
            continue
        if line.startswith(("#", ";")) or (not line and not held):
            continue
        if row.endswith("\\"):
            held += row[:-1] + " "
            continue
        whole, held = (held + row).strip(), ""
        if found := _SECTION.fullmatch(whole):
            section = found[1]
            continue
        name, equals, value = whole.partition("=")
        if equals:
            yield source, section, name.strip(), value.strip()
