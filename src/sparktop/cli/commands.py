"""The commands as a table: what each is for, and how it is typed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparktop.dataclass import dataclass

if TYPE_CHECKING:
    from argparse import ArgumentParser


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of the command line."""

    name: str
    module: str
    """The module of this package with two functions: NAME runs the command, NAME_arguments makes its parser."""
    shape: str
    """How it is typed, in short."""
    brief: str
    examples: tuple[tuple[str, str], ...]
    """(command line, what it is for)"""

    def run(self, words: list[str]) -> int:
        """Run it with these arguments; the exit code."""
        code: int = self._function(self.name)(words)
        return code

    def arguments(self) -> ArgumentParser:
        """The parser of its arguments: for the command itself, completion and the man page."""
        argument_parser: ArgumentParser = self._function(f"{self.name}_arguments")()
        return argument_parser

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(f"sparktop.cli.{self.module}"), name)
        return function


COMMANDS = (
    Command(
        name="console",
        module="watch",
        shape="HOST [HOST ...]",
        brief="open the console; HOST is an ssh alias, user@host[:port], or `local`",
        examples=(
            ("sparktop spark1 spark2", "watch two Sparks"),
            ("sparktop --read-only spark1", "watch, and refuse every change"),
        ),
    ),
    Command(
        name="demo",
        module="watch",
        shape="demo",
        brief="open the console on simulated Sparks; needs no hardware",
        examples=(
            ("sparktop demo memory-spike", "play an incident"),
            ("sparktop demo --list", "list the incidents"),
        ),
    ),
    Command(
        name="replay",
        module="record",
        shape="replay FILE|HOST...",
        brief="open the console over what was recorded; without a name, list it",
        examples=(
            ("sparktop replay spark1 --at 03:12", "what the console showed, or would have, at ten past three"),
            ("sparktop replay", "list what was recorded, and its size"),
        ),
    ),
    Command(
        name="events",
        module="record",
        shape="events FILE|HOST...",
        brief="print what happened in a recording as JSON lines: link, kernel, engines, actions, findings",
        examples=(
            ("sparktop events spark1 --since 2h | jq -r .text", "the last two hours"),
            ("sparktop events spark1.tape.gz", "of a file that somebody sent you"),
        ),
    ),
    Command(
        name="report",
        module="record",
        shape="report FILE|HOST... -o FILE",
        brief="write what happened as a page to show: plots, timeline, findings, actions, versions",
        examples=(
            ("sparktop report spark1 spark2 --since 03:00 -o night.html", "one HTML file, which loads nothing"),
            ("sparktop report spark1 --since 2h --until 1h -o -", "print it as Markdown, for a forum"),
        ),
    ),
    Command(
        name="status",
        module="watch",
        shape="status HOST...",
        brief="print a snapshot as text or JSON; --watch prints one after the other",
        examples=(
            ("sparktop status spark1 spark2 || echo 'look at it'", "exits with 1 if something is wrong"),
            ("sparktop status --watch --json spark1", "one JSON object a second, each on its own line"),
        ),
    ),
    Command(
        name="check",
        module="watch",
        shape="check HOST...",
        brief="for cron and CI: print a line for each finding that counts, and exit with 1 if there is one",
        examples=(
            ("sparktop check spark1 spark2", "exits with 1 on a finding at warning or above, with 3 if a host is away"),
            ("sparktop check spark1 --fail-on critical --timeout 60", "for a host that answers slowly"),
        ),
    ),
    Command(
        name="exporter",
        module="watch",
        shape="exporter HOST...",
        brief="serve what is watched, and the findings, as metrics for Prometheus, until you interrupt it",
        examples=(
            ("sparktop exporter spark1 spark2", "metrics at http://127.0.0.1:9948/metrics"),
            ("sparktop exporter spark1 --listen 192.168.0.10:9948", "for a Prometheus on another machine; no password"),
        ),
    ),
    Command(
        name="watch",
        module="watch",
        shape="watch HOST...",
        brief="watch without a screen, and notify by webhook, command or mail of what begins, worsens or is resolved",
        examples=(
            ("sparktop watch spark1 spark2", "until you interrupt it; the configuration names the targets"),
            ("sparktop watch --test", "send each target a test message"),
            ("sparktop watch spark1 spark2 --install --yes", "as a user service that runs from now on"),
        ),
    ),
    Command(
        name="serve",
        module="watch",
        shape="serve HOST...",
        brief="serve the console to a browser, read-only and on this machine alone, until you interrupt it",
        examples=(
            ("sparktop serve spark1 spark2", "print the address to open, with its token"),
            ("sparktop serve spark1 --writable", "let the page act on spark1, too"),
        ),
    ),
    Command(
        name="act",
        module="act",
        shape="act ACTION HOST...",
        brief="plan an action and run it; --dry-run only prints the plan, --list names the actions",
        examples=(
            ("sparktop act safe-restart spark1 --engine vllm --dry-run", "print the steps, change nothing"),
            ("sparktop act relaunch spark1 --engine vllm --flag=--enforce-eager", "add a flag; asks before it runs"),
            ("sparktop act restore spark1", "undo a run that was cut off on spark1"),
        ),
    ),
    Command(
        name="launch",
        module="launch",
        shape="launch RECIPE|FILE|CONTAINER HOST...",
        brief="launch a recipe, a compose file, a script or a container, and test that it serves; --dry-run only "
        "prints the plan",
        examples=(
            ("sparktop launch qwen3.6-35b-a3b-fp8 spark1 --dry-run", "check that it fits, and print the steps"),
            (
                "sparktop launch ./my.yaml spark1 spark2 --set max_model_len=65536",
                "on two nodes; the first is the head",
            ),
            ("sparktop launch compose.yaml#vllm spark1", "the engine of a compose file, made into a recipe"),
        ),
    ),
    Command(
        name="bringup",
        module="bringup",
        shape="bringup HOST...",
        brief="check new Sparks chapter by chapter: what is wrong, why, and what to do",
        examples=(
            ("sparktop bringup spark1 spark2 --page sparks.md", "look at both, and keep the page"),
            ("sparktop bringup spark1 --only machine", "look at one chapter again"),
        ),
    ),
    Command(
        name="unit",
        module="serve",
        shape="unit RECIPE|CONTAINER HOST...",
        brief="print a systemd unit that runs an engine; --install installs, enables and starts it",
        examples=(
            ("sparktop unit vllm spark1 > vllm.service", "print the unit of the running container vllm"),
            ("sparktop unit vllm spark1 --install", "have systemd run it from now on; asks before it does"),
            ("sparktop unit vllm spark1 --remove", "stop it, disable the unit and remove it"),
        ),
    ),
    Command(
        name="expose",
        module="serve",
        shape="expose NAME HOST...",
        brief="print nginx's or Caddy's configuration before an engine, key required; --on HOST installs it",
        examples=(
            ("sparktop expose llm.example.org spark1 spark2", "print nginx's file before the engines of two Sparks"),
            ("sparktop expose llm.example.org spark1 --on gateway", "install it on gateway; asks before it does"),
            ("sparktop expose llm.example.org --on gateway --remove", "remove it"),
        ),
    ),
    Command(
        name="forward",
        module="serve",
        shape="forward HOST [ENGINE]",
        brief="open a local port to an engine over SSH, until you interrupt it",
        examples=(
            ("sparktop forward spark1", "print the local address of the only engine, and pass on"),
            ("sparktop forward spark1 vllm --port 9000", "vllm at http://127.0.0.1:9000"),
        ),
    ),
    Command(
        name="audit",
        module="act",
        shape="audit",
        brief="show what was done to the Sparks from here, by whom, and how it ended",
        examples=(
            ("sparktop audit --node spark1", "the last 20 runs on spark1"),
            ("sparktop audit --follow", "keep printing new entries"),
        ),
    ),
    Command(
        name="lint",
        module="offline",
        shape="lint FILE...",
        brief="find known mistakes in compose files, docker run scripts, systemd units and recipes",
        examples=(
            ("sparktop lint compose.yml start.sh vllm.service", "check files before you launch them"),
            ("docker inspect vllm | sparktop lint -", "check a running container"),
        ),
    ),
    Command(
        name="recipes",
        module="offline",
        shape="recipes list|show ID",
        brief="list and show the recipes; `recipes validate FILE...` checks your own, `recipes adopt FILE|CONTAINER` "
        "makes one of what you have, `recipes source` adds others'",
        examples=(
            ("sparktop recipes list", "list all, with what they need"),
            ("sparktop recipes show qwen3.6-35b-a3b-fp8", "show one, with its parameters"),
            ("sparktop recipes adopt vllm spark1 --save", "keep a running container as a recipe of yours"),
            (
                "sparktop recipes source add me https://github.com/me/recipes",
                "list a repository's recipes too, as @me/NAME",
            ),
        ),
    ),
    Command(
        name="rules",
        module="offline",
        shape="rules list|show ID",
        brief="list and show the rules; `rules check` tests your own",
        examples=(
            ("sparktop rules show gpu.spin-deadlock", "show what it checks, and what helps"),
            ("sparktop rules check", "test your own rules on their examples"),
        ),
    ),
    Command(
        name="explain",
        module="offline",
        shape="explain [FILE|-]",
        brief="explain the log of an engine or the kernel, or the output of docker or nvidia-smi",
        examples=(
            ("docker logs vllm 2>&1 | sparktop explain", "find why vllm stopped: the cause first"),
            ("sparktop explain --json kernel.log", "print the findings as JSON"),
        ),
    ),
    Command(
        name="completion",
        module="completion",
        shape="completion SHELL",
        brief="print the code that lets bash, zsh or fish complete sparktop's arguments on Tab",
        examples=(
            ('eval "$(sparktop completion bash)"', "put this line in ~/.bashrc"),
            ('eval "$(sparktop completion zsh)"', "put this line in ~/.zshrc, after compinit"),
            ("sparktop completion fish | source", "put this line in ~/.config/fish/config.fish"),
        ),
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
