"""The command that launches a recipe: launch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.options import parser, settings
from sparktop.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from sparktop.model.recipe import Order, Recipe
    from sparktop.recipe.ownsecrets import Found

_USAGE = (
    "sparktop launch RECIPE HOST [HOST] [--set NAME=VALUE] [--stop ENGINE] [--env-file FILE] [--no-fetch]\n"
    "                       [--dry-run | --yes | --export compose|run|systemd] [--json]"
)
EXPORTS = ("compose", "run", "systemd")


def launch(words: list[str]) -> int:
    """`sparktop launch`."""
    options = _arguments().parse_args(words)
    config = settings(options)
    if not options.recipe:
        raise UsageError("which recipe?", hint="sparktop recipes list names all")
    if sum((options.dry_run, options.yes, bool(options.export))) > 1:
        raise UsageError("--dry-run, --yes and --export contradict one another")
    if options.export and options.as_json:
        raise UsageError("--export prints a file: --json goes with --dry-run or --yes")
    from sparktop.model.recipe import Order
    from sparktop.recipe.shelf import recipe

    known = recipe(options.recipe)
    values = _values(options.set)
    if not config.hosts:
        raise UsageError("on which Spark?", hint=f"sparktop launch {options.recipe} spark1")
    found = _secrets(known, options.env_file)
    import asyncio

    from sparktop.cli.compose import connectors, distinct, own_rules, session
    from sparktop.headless.act import Manner
    from sparktop.headless.launch import Launch
    from sparktop.headless.launch import launch as carry_out
    from sparktop.headless.prompts import TerminalPrompter
    from sparktop.observe.watch import Publish, Watch
    from sparktop.operate.operating import Operating

    prompter = TerminalPrompter()
    hosts = distinct(config.hosts)
    if len(hosts) < len(config.hosts):
        twice = next(one for one in config.hosts if config.hosts.count(one) > 1)
        raise UsageError(f"{twice} is named twice", hint="name each Spark once; the first is the head")
    links = connectors(hosts, prompter, config.ssh_config)
    own = own_rules()

    def make(publish: Publish) -> tuple[Watch, Operating]:
        made = session(links, publish, config, own=own)
        return made, made.operations

    order = Order(
        recipe=known,
        values=values,
        secrets=found.values,
        secret_problems=found.problems,
        may_fetch=options.may_fetch,
    )
    if hub := os.environ.get("HF_ENDPOINT", "").rstrip("/"):
        order = replace(order, hub=hub)
    _check(order)
    wanted = Launch(
        order=order,
        stops=tuple(options.stop),
        options={"grace_s": options.grace} if options.grace else {},
        export=options.export,
        notes=_notes(found),
    )
    manner = Manner(
        is_dry=options.dry_run,
        is_agreed=options.yes,
        as_json=options.as_json,
        timeout_s=options.timeout,
        has_terminal=sys.stdin.isatty() and sys.stderr.isatty(),
    )
    return asyncio.run(carry_out(make, wanted, manner=manner, secret=prompter.sudo))


def _arguments() -> argparse.ArgumentParser:
    made = parser(_USAGE)
    made.add_argument("recipe", nargs="?", metavar="RECIPE", help="by its name, or a file; `recipes list` names them")
    made.add_argument("hosts", nargs="*", metavar="HOST", help="an ssh alias, user@host[:port], or `local`; head first")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the recipe")
    made.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="ENGINE",
        help="stop it to make room, on each HOST that has it",
    )
    made.add_argument("--env-file", type=Path, metavar="FILE", help="secrets, NAME=value lines, mode 0600")
    made.add_argument("--no-fetch", action="store_false", dest="may_fetch", help="use what is on the disks alone")
    made.add_argument("--grace", default="", metavar="SECONDS", help="between SIGTERM and SIGKILL of what is stopped")
    made.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")
    made.add_argument("--yes", action="store_true", help="run it without a question")
    made.add_argument("--export", default="", choices=EXPORTS, help="print it as a file to keep, and change nothing")
    made.add_argument("--json", action="store_true", dest="as_json", help="the plan and the run as JSON")
    made.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the nodes (default 30)")
    return made


def _values(pairs: Sequence[str]) -> Mapping[str, str]:
    """Of `--set`; a secret in an argument would be seen in the list of processes."""
    from sparktop.probe.remote import is_secret_name, mask_text

    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"--set wants NAME=VALUE, not {pair!r}", hint="--set max_model_len=65536")
        if value and (is_secret_name(name) or mask_text(value) != value):
            raise UsageError(
                f"{name} looks like a secret, and every user of this machine can see an argument",
                hint="give it in your environment, or with --env-file: HF_TOKEN, VLLM_API_KEY",
            )
        found[name] = value
    return found


def _check(order: Order) -> None:
    """Say what can't be one of its values before anything is connected to.

    Raises:
        UsageError: the nearest right name is told, or what is wanted.
    """
    from sparktop.recipe import parameters
    from sparktop.recipe.rendered import CannotRender

    try:
        parameters.values(order)
    except CannotRender as error:
        raise UsageError(error.reason, hint="\n  ".join(filter(None, error.remedies)) or None) from error


def _secrets(recipe: Recipe, named: Path | None) -> Found:
    """What the recipe takes of the operator's: of the environment, else of files that only they can read.

    Raises:
        ConfigError: the file that was asked for is not there, or is not read; of others a gate says it.
    """
    from sparktop.recipe.ownsecrets import held

    if named is not None and not named.is_file():
        raise ConfigError(f"{named} is no file" if named.exists() else f"{named}: there is no such file")
    found = held(recipe, named)
    if named is not None and found.problems:
        raise ConfigError("\n  ".join(found.problems))
    return found


def _notes(found: Found) -> tuple[str, ...]:
    said = ", ".join(f"{name} {source}" for name, source in found.sources.items() if source)
    return (f"taken: {said}",) if said else ()
