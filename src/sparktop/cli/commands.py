"""The commands as a table: what each is for, and how it is typed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of the command line."""

    name: str
    module: str
    """The module of this package whose function of the command's name runs it."""
    shape: str
    """How it is typed, in short."""
    brief: str
    examples: tuple[tuple[str, str], ...]
    """(command line, what it is for)"""


COMMANDS = (
    Command(
        name="console",
        module="watch",
        shape="HOST [HOST ...]",
        brief="the console; HOST is an ssh alias, user@host[:port], or `local`",
        examples=(
            ("sparktop spark1 spark2", "watch two Sparks"),
            ("sparktop --read-only spark1", "nothing can be changed from it"),
        ),
    ),
    Command(
        name="demo",
        module="watch",
        shape="demo",
        brief="the console on two simulated Sparks, no hardware needed",
        examples=(
            ("sparktop demo --scenario memory-spike", "play one of the incidents"),
            ("sparktop demo --list", "name them all"),
        ),
    ),
    Command(
        name="status",
        module="watch",
        shape="status HOST...",
        brief="one snapshot as text or JSON, or a stream of them",
        examples=(
            ("sparktop status spark1 spark2 || echo 'look at it'", "exits with 1 if something is wrong"),
            ("sparktop status --watch --json spark1", "one JSON object a second, one on each line"),
        ),
    ),
    Command(
        name="act",
        module="act",
        shape="act ACTION HOST...",
        brief="one action: --dry-run prints its plan, --yes runs it; --list names them",
        examples=(
            ("sparktop act safe-restart spark1 --engine vllm --dry-run", "the steps, nothing done"),
            ("sparktop act relaunch spark1 --engine vllm --flag=--enforce-eager", "asks before it runs"),
            ("sparktop act restore spark1", "the way back of a run that was cut off there"),
        ),
    ),
    Command(
        name="launch",
        module="launch",
        shape="launch RECIPE HOST...",
        brief="from a recipe to a served, proven model; --dry-run prints the plan",
        examples=(
            ("sparktop launch qwen3.6-35b-a3b-fp8 spark1 --dry-run", "will it fit, and each step"),
            ("sparktop launch ./my.yaml spark1 spark2 --set max_model_len=65536", "over two nodes, head first"),
        ),
    ),
    Command(
        name="audit",
        module="act",
        shape="audit",
        brief="what was done to the Sparks from here, by whom, and how it ended",
        examples=(
            ("sparktop audit --node spark1", "the last 20 runs on spark1"),
            ("sparktop audit --follow", "go on with what comes"),
        ),
    ),
    Command(
        name="lint",
        module="offline",
        shape="lint FILE...",
        brief="compose files, docker run scripts, units, recipes: what is known to go wrong",
        examples=(
            ("sparktop lint compose.yml start.sh vllm.service", "before it runs"),
            ("docker inspect vllm | sparktop lint -", "what runs already"),
        ),
    ),
    Command(
        name="recipes",
        module="offline",
        shape="recipes list|show ID",
        brief="what can be launched; `recipes validate FILE...` checks your own",
        examples=(
            ("sparktop recipes list", "all, with what they need"),
            ("sparktop recipes show qwen3.6-35b-a3b-fp8", "one, with its parameters"),
        ),
    ),
    Command(
        name="rules",
        module="offline",
        shape="rules list|show ID",
        brief="every rule; `rules check` tries your own, in $XDG_CONFIG_HOME/sparktop/rules/*.toml",
        examples=(
            ("sparktop rules show gpu.spin-deadlock", "what it looks at, and what helps"),
            ("sparktop rules check", "your own, on their examples"),
        ),
    ),
    Command(
        name="explain",
        module="offline",
        shape="explain [FILE|-]",
        brief="what a log says: of an engine, the kernel, docker, nvidia-smi",
        examples=(
            ("docker logs vllm 2>&1 | sparktop explain", "why it stopped: the cause, then what follows"),
            ("sparktop explain --json kernel.log", "findings as JSON"),
        ),
    ),
)
BY_NAME = {command.name: command for command in COMMANDS}
_TAKES_VALUE = {"--config", "--interval", "--ssh-config", "-F", "--theme"}


def split(words: list[str]) -> tuple[Command, list[str]]:
    """The command that the words name, and the other words; the console where they name none.

    Options that all commands have may stand before it. After `--` stand hosts, even if one is called as a command is.
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
