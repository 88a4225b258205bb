"""What all commands' arguments have in common, and the configuration that comes of them."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from sparktop import __version__
from sparktop.config import Config, check_interval, load

_EPILOG = """\
commands:
  sparktop HOST [HOST ...]       the console; HOST is an ssh alias, user@host[:port], or `local`
  sparktop demo                  the console on two simulated Sparks, no hardware needed
  sparktop status HOST...        one snapshot as text or JSON, or a stream of them
  sparktop act ACTION HOST...    one action: --dry-run prints its plan, --yes runs it; --list names them
  sparktop launch RECIPE HOST... from a recipe to a served, proven model; --dry-run prints the plan
  sparktop audit                 what was done to the Sparks from here, by whom, and how it ended
  sparktop lint FILE...          compose files, docker run scripts, units, recipes: what is known to go wrong
  sparktop recipes list|show ID  what can be launched; `recipes validate FILE...` checks your own
  sparktop rules list|show ID    every rule; `rules check` tries your own, in $XDG_CONFIG_HOME/sparktop/rules/*.toml
  sparktop explain [FILE|-]      what a log says: of an engine, the kernel, docker, nvidia-smi

exit codes: 0 nothing wrong, 1 findings at warning or above (or an action refused or failed), 2 usage or configuration,
  3 unreachable, 130 interrupted
"""


def parser(usage: str) -> argparse.ArgumentParser:
    """A parser with the flags that every command has."""
    made = argparse.ArgumentParser(
        prog="sparktop",
        usage=usage,
        description="An operations console for NVIDIA DGX Sparks.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", type=Path, help="another configuration file")
    made.add_argument("--interval", type=float, help="seconds between samples, 0.25 to 60 (default 1)")
    made.add_argument("--read-only", "--readonly", action="store_true", help="refuse everything that changes a Spark")
    made.add_argument("--no-color", action="store_true", help="as the NO_COLOR environment variable")
    made.add_argument("-F", "--ssh-config", help="another file than ~/.ssh/config")
    made.add_argument("--version", action="version", version=f"sparktop {__version__}")
    return made


def settings(options: argparse.Namespace) -> Config:
    """The configuration with the command line's word over it."""
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
