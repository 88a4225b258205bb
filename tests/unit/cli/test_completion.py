"""What stands at the cursor on Tab: the real program answers, asked as a shell asks; and once through a real bash."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.table import over

from sparktop.cli.commands import BY_NAME
from sparktop.cli.completion import SHELLS
from sparktop.operate.actions import ACTIONS
from sparktop.recipe.read.shelf import names
from sparktop.ui.theme import THEMES

SPARKTOP = Path(sys.executable).with_name("sparktop")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with ssh aliases, a configuration, an audit and a recipe."""
    for name, text in {
        ".ssh/config": "Host spark1 spark2 *.lan !not-this\n  User me\n",
        ".config/sparktop/config.toml": 'hosts = ["lab-spark:2222"]\n',
        ".config/sparktop/recipes/mine.yaml": "no: recipe\n",
        ".local/state/sparktop/audit.jsonl": "".join(
            json.dumps({"v": 1, "kind": "intent", "wall_s": 1.0, "run": f"r{target}", "target": target,
                        "steps": [{"stops": "old"}, 5]}) + "\n"
            for target in ("vllm", "4711", "vllm\x1b[31m-next", "")
        ),
        ".local/state/sparktop/recipe-sources/team.json": json.dumps({"place": str(tmp_path / "team")}),
        "team/theirs.yaml": "model: org/name\n",
        "compose file.yml": "",
        "start.sh": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


ANSWERS = """
import json, os, sys
from sparktop import cli
from sparktop.cli import completion
for environment in json.load(sys.stdin):
    if os.fork() == 0:
        os.environ |= environment
        cli.main()
    os.wait()
"""
"""The program, imported once and asked often: each answer ends the process that gives it."""


def on_tab(home: Path, *lines: str, shell: str = "bash", at: int | None = None) -> list[list[str]]:
    """What the program answers for each line with the cursor at its end, or at that place."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    asked = [
        {
            "COMP_LINE": line,
            "COMP_POINT": str(len(line) if at is None else at),
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_SHELL": shell,
            "_ARGCOMPLETE_SUPPRESS_SPACE": "0" if shell == "bash" else "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(home / f"answer{number}"),
            "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'@><=;|&(:",
        }
        for number, line in enumerate(lines)
    ]
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS], input=json.dumps(asked), env=environment | {"HOME": str(home)}, cwd=home,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")
    answers = [(home / f"answer{number}").read_text("utf-8") for number in range(len(lines))]
    return [[word.rstrip(" ") for word in answer.split("\v") if word] for answer in answers]


HOSTS = ["lab-spark:2222", "spark1", "spark2", "local"]


CANDIDATES: dict[str, list[str]] = {
    "sparktop status ": HOSTS,
    "sparktop status spark1 ": ["lab-spark:2222", "spark2", "local"],
    "sparktop spark1 sp": ["spark2"],
    "sparktop -- st": [],
    "sparktop act relaunch ": HOSTS,
    "sparktop audit --node sp": ["spark1", "spark2"],
    "sparktop status me@sp": ["@spark1", "@spark2"],
    "sparktop act safe-restart spark1 --engine ": ["old", "vllm-next", "vllm"],
    "sparktop launch qwen3-0.6b spark1 --stop vl": ["vllm-next", "vllm"],
    "sparktop act r": ["relaunch", "recover-desktop", "reboot", "remove-unit", "resume", "restore"],
    "sparktop act safe-restart spark1 --set sm": ["smoke="],
    "sparktop act safe-restart spark1 --set smoke=": ["yes", "no"],
    "sparktop act safe-restart spark1 --finding gpu.spin": ["gpu.spin-deadlock"],
    "sparktop launch qwen3-0.6b spark1 --set max_model": ["max_model_len="],
    "sparktop launch qwen3-0.6b spark1 --export ": ["compose", "run", "systemd"],
    "sparktop recipes show min": ["mine", "minimax-m2.7-nvfp4", "minimax-m2.7-nvfp4-ray"],
    "sparktop recipes source ": ["add", "update", "trust", "remove"],
    "sparktop recipes source add ": [],
    "sparktop recipes source trust ": ["team"],
    "sparktop recipes show @te": ["@team/theirs"],
    "sparktop launch ./co": ["./compose\\ file.yml"],
    "sparktop launch st": ["start.sh"],
    "sparktop recipes adopt vllm-": ["vllm-next"],
    "sparktop rules ": ["list", "show", "check"],
    "sparktop rules show gpu.spin": ["gpu.spin-deadlock"],
    "sparktop rules check st": ["start.sh"],
    "sparktop lint 'comp": ["compose file.yml"],
    "sparktop --config st": ["start.sh"],
    "sparktop demo spin": ["spin-deadlock"],
    "sparktop --theme sparktop-": [theme.name for theme in THEMES],
    "sparktop --read-only --interval 2 dem": ["demo"],
    "sparktop --interval ": [],
    "sparktop help st": ["status"],
    "sparktop completion ": list(SHELLS),
    "sparktop status --w": ["--watch"],
    "echo; FROM=here sparktop stat": ["status"],
}


def test_what_may_stand_at_the_cursor(home: Path) -> None:
    assert dict(zip(CANDIDATES, on_tab(home, *CANDIDATES), strict=True)) == CANDIDATES
    assert on_tab(home, "sparktop status", at=len("sparktop sta")) == [["status"]]
    first, actions, recipes = on_tab(home, "sparktop ", "sparktop act ", "sparktop launch ")
    assert first == [*(name for name in BY_NAME if name != "console"), "help", *HOSTS]
    assert {action.name for action in ACTIONS} - {"launch", "expose"} <= set(actions)
    assert {*names(), "mine", "@team/theirs", "old", "vllm", "vllm-next"} == set(recipes)


def test_zsh_and_fish_are_told_what_a_candidate_is(home: Path) -> None:
    assert on_tab(home, "sparktop act safe", shell="zsh") == [["safe-restart:Safe restart"]]


def test_a_broken_file_of_the_operators_leaves_the_rest_and_a_fault_is_logged(home: Path) -> None:
    (home / ".config/sparktop/config.toml").write_text("hosts = [")
    assert on_tab(home, "sparktop status sp", "sparktop launch mine spark1 --set ") == [["spark1", "spark2"], []]
    shutil.rmtree(home / ".config/sparktop/recipes")
    (home / ".local/state/sparktop/audit.jsonl").unlink()
    (home / ".local/state/sparktop/audit.jsonl").mkdir()
    assert on_tab(home, "sparktop act safe-restart spark1 --engine ") == [[]]


def test_an_answer_imports_what_it_needs() -> None:
    code = "import sys, sparktop.cli.completion as c; c._parser(['act']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    late = ("textual", "asyncssh", "docker", "httpx", "yaml", "re2", "sparktop.diagnose.rules")
    assert [name for name in loaded if name.startswith(late)] == []


@over("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_the_printed_script_is_one_of_that_shell(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(subprocess.run([SPARKTOP, "completion", shell], capture_output=True, text=True).stdout)
    read = subprocess.run([shell, "-n", script], capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("sparktop act safe-r", "sparktop act safe-restart "),
        ("sparktop status me@spark1", "sparktop status me@spark1 "),
    ],
)
def test_a_real_bash_completes_the_line(typed: str, line: str, home: Path) -> None:
    pid, handle = pty.fork()
    if pid == 0:
        path = f"{SPARKTOP.parent}:{os.environ['PATH']}"
        environment = {"HOME": str(home), "PATH": path, "TERM": "dumb", "PS1": "ready> ", "INPUTRC": "/dev/null"}
        os.execve(str(shutil.which("bash")), ["bash", "--norc", "--noprofile", "-i"], environment)
    try:
        os.write(handle, b'eval "$(sparktop completion bash)"; echo so""urced\n')
        _reads(handle, "sourced\r\nready> ")
        os.write(handle, typed.encode() + b"\t#\nfc -ln -1\n")  # fc shows what has become of the line before it
        _reads(handle, f"{line}#\r\n")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(handle)


def _reads(handle: int, text: str) -> None:
    written = ""
    deadline = time.monotonic() + 60
    while text not in written:
        assert time.monotonic() < deadline, written
        if select.select([handle], [], [], 0.1)[0]:
            written += os.read(handle, 65536).decode("utf-8", "replace")
