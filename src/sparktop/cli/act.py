"""The commands `act`, `audit` and `bringup`."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.commands import BY_NAME
from sparktop.cli.options import HOSTS, RUN, ExitCode, argument, need_spark, refuse_secrets, settings, takes, timeout
from sparktop.errors import UsageError, did_you_mean
from sparktop.model.bringup import Chapter

if TYPE_CHECKING:
    from sparktop.config import Config
    from sparktop.model.change import Change
    from sparktop.operate.actions import Action

_CHANGES = "changes that a relaunch makes"


@takes(
    argument("action", "the action (see --list); resume or restore for an interrupted run", "ACTION", nargs="?"),
    HOSTS,
    argument("--list", "list the actions and their options"),
    argument("--engine", "the engine, if a node has several", "ENGINE", also=("--target",)),
    argument(
        "--pid", "the process, by its id", "N", type=int, within=(1, math.inf), default=None, against=("--engine",)
    ),
    argument("--set", "an option of the action (see --list)", "NAME=VALUE", repeats=True),
    argument("--finding", "the finding to fix: the run fails unless it is resolved", "RULE"),
    *RUN,
    argument("--flag", "set a flag: --flag=--enforce-eager", "--NAME=VALUE", repeats=True, group=_CHANGES),
    argument("--unset-flag", "remove a flag: --unset-flag=--enforce-eager", "--NAME", repeats=True, group=_CHANGES),
    argument(
        "--env",
        "set a variable; NAME alone takes its value from your environment",
        "NAME[=VALUE]",
        repeats=True,
        group=_CHANGES,
    ),
    argument("--unset-env", "remove a variable", "NAME", repeats=True, group=_CHANGES),
    argument("--option", "set a field of Docker's HostConfig", "NAME=VALUE", repeats=True, group=_CHANGES),
    argument("--image", "use another image", "IMAGE", group=_CHANGES),
    usage="sparktop act ACTION HOST... [--engine ENGINE | --pid N]\n"
    "                    [--set NAME=VALUE] [--dry-run | --yes]\n"
    "       sparktop act resume|restore HOST\n"
    "       sparktop act --list",
)
def act(options: argparse.Namespace) -> ExitCode:
    if options.list:
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
    need_spark(options, config, f"sparktop act {action.name}")
    from sparktop.cli.composition import invocation
    from sparktop.headless.act import ActArguments
    from sparktop.headless.act import act as carry_out

    call = invocation(config, options, asks_more=action.name == "collect-evidence")
    arguments = ActArguments(
        action=action,
        target=str(options.pid) if options.pid is not None else options.engine,
        options=action_options,
        change=change,
        rule=options.finding,
    )
    return carry_out(call, arguments)


def _take_up(options: argparse.Namespace, config: Config) -> ExitCode:
    """`sparktop act resume` and `sparktop act restore`."""
    verb = options.action
    changes = (options.set, options.flag, options.unset_flag, options.env, options.unset_env, options.option)
    if any(changes) or options.image or options.finding or options.pid is not None:
        raise UsageError(
            f"{verb} takes the run as it was planned, without changes", hint=f"sparktop act {verb} HOST [--engine NAME]"
        )
    need_spark(options, config, f"sparktop act {verb}")
    from sparktop.cli.composition import invocation
    from sparktop.headless.act import take_up

    return take_up(invocation(config, options), verb, options.engine)


@takes(
    argument("--node", "only runs on this node", "HOST"),
    argument("--count", "print the last N runs (default 20)", "N", type=int, within=(1, math.inf), default=20),
    argument("--json", "print the entries as JSON, as they are in the file"),
    argument("--follow", "keep printing new entries until interrupted"),
)
def audit(options: argparse.Namespace) -> int:
    settings(options)
    from sparktop.headless.audit import audit as tell

    return tell(count=options.count, node=options.node, as_json=options.json, follow=options.follow)


@takes(
    HOSTS,
    argument(
        "--only",
        f"only this chapter ({', '.join(Chapter)}), or this check, such as machine.cuda",
        "CHAPTER|CHECK",
        repeats=True,
    ),
    argument("--again", "look also at what an earlier look has proven and nothing has changed since"),
    argument("--page", "write the page to keep: Markdown, or HTML", "FILE", type=Path, default=None),
    argument("--json", "print the checks as JSON"),
    timeout(30.0),
)
def bringup(options: argparse.Namespace) -> ExitCode:
    config = settings(options)
    from sparktop.bringup.catalogue import BY_ID, CARDS

    for name in options.only:
        if name not in BY_ID and name not in set(Chapter):
            hint = did_you_mean(name, [*Chapter, *BY_ID], f"the chapters: {', '.join(Chapter)}")
            raise UsageError(f"there is no chapter and no check {name!r}", hint=hint)
    if not config.hosts:
        raise UsageError("on which Spark?", hint="sparktop bringup spark1 spark2")
    from sparktop.bringup.kept import ResultFile
    from sparktop.cli.composition import invocation, proven_path
    from sparktop.headless.bringup import bring_up

    only = set(options.only)
    cards = [card for card in CARDS if not only or {card.id, card.chapter} & only]
    call = invocation(config, options, asks_more=True)
    kept = ResultFile(proven_path(is_demo=False))
    return bring_up(call, kept, cards, again=options.again or bool(only), page=options.page)


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
    raise UsageError(f"there is no action {name!r}", hint=did_you_mean(name, names, f"there is {', '.join(names)}"))


def _options(pairs: Sequence[str], action: Action) -> Mapping[str, str]:
    """The options given with `--set`, checked by name and choices."""
    options: dict[str, str] = {}
    names = {option.name: option for option in action.options}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in names:
            hint = f"it has {', '.join(names)}" if names else "it has none"
            if not equals:
                raise UsageError(f"--set wants NAME=VALUE, not {pair!r}", hint=hint)
            raise UsageError(f"{action.name} has no option {name!r}", hint=did_you_mean(name, names, hint))
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


def _pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, value) of each NAME=VALUE."""
    return ((name, value) for name, _, value in (text.partition("=") for text in texts))


def _change(options: argparse.Namespace, action: Action) -> Change:
    """The change of a relaunch, from its flags; refuses secrets, as other users can see arguments."""
    from sparktop.cmdline.change_lines import read

    refuse_secrets(_pairs(options.env), "{0} alone takes its value from your environment: --env {0}")
    refuse_secrets(
        _pairs(options.flag), "give it as a variable whose value comes from your environment: --env VLLM_API_KEY"
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
