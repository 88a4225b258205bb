"""The commands that act: act, audit."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparktop.cli.options import parser, settings
from sparktop.errors import UsageError

if TYPE_CHECKING:
    from sparktop.model.change import Change
    from sparktop.operate.actions import Action

_USAGE = "sparktop act ACTION HOST [HOST] [--engine NAME | --pid N] [--set NAME=VALUE] [--dry-run | --yes] · act --list"


def act(words: list[str]) -> int:
    """`sparktop act`."""
    options = _arguments().parse_args(words)
    if options.list_actions:
        from sparktop.headless.act import list_actions

        return list_actions()
    config = settings(options)
    known = _action(options.action)
    asked_options = _options(options.set, known)
    if known.name == "guard":
        _check_guard(asked_options)
    change_asked = _change(options, known)
    if options.dry_run and options.yes:
        raise UsageError("--dry-run and --yes contradict one another")
    if options.pid is not None and options.engine:
        raise UsageError("--engine and --pid contradict one another")
    if not config.hosts:
        raise UsageError("on which Spark?", hint=f"sparktop act {known.name} spark1")
    import asyncio

    from sparktop.cli.compose import connectors, distinct, own_rules, session
    from sparktop.headless.act import Asked, Manner
    from sparktop.headless.act import act as carry_out
    from sparktop.headless.prompts import TerminalPrompter
    from sparktop.observe.watch import Publish, Watch
    from sparktop.operate.operating import Operating

    prompter = TerminalPrompter()
    links = connectors(distinct(config.hosts), prompter, config.ssh_config)
    own = own_rules()

    def make(publish: Publish) -> tuple[Watch, Operating]:
        made = session(links, publish, config, own=own, asks_more=known.name == "collect-evidence")
        return made, made.operations

    asked = Asked(
        action=known,
        target=str(options.pid) if options.pid is not None else options.engine,
        options=asked_options,
        change=change_asked,
        rule=options.finding,
    )
    manner = Manner(
        is_dry=options.dry_run,
        is_agreed=options.yes,
        as_json=options.as_json,
        timeout_s=options.timeout,
        has_terminal=sys.stdin.isatty() and sys.stderr.isatty(),
    )
    return asyncio.run(carry_out(make, asked, manner=manner, secret=prompter.sudo))


def _arguments() -> argparse.ArgumentParser:
    made = parser(_USAGE)
    made.add_argument("action", nargs="?", metavar="ACTION", help="what to do; --list names them")
    made.add_argument("hosts", nargs="*", metavar="HOST", help="an ssh alias, user@host[:port], or `local`")
    made.add_argument("--list", action="store_true", dest="list_actions", help="list the actions and their options")
    made.add_argument("--engine", "--target", default="", metavar="NAME", help="which engine, where there are several")
    made.add_argument("--pid", type=int, metavar="N", help="which process")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the action")
    made.add_argument("--finding", default="", metavar="RULE", help="what it is to mend: has to be seen to resolve")
    made.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")
    made.add_argument("--yes", action="store_true", help="run it without a question")
    made.add_argument("--json", action="store_true", dest="as_json", help="the plan and the run as JSON")
    made.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the nodes (default 30)")
    change = made.add_argument_group("what a relaunch changes")
    change.add_argument("--flag", action="append", default=[], metavar="--NAME=VALUE", help="--flag=--enforce-eager")
    change.add_argument("--unset-flag", action="append", default=[], metavar="--NAME", help="takes a flag away")
    change.add_argument(
        "--env", action="append", default=[], metavar="NAME[=VALUE]", help="NAME alone: its value from your environment"
    )
    change.add_argument("--unset-env", action="append", default=[], metavar="NAME", help="takes a variable away")
    change.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of Docker's HostConfig")
    change.add_argument("--image", default="", help="another image")
    return made


def audit(words: list[str]) -> int:
    """`sparktop audit`."""
    made = parser("sparktop audit [--node NAME] [--count N] [--json] [--follow]")
    made.add_argument("--node", default="", metavar="NAME", help="of this node alone")
    made.add_argument("--count", type=int, default=20, metavar="N", help="the last N runs (default 20)")
    made.add_argument("--json", action="store_true", dest="as_json", help="the entries as they stand in the file")
    made.add_argument("--follow", action="store_true", help="go on with what comes, until interrupted")
    options = made.parse_args(words)
    settings(options)
    if options.count < 1:
        raise UsageError("--count wants a number from 1 on")
    from sparktop.headless.audit import audit as tell

    return tell(count=options.count, node=options.node, as_json=options.as_json, follow=options.follow)


def _action(name: str | None) -> Action:
    from sparktop.operate.actions import ACTIONS, action

    known = action(name) if name else None
    if known is not None and known.target == "recipe":
        raise UsageError(f"{name} is a command of its own", hint="sparktop launch RECIPE HOST [HOST]")
    if known is not None:
        return known
    names = [one.name for one in ACTIONS]
    if not name:
        raise UsageError("which action?", hint=f"one of {', '.join(names)}; sparktop act --list explains them")
    near = get_close_matches(name, names, n=1)
    told = f"did you mean {near[0]}?" if near else f"there is {', '.join(names)}"
    raise UsageError(f"there is no action {name!r}", hint=told)


def _options(pairs: Sequence[str], known: Action) -> Mapping[str, str]:
    """Of `--set`, checked by name and choice."""
    found: dict[str, str] = {}
    names = {option.name: option for option in known.options}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in names:
            near = get_close_matches(name, names, n=1)
            own = f"it has {', '.join(names)}" if names else "it has none"
            raise UsageError(
                f"{known.name} has no option {name!r}" if equals else f"--set wants NAME=VALUE, not {pair!r}",
                hint=f"did you mean {near[0]}?" if near and equals else own,
            )
        if names[name].choices and value not in names[name].choices:
            raise UsageError(f"{name} is one of {', '.join(names[name].choices)}, not {value!r}")
        found[name] = value
    return found


def _check_guard(options: Mapping[str, str]) -> None:
    """A guard goes with whoever armed it, and a command is gone at once."""
    stays = options.get("stay_minutes", "").strip("0. ")
    if options.get("off") != "yes" and not stays:
        raise UsageError(
            "a guard is disarmed when the command that armed it ends",
            hint="--set stay_minutes=60 keeps it armed so long; in the console, G keeps it as long as that runs",
        )


def _change(options: argparse.Namespace, known: Action) -> Change:
    """Of the flags that say what a relaunch changes; a secret in an argument would be seen in the list of processes."""
    from sparktop.operate.changelines import read
    from sparktop.probe.remote import is_secret_name

    for pair in options.env:
        name, equals, value = pair.partition("=")
        if equals and value and is_secret_name(name):
            raise UsageError(
                f"{name} looks like a secret, and every user of this machine can see an argument",
                hint=f"{name} alone takes its value from your environment: --env {name}",
            )
    for pair in options.flag:
        name, equals, value = pair.partition("=")
        if equals and value and is_secret_name(name.lstrip("-")):
            raise UsageError(
                f"{name} looks like a secret, and every user of this machine can see an argument",
                hint="give it as a variable whose value comes from your environment: --env VLLM_API_KEY",
            )
    for pair in options.flag:
        name, equals, value = pair.partition("=")
        if equals and value and is_secret_name(name):
            raise UsageError(
                f"{name} looks like a secret, and every user of this machine can see an argument",
                hint="engines take theirs from a variable too: --env VLLM_API_KEY gives it its value from yours",
            )
    lines = [
        *options.flag,
        *(f"unset {name}" for name in (*options.unset_flag, *options.unset_env)),
        *options.env,
        *(f"option {pair}" for pair in options.option),
        *([f"image {options.image}"] if options.image else []),
    ]
    change, problems = read(lines, os.environ)
    if problems:
        raise UsageError(f"{lines[problems[0].line - 1]!r}: {problems[0].text}")
    if not change.is_empty and known.name != "relaunch":
        raise UsageError(f"{known.name} changes nothing of a launch", hint="relaunch does: sparktop act relaunch HOST")
    return change
