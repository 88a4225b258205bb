"""The runner as a user without root, and programs that behave like sudo: when the password goes out, and where to."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.runner_support import NODE, Bench, bench, is_alive, until
from tests.support import poll, unavailable

from sparktop.errors import LinkLost
from sparktop.model.operation import Command, Operation, Privilege, Signal
from sparktop.model.survey import Privileges, PrivilegesQuestion
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.api import Outcome, OutcomeState
from sparktop.operate.runner.client import RunnerLine
from sparktop.probe.runner import step
from sparktop.probe.runner.questions import free_rules

PASSWORD = "correct horse; $(battery) 'staple'"
NOBODY = 65534

FAKE_SUDO = r"""#!/bin/sh
# As sudo does: -n fails where a password is needed, -S asks with the prompt and reads a line for each try.
echo "$*" >>"$FAKE_FOLDER/calls"
how=$1
if [ "$how" = -n ] && [ "$2" = -l ]; then
  cat "$FAKE_FOLDER/list" && exit 0
  echo "sudo: a password is required" >&2
  exit 1
fi
while [ "$1" != -- ]; do [ "$1" = -p ] && mark=$2; shift; done
shift
case "$FAKE_SUDO" in
  free) exec "$@" ;;
  idle) exit 0 ;;
  tty) echo "sudo: sorry, you must have a tty to run sudo" >&2; exit 1 ;;
  exact) [ "$1" != timeout ] && exec "$@" ;;
esac
[ "$how" = -n ] && { echo "sudo: ${FAKE_WORDS:-a password is required}" >&2; exit 1; }
echo "We trust you have received the usual lecture" >&2
[ "$FAKE_SUDO" = lectures ] && [ -n "$(timeout 0.5 head -c 1)" ] && echo typed early >>"$FAKE_FOLDER/calls"
for try in 1 2 3; do
  printf "$FAKE_PROMPT" "$mark" >&2
  read -r password || { echo; echo "sudo: no password was provided" >&2; exit 1; }
  if [ "$password" = "$(cat "$FAKE_FOLDER/password")" ]; then
    case "$FAKE_SUDO" in
      denied) echo "nobody is not in the sudoers file." >&2; exit 1 ;;
      askexact)
        [ "$1" = timeout ] && {
          echo "Sorry, user nobody is not allowed to execute 'x' as root on y." >&2
          exit 1
        } ;;
    esac
    exec "$@"
  fi
  echo "Sorry, try again." >&2
done
echo "sudo: 3 incorrect password attempts" >&2
exit 1
"""


class Stage:
    """A folder that a user without root may use, and how sudo behaves there."""

    def __init__(self, folder: Path, runners: Bench) -> None:
        self.folder = folder
        self.runners = runners
        self.asked: list[int] = []
        self.answers: list[str | None] = []

    async def line(self, sudo: str, *, prompt: str = "%s", words: str = "", path: str | None = None) -> RunnerLine:
        drop = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
        return await self.runners.line(
            prefix=(
                *(drop if os.getuid() == 0 else ()),
                "env",
                f"PATH={self.folder}/bin:{os.environ['PATH']}" if path is None else f"PATH={path}",
                f"FAKE_SUDO={sudo}",
                f"FAKE_FOLDER={self.folder}",
                f"FAKE_PROMPT={prompt}",
                *([f"FAKE_WORDS={words}"] if words else []),
            )
        )

    async def secret(self, node: str, wrong: int) -> str | None:
        assert node == NODE
        self.asked.append(wrong)
        return self.answers.pop(0)

    async def perform(self, line: RunnerLine, *operations: Operation, run: str = "r1", step: str = "s") -> Outcome:
        act = Remote(operations=operations)
        return await line.perform(run, step, act, told=self.runners.told.append, secret=self.secret)

    @property
    def calls(self) -> str:
        path = self.folder / "calls"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        unavailable("no setpriv here, and sudo is not asked by root: apt-get install util-linux")
    made = Path(tempfile.mkdtemp(prefix="spk-sudo-", dir="/tmp"))
    (made / "bin").mkdir()
    (made / "state").mkdir(mode=0o700)
    sudo = made / "bin/sudo"
    sudo.write_text(FAKE_SUDO)
    (made / "password").write_text(PASSWORD + "\n")
    (made / "list").write_text("")
    for path in (made, made / "bin", sudo):
        path.chmod(0o755)
    if os.getuid() == 0:
        for path in (made, made / "state"):
            os.chown(path, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def stage(folder: Path) -> AsyncIterator[Stage]:
    async with bench(folder / "state") as runners:
        yield Stage(folder, runners)


def root(*argv: str, limit_s: float = 10.0) -> Command:
    return Command(argv=argv, privilege=Privilege.ROOT, limit_s=limit_s)


READS = root("/bin/sh", "-c", "cat; echo read $?")
"""A command that would take a password piped blindly."""


async def test_without_a_password_none_is_asked_for(stage: Stage) -> None:
    outcome = await stage.perform(await stage.line("free"), READS)
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.results[0].output == "read 0"
    assert stage.calls == "-n -- timeout -k 5 10 /bin/sh -c cat; echo read $?\n"


async def test_a_process_that_root_can_t_end_either_is_a_failure(stage: Stage) -> None:
    """This sudo gives no root: kill is refused under it as well."""
    if os.getuid() != 0:
        unavailable("another user's process is started by root alone")
    process = await asyncio.create_subprocess_exec("sleep", "300")
    try:
        started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        order = Signal(pid=process.pid, started_ticks=started, signal="KILL", privilege=Privilege.ROOT)
        outcome = await stage.perform(await stage.line("free"), order)
        assert outcome.state is OutcomeState.FAILED
        assert outcome.problem.startswith("kill exited")
        assert f"/usr/bin/kill -s KILL {process.pid}" in stage.calls
        assert process.returncode is None
        outcome = await stage.perform(await stage.line("idle"), order, run="r2")
        assert outcome.state is OutcomeState.DONE, "one that got it may go on for a while"
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("%s", ""), ("[sudo: %s] Password: ", "interactive authentication is required")],
    ids=["sudo", "sudo-rs"],
)
async def test_the_password_goes_to_sudo_alone_and_is_asked_for_once_a_run(
    stage: Stage, prompt: str, words: str
) -> None:
    stage.answers = [PASSWORD, PASSWORD]
    line = await stage.line("password", prompt=prompt, words=words)
    outcome = await stage.perform(line, READS, root("id", "-u"))
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.results[0].output == "read 0"
    assert stage.asked == [0]
    await stage.perform(line, READS, step="second")
    assert stage.asked == [0]
    await stage.perform(line, READS, run="another run")
    assert stage.asked == [0, 0]
    kept = stage.runners.journal().decode() + repr(outcome) + repr(stage.runners.told) + stage.calls + repr(line)
    assert PASSWORD not in kept
    assert "battery" not in kept


async def test_unlocking_forgets_the_password(stage: Stage) -> None:
    stage.answers = [PASSWORD, PASSWORD]
    line = await stage.line("password")
    await stage.perform(line, READS)
    await line.unlock()
    await stage.perform(line, READS, step="second")
    assert stage.asked == [0, 0]


@pytest.mark.parametrize(
    ("sudo", "answers", "asked", "said"),
    [
        ("exact", [], [], "read 0"),  # a rule for the exact command is enough
        ("askexact", [PASSWORD], [0], "read 0"),
        ("lectures", [PASSWORD], [0], "read 0"),  # the password waits for sudo's own marker
        ("password", ["wrong", PASSWORD], [0, 1], "read 0"),
        ("password", ["wrong", "", "wrong"], [0, 1, 2], "password 3 times"),
        ("password", [None], [0], "no password"),
        ("tty", [], [], "sudo needs a terminal on this machine (requiretty), and a runner has none"),
        ("denied", [PASSWORD], [0], "sudo doesn't allow this for the user who is logged in; nothing was done"),
    ],
)
async def test_what_is_asked_and_said(
    stage: Stage, sudo: str, answers: list[str | None], asked: list[int], said: str
) -> None:
    stage.answers = list(answers)
    outcome = await stage.perform(await stage.line(sudo), READS, root("id", "-u"))
    if outcome.state is OutcomeState.DONE:
        assert outcome.results[0].output == said
    else:
        assert said in outcome.problem
        assert (len(outcome.results), outcome.results[0].is_untouched) == (1, True)
    assert stage.asked == asked
    assert "typed early" not in stage.calls


async def test_without_sudo(stage: Stage) -> None:
    bare = stage.folder / "bare"
    bare.mkdir()
    bare.chmod(0o755)
    (bare / "python3").symlink_to(Path("/usr/bin/python3").resolve())
    outcome = await stage.perform(await stage.line("free", path=str(bare)), READS)
    assert "no program sudo" in outcome.problem


async def asked(line: RunnerLine) -> asyncio.Task[Outcome]:
    """A step whose password nobody types."""
    asking = asyncio.Event()

    async def slow(node: str, wrong: int) -> str | None:
        asking.set()
        await asyncio.sleep(300)
        return PASSWORD

    act = Remote(operations=(READS,))
    performing = asyncio.create_task(line.perform("r1", "s", act, told=print, secret=slow))
    async with asyncio.timeout(10):
        await asking.wait()
    return performing


def test_a_password_that_nobody_types_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "SECRET_S", 0.05)
    answers, kept_open = os.pipe()
    work = step.StepWork({}, folder=("", -1), docker="", journal=-1, tell=lambda *_: True, answers=answers)
    with pytest.raises(step.Unable):
        work._secret(0)
    os.close(answers)
    os.close(kept_open)


async def test_a_link_lost_while_sudo_asks_ends_it(stage: Stage) -> None:
    line = await stage.line("password")
    performing = await asked(line)
    os.kill(line.pid, signal.SIGKILL)
    with pytest.raises(LinkLost):
        await performing
    outcome = await stage.runners.ended(await stage.line("password"))
    assert "connection broke" in outcome.problem


async def test_a_step_given_up_here_does_not_wait_there(stage: Stage) -> None:
    line = await stage.line("password")
    performing = await asked(line)
    performing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert "no password" in (await stage.runners.ended(line)).problem


async def test_a_command_as_root_is_bounded(stage: Stage) -> None:
    pid = stage.folder / "state/pid"
    slow = root("/bin/sh", "-c", f"echo $$ >{pid}; exec sleep 300", limit_s=0.5)
    outcome = await stage.perform(await stage.line("free"), slow)
    assert "0.5 s" in outcome.problem
    await until(pid.exists)
    poll(lambda: not is_alive(int(pid.read_text())), what="the command ends")


LISTED = """Matching Defaults entries for spark on gx10:
    env_reset, mail_badpass, use_pty

User spark may run the following commands on gx10:
    (ALL : ALL) ALL
    (root) NOPASSWD: /usr/sbin/sysctl -w vm.drop_caches=3, /usr/bin/systemctl restart vllm@*.service\\,x,
        /usr/bin/sync, PASSWD: /usr/sbin/reboot
    (alice) NOPASSWD: /usr/bin/alice
    (ALL) SETENV: NOPASSWD: /usr/bin/a, EXEC: /usr/bin/b
"""


def test_rules_without_a_password() -> None:
    assert free_rules(LISTED) == [
        "/usr/sbin/sysctl -w vm.drop_caches=3",
        "/usr/bin/systemctl restart vllm@*.service\\,x",
        "/usr/bin/sync",
        "/usr/bin/a",
        "/usr/bin/b",
    ]
    assert free_rules("User x may run the following commands on y:\n    (ALL) NOPASSWD: ALL\n") == ["ALL"]
    assert free_rules("nonsense") == []


@pytest.mark.parametrize(
    ("listed", "sudo"),
    [
        ("    (ALL) NOPASSWD: ALL\n", "free"),
        (LISTED, "listed"),
        ("    (ALL : ALL) ALL\n", "password"),
        (None, "password"),
    ],
)
async def test_privileges(stage: Stage, listed: str | None, sudo: str) -> None:
    if listed is None:
        (stage.folder / "list").unlink()
    else:
        (stage.folder / "list").write_text(listed)
    ask = PrivilegesQuestion(node=NODE)
    privileges = (await (await stage.line("password")).ask([ask]))[ask].value
    assert isinstance(privileges, Privileges)
    assert (privileges.is_root, privileges.sudo) == (False, sudo)
