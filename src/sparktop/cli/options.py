"""What commands declare of their arguments, and the configuration made from what is typed."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sparktop import __version__
from sparktop.config import INTERVAL_LIMITS_S, Config, load
from sparktop.dataclass import dataclass
from sparktop.errors import UsageError

HOST_HELP = "an ssh alias, user@host[:port], or `local`"


class Argument(NamedTuple):
    """One argument of a command; its metavar says what it takes, and so what Tab completes."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]
    """As `ArgumentParser.add_argument` takes them."""
    group: str = ""
    """The heading that it has in the help; "": the usual one."""
    against: tuple[str, ...] = ()


def argument(
    name: str,
    text: str,
    metavar: str | None = None,
    *,
    also: tuple[str, ...] = (),
    repeats: bool = False,
    group: str = "",
    against: tuple[str, ...] = (),
    within: tuple[float, float] | None = None,
    **settings: Any,
) -> Argument:
    """An argument by its place, or an option; one without a metavar and choices is a flag.

    Args:
        also: its other names.
        against: options that can't be used together with it.
        within: the least and the most of a number, an int where `type` says so.
    """
    kind: dict[str, Any] = {}
    if repeats:
        kind = {"action": "append", "default": []}
    elif name.startswith("-"):
        is_flag = metavar is None and "choices" not in settings
        kind = {"action": "store_true"} if is_flag else {"default": ""}
    kind |= {"help": text} if metavar is None else {"help": text, "metavar": metavar}
    if within is not None:
        settings["type"] = _number(name, settings.get("type", float), *within)
    return Argument((name, *also), kind | settings, group, against)


def _number(name: str, kind: type[float], least: float, most: float) -> Callable[[str], float]:
    """What reads the number of an option, or refuses it."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if least <= value <= most:  # also false for NaN
            return value
        what = "a number" if kind is float else "a whole number"
        end = "up" if math.isinf(most) else f"to {most:g}"
        raise UsageError(f"{name} takes {what} from {least:g} {end}, not {text!r}")

    return read


def timeout(default_s: float) -> Argument:
    """How long a command waits for nodes."""
    text = f"how long to wait for the nodes (default {default_s:.0f})"
    return argument("--timeout", text, "SECONDS", within=(0.0, 86_400.0), default=default_s)


def listen(default: str, who: str) -> Argument:
    """Where a command serves; `who` can use what it serves."""
    text = f"where to serve (default {default}); {who}"
    return argument("--listen", text, "ADDRESS:PORT", default=default)


COMMON = (
    argument(
        "--config", "the configuration file (default ~/.config/sparktop/config.toml)", "FILE", type=Path, default=None
    ),
    argument(
        "--interval", "time between samples, 0.25 to 60 (default 1)", "SECONDS", within=INTERVAL_LIMITS_S, default=None
    ),
    argument("--read-only", "refuse every action that changes a Spark", also=("--readonly",)),
    argument("--no-color", "no colours, as with NO_COLOR set"),
    argument("-F", "the ssh configuration file (default ~/.ssh/config)", "FILE", also=("--ssh-config",)),
    argument(
        "--version", "show program's version number and exit", action="version", version=f"sparktop {__version__}"
    ),
)
"""Of every command."""
HOSTS = argument("hosts", HOST_HELP, "HOST", nargs="*")
THEME = argument("--theme", "dark, light, or any theme of Textual's; a wrong name lists them", "THEME")
RUN = (
    argument("--dry-run", "print the plan and change nothing"),
    argument("--yes", "run the plan without asking", against=("--dry-run",)),
    argument("--json", "print the plan and the run as JSON"),
    timeout(30.0),
)
"""Of a command that runs a plan."""


ExitCode = int | Coroutine[Any, Any, int]
"""Of a command, or what runs on an event loop and ends with it."""
Run = Callable[[argparse.Namespace], ExitCode]
"""Given a command's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """What runs a command, and what it takes."""

    run: Run
    arguments: tuple[Argument, ...]
    usage: str
    """Its forms, where one with its options isn't all; "": as the table of commands has it."""

    def check(self, options: argparse.Namespace) -> None:
        """Refuse options that can't be used together.

        Raises:
            UsageError: two such are given.
        """
        for one in self.arguments:
            for other in one.against if _is_given(options, one.names[0]) else ():
                if _is_given(options, other):
                    raise UsageError(f"{other} and {one.names[0]} can't be used together")


def _is_given(options: argparse.Namespace, name: str) -> bool:
    return bool(getattr(options, name.strip("-").replace("-", "_"), None))


def takes(*arguments: Argument, usage: str = "") -> Callable[[Run], Runnable]:
    """Declare what a command takes: the function below it is given that, parsed."""
    return lambda run: Runnable(run=run, arguments=arguments, usage=usage)


def refuse_secrets(pairs: Iterable[tuple[str, str]], hint: str) -> None:
    """Refuse a secret as an argument, as every user of this machine can see it.

    Args:
        pairs: names with their values.
        hint: how to give it instead; `{}` stands for its name.

    Raises:
        UsageError: one of them looks like a secret.
    """
    from sparktop.masking import is_secret_name, mask_text

    for name, value in pairs:
        if value and (is_secret_name(name.lstrip("-")) or mask_text(value) != value):
            text = f"{name} looks like a secret, and every user of this machine can see an argument"
            raise UsageError(text, hint=hint.format(name))


def set_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """(name, value) of each parameter of a recipe given with `--set`.

    Raises:
        UsageError: one of them isn't NAME=VALUE.
    """
    pairs: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set wants NAME=VALUE, not {text!r}", hint="--set max_model_len=65536")
        pairs.append((name.strip(), value))
    return pairs


def address_of(text: str) -> tuple[str, int]:
    """Address and port of `--listen`.

    Raises:
        UsageError: it isn't ADDRESS:PORT, with an IP address or `localhost`.
    """
    import ipaddress

    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]"))
        if not (port.isascii() and port.isdecimal() and int(port) < 65536):
            raise ValueError
    except ValueError:
        hint = "--listen 127.0.0.1:0 takes any port that is free"
        raise UsageError(f"--listen wants ADDRESS:PORT, with an IP address, not {text!r}", hint=hint) from None
    return str(address), int(port)


def need_spark(options: argparse.Namespace, config: Config, command: str) -> None:
    """Refuse a command that changes a Spark where none is named and the configuration doesn't name exactly one.

    Args:
        command: the command without its hosts, for the hint.
    """
    if getattr(options, "hosts", ()) or len(config.hosts) == 1:
        return
    known = config.hosts or config.protected
    hint = f"{command} {known[0] if known else 'spark1'}"
    if known:
        hint += f"   # your configuration names {', '.join(known)}"
    raise UsageError("on which Spark?", hint=hint)


def settings(options: argparse.Namespace) -> Config:
    """The configuration file's settings, overridden by the command line."""
    config = load(options.config)
    if options.no_color:
        os.environ["NO_COLOR"] = "1"
    return replace(
        config,
        hosts=tuple(getattr(options, "hosts", ())) or config.hosts,
        interval_s=config.interval_s if options.interval is None else options.interval,
        theme=getattr(options, "theme", None) or config.theme,
        read_only=options.read_only or config.read_only,
        record=config.record and not getattr(options, "no_record", False),
        ssh_config=options.ssh_config or config.ssh_config,
    )
