"""The commands as a table: what each is for, and how it is typed."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter, _ActionsContainer
from collections.abc import Coroutine, Sequence
from importlib import import_module
from shutil import get_terminal_size
from textwrap import fill
from typing import Any

from sparktop.cli.options import COMMON, Runnable
from sparktop.dataclass import dataclass

EXIT_CODES = (
    (0, "nothing wrong, or done"),
    (1, "a finding at warning or above; an action refused, failed or not confirmed"),
    (2, "usage or configuration"),
    (3, "a node can't be reached"),
    (130, "interrupted"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of the command line."""

    name: str
    module: str
    """The module of this package that declares it, by `options.takes`, under its name."""
    shape: str
    """How it is typed, in short."""
    brief: str
    examples: tuple[tuple[str, str], ...]
    """(command line, what it is for)"""

    def run(self, words: list[str]) -> int:
        """Run it with these arguments; the exit code."""
        options = self.arguments().parse_intermixed_args(words)
        declared = self._runnable()
        declared.check(options)
        code = declared.run(options)
        return code if isinstance(code, int) else _ended(code)

    def arguments(self) -> ArgumentParser:
        """The parser of its arguments: for the command itself, completion and the man page."""
        is_console = self.name == "console"
        rows = [(f"sparktop {one.shape}", one.brief) for one in COMMANDS] if is_console else self.examples
        codes = _table([(str(code), meaning) for code, meaning in EXIT_CODES])
        title = "commands, each with its own --help" if is_console else "examples"
        about = "An operations console for NVIDIA DGX Sparks." if is_console else fill(sentence(self.brief), _columns())
        declared = self._runnable()
        name, _, places_of = ("", "", self.shape) if is_console else self.shape.partition(" ")
        usual = " ".join(filter(None, ("sparktop", name, "[options]", places_of)))
        argument_parser = ArgumentParser(
            prog="sparktop",
            usage=declared.usage or usual,
            description=about,
            epilog=f"{title}:\n{_table(rows)}\n\nexit codes:\n{codes}",
            formatter_class=RawDescriptionHelpFormatter,
        )
        places: dict[str, _ActionsContainer] = {"": argument_parser}
        for one in (*COMMON, *declared.arguments):
            if one.group not in places:
                places[one.group] = argument_parser.add_argument_group(one.group)
            places[one.group].add_argument(*one.names, **one.settings)
        return argument_parser

    def _runnable(self) -> Runnable:
        runnable: Runnable = getattr(import_module(f"sparktop.cli.{self.module}"), self.name)
        return runnable


def _ended(running: Coroutine[Any, Any, int]) -> int:
    import asyncio

    return asyncio.run(running)


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


def _command(module: str, shape: str, brief: str, *examples: tuple[str, str], name: str = "") -> Command:
    """A row of COMMANDS; a command's name is the first word of its shape."""
    return Command(name=name or shape.partition(" ")[0], module=module, shape=shape, brief=brief, examples=examples)


COMMANDS = (
    _command(
        "watch",
        "HOST [HOST ...]",
        "open the console; HOST is an ssh alias, user@host[:port], or `local`",
        ("sparktop spark1 spark2", "watch two Sparks"),
        ("sparktop --read-only spark1", "watch, and refuse every change"),
        name="console",
    ),
    _command(
        "watch",
        "demo [SCENARIO]",
        "open the console on simulated Sparks; needs no hardware",
        ("sparktop demo memory-spike", "play an incident"),
        ("sparktop demo --list", "list the incidents"),
    ),
    _command(
        "record",
        "replay FILE|HOST...",
        "open the console over what was recorded; without a name, list it",
        ("sparktop replay spark1 --at 03:12", "what the console showed, or would have, at ten past three"),
        ("sparktop replay", "list what was recorded, and its size"),
    ),
    _command(
        "record",
        "events FILE|HOST...",
        "print what happened in a recording as JSON lines: link, kernel, engines, actions, findings",
        ("sparktop events spark1 --since 2h | jq -r .text", "the last two hours"),
        ("sparktop events spark1.tape.gz", "of a file that somebody sent you"),
    ),
    _command(
        "record",
        "report FILE|HOST... -o FILE",
        "write what happened as a page to show: plots, timeline, findings, actions, versions",
        ("sparktop report spark1 spark2 --since 03:00 -o night.html", "one HTML file, which loads nothing"),
        ("sparktop report spark1 --since 2h --until 1h -o -", "print it as Markdown, for a forum"),
    ),
    _command(
        "watch",
        "status HOST...",
        "print a snapshot as text or JSON; --watch prints one after the other",
        ("sparktop status spark1 spark2 || echo 'look at it'", "exits with 1 if something is wrong"),
        ("sparktop status --watch --json spark1", "one JSON object a second, each on its own line"),
    ),
    _command(
        "watch",
        "check HOST...",
        "for cron and CI: print a line for each finding that counts, and exit with 1 if there is one",
        ("sparktop check spark1 spark2", "exits with 1 on a finding at warning or above, with 3 if a host is away"),
        ("sparktop check spark1 --fail-on critical --timeout 60", "for a host that answers slowly"),
    ),
    _command(
        "watch",
        "exporter HOST...",
        "serve what is watched, and the findings, as metrics for Prometheus, until you interrupt it",
        ("sparktop exporter spark1 spark2", "metrics at http://127.0.0.1:9948/metrics"),
        ("sparktop exporter spark1 --listen 192.168.0.10:9948", "for a Prometheus on another machine; no password"),
    ),
    _command(
        "watch",
        "watch HOST...",
        "watch without a screen, and notify by webhook, command or mail of what begins, worsens or is resolved",
        ("sparktop watch spark1 spark2", "until you interrupt it; the configuration names the targets"),
        ("sparktop watch --test", "send each target a test message"),
        ("sparktop watch spark1 spark2 --install --yes", "as a user service that runs from now on"),
    ),
    _command(
        "watch",
        "serve HOST...",
        "serve the console to a browser, read-only and on this machine alone, until you interrupt it",
        ("sparktop serve spark1 spark2", "print the address to open, with its token"),
        ("sparktop serve spark1 --writable", "let the page act on spark1, too"),
    ),
    _command(
        "act",
        "act ACTION HOST...",
        "plan an action and run it; --dry-run only prints the plan, --list names the actions",
        ("sparktop act safe-restart spark1 --engine vllm --dry-run", "print the steps, change nothing"),
        ("sparktop act relaunch spark1 --engine vllm --flag=--enforce-eager", "add a flag; asks before it runs"),
        ("sparktop act restore spark1", "undo a run that was cut off on spark1"),
    ),
    _command(
        "engines",
        "launch RECIPE|FILE|CONTAINER HOST...",
        "launch a recipe, a compose file, a script or a container, and test that it serves; --dry-run only prints the "
        "plan",
        ("sparktop launch qwen3.6-35b-a3b-fp8 spark1 --dry-run", "check that it fits, and print the steps"),
        ("sparktop launch ./my.yaml spark1 spark2 --set max_model_len=65536", "on two nodes; the first is the head"),
        ("sparktop launch compose.yaml#vllm spark1", "the engine of a compose file, made into a recipe"),
        ("sparktop launch /srv/llm/compose.yaml spark1", "of one on spark1, by docker compose"),
    ),
    _command(
        "act",
        "bringup HOST...",
        "check new Sparks chapter by chapter: what is wrong, why, and what to do",
        ("sparktop bringup spark1 spark2 --page sparks.md", "look at both, and keep the page"),
        ("sparktop bringup spark1 --only machine", "look at one chapter again"),
    ),
    _command(
        "engines",
        "unit RECIPE|CONTAINER HOST...",
        "print a systemd unit that runs an engine; --install installs, enables and starts it",
        ("sparktop unit vllm spark1 > vllm.service", "print the unit of the running container vllm"),
        ("sparktop unit vllm spark1 --install", "have systemd run it from now on; asks before it does"),
        ("sparktop unit vllm spark1 --remove", "stop it, disable the unit and remove it"),
    ),
    _command(
        "engines",
        "expose NAME HOST...",
        "print nginx's or Caddy's configuration before an engine, key required; --on HOST installs it",
        ("sparktop expose llm.example.org spark1 spark2", "print nginx's file before the engines of two Sparks"),
        ("sparktop expose llm.example.org spark1 --on gateway", "install it on gateway; asks before it does"),
        ("sparktop expose llm.example.org --on gateway --remove", "remove it"),
    ),
    _command(
        "engines",
        "forward HOST [ENGINE]",
        "open a local port to an engine over SSH, until you interrupt it",
        ("sparktop forward spark1", "print the local address of the only engine, and pass on"),
        ("sparktop forward spark1 vllm --port 9000", "vllm at http://127.0.0.1:9000"),
    ),
    _command(
        "act",
        "audit",
        "show what was done to the Sparks from here, by whom, and how it ended",
        ("sparktop audit --node spark1", "the last 20 runs on spark1"),
        ("sparktop audit --follow", "keep printing new entries"),
    ),
    _command(
        "offline",
        "lint FILE...",
        "find known mistakes in compose files, docker run scripts, systemd units and recipes",
        ("sparktop lint compose.yml start.sh vllm.service", "check files before you launch them"),
        ("docker inspect vllm | sparktop lint -", "check a running container"),
    ),
    _command(
        "offline",
        "recipes list|show ID",
        "list and show the recipes; `recipes validate FILE...` checks your own, `recipes adopt FILE|CONTAINER` makes "
        "one of what you have, `recipes source` adds others'",
        ("sparktop recipes list", "list all, with what they need"),
        ("sparktop recipes show qwen3.6-35b-a3b-fp8", "show one, with its parameters"),
        ("sparktop recipes adopt vllm spark1 --save", "keep a running container as a recipe of yours"),
        (
            "sparktop recipes source add me https://github.com/me/recipes",
            "list a repository's recipes too, as @me/NAME",
        ),
    ),
    _command(
        "offline",
        "rules list|show ID",
        "list and show the rules; `rules check` tests your own",
        ("sparktop rules show gpu.spin-deadlock", "show what it checks, and what helps"),
        ("sparktop rules check", "test your own rules on their examples"),
    ),
    _command(
        "offline",
        "explain [FILE|-]",
        "explain the log of an engine or the kernel, or the output of docker or nvidia-smi",
        ("docker logs vllm 2>&1 | sparktop explain", "find why vllm stopped: the cause first"),
        ("sparktop explain --json kernel.log", "print the findings as JSON"),
    ),
    _command(
        "completion",
        "completion SHELL",
        "print the code that lets bash, zsh or fish complete sparktop's arguments on Tab",
        ('eval "$(sparktop completion bash)"', "put this line in ~/.bashrc"),
        ('eval "$(sparktop completion zsh)"', "put this line in ~/.zshrc, after compinit"),
        ("sparktop completion fish | source", "put this line in ~/.config/fish/config.fish"),
    ),
)
BY_NAME = {command.name: command for command in COMMANDS}
_TAKES_VALUE = {"--config", "--interval", "--ssh-config", "-F", "--theme"}


def split(words: list[str]) -> tuple[Command, list[str]]:
    """The command that the words name, and the other words; the console where they name none.

    Options that all commands have may stand before it. After `--` stand hosts, even one named like a command.
    """
    is_value = False
    for place, word in enumerate(words):
        if word == "help" and not is_value:
            named = [BY_NAME[one] for one in words[place + 1 :] if one in BY_NAME]
            return (named or [BY_NAME["console"]])[0], ["--help"]
        if word in BY_NAME and not is_value:
            return BY_NAME[word], [*words[:place], *words[place + 1 :]]
        if not is_value and (word == "--" or not word.startswith("-")):
            break
        is_value = word in _TAKES_VALUE
    return BY_NAME["console"], words
