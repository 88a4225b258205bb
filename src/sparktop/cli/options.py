"""The arguments that all commands have, and the configuration made from them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sparktop import __version__
from sparktop.cli.commands import BY_NAME, COMMANDS
from sparktop.config import Config, check_interval, load
from sparktop.errors import UsageError

_EXIT_CODES = """\
exit codes: 0 nothing wrong, 1 findings at warning or above (or an action refused or failed), 2 usage or configuration,
  3 unreachable, 130 interrupted
"""


def parser(name: str, usage: str) -> argparse.ArgumentParser:
    """An argument parser for this command, with the flags that every command has."""
    command = BY_NAME[name]
    is_console = name == "console"
    rows = [(f"sparktop {one.shape}", one.brief) for one in COMMANDS] if is_console else command.examples
    width = max(len(typed) for typed, _ in rows)
    title = "commands, each with its own --help" if is_console else "examples"
    listed = "\n".join(f"  {typed:{width}}  {brief}" for typed, brief in rows)
    argument_parser = argparse.ArgumentParser(
        prog="sparktop",
        usage=usage,
        description="An operations console for NVIDIA DGX Sparks." if is_console else f"{name}: {command.brief}.",
        epilog=f"{title}:\n{listed}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    argument_parser.add_argument("--config", type=Path, help="another configuration file")
    argument_parser.add_argument("--interval", type=float, help="seconds between samples, 0.25 to 60 (default 1)")
    argument_parser.add_argument(
        "--read-only", "--readonly", action="store_true", help="refuse everything that changes a Spark"
    )
    argument_parser.add_argument("--no-color", action="store_true", help="as the NO_COLOR environment variable")
    argument_parser.add_argument("-F", "--ssh-config", help="another file than ~/.ssh/config")
    argument_parser.add_argument("--version", action="version", version=f"sparktop {__version__}")
    return argument_parser


def add_run_options(argument_parser: argparse.ArgumentParser) -> None:
    """Add the flags of the commands that run a plan."""
    argument_parser.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")
    argument_parser.add_argument("--yes", action="store_true", help="run it without a question")
    argument_parser.add_argument("--json", action="store_true", dest="as_json", help="the plan and the run as JSON")
    argument_parser.add_argument(
        "--timeout", type=float, default=30.0, help="seconds to wait for the nodes (default 30)"
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
        ssh_config=options.ssh_config or config.ssh_config,
    )
