"""The man page docs/sparktop.1, from the table of commands and their argument parsers: `make man` writes it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import wrap

from sparktop import __version__
from sparktop.cli.commands import COMMANDS, EXIT_CODES, Command, sentence
from sparktop.cli.options import COMMON

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sparktop.1"
_COMMON = {"-h", *(one.names[0] for one in COMMON)}
_DESCRIPTION = """\
sparktop watches one DGX Spark or several over SSH, says what is wrong with them and on what evidence, and applies the \
known fix. It installs nothing on a Spark, and changes nothing there without a plan that you confirm."""
_PLACES = "Options may stand before a command or after it. A host that has the name of a command stands after --."
_ENVIRONMENT = (
    ("NO_COLOR", "No colours, as with --no-color."),
    ("XDG_CONFIG_HOME", "Where your files are, in the folder sparktop; ~/.config if unset."),
    ("XDG_STATE_HOME", "Where sparktop keeps its files, in the folder sparktop; ~/.local/state if unset."),
    ("SSH_AUTH_SOCK", "The ssh agent whose keys are offered."),
    ("HF_TOKEN, VLLM_API_KEY", "Secrets that a recipe takes, so that they stand in no argument."),
)
_FILES = (
    ("~/.ssh/config, ~/.ssh/known_hosts", "Read as ssh reads them."),
    ("~/.config/sparktop/config.toml", "Your configuration."),
    ("~/.config/sparktop/recipes/, ~/.config/sparktop/rules/", "Your own recipes and rules."),
    ("~/.local/state/sparktop/audit.jsonl", "What was done from here; sparktop audit reads it."),
)


def page() -> str:
    """The page, in the macros of man(7)."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    console = COMMANDS[0]
    yield '.\\" Written by `make man`; edit src/sparktop/cli or tests/man_page.py instead.'
    yield f'.TH SPARKTOP 1 "" "sparktop {__version__}" "User Commands"'
    yield from (".SH NAME", "sparktop \\- an operations console for NVIDIA DGX Sparks", ".SH SYNOPSIS")
    for command in COMMANDS:
        yield from (".nf" if command is console else ".br", f".B sparktop {_text(command.shape)}")
    yield from (".fi", ".SH DESCRIPTION")
    yield from (*_filled(_DESCRIPTION), ".PP", *_filled(_PLACES))
    yield ".SH COMMANDS"
    for command in COMMANDS:
        yield from _command(command)
    yield ".SH OPTIONS OF ALL COMMANDS"
    yield from _arguments(console.arguments(), _is_common)
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES:
        yield from (".TP", f".B {code}", *_filled(meaning))
    for title, rows in (("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        yield f".SH {title}"
        for name, meaning in rows:
            yield from (".TP", f".B {_text(name)}", *_filled(meaning))
    yield from (".SH SEE ALSO", ".BR ssh (1),", ".BR ssh_config (5),", ".BR docker (1)")


def _command(command: Command) -> Iterator[str]:
    argument_parser = command.arguments()
    yield f'.SS "sparktop {_text(command.shape)}"'
    yield from _filled(sentence(command.brief))
    yield from _arguments(argument_parser, lambda action: not _is_common(action))
    yield from (".PP", "For example:", ".PP", ".RS", ".nf")
    for typed, meaning in command.examples:
        yield from (f"# {_text(meaning)}", f".B {_text(typed)}")
    yield from (".fi", ".RE")


def _is_common(action: argparse.Action) -> bool:
    return not _COMMON.isdisjoint(action.option_strings)


def _arguments(argument_parser: argparse.ArgumentParser, is_told: Callable[[argparse.Action], bool]) -> Iterator[str]:
    for action in argument_parser._actions:
        if is_told(action):
            names = [f"\\fB{_text(name)}\\fR" for name in action.option_strings]
            takes = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
            value = f"\\fI{_text(str(takes))}\\fR" if takes else ""
            meaning = (action.help or "").replace("%(prog)s", "sparktop")
            yield from (".TP", f"{', '.join(names)} {value}".strip(), *_filled(meaning))


def _filled(text: str) -> list[str]:
    return [_text(line) for line in wrap(text, 70)]


def _text(text: str) -> str:
    """A text that roff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE.relative_to(Path.cwd())} is written")
