"""The arguments that all commands have, and the configuration made from them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill

from sparktop import __version__
from sparktop.cli.commands import BY_NAME, COMMANDS
from sparktop.config import Config, check_interval, load
from sparktop.errors import UsageError

HOST_HELP = "an ssh alias, user@host[:port], or `local`"
EXIT_CODES = (
    (0, "nothing wrong, or done"),
    (1, "a finding at warning or above; an action refused, failed or not confirmed"),
    (2, "usage or configuration"),
    (3, "a node can't be reached"),
    (130, "interrupted"),
)


def parser(name: str, usage: str) -> argparse.ArgumentParser:
    """An argument parser for this command, with the flags that every command has."""
    command = BY_NAME[name]
    is_console = name == "console"
    rows = [(f"sparktop {one.shape}", one.brief) for one in COMMANDS] if is_console else command.examples
    codes = _table([(str(code), meaning) for code, meaning in EXIT_CODES])
    title = "commands, each with its own --help" if is_console else "examples"
    argument_parser = argparse.ArgumentParser(
        prog="sparktop",
        usage=usage,
        description="An operations console for NVIDIA DGX Sparks."
        if is_console
        else fill(sentence(command.brief), _columns()),
        epilog=f"{title}:\n{_table(rows)}\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    argument_parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the configuration file (default ~/.config/sparktop/config.toml)"
    )
    argument_parser.add_argument(
        "--interval", type=float, metavar="SECONDS", help="time between samples, 0.25 to 60 (default 1)"
    )
    argument_parser.add_argument(
        "--read-only", "--readonly", action="store_true", help="refuse every action that changes a Spark"
    )
    argument_parser.add_argument("--no-color", action="store_true", help="no colours, as with NO_COLOR set")
    argument_parser.add_argument(
        "-F", "--ssh-config", metavar="FILE", help="the ssh configuration file (default ~/.ssh/config)"
    )
    argument_parser.add_argument("--version", action="version", version=f"sparktop {__version__}")
    return argument_parser


def _table(rows: Sequence[tuple[str, str]]) -> str:
    """Rows of two columns; the second is below the first where the terminal is too narrow for both."""
    columns = _columns()
    width = max(len(first) for first, _ in rows) + 4
    is_beside = columns - width >= 40
    indent = " " * (width if is_beside else 6)
    lines = []
    for first, second in rows:
        below = fill(second, columns, initial_indent=indent, subsequent_indent=indent)
        lines += [f"  {first:{width - 2}}{below[width:]}"] if is_beside else [f"  {first}", below]
    return "\n".join(lines)


def _columns() -> int:
    return max(40, get_terminal_size().columns - 2)


def sentence(brief: str) -> str:
    """A brief text as a sentence of its own."""
    return f"{brief[0].upper()}{brief[1:]}."


def add_run_options(argument_parser: argparse.ArgumentParser) -> None:
    """Add the flags of the commands that run a plan."""
    argument_parser.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")
    argument_parser.add_argument("--yes", action="store_true", help="run the plan without asking")
    argument_parser.add_argument(
        "--json", action="store_true", dest="as_json", help="print the plan and the run as JSON"
    )
    add_timeout(argument_parser, default_s=30.0)


def add_theme(argument_parser: argparse.ArgumentParser) -> None:
    """Add the flag of the commands that open a console."""
    argument_parser.add_argument(
        "--theme", metavar="THEME", help="dark, light, or any theme of Textual's; a wrong name lists them"
    )


def add_listen(argument_parser: argparse.ArgumentParser, default: str, who: str) -> None:
    """Add the flag of the commands that serve; `who` can use what they serve."""
    argument_parser.add_argument(
        "--listen", default=default, metavar="ADDRESS:PORT", help=f"where to serve (default {default}); {who}"
    )


def add_timeout(argument_parser: argparse.ArgumentParser, *, default_s: float) -> None:
    """Add the flag of the commands that wait for nodes."""
    argument_parser.add_argument(
        "--timeout",
        type=float,
        default=default_s,
        metavar="SECONDS",
        help=f"how long to wait for the nodes (default {default_s:.0f})",
    )


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
        interval_s=config.interval_s if options.interval is None else check_interval(options.interval),
        theme=getattr(options, "theme", None) or config.theme,
        read_only=options.read_only or config.read_only,
        record=config.record and not getattr(options, "no_record", False),
        ssh_config=options.ssh_config or config.ssh_config,
    )
