"""The real runner on this machine, through the console's line: questions, steps, the journal, the lock, the lease."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runner_support import NODE, Bench, bench, is_alive, sh, until
from tests.support import poll

from sparktop.errors import LinkLost, ProbeError
from sparktop.model.operation import Command, Signal
from sparktop.model.survey import Answer, FileText, Output, Privileges, PrivilegesQuestion
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.api import OutcomeState
from sparktop.probe.runner.journal import GROUP_LOCK_NAME, LOCK_NAME
from sparktop.transport.local import LocalTransport


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "state") as made:
        yield made


# --- questions


async def test_questions_are_answered_exactly(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    hostile = tmp_path / "a 'b\n$(c)"
    hostile.write_bytes(b"\xff\x1b[2Jtext\n")
    big = tmp_path / "big"
    big.write_text("".join(f"{number:07}\n" for number in range(100_000)))
    said = Output(node=NODE, argv=("printf", "%s", "$(id) 'x' \n-n --"))
    failed = Output(node=NODE, argv=("/bin/sh", "-c", "echo half; echo why >&2; exit 3"))
    tail = Output(node=NODE, argv=("cat", str(big)), limit_bytes=16, is_tail=True)
    slow = Output(node=NODE, argv=("sleep", "30"), limit_s=0.3)
    absent = Output(node=NODE, argv=("no-such-program",))
    file, big_file = FileText(node=NODE, path=str(hostile)), FileText(node=NODE, path=str(big))
    nowhere, folder = FileText(node=NODE, path=str(tmp_path / "none")), FileText(node=NODE, path=str(tmp_path))
    elsewhere = Output(node="spark2", argv=("id",))
    questions = (said, failed, tail, slow, absent, file, big_file, nowhere, folder, elsewhere)
    answers = await line.ask(questions)
    assert answers[said] == Answer(value="$(id) 'x' \n-n --", code=0)
    assert answers[failed] == Answer(value="half\n", problem="/bin/sh exited with 3: why", code=3)
    assert answers[tail].value == "0099998\n0099999\n"
    assert (answers[slow].value, "0.3 s" in answers[slow].problem) == (None, True)
    assert "no-such-program" in answers[absent].problem
    assert answers[file].value == "\ufffd\x1b[2Jtext\n"
    assert len(answers[big_file].value) == 256 * 1024
    assert answers[nowhere] == Answer()
    assert "Is a directory" in answers[folder].problem
    assert "spark2" in answers[elsewhere].problem


async def test_a_program_that_nobody_waits_for_any_more_is_ended_with_its_children(
    stage: Bench, tmp_path: Path
) -> None:
    """As a run that measures and is aborted leaves its programs: they load the link."""
    line = await stage.line()
    pids = tmp_path / "pids"
    script = 'echo $$ >>"$1"; sleep 60 & echo $! >>"$1"; wait'
    busy = [Output(node=NODE, argv=("sleep", "0.1"), limit_s=1.0 + number) for number in range(3)]
    ask = Output(node=NODE, argv=("timeout", "50", "/bin/sh", "-c", script, "sh", str(pids)), limit_s=55.0)
    asking = asyncio.create_task(line.ask([ask, *busy]))
    await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    started = [int(word) for word in pids.read_text().split()]
    await until(lambda: not any(is_alive(pid) for pid in started))
    after = FileText(node=NODE, path=str(tmp_path / "none"))
    assert (await line.ask([after]))[after] == Answer()


async def test_a_fault_while_listening_is_told_to_who_waits(stage: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await stage.line()

    def broken(_: object) -> None:
        raise OverflowError("int too large")

    monkeypatch.setattr(line, "_dispatch", broken)
    with pytest.raises(LinkLost, match=r"a fault in sparktop itself, in the runner of .*: OverflowError"):
        await asyncio.wait_for(line.ask([FileText(node=NODE, path="/etc/hostname")]), 20)


async def test_privileges_are_probed_once(stage: Bench) -> None:
    line = await stage.line()
    ask = PrivilegesQuestion(node=NODE)
    privileges = (await line.ask([ask]))[ask].value
    assert isinstance(privileges, Privileges)
    assert privileges.is_root is (os.getuid() == 0)
    assert privileges.docker == "missing"
    assert (await line.ask([ask]))[ask].value is privileges


# --- steps


async def test_a_step_is_carried_out_and_told(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    outcome = await stage.perform(
        line,
        Command(argv=("touch", "--", str(tmp_path / "-a $(b)\n"))),
        sh('printf "%s|" "$X" "$@"', "--", "; rm", environment={"X": "over"}),
        sh('cat -- "$1"; stat -c %a -- "$1"', "{content}").__class__(
            argv=("/bin/sh", "-c", 'cat -- "$1"; stat -c %a -- "$1"', "sh", "{content}"), content="a body\n"
        ),
    )
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.undone is None
    assert (tmp_path / "-a $(b)\n").exists()
    assert [result.output for result in outcome.results] == ["", "over|--|; rm|", "a body\n600"]
    assert stage.told == list(outcome.results)
    assert "a body" not in (stage.folder / f"sparktop-{os.getuid()}" / "r1.s.step").read_text().replace(
        "a body\\n600", ""
    )
    assert not list(stage.folder.rglob("*.content"))


async def test_a_failure_undoes_and_says_so(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    mark = tmp_path / "mark"
    outcome = await stage.perform(
        line,
        Command(argv=("touch", str(mark))),
        sh("echo no more room >&2; exit 28"),
        sh("echo never"),
        undo=[sh("exit 1"), Command(argv=("rm", str(mark)))],
    )
    assert outcome.state is OutcomeState.FAILED
    assert outcome.problem == "sh exited with code 28: no more room"
    assert outcome.undone is False  # the first of them failed, and the second was tried all the same
    assert not mark.exists()
    assert [(result.index, result.is_undo, result.ok) for result in outcome.results] == [
        (0, False, True),
        (1, False, False),
        (0, True, False),
        (1, True, True),
    ]


async def test_what_takes_too_long_is_ended_with_its_children(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    pids = tmp_path / "pids"
    outcome = await stage.perform(
        line, sh('trap "" TERM; sleep 300 & echo $! $$ >"$1"; wait; sleep 300', str(pids), limit_s=0.5)
    )
    assert outcome.state is OutcomeState.FAILED
    assert "0.5 s" in outcome.problem
    # a kill is sent to the whole group at once, and each of it dies when the kernel next runs it
    poll(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()), what="its children end")


@pytest.mark.parametrize(
    ("script", "accepts", "problem"),
    [
        ("kill -9 $$", (0,), "sh exited on signal 9"),
        ("exit 0", (3,), "sh exited with code 0"),
        ("exit 3", (0,), "sh exited with code 3"),
    ],
)
async def test_how_a_program_ended_is_told(stage: Bench, script: str, accepts: tuple[int, ...], problem: str) -> None:
    line = await stage.line()
    outcome = await stage.perform(line, Command(argv=("/bin/sh", "-c", script), accepts=accepts))
    assert (outcome.state, outcome.problem) == (OutcomeState.FAILED, problem)


async def test_what_the_runner_itself_fails_at_is_undone_like_another_failure(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    mark = tmp_path / "mark"
    odd = Signal(pid=os.getpid(), started_ticks=1, signal="NONSENSE")
    outcome = await stage.perform(
        line, Command(argv=("touch", str(mark))), odd, sh("echo never"), undo=[Command(argv=("rm", str(mark)))]
    )
    assert (outcome.state, outcome.undone) == (OutcomeState.FAILED, True)
    assert outcome.problem.startswith("the runner failed: AttributeError")
    assert [result.ok for result in outcome.results] == [True, False, True]
    assert not mark.exists()


async def test_done_already(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    mark = tmp_path / "mark"
    command = Command(argv=("mkdir", str(mark)), done_when=Command(argv=("test", "-d", str(mark))))
    outcome = await stage.perform(line, command, command)
    assert [result.was_done for result in outcome.results] == [False, True]


async def test_what_may_be_tried_again_is_until_it_succeeds(stage: Bench, tmp_path: Path) -> None:
    line, tries = await stage.line(), tmp_path / "tries"
    order = replace(sh('echo x >>"$1"; [ "$(wc -l <"$1")" -ge 2 ]', str(tries)), again_s=60.0)
    assert (await stage.perform(line, order)).state is OutcomeState.DONE
    assert tries.read_text() == "x\nx\n"


async def test_a_step_is_begun_once(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    count = sh('echo x >>"$1"', str(tmp_path / "count"))
    first = await stage.perform(line, count)
    assert await stage.perform(line, count) == first
    assert await stage.perform(await stage.line(), count) == first
    assert (tmp_path / "count").read_text() == "x\n"


async def test_a_signal_goes_to_that_process_alone(stage: Bench) -> None:
    line = await stage.line()
    process = await asyncio.create_subprocess_exec("sleep", "300")
    started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    other = Signal(pid=process.pid, started_ticks=started - 1, signal="KILL", ends_within_s=5.0, must_end=True)
    hold = Signal(pid=process.pid, started_ticks=started, signal="CONT", ends_within_s=0.1, must_end=True)
    end = Signal(pid=process.pid, started_ticks=started, ends_within_s=5.0, must_end=True)
    outcome = await stage.perform(line, other, step="other")
    assert [result.was_done for result in outcome.results] == [True]
    outcome = await stage.perform(line, hold, step="hold")
    assert outcome.problem.startswith(f"process {process.pid} still exists after 0.1 s (state S")
    outcome = await stage.perform(line, end, end, step="end")
    assert [result.was_done for result in outcome.results] == [False, True]
    assert await process.wait() == -signal.SIGTERM


# --- what outlives what


async def test_a_step_goes_on_without_its_runner(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    mark, go = tmp_path / "mark", tmp_path / "go"
    wait = sh('echo >"$1"; while [ ! -e "$2" ]; do sleep 0.05; done; echo went on', str(mark), str(go))
    performing = asyncio.create_task(stage.perform(line, wait, sh("echo and on")))
    await until(mark.exists)
    os.kill(line.pid, signal.SIGKILL)
    with pytest.raises(LinkLost):
        await performing
    again = await stage.line()
    assert (await again.outcome("r1", "s")).state is OutcomeState.RUNNING
    assert (await stage.perform(again, wait)).state is OutcomeState.RUNNING
    go.touch()
    outcome = await stage.ended(again)
    assert outcome.state is OutcomeState.DONE
    assert [result.output for result in outcome.results] == ["went on", "and on"]


async def test_a_step_whose_process_is_killed_is_gone(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    outcome = await stage.perform(line, sh("echo first"), sh("kill -9 $PPID"), undo=[sh("echo undone")])
    assert outcome.state is OutcomeState.GONE
    assert [result.output for result in outcome.results] == ["first"]
    assert outcome.problem.endswith("was killed")


async def test_a_step_begun_before_a_reboot_is_gone(stage: Bench) -> None:
    line = await stage.line()
    await stage.perform(line, sh("true"))
    for path in stage.folder.rglob("*.step"):
        path.unlink()  # tmpfs is empty after a boot
    stage.begun["r1", "s"] = "another boot"
    outcome = await line.outcome("r1", "s")
    assert (outcome.state, "rebooted" in outcome.problem) == (OutcomeState.GONE, True)
    journal = stage.folder / f"sparktop-{os.getuid()}" / "r2.s.step"
    journal.write_text('{"started":{"boot":"another"}}\n{"result":{"index":0,"ok":true}}\n{"resu')
    outcome = await line.outcome("r2", "s")
    assert (outcome.state, len(outcome.results)) == (OutcomeState.GONE, 1)
    assert "rebooted" in outcome.problem


async def test_asked_about_before_it_was_begun_it_is_begun_by_no_older_runner(stage: Bench) -> None:
    older = await stage.line()
    newer = await stage.line()
    assert (await newer.outcome("r1", "s")).state is OutcomeState.NOT_STARTED
    late = await stage.perform(older, sh("echo late"))
    assert late.state is OutcomeState.FAILED
    assert "too late" in late.problem
    assert not late.results
    assert (await newer.outcome("r1", "s")).state is OutcomeState.NOT_STARTED
    assert (await stage.perform(newer, sh("echo in time"))).state is OutcomeState.DONE


async def test_the_runner_leaves_when_its_input_closes_and_when_nobody_speaks(stage: Bench) -> None:
    line = await stage.line()
    assert is_alive(line.pid)
    await line.close()
    poll(lambda: not is_alive(line.pid), what="the runner leaves")
    silent = await stage.line(lease_s=0.5)
    async with asyncio.timeout(10):
        assert await silent.wait_ended() == "the runner ended: nothing arrived for 0.5 s"
    with pytest.raises(LinkLost):
        await silent.outcome("r", "s")


async def test_a_question_ends_with_its_runner(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    pid = tmp_path / "pid"
    ask = Output(node=NODE, argv=("/bin/sh", "-c", f"echo $$ >{pid}; exec sleep 300"), limit_s=300.0)
    asking = asyncio.create_task(line.ask([ask]))
    await until(lambda: pid.exists() and pid.read_text())
    os.kill(line.pid, signal.SIGKILL)
    with pytest.raises(LinkLost):
        await asking
    poll(lambda: not is_alive(int(pid.read_text())), what="the question's program ends")


# --- the lock


async def test_one_console_at_a_time(stage: Bench, tmp_path: Path) -> None:
    first, second = await stage.line(key="a"), await stage.line(key="b")
    assert await first.lock("me@laptop", "restart x\n\x1b[2J") is None
    assert await first.lock("me@laptop", "restart y") is None
    holder = await second.lock("you@desk", "drop caches")
    assert holder is not None
    assert (holder.who, holder.what) == ("me@laptop", "restart y")
    assert abs((holder.since_wall_s or 0) - time.time()) < 60
    await first.unlock()
    assert await second.lock("you@desk", "drop caches") is None
    os.kill(second.pid, signal.SIGKILL)
    await second.wait_ended()
    assert await first.lock("me@laptop", "again") is None


async def test_a_step_under_way_keeps_the_lock(stage: Bench, tmp_path: Path) -> None:
    line, other = await stage.line(key="a"), await stage.line(key="b")
    assert await line.lock("me", "restart x") is None
    go = tmp_path / "go"
    wait = sh('echo >"$1.on"; while [ ! -e "$1" ]; do sleep 0.05; done', str(go))
    performing = asyncio.create_task(stage.perform(line, wait))
    await until(Path(f"{go}.on").exists)
    os.kill(line.pid, signal.SIGKILL)
    with pytest.raises(LinkLost):
        await performing
    holder = await other.lock("you", "else")
    assert holder is not None
    assert holder.what == "restart x"
    go.touch()
    assert (await stage.ended(other)).state is OutcomeState.DONE
    async with asyncio.timeout(60):
        while await other.lock("you", "else") is not None:  # noqa: ASYNC110 - its process holds it until it has ended
            await asyncio.sleep(0.02)


async def test_a_console_that_comes_back_takes_its_own_lock(stage: Bench) -> None:
    older = await stage.line(key="a")
    assert await older.lock("me", "restart x") is None
    newer, other = await stage.line(key="a"), await stage.line(key="b")
    assert await other.lock("you", "y") is not None
    assert is_alive(older.pid)
    assert await newer.lock("me", "restart x") is None
    poll(lambda: not is_alive(older.pid), what="the older runner gives way")
    assert await other.lock("you", "y") is not None


# --- files


async def test_what_it_keeps_is_private_and_is_tidied(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    await stage.perform(line, sh("true"), run="../../r\n$(x)", step="stop@spark2")
    folder = stage.folder / f"sparktop-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (journal,) = folder.glob("*.step")
    assert journal.name.endswith(".stop@spark2.step")
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    for number in range(70):
        path = folder / f"old{number}.s.step"
        path.write_text('{"started":{}}\n')
        os.utime(path, (time.time() - 60 - number, time.time() - 60 - number))
    os.utime(journal, (1, 1))
    (folder / "unrelated").touch()
    await stage.perform(line, sh("true"), run="r2")
    assert len(list(folder.glob("*.step"))) == 51  # and the new one
    assert not journal.exists()
    assert (folder / "unrelated").exists()


async def test_a_folder_that_is_not_ours_is_not_used(tmp_path: Path) -> None:
    async with bench(tmp_path / "state") as stage:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (stage.folder / f"sparktop-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
        line = await stage.line()
        outcome = await stage.perform(line, sh("touch $1", str(tmp_path / "done")))
        assert outcome.state is OutcomeState.DONE, "nobody keeps it from acting by taking its folder's name"
        assert list((tmp_path / "elsewhere").iterdir()) == []
    async with bench(tmp_path / "open") as stage:
        (stage.folder / f"sparktop-{os.getuid()}").mkdir(mode=0o755)
        outcome = await stage.perform(await stage.line(), sh("true"))
        assert outcome.state is OutcomeState.DONE
        assert list((stage.folder / f"sparktop-{os.getuid()}").iterdir()) == [], "others can write there"


CANARIES = ("hf_CANARYcanaryCANARY123", "sk-canarycanarycanary", "hunter2-canary")


async def test_no_secret_is_kept_or_told(stage: Bench) -> None:
    line = await stage.line()
    hf, sk, word = CANARIES
    outcome = await stage.perform(
        line,
        sh(f'echo HF_TOKEN={hf}; echo "Bearer {sk}"; echo "$API_KEY" | wc -c', environment={"API_KEY": word}),
        Command(argv=("grep", "-c", "canary", "{content}"), content=f"password: {word}\n"),
        sh("head -c 20000 /dev/zero | tr '\\0' 'x'; printf '\\n--api-key %s\\n' " + word),
        sh(f"echo 'the password={word} was wrong' >&2; exit 1"),
    )
    assert outcome.state is OutcomeState.FAILED
    assert outcome.results[0].output == "HF_TOKEN=<masked>\nBearer <masked>\n15"
    assert len(outcome.results[2].output) <= 4096
    shown = repr(outcome) + repr(stage.told) + outcome.problem
    kept = stage.journal().decode()
    for canary in CANARIES:
        assert canary not in shown
        assert canary not in kept


# --- our side


async def test_a_machine_without_python_is_explained(tmp_path: Path) -> None:
    async with bench(tmp_path / "state") as stage:
        with pytest.raises(ProbeError) as failure:
            await stage.line(prefix=("env", "PATH=/nonexistent"))
        assert failure.value.hint == (
            "That machine has no python3, which the runner needs. Install it: `sudo apt install python3`."
        )


async def test_a_request_that_makes_no_sense_does_nothing(stage: Bench) -> None:
    line = await stage.line()
    outcome = await line.perform("r1", "s", Remote(operations=()), told=stage.told.append, secret=_never)
    assert outcome.state is OutcomeState.FAILED
    assert "no operations" in outcome.problem


async def _never(node: str, wrong: int) -> str | None:
    raise AssertionError


async def test_the_connection_is_offered_for_what_only_looks(stage: Bench) -> None:
    line = await stage.line()
    assert isinstance(line.transport, LocalTransport)
    assert line.node == NODE
    assert line.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def test_a_disk_that_is_full_lets_nothing_begin(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line(prefix=("prlimit", "--fsize=10:10"))
    outcome = await stage.perform(line, Command(argv=("mkdir", str(tmp_path / "done"))))
    assert outcome.state is OutcomeState.FAILED
    assert "nothing was done" in outcome.problem
    assert not (tmp_path / "done").exists()
    outcome = await stage.perform(await stage.line(), Command(argv=("mkdir", str(tmp_path / "done"))))
    assert outcome.state is OutcomeState.DONE


async def test_a_link_in_place_of_the_lock_is_not_followed(stage: Bench, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    for name in (LOCK_NAME, GROUP_LOCK_NAME):
        (stage.folder / name).symlink_to(target)
    holder = await (await stage.line()).lock("me", "x")
    assert holder is None, "a longer name is nobody's"
    assert target.read_text() == "precious"


async def test_another_user_s_words_in_the_lock_are_words(stage: Bench) -> None:
    first, second = await stage.line(key="a"), await stage.line(key="b")
    assert await first.lock("me", "x") is None
    for words in ('{"who": "\\u001b[2Jme\\n", "what": [1], "since": "x", "token": {}}', "[" * 3000, "\xff", ""):
        next(stage.folder.glob("sparktop.*lock")).write_text(words, "latin-1")
        holder = await second.lock("you", "y")
        assert holder is not None
        assert holder.since_wall_s is None
        assert "\x1b" not in holder.who


async def test_argv_that_can_t_be_is_a_failure_like_another(stage: Bench) -> None:
    line = await stage.line()
    for step, argv in enumerate([("a\0b",), ("",), ("/nonexistent/x",), ("/etc/passwd",)]):
        outcome = await stage.perform(line, Command(argv=argv), step=f"s{step}")
        assert outcome.state is OutcomeState.FAILED
        assert outcome.problem
