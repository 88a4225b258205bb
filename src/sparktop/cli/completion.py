"""Completion in bash, zsh and fish: the command that prints the shell's part, and the answers to its questions.

On Tab the shell runs sparktop with `_ARGCOMPLETE` and the line so far in its environment. argcomplete lets the
command's own parser read that line; what may stand at the cursor follows from the metavar of the argument there.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from argcomplete.completers import ChoicesCompleter, FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from sparktop import faults
from sparktop.cli.commands import BY_NAME, COMMANDS, split
from sparktop.cli.options import argument, takes
from sparktop.config import Config, load, state_home
from sparktop.errors import SparktopError

SHELLS = ("bash", "zsh", "fish")
Candidates = Mapping[str, str]
"""What may be typed, and what it is, as zsh and fish show it; "" where its name says it."""


@takes(
    argument("shell", "the shell you use", choices=SHELLS),
)
def completion(options: Namespace) -> int:
    print(shellcode(["sparktop"], use_defaults=False, shell=options.shell))
    return 0


def answer() -> None:
    """Write what may stand at the cursor where the shell reads it, and exit; on an error nothing, and the fault log."""
    faults.keep_in(state_home())
    try:
        Finder()(ArgumentParser(), always_complete_options=False, default_completer=ChoicesCompleter({}))
    except Exception as error:  # noqa: BLE001 - an answer on Tab is no place for a message
        faults.report("the completion", error)
    os._exit(1)


class Finder(CompletionFinder):
    """argcomplete's finder, with the parser of the command that the line names."""

    def _get_completions(
        self, comp_words: list[str], cword_prefix: str, cword_prequote: str, last_wordbreak_pos: int | None
    ) -> list[str]:
        words = comp_words[_program_place(comp_words) + 1 :]
        self._parser, words = _parser(words)
        if last_wordbreak_pos is not None and cword_prefix[last_wordbreak_pos] == "@":
            last_wordbreak_pos -= 1  # bash keeps an @ with what follows, to complete host names
        completions: list[str] = super()._get_completions(  # type: ignore[no-untyped-call]
            ["sparktop", *words], cword_prefix, cword_prequote, last_wordbreak_pos
        )
        return completions


def _parser(words: list[str]) -> tuple[ArgumentParser, list[str]]:
    """The parser for what follows these words, and the words that it reads."""
    if words[-1:] == ["help"]:
        help_parser = ArgumentParser(add_help=False)
        help_parser.add_argument("command", choices=[name for name in BY_NAME if name != "console"])
        return help_parser, []
    command, rest = split(words)
    argument_parser = command.arguments()
    for action in argument_parser._actions:
        candidates = _CANDIDATES.get("--set" if action.dest == "set" else str(action.metavar))
        if candidates is _hosts and command.name == "console" and "--" not in rest:
            candidates = _first_words
        if candidates is not None:
            action.completer = _completer(candidates)  # type: ignore[attr-defined]  # where argcomplete looks for it
    return argument_parser, rest


def _program_place(words: list[str]) -> int:
    """Where the program stands: zsh gives the whole line, with what is before the command."""
    return max((place for place, word in enumerate(words) if Path(word).name == "sparktop"), default=0)


def _completer(candidates: Callable[[str, Namespace], Candidates]) -> Callable[..., Candidates]:
    """argcomplete's form of a completer; an error of the operator's files leaves nothing to complete."""

    def complete(prefix: str, parsed_args: Namespace, **_: object) -> Candidates:
        try:
            return candidates(prefix, parsed_args)
        except SparktopError:
            return {}

    return complete


def _files(prefix: str, typed: Namespace) -> Candidates:
    return dict.fromkeys(FilesCompleter()(prefix), "")


def _commands(_: str, typed: Namespace) -> Candidates:
    return {command.name: command.brief for command in COMMANDS if command.name != "console"}


def _hosts(prefix: str, typed: Namespace) -> Candidates:
    from sparktop.transport.ssh.aliases import aliases
    from sparktop.transport.targets import parse_target

    if any(getattr(typed, name, "") is None for name in ("action", "recipe")):
        return {}  # that comes first
    config = _config(typed)
    ssh_config = getattr(typed, "ssh_config", None) or config.ssh_config
    names = dict.fromkeys(config.hosts, "of the configuration")
    names |= dict.fromkeys(aliases(Path(ssh_config).expanduser() if ssh_config else None), "an alias of ssh")
    names["local"] = "this machine"
    user, at, _ = prefix.rpartition("@")
    named = getattr(typed, "hosts", None) or ()
    hosts = {}
    for name, meaning in names.items():
        host = f"{user}{at}{name}" if "@" not in name else name
        try:
            parse_target(host)
        except SparktopError:
            continue
        if host not in named:
            hosts[host] = meaning
    return hosts


def _first_words(prefix: str, typed: Namespace) -> Candidates:
    """Hosts, and where none is typed yet the commands."""
    if getattr(typed, "hosts", None):
        return _hosts(prefix, typed)
    return {**_commands(prefix, typed), "help": "what a command is for", **_hosts(prefix, typed)}


def _config(typed: Namespace) -> Config:
    try:
        return load(getattr(typed, "config", None))
    except SparktopError:  # it is told when the command runs
        return Config()


def _actions(_: str, typed: Namespace) -> Candidates:
    from sparktop.operate.actions import ACTIONS, RUN_COMMANDS

    return {action.name: action.title for action in ACTIONS if not action.is_own_command} | RUN_COMMANDS


def _settings(prefix: str, typed: Namespace) -> Candidates:
    """Names that `--set` takes, for the action or recipe that is typed; and values where a name has choices."""
    if name := getattr(typed, "action", None):
        from sparktop.operate.actions import action

        chosen = action(name)
        options = chosen.options if chosen else ()
        named = {f"{option.name}=": option.description for option in options}
        values = {f"{option.name}={choice}": "" for option in options for choice in option.choices}
        return values if prefix.partition("=")[1] else named
    from sparktop.recipe.parameters import settable_names
    from sparktop.recipe.read.shelf import recipe

    named_recipe = getattr(typed, "recipe", None) or next(iter(getattr(typed, "names", None) or ()), "")
    if not named_recipe:
        return {}
    chosen_recipe = recipe(named_recipe)
    defaults = chosen_recipe.defaults
    return {
        f"{name}=": f"default {defaults[name]}" if name in defaults else ""
        for name in sorted(settable_names(chosen_recipe))
    }


def _recipes(prefix: str, typed: Namespace) -> Candidates:
    from sparktop.recipe.read.shelf import names

    return dict.fromkeys(names(), "") | dict.fromkeys(FilesCompleter(("yaml", "yml"))(prefix) if prefix else (), "")


def _sources(words: Sequence[str]) -> Candidates:
    from sparktop.headless.recipes import VERBS
    from sparktop.recipe.sources.sources import sources

    if not words:
        return dict.fromkeys(VERBS, "")
    return {each.name: each.place for each in sources()} if len(words) == 1 and words[0] != "add" else {}


def _recipes_or_engines(prefix: str, typed: Namespace) -> Candidates:
    return {**_engines(prefix, typed), **_recipes(prefix, typed)}


def _launchable(prefix: str, typed: Namespace) -> Candidates:
    return {**(_files(prefix, typed) if prefix else {}), **_recipes_or_engines(prefix, typed)}


def _recipes_or_adopted(prefix: str, typed: Namespace) -> Candidates:
    if typed.what == "source":
        return _sources(typed.names or ())
    if typed.what != "adopt":
        return _recipes(prefix, typed)
    return {**_files(prefix, typed), **_engines(prefix, typed), **_hosts(prefix, typed)}


def _rules(_: str, typed: Namespace) -> Candidates:
    from sparktop.cli.composition import own_rules
    from sparktop.headless.rules import all_cards

    return {card.id: card.title for card in all_cards(own_rules())}


def _rules_or_files(prefix: str, typed: Namespace) -> Candidates:
    if typed.what == "show":
        return _rules(prefix, typed)
    return _files(prefix, typed) if typed.what == "check" else {}


def _scenarios(_: str, typed: Namespace) -> Candidates:
    from sparktop.sim.scenario.scenario import available

    return dict(available())


def _themes(_: str, typed: Namespace) -> Candidates:
    from textual.theme import BUILTIN_THEMES

    from sparktop.ui.theme import THEMES

    return dict.fromkeys((*(theme.name for theme in THEMES), *BUILTIN_THEMES), "")


def _engines(_: str, typed: Namespace) -> Candidates:
    from sparktop.operate.audit_file import engines_named

    return dict.fromkeys(engines_named(), "")


_CANDIDATES: Mapping[str, Callable[[str, Namespace], Candidates]] = {
    "HOST": _hosts,
    "ACTION": _actions,
    "RECIPE|FILE": _recipes_or_adopted,
    "RECIPE|FILE|CONTAINER": _launchable,
    "ENGINE": _engines,
    "RECIPE|CONTAINER": _recipes_or_engines,
    "RULE": _rules,
    "ID|FILE": _rules_or_files,
    "SCENARIO": _scenarios,
    "THEME": _themes,
    "FILE": _files,
    "--set": _settings,
}
"""By the metavar of the argument, which says what it takes."""
