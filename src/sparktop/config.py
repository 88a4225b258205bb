"""Where sparktop keeps and finds things: the TOML configuration, and the style sheets and recipes it ships.

Configuration is `$XDG_CONFIG_HOME/sparktop/config.toml`; a flag on the command line wins over it, and it wins
over the defaults here. An unknown key is refused with the nearest right one, so that a typo can't pass silently.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.errors import ConfigError

INTERVAL_LIMITS_S = (0.25, 60.0)
CHANNELS = ("toast", "bell", "title", "osc9", "osc777")
"""On the screen; the bell; the window's title; a desktop notification as iTerm2 and kitty know it, or as urxvt does."""
PLACEHOLDERS = ("severity", "title", "nodes", "rule", "explanation")
MAX_RULE_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the operator set, or the defaults."""

    hosts: tuple[str, ...] = ()
    """Shown when no host stands on the command line."""
    interval_s: float = 1.0
    """Seconds between samples; the probe goes faster by itself when memory is low or falling."""
    theme: str = "sparktop-dark"
    """sparktop-dark, sparktop-light, or any theme of Textual's."""
    read_only: bool = False
    ssh_config: str = ""
    """Another file than ~/.ssh/config, as `ssh -F`."""
    notify: tuple[str, ...] = ("toast", "bell", "title")
    """How a new critical finding is told, of CHANNELS; none of them: []."""
    notify_command: tuple[str, ...] = ()
    """A program run on a new critical finding, as a list of arguments; no shell. `{title}` and others are filled in."""
    protected: tuple[str, ...] = ()
    """Hosts, as they are typed, on which nothing is ever changed: `[host.NAME]` with `protected = true`."""
    docker_sockets: Mapping[str, str] = field(default_factory=dict)
    """Hosts whose Docker Engine listens elsewhere, a rootless one for instance: `[host.NAME]` with `docker_socket`."""


def config_home() -> Path:
    """The directory of the operator's own files for sparktop."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sparktop"


def state_home() -> Path:
    """The directory of what sparktop writes by itself (logs saved, recordings, audit)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local/state") / "sparktop"


def shown(path: Path) -> str:
    """A place of the operator's as a sentence names it and a shell takes it: below their home with `~`."""
    home = Path.home()
    if not path.is_relative_to(home) or path == home:
        return shlex.quote(sanitise.line(str(path)))
    return f"~/{shlex.quote(sanitise.line(str(path.relative_to(home))))}"


def load(path: Path | None = None) -> Config:
    """The configuration, or the defaults where there is no file.

    Raises:
        ConfigError: the named file is missing, isn't TOML, or holds a key or a type that isn't ours.
    """
    file = path or config_home() / "config.toml"
    try:
        raw = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        if path is None:
            return Config()
        raise ConfigError(f"{file}: there is no such file", hint="check the path given with --config") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: {error}") from error
    return _checked(raw, file)


def _checked(raw: Mapping[str, Any], file: Path) -> Config:
    known = {item.name for item in fields(Config)} - {"protected", "docker_sockets"} | {"host"}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known:
            raise _unknown(key, f"`{key}`", known, file)
        if key == "host":
            hosts = _hosts(value, file)
            values["protected"] = tuple(name for name, table in hosts.items() if table.get("protected"))
            sockets = {name: table["docker_socket"] for name, table in hosts.items() if "docker_socket" in table}
            values["docker_sockets"] = sockets
        else:
            values[key] = _typed(key, value, file)
    return Config(**values)


def _unknown(key: str, told: str, known: Set[str], file: Path) -> ConfigError:
    near = get_close_matches(key, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(sorted(known))}"
    return ConfigError(f"{file}: unknown key {told}", hint=hint)


def _hosts(tables: Any, file: Path) -> Mapping[str, Mapping[str, Any]]:
    """What `[host.NAME]` says of each host; a name with dots or @ stands in quotes."""
    named = tables if isinstance(tables, dict) else {"NAME": None}
    if wrong := [name for name, table in named.items() if not isinstance(table, dict)]:
        raise ConfigError(f"{file}: `host` wants a table for each host", hint=f'[host."{wrong[0]}"]\nprotected = true')
    for name, table in tables.items():
        for key, value in table.items():
            if key not in ("protected", "docker_socket"):
                hosts = f'; a name with dots wants quotes: [host."{name}.{key}"]' if isinstance(value, dict) else ""
                raise _unknown(key, f"`{key}` in [host.{name}]{hosts}", {"protected", "docker_socket"}, file)
            if key == "protected" and not isinstance(value, bool):
                raise ConfigError(f"{file}: `protected` in [host.{name}] wants true or false")
            if key == "docker_socket" and not (
                isinstance(value, str) and value.startswith("/") and value.isprintable()
            ):
                hint = 'docker_socket = "/run/user/1000/docker.sock"'
                raise ConfigError(f"{file}: `docker_socket` in [host.{name}] wants a path on that host", hint=hint)
    return dict(tables)


def _typed(key: str, value: Any, file: Path) -> Any:
    if key == "hosts":
        if isinstance(value, list) and all(isinstance(host, str) for host in value):
            return tuple(value)
        raise ConfigError(f"{file}: `hosts` wants a list of names", hint='hosts = ["spark1", "spark2"]')
    if key in ("notify", "notify_command"):
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ConfigError(f"{file}: `{key}` wants a list of texts", hint=_NOTIFY_HINT[key])
        (_check_command if key == "notify_command" else _check_channels)(value, file)
        return tuple(value)
    if key == "interval_s":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return check_interval(float(value))
        raise ConfigError(f"{file}: `interval_s` wants a number of seconds")
    if key == "read_only":
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{file}: `read_only` wants true or false")
    if isinstance(value, str):
        return value
    raise ConfigError(f"{file}: `{key}` wants a text in quotes")


_NOTIFY_HINT = {
    "notify": 'notify = ["toast", "bell", "title"]',
    "notify_command": 'notify_command = ["notify-send", "{title}", "{explanation}"]',
}


def _check_channels(channels: list[str], file: Path) -> None:
    for channel in channels:
        if channel not in CHANNELS:
            raise ConfigError(f"{file}: `notify` knows no {channel!r}", hint=f"it has {', '.join(CHANNELS)}")


def _check_command(argv: list[str], file: Path) -> None:
    if argv and not argv[0]:
        raise ConfigError(f"{file}: `notify_command` names no program", hint=_NOTIFY_HINT["notify_command"])
    for name in re.findall(r"\{([a-z_]+)\}", " ".join(argv)):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            raise ConfigError(f"{file}: `notify_command` knows no {{{name}}}", hint=f"it has {known}")


def check_interval(seconds: float) -> float:
    """The interval, if a probe may run at it.

    Raises:
        ConfigError: outside 0.25 to 60 seconds.
    """
    low, high = INTERVAL_LIMITS_S
    if not low <= seconds <= high:
        raise ConfigError(f"an interval of {seconds:g} s is out of range", hint=f"choose {low:g} to {high:g} seconds")
    return seconds


def user_rule_files() -> tuple[tuple[str, str], ...]:
    """The operator's own rule files, `rules/*.toml` below `config_home`, as (path, text) in the order of their names.

    Raises:
        ConfigError: one is there and can't be read.
    """
    folder = config_home() / "rules"
    return tuple((str(path), read_rule_file(path)) for path in sorted(folder.glob("*.toml")))


def read_rule_file(path: Path) -> str:
    """The text of one rule file.

    Raises:
        ConfigError: it can't be read, is no text, or too long to be one.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_RULE_FILE_BYTES + 1)
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if len(raw) > MAX_RULE_FILE_BYTES:
        raise ConfigError(f"{path}: longer than {MAX_RULE_FILE_BYTES >> 20} MiB: that is no rule file")
    return text


def resource_dir(name: str) -> Path:
    """The directory of shipped files (`styles`, `recipes`): in the installed package, else in the checkout.

    Raises:
        ConfigError: in neither place, which is a broken installation.
    """
    package = Path(__file__).resolve().parent
    for place in (package / name, package.parent.parent / name):
        if place.is_dir():
            return place
    raise ConfigError(f"the shipped `{name}` files are missing", hint="reinstall sparktop")
