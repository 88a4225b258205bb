"""sparktop's TOML configuration, and the directories of its own, the operator's and the shipped files.

Configuration is `$XDG_CONFIG_HOME/sparktop/config.toml`; a command-line flag overrides it, and it overrides the
defaults here. An unknown key is refused with the nearest valid one, so that a typo is always noticed.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Set
from dataclasses import field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sparktop import files, sanitise
from sparktop.dataclass import dataclass
from sparktop.errors import ConfigError

INTERVAL_LIMITS_S = (0.25, 60.0)
CHANNELS = ("toast", "bell", "title", "osc9", "osc777")
"""A message on screen; the bell; the window's title; a desktop notification by the escape sequence of iTerm2 and
kitty (osc9) or of urxvt (osc777)."""
PLACEHOLDERS = ("severity", "title", "nodes", "rule", "explanation")
MAX_RULE_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The operator's settings, with defaults for the rest."""

    hosts: tuple[str, ...] = ()
    """Hosts to watch when the command line names none."""
    interval_s: float = 1.0
    """Seconds between samples; the probe samples faster by itself when memory is low or falling."""
    theme: str = "sparktop-dark"
    """dark, light, or any of Textual's themes."""
    read_only: bool = False
    ssh_config: str = ""
    """Used instead of ~/.ssh/config, as `ssh -F`."""
    notify: tuple[str, ...] = ("toast", "bell", "title")
    """Channels for a new critical finding, from CHANNELS; []: none."""
    notify_command: tuple[str, ...] = ()
    """A program run on a new critical finding, as a list of arguments; no shell. `{title}` and others are filled in."""
    protected: tuple[str, ...] = ()
    """Hosts, as they are typed, on which sparktop never changes anything: `[host.NAME]` with `protected = true`."""
    docker_sockets: Mapping[str, str] = field(default_factory=dict)
    """Hosts whose Docker Engine listens on another socket, such as a rootless one: `[host.NAME]` with
    `docker_socket`."""


def config_home() -> Path:
    """The directory of the operator's own files for sparktop."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sparktop"


def state_home() -> Path:
    """The directory of files that sparktop writes by itself (saved logs, recordings, audit)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local/state") / "sparktop"


def shown(path: Path) -> str:
    """A path of the operator's, as messages show it and a shell accepts it: with `~` for their home."""
    home = Path.home()
    if not path.is_relative_to(home) or path == home:
        return shlex.quote(sanitise.line(str(path)))
    return f"~/{shlex.quote(sanitise.line(str(path.relative_to(home))))}"


def load(path: Path | None = None) -> Config:
    """The configuration, or the defaults where there is no file.

    Raises:
        ConfigError: the named file is missing, isn't TOML, or has an unknown key or a value of the wrong type.
    """
    file = path or config_home() / "config.toml"
    try:
        raw = tomllib.loads(files.read(file).decode())
    except FileNotFoundError:
        if path is None:
            return Config()
        raise ConfigError(f"{file}: there is no such file", hint="check the path given with --config") from None
    except (OSError, ValueError, RecursionError) as error:  # tomllib's own, and those of numbers and nesting
        raise ConfigError(f"{file}: {error}") from error
    return _checked(raw, file)


def _checked(raw: Mapping[str, Any], file: Path) -> Config:
    known_keys = {item.name for item in fields(Config)} - {"protected", "docker_sockets"} | {"host"}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known_keys:
            raise _unknown(key, f"`{key}`", known_keys, file)
        if key == "host":
            hosts = _hosts(value, file)
            values["protected"] = tuple(name for name, table in hosts.items() if table.get("protected"))
            sockets = {name: table["docker_socket"] for name, table in hosts.items() if "docker_socket" in table}
            values["docker_sockets"] = sockets
        else:
            values[key] = _typed(key, value, file)
    return Config(**values)


def _unknown(key: str, description: str, known_keys: Set[str], file: Path) -> ConfigError:
    near = get_close_matches(key, known_keys, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(sorted(known_keys))}"
    return ConfigError(f"{file}: unknown key {description}", hint=hint)


def _hosts(tables: Any, file: Path) -> Mapping[str, Mapping[str, Any]]:
    """The `[host.NAME]` tables by host; a name with dots or @ needs quotes."""
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
    if key in _LISTS:
        kind, example = _LISTS[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{file}: `{key}` wants a list of {kind}", hint=example)
        if key == "notify_command":
            _check_command(value, file)
        elif key == "notify" and (unknown := [channel for channel in value if channel not in CHANNELS]):
            raise ConfigError(f"{file}: `notify` knows no {unknown[0]!r}", hint=f"it has {', '.join(CHANNELS)}")
        return tuple(value)
    if key == "interval_s":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return check_interval(value)
        raise ConfigError(f"{file}: `interval_s` wants a number of seconds")
    if key == "read_only":
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{file}: `read_only` wants true or false")
    if isinstance(value, str):
        return value
    raise ConfigError(f"{file}: `{key}` wants a text in quotes")


_LISTS = {
    "hosts": ("names", 'hosts = ["spark1", "spark2"]'),
    "notify": ("texts", 'notify = ["toast", "bell", "title"]'),
    "notify_command": ("texts", 'notify_command = ["notify-send", "{title}", "{explanation}"]'),
}
"""What a list holds, and an example."""


def _check_command(argv: list[str], file: Path) -> None:
    if argv and not argv[0]:
        raise ConfigError(f"{file}: `notify_command` names no program", hint=_LISTS["notify_command"][1])
    for name in re.findall(r"\{([a-z_]+)\}", " ".join(argv)):
        if name not in PLACEHOLDERS:
            placeholders = ", ".join(f"{{{name_}}}" for name_ in PLACEHOLDERS)
            raise ConfigError(f"{file}: `notify_command` knows no {{{name}}}", hint=f"it has {placeholders}")


def check_interval(seconds: float) -> float:
    """The interval, if probes support it.

    Raises:
        ConfigError: outside 0.25 to 60 seconds.
    """
    low, high = INTERVAL_LIMITS_S
    if not low <= seconds <= high:
        shown = f"{seconds:g}" if isinstance(seconds, float) else f"{str(seconds)[:20]}"
        raise ConfigError(f"an interval of {shown} s is out of range", hint=f"choose {low:g} to {high:g} seconds")
    return float(seconds)


def user_rule_files() -> tuple[tuple[str, str], ...]:
    """The operator's own rule files, `rules/*.toml` below `config_home`, as (path, text) in the order of their names.

    Raises:
        ConfigError: one of them can't be read.
    """
    folder = config_home() / "rules"
    return tuple((str(path), read_rule_file(path)) for path in sorted(folder.glob("*.toml")))


def read_rule_file(path: Path) -> str:
    """The text of one rule file.

    Raises:
        ConfigError: it can't be read, is no text, or is too long.
    """
    try:
        return files.read(path, MAX_RULE_FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def resource_dir(name: str) -> Path:
    """The directory of shipped files (`styles`, `recipes`): in the installed package, else in the checkout.

    Raises:
        ConfigError: missing in both, which means a broken installation.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / name, package.parent.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigError(f"the shipped `{name}` files are missing", hint="reinstall sparktop")
