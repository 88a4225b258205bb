"""The commands `act` and `audit`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparktop.cli.commands import BY_NAME
from sparktop.cli.options import HOST_HELP, add_run_options, need_spark, parser, settings
from sparktop.errors import UsageError

if TYPE_CHECKING:
    from sparktop.config import Config
    from sparktop.model.change import Change
    from sparktop.operate.actions import Action

_USAGE = (
    "sparktop act ACTION HOST... [--engine ENGINE | --pid N]\n"
    "                    [--set NAME=VALUE] [--dry-run | --yes]\n"
    "       sparktop act resume|restore HOST\n"
    "       sparktop act --list"
)


def act(words: list[str]) -> int:
    """`sparktop act`."""
    options = act_arguments().parse_args(words)
    if options.list_actions:
        from sparktop.headless.act import list_actions

        return list_actions()
    config = settings(options)
    from sparktop.operate.actions import RUN_COMMANDS

    if options.action in RUN_COMMANDS:
        return _take_up(options, config)
    action = _action(options.action)
    action_options = _options(options.set, action)
    if action.name == "guard":
        _check_guard(action_options)
    change = _change(options, action)
    if options.dry_run and options.yes:
        raise UsageError("--dry-run and --yes can't be used together")
    if options.pid is not None and options.engine:
        raise UsageError("--engine and --pid can't be used together")
    need_spark(options, config, f"sparktop act {action.name}")
    import asyncio

    from sparktop.cli.composition import session_for_command
    from sparktop.headless.act import ActArguments
    from sparktop.headless.act import act as carry_out

    make, secret, output = session_for_command(config, options, asks_more=action.name == "collect-evidence")
    arguments = ActArguments(
        action=action,
        target=str(options.pid) if options.pid is not None else options.engine,
        options=action_options,
        change=change,
        rule=options.finding,
    )
    return asyncio.run(carry_out(make, arguments, output=output, secret=secret))


def _take_up(options: argparse.Namespace, config: Config) -> int:
    """`sparktop act resume` and `sparktop act restore`."""
    verb = options.action
    changes = (options.set, options.flag, options.unset_flag, options.env, options.unset_env, options.option)
    if any(changes) or options.image or options.finding or options.pid is not None:
        raise UsageError(
            f"{verb} takes the run as it was planned, without changes", hint=f"sparktop act {verb} HOST [--engine NAME]"
        )
    if options.dry_run and options.yes:
        raise UsageError("--dry-run and --yes can't be used together")
    need_spark(options, config, f"sparktop act {verb}")
    import asyncio

    from sparktop.cli.composition import session_for_command
    from sparktop.headless.interrupted import take_up

    make, secret, output = session_for_command(config, options)
    return asyncio.run(take_up(make, verb, options.engine, output=output, secret=secret))


def act_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop act`."""
    argument_parser = parser("act", _USAGE)
    argument_parser.add_argument(
        "action", nargs="?", metavar="ACTION", help="the action (see --list); resume or restore for an interrupted run"
    )
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=HOST_HELP)
    argument_parser.add_argument(
        "--list", action="store_true", dest="list_actions", help="list the actions and their options"
    )
    argument_parser.add_argument(
        "--engine", "--target", default="", metavar="ENGINE", help="the engine, if a node has several"
    )
    argument_parser.add_argument("--pid", type=int, metavar="N", help="the process, by its id")
    argument_parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the action (see --list)"
    )
    argument_parser.add_argument(
        "--finding", default="", metavar="RULE", help="the finding to fix: the run fails unless it is resolved"
    )
    add_run_options(argument_parser)
    change = argument_parser.add_argument_group("changes that a relaunch makes")
    change.add_argument(
        "--flag", action="append", default=[], metavar="--NAME=VALUE", help="set a flag: --flag=--enforce-eager"
    )
    change.add_argument(
        "--unset-flag",
        action="append",
        default=[],
        metavar="--NAME",
        help="remove a flag: --unset-flag=--enforce-eager",
    )
    change.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set a variable; NAME alone takes its value from your environment",
    )
    change.add_argument("--unset-env", action="append", default=[], metavar="NAME", help="remove a variable")
    change.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="set a field of Docker's HostConfig"
    )
    change.add_argument("--image", default="", metavar="IMAGE", help="use another image")
    return argument_parser


def audit(words: list[str]) -> int:
    """`sparktop audit`."""
    options = audit_arguments().parse_args(words)
    settings(options)
    if options.count < 1:
        raise UsageError("--count takes a number from 1 up")
    from sparktop.headless.audit import audit as tell

    return tell(count=options.count, node=options.node, as_json=options.as_json, follow=options.follow)


def audit_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop audit`."""
    argument_parser = parser("audit", "sparktop audit [--node HOST] [--count N] [--json] [--follow]")
    argument_parser.add_argument("--node", default="", metavar="HOST", help="only runs on this node")
    argument_parser.add_argument(
        "--count", type=int, default=20, metavar="N", help="print the last N runs (default 20)"
    )
    argument_parser.add_argument(
        "--json", action="store_true", dest="as_json", help="print the entries as JSON, as they are in the file"
    )
    argument_parser.add_argument("--follow", action="store_true", help="keep printing new entries until interrupted")
    return argument_parser


def _action(name: str | None) -> Action:
    from sparktop.operate.actions import ACTIONS, RUN_COMMANDS, action

    match = action(name) if name else None
    if match is not None and match.is_own_command:
        raise UsageError(f"{name} is a command of its own", hint=f"sparktop {BY_NAME[match.name].shape}")
    if match is not None:
        return match
    names = [*(other.name for other in ACTIONS), *RUN_COMMANDS]
    if not name:
        raise UsageError("which action?", hint=f"one of {', '.join(names)}; sparktop act --list explains them")
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(names)}"
    raise UsageError(f"there is no action {name!r}", hint=hint)


def _options(pairs: Sequence[str], action: Action) -> Mapping[str, str]:
    """The options given with `--set`, checked by name and choices."""
    options: dict[str, str] = {}
    names = {option.name: option for option in action.options}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"it has {', '.join(names)}" if names else "it has none"
            raise UsageError(
                f"{action.name} has no option {name!r}" if equals else f"--set wants NAME=VALUE, not {pair!r}",
                hint=f"did you mean {near[0]}?" if near and equals else hint,
            )
        if names[name].choices and value not in names[name].choices:
            raise UsageError(f"{name} is one of {', '.join(names[name].choices)}, not {value!r}")
        options[name] = value
    return options


def _check_guard(options: Mapping[str, str]) -> None:
    """Refuse to arm a guard without stay_minutes: it is disarmed when the command that armed it ends."""
    stays = options.get("stay_minutes", "").strip("0. ")
    if options.get("off") != "yes" and not stays:
        raise UsageError(
            "the guard would be disarmed as soon as this command ends",
            hint="--set stay_minutes=60 keeps it armed for an hour; in the console, M arms it until the console ends",
        )


def _change(options: argparse.Namespace, action: Action) -> Change:
    """The change of a relaunch, from its flags; refuses secrets, as other users can see arguments."""
    from sparktop.cmdline.change_lines import read
    from sparktop.masking import is_secret_name

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
    if not change.is_empty and action.name != "relaunch":
        raise UsageError(
            f"{action.name} changes nothing of a launch: it takes no flags, variables or image",
            hint="relaunch does: sparktop act relaunch HOST",
        )
    return change
