"""sparktop's TOML configuration, and the directories of its own, the operator's and the shipped files.

Configuration is `$XDG_CONFIG_HOME/sparktop/config.toml`; a command-line flag overrides it, and it overrides the
defaults here. An unknown key is refused with the nearest valid one, so that a typo is always noticed.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Set
from dataclasses import field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from sparktop import files, sanitise
from sparktop.dataclass import dataclass
from sparktop.errors import ConfigError, nearest
from sparktop.model.event import Severity

INTERVAL_LIMITS_S = (0.25, 60.0)
CHANNELS = ("toast", "bell", "title", "osc9", "osc777")
"""A message on screen; the bell; the window's title; a desktop notification by the escape sequence of iTerm2 and
kitty (osc9) or of urxvt (osc777)."""
PLACEHOLDERS = ("severity", "title", "nodes", "rule", "explanation")
MAX_RULE_FILE_BYTES = 1 << 20


class MessageKind(StrEnum):
    """What a message is about."""

    NEW = "new"
    WORSE = "worse"
    RESOLVED = "resolved"
    SUMMARY = "summary"
    """Several changes, held back by quiet hours or by the limit an hour."""
    DOWN = "down"
    """The watcher itself didn't run for a while."""
    HEARTBEAT = "heartbeat"
    TEST = "test"


EVENTS = tuple(kind for kind in MessageKind if kind not in (MessageKind.SUMMARY, MessageKind.TEST))
"""What a target may choose from."""


class TargetKind(StrEnum):
    """How a target takes a message."""

    JSON = "json"
    NTFY = "ntfy"
    SLACK = "slack"
    DISCORD = "discord"
    COMMAND = "command"
    MAIL = "mail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One `[watch.target.NAME]`; a secret stands here only as a webhook's `url`, and is never shown."""

    name: str
    kind: TargetKind
    events: tuple[MessageKind, ...] = EVENTS
    url: str = field(default="", repr=False)
    url_env: str = ""
    url_file: str = ""
    token_env: str = ""
    token_file: str = ""
    command: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    sender: str = ""
    smtp: str = ""
    """HOST or HOST:PORT; empty: this machine's sendmail."""
    user: str = ""
    password_env: str = ""
    password_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The table `[watch]`."""

    targets: tuple[Target, ...] = ()
    least: Severity = Severity.WARNING
    heartbeat_s: float = 0.0
    """0: none."""
    quiet: tuple[int, int] | None = None
    """Minutes of the local day, from and to: then only critical changes are sent at once."""
    most_per_hour: int = 30


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
    record: bool = True
    """Whether a console and a watcher keep what they see on this machine's disk."""
    record_days: float = 7.0
    """How long a host's recordings are kept."""
    record_gib: float = 2.0
    """What they may take, a host."""
    canary_every_s: float = 0.0
    """How often an engine at rest is asked a question with one right answer; 0: never."""
    protected: tuple[str, ...] = ()
    """Hosts, as they are typed, on which sparktop never changes anything: `[host.NAME]` with `protected = true`."""
    docker_sockets: Mapping[str, str] = field(default_factory=dict)
    """Hosts whose Docker Engine listens on another socket, such as a rootless one: `[host.NAME]` with
    `docker_socket`."""
    watch: Watching = field(default_factory=Watching)
    """What `sparktop watch` announces: `[watch]`."""


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
        elif key == "watch":
            values[key] = _watching(value, file)
        else:
            values[key] = _typed(key, value, file)
    return Config(**values)


def _unknown(key: str, description: str, known_keys: Set[str], file: Path) -> ConfigError:
    near = nearest(key, known_keys)
    hint = f"did you mean `{near}`?" if near else f"known keys: {', '.join(sorted(known_keys))}"
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


_WEB = ("url", "url_env", "url_file", "token_env", "token_file")
_TARGET_KEYS = dict.fromkeys(TargetKind, ("kind", "events", *_WEB)) | {
    TargetKind.COMMAND: ("kind", "events", "command"),
    TargetKind.MAIL: ("kind", "events", "to", "from", "smtp", "user", "password_env", "password_file"),
}
_TARGET_LISTS = {"events", "command", "to"}
_QUIET = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_TARGET_EXAMPLE = '[watch.target.phone]\nkind = "ntfy"\nurl = "https://ntfy.sh/my-secret-topic"'


_WATCH_KEYS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "least": (lambda it: it in ("warning", "critical"), '"warning" or "critical"'),
    "heartbeat_s": (lambda it: _is_number(it) and (it == 0 or 60 <= it <= 604_800), "60 to 604800 seconds, or 0"),
    "quiet": (lambda it: isinstance(it, str) and _QUIET.fullmatch(it), 'hours of the day, as "22:00-07:00"'),
    "most_per_hour": (lambda it: type(it) is int and 1 <= it <= 1000, "a number from 1 to 1000"),
    "target": (
        lambda it: isinstance(it, dict) and all(isinstance(target, dict) for target in it.values()),
        "a table for each target",
    ),
}
"""Key of `[watch]` -> whether a value is right, and what is."""


def _watching(table: Any, file: Path) -> Watching:
    """The table `[watch]` with its targets."""
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: `watch` wants a table", hint=_TARGET_EXAMPLE)
    for key, value in table.items():
        if key not in _WATCH_KEYS:
            raise _unknown(key, f"`{key}` in [watch]", _WATCH_KEYS.keys(), file)
        is_right, wants = _WATCH_KEYS[key]
        if not is_right(value):
            hint = _TARGET_EXAMPLE if key == "target" else None
            raise ConfigError(f"{file}: `{key}` in [watch] wants {wants}", hint=hint)
    values = {name: table[name] for name in ("heartbeat_s", "most_per_hour") if name in table}
    if "quiet" in table:
        hour, minute, last_hour, last_minute = map(int, re.findall(r"\d\d", table["quiet"]))
        values["quiet"] = hour * 60 + minute, last_hour * 60 + last_minute
    return Watching(
        targets=tuple(_target(name, target, file) for name, target in table.get("target", {}).items()),
        least=Severity(table.get("least", "warning")),
        **values,
    )


def _target(name: str, table: Mapping[str, Any], file: Path) -> Target:
    """One target. No message shows a value: it may be a secret."""
    where = f"[watch.target.{name}]"
    kinds = ", ".join(TargetKind)
    if table.get("kind") not in list(TargetKind):
        raise ConfigError(f"{file}: `kind` in {where} wants one of {kinds}", hint=_TARGET_EXAMPLE)
    kind = TargetKind(table["kind"])
    known_keys = _TARGET_KEYS[kind]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in ("password", "token"):
            hint = f"{key}_env names an environment variable, {key}_file a file that only you can read"
            raise ConfigError(f"{file}: `{key}` in {where} doesn't belong in this file", hint=hint)
        if key not in known_keys:
            raise _unknown(key, f"`{key}` in {where}", set(known_keys), file)
        if key in _TARGET_LISTS:
            if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
                raise ConfigError(f"{file}: `{key}` in {where} wants a list of texts")
            values[key] = tuple(value)
        elif not isinstance(value, str) or not value.isprintable() or not value:
            raise ConfigError(f"{file}: `{key}` in {where} wants a text in quotes, on one line")
        else:
            values["sender" if key == "from" else key] = value
    if unknown := [event for event in values.get("events", ()) if event not in EVENTS]:
        raise ConfigError(f"{file}: `events` in {where} knows no {unknown[0]!r}", hint=f"it has {', '.join(EVENTS)}")
    needs = {TargetKind.COMMAND: ("command",), TargetKind.MAIL: ("to", "from")}.get(kind, ())
    if missing := [key for key in needs if key not in table]:
        raise ConfigError(f"{file}: {where} has no `{missing[0]}`")
    if not needs and sum(key in table for key in ("url", "url_env", "url_file")) != 1:
        raise ConfigError(f"{file}: {where} wants one of `url`, `url_env` and `url_file`", hint=_TARGET_EXAMPLE)
    if "user" in table and sum(key in table for key in ("password_env", "password_file")) != 1:
        raise ConfigError(f"{file}: `user` in {where} wants `password_env` or `password_file` with it")
    if "user" in table and "smtp" not in table:
        raise ConfigError(f"{file}: `user` in {where} wants `smtp`, the server to log in to")
    values |= {"kind": kind, "events": tuple(map(MessageKind, values.get("events", EVENTS)))}
    return Target(name=name, **values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
        if _is_number(value):
            return check_interval(value)
        raise ConfigError(f"{file}: `interval_s` wants a number of seconds")
    if key == "canary_every_s":
        if _is_number(value) and (value == 0 or 60 <= value <= 86_400):
            return float(value)
        raise ConfigError(f"{file}: `{key}` wants 60 to 86400 seconds, or 0 for none")
    if key in ("record_days", "record_gib"):
        if _is_number(value) and 0 < value < 1e5:
            return float(value)
        raise ConfigError(f"{file}: `{key}` wants a number above 0")
    if key in ("read_only", "record"):
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{file}: `{key}` wants true or false")
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
