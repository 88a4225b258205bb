"""The runner and the real sudo, as a user made for the test: no password, the right one, wrong ones, not allowed."""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.runner_support import NODE, Bench, bench, is_alive
from tests.support import poll, unavailable

from sparktop.model.operation import Command, Privilege, Signal
from sparktop.model.survey import Privileges, PrivilegesQuestion
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.api import Outcome, OutcomeState
from sparktop.operate.runner.client import RunnerLine

pytestmark = pytest.mark.integration


@dataclass
class Person:
    """A user of this machine for one test, with rules for sudo of its own."""

    name: str
    password: str
    folder: Path
    asked: list[int] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)

    @property
    def _rules(self) -> Path:
        return Path(f"/etc/sudoers.d/{self.name}")

    def may(self, *rules: str) -> None:
        """Lines of sudoers, "USER" standing for the name."""
        text = "".join(rule.replace("USER", self.name) + "\n" for rule in rules)
        subprocess.run(["visudo", "-c", "-f", "-"], input=text.encode(), check=True, capture_output=True)
        self._rules.write_text(text)
        self._rules.chmod(0o440)

    def joins(self, group: str) -> None:
        subprocess.run(["usermod", "-aG", group, self.name], check=True)

    async def secret(self, node: str, wrong: int) -> str | None:
        self.asked.append(wrong)
        return self.answers.pop(0)

    async def line(self, runners: Bench) -> RunnerLine:
        uid = str(pwd.getpwnam(self.name).pw_uid)
        return await runners.line(
            prefix=("setpriv", "--reuid", uid, "--regid", uid, "--init-groups", "env", f"HOME={self.folder}")
        )

    async def perform(self, line: RunnerLine, *operations: Command | Signal) -> Outcome:
        act = Remote(operations=operations)
        return await line.perform("r1", secrets.token_hex(4), act, told=print, secret=self.secret)


@pytest.fixture
def person() -> Iterator[Person]:
    if os.geteuid() != 0:
        unavailable("making a user needs root")
    for program in ("sudo", "visudo", "useradd", "userdel", "chpasswd", "setpriv"):
        if shutil.which(program) is None:
            unavailable(f"no {program} here: apt-get install sudo passwd util-linux")
    name = f"spkt{secrets.token_hex(3)}"
    folder = Path(tempfile.mkdtemp(prefix="spk-su-", dir="/tmp"))
    folder.chmod(0o755)
    number = str(50_000 + secrets.randbelow(10_000))  # not the next one: it is a user of another test's Spark too
    words = ["--no-create-home", "--user-group", "--uid", number, "--shell", "/bin/sh", name]
    subprocess.run(["useradd", *words], check=True)
    made = Person(name, secrets.token_urlsafe(12), folder)
    try:
        subprocess.run(["chpasswd"], input=f"{name}:{made.password}\n".encode(), check=True)
        (folder / "state").mkdir(mode=0o700)
        shutil.chown(folder / "state", name, name)
        yield made
    finally:
        made._rules.unlink(missing_ok=True)
        subprocess.run(["userdel", name], check=True, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def runners(person: Person) -> AsyncIterator[Bench]:
    async with bench(person.folder / "state") as made:
        yield made


def root(*argv: str, limit_s: float = 10.0) -> Command:
    return Command(argv=argv, privilege=Privilege.ROOT, limit_s=limit_s)


WHO = root("/bin/sh", "-c", "id -u; cat; echo read")


async def privileges(line: RunnerLine) -> Privileges:
    ask = PrivilegesQuestion(node=NODE)
    found = (await line.ask([ask]))[ask].value
    assert isinstance(found, Privileges)
    return found


async def test_without_a_password(person: Person, runners: Bench) -> None:
    person.may("USER ALL=(ALL) NOPASSWD: ALL")
    line = await person.line(runners)
    outcome = await person.perform(line, WHO)
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.results[0].output == "0\nread"
    found = await privileges(line)
    assert (found.user, found.is_root, found.sudo) == (person.name, False, "free")


async def test_a_rule_for_one_command(person: Person, runners: Bench) -> None:
    person.may("USER ALL=(root) NOPASSWD: /usr/bin/id -u")
    line = await person.line(runners)
    outcome = await person.perform(line, root("/usr/bin/id", "-u"))
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.results[0].output == "0"
    found = await privileges(line)
    assert (found.sudo, found.sudo_rules) == ("listed", ("/usr/bin/id -u",))


async def test_the_right_password(person: Person, runners: Bench) -> None:
    person.may("USER ALL=(ALL) ALL")
    line = await person.line(runners)
    assert (await privileges(line)).sudo == "password"
    person.answers = [person.password]
    outcome = await person.perform(line, WHO, WHO)
    assert outcome.state is OutcomeState.DONE, outcome
    assert [result.output for result in outcome.results] == ["0\nread"] * 2
    assert person.asked == [0]
    assert person.password not in runners.journal().decode() + repr(outcome)


async def test_wrong_passwords(person: Person, runners: Bench) -> None:
    person.may("USER ALL=(ALL) ALL")
    line = await person.line(runners)
    person.answers = ["wrong", person.password]
    outcome = await person.perform(line, WHO)
    assert outcome.state is OutcomeState.DONE, outcome
    assert person.asked == [0, 1]
    await line.unlock()
    person.asked, person.answers = [], ["wrong", "still wrong", ""]
    outcome = await person.perform(line, root("/usr/bin/touch", str(person.folder / "done")))
    assert outcome.problem == "sudo refused the password 3 times; nothing was done"
    assert person.asked == [0, 1, 2]
    assert not (person.folder / "done").exists()


async def test_one_try_only(person: Person, runners: Bench) -> None:
    person.may("Defaults:USER passwd_tries=1", "USER ALL=(ALL) ALL")
    person.answers = ["wrong", None]
    outcome = await person.perform(await person.line(runners), WHO)
    assert outcome.problem == "sudo got no password; nothing was done"
    assert person.asked == [0, 1]


async def test_a_rule_for_one_command_with_a_password(person: Person, runners: Bench) -> None:
    person.may("USER ALL=(root) /usr/bin/id -u")
    person.answers = [person.password]
    outcome = await person.perform(await person.line(runners), root("/usr/bin/id", "-u"))
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.results[0].output == "0"


async def test_not_in_sudoers(person: Person, runners: Bench) -> None:
    person.answers = [person.password]
    line = await person.line(runners)
    outcome = await person.perform(line, WHO)
    assert outcome.problem == "sudo doesn't allow this for the user who is logged in; nothing was done"


async def test_a_terminal_is_wanted(person: Person, runners: Bench) -> None:
    person.may("Defaults:USER requiretty", "USER ALL=(ALL) NOPASSWD: ALL")
    line = await person.line(runners)
    outcome = await person.perform(line, WHO)
    assert outcome.problem == "sudo needs a terminal on this machine (requiretty), and a runner has none"
    assert (await privileges(line)).sudo == "tty"


async def test_a_command_of_root_s_is_ended_when_its_time_is_over(person: Person, runners: Bench) -> None:
    person.may("USER ALL=(ALL) NOPASSWD: ALL")
    line = await person.line(runners)
    pid = person.folder / "pid"
    slow = root("/bin/sh", "-c", f"echo $$ >{pid}; exec sleep 300", limit_s=0.7)
    outcome = await person.perform(line, slow)
    assert outcome.problem == "sh took more than 0.7 s: it was killed"
    poll(lambda: not is_alive(int(pid.read_text())), what="root's command ends")


async def test_a_process_of_root_s_is_signalled(person: Person, runners: Bench) -> None:
    person.may("USER ALL=(root) NOPASSWD: /usr/bin/kill")
    line = await person.line(runners)
    process = await asyncio.create_subprocess_exec("sleep", "300")
    try:
        started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        user = Signal(pid=process.pid, started_ticks=started, ends_within_s=5.0, must_end=True)
        outcome = await person.perform(line, user)
        assert outcome.problem == f"process {process.pid} belongs to another user"
        as_root = Signal(
            pid=process.pid, started_ticks=started, privilege=Privilege.ROOT, ends_within_s=5.0, must_end=True
        )
        outcome = await person.perform(line, as_root)
        assert outcome.state is OutcomeState.DONE, outcome
        assert await process.wait() == -15
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_lock_is_one_for_all_users_of_docker(person: Person, runners: Bench) -> None:
    """As in /run/lock: a folder that all may write, sticky, and a kernel that protects what is in it."""
    person.joins("docker")
    person.folder.joinpath("state").chmod(0o1777)
    theirs = await person.line(runners)
    ours = await runners.line(key="another console")
    assert await ours.lock("root@laptop", "reboot") is None
    holder = await theirs.lock("person@desk", "restart")
    assert holder is not None
    assert holder.what == "reboot"
    await ours.unlock()
    assert await theirs.lock("person@desk", "restart") is None
    holder = await ours.lock("root@laptop", "reboot")
    assert holder is not None
    assert (holder.who, holder.what) == ("person@desk", "restart")
