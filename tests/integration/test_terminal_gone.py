"""A console whose terminal is gone ends as quitting does: no process lives on, and what it was doing is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from tests.integration.spark import Spark
from tests.integration.terminal import Terminal, terminal
from tests.support import poll

from sparktop.cli.watch import INCIDENTS
from sparktop.config import state_home
from sparktop.operate.audit_file import entries

pytestmark = pytest.mark.integration
QUIET_S = 1.5


def closed(at: Terminal) -> None:
    at.hangs_up()


def hung_up(at: Terminal) -> None:
    os.kill(at.pid, signal.SIGHUP)


def told_to_end(at: Terminal) -> None:
    os.kill(at.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("goes", "under_nohup"), [(closed, False), (closed, True), (hung_up, False), (told_to_end, False)]
)
def test_a_demo_without_its_terminal_ends(goes: Callable[[Terminal], None], under_nohup: bool) -> None:
    with terminal("demo", under_nohup=under_nohup) as at:
        at.reads("spark2")
        at.reads("log")
        assert INCIDENTS[0] in at.text, "what to try is said"
        goes(at)
        assert at.ends() == 0
        if not at.is_hung_up:
            assert "\x1b[?1049l" in at.text, "the screen is given back"
            assert "Traceback" not in at.text


def test_a_console_that_is_continued_while_it_draws_draws_on() -> None:
    """Who hangs up continues the process too: written from within the signal, its screen waited for itself for ever."""
    with terminal("demo") as at:
        at.reads("spark2")
        for _ in range(40):
            os.kill(at.pid, signal.SIGCONT)
            at.pause(0.02)
        place = len(at.text)
        at.types("?")
        at.reads("All keys", after=place)
        told_to_end(at)
        assert at.ends() == 0


def test_keys_are_heard_by_a_console_that_nobody_has_typed_at_for_long() -> None:
    """A lone Escape must be asked for once more after it: nothing else follows it."""
    with terminal("demo") as at:
        at.reads("spark2")
        at.reads("log")
        at.pause(QUIET_S)
        at.types("?")
        place = at.reads("All keys")
        at.pause(QUIET_S)
        at.types("\x1b")
        at.reads("GiB available", after=place)
        for byte in "é".encode():  # a character may come in pieces
            os.write(at.handle, bytes([byte]))
            at.pause(0.2)
        os.write(at.handle, b"\xff")  # pasted from a file that isn't UTF-8: Textual's own driver ends by it
        place = len(at.text)
        at.types("?")
        place = at.reads("All keys", after=place)
        at.types("\x1b")
        at.reads("GiB available", after=place)
        at.types("q")
        assert at.ends() == 0
        assert "Traceback" not in at.text


@pytest.fixture
def spark() -> Iterator[Spark]:
    with Spark.start("spark1", "127.0.0.2") as one:
        one.sshd.trust()
        one.sshd.alias("spark1")
        yield one


@pytest.mark.slow
def test_a_step_under_way_is_finished_on_the_spark_and_told(spark: Spark) -> None:
    """An engine that is deaf to SIGTERM: the Spark kills it after the grace period, when nobody looks any more."""
    deaf = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16", "ENGINE_DEAF": "1"}
    engine = spark.engines.start("vllm-deaf", env=deaf, restart_policy={"Name": "always"})
    with terminal("spark1", size=(60, 200)) as at:
        at.reads("vllm-deaf")
        at.pause(2)
        at.types("R")
        at.reads("exact calls")  # the review: a dialog that waits for the plan has its title too
        at.types("\t\r")

        def stops() -> bool:
            at.pause(0.1)
            return b"deaf" in engine.docker.api.logs(engine.container_id)

        poll(stops, what="the stop")
        at.hangs_up()
        assert at.ends() == 0
    end = audited()[-1]
    assert (end["kind"], end["state"], end["left"]) == ("end", "aborted", True)
    assert "The console was closed during: Stop vllm-deaf" in str(end["message"])
    assert "docker update --restart=always vllm-deaf" in str(end["hint"])
    assert engine.inspect()["State"]["Running"], "in its grace period"
    poll(lambda: not engine.inspect()["State"]["Running"], what="the engine's end, by the Spark alone")


def audited() -> list[dict[str, object]]:
    path = state_home() / "audit.jsonl"
    return [dict(one) for one in entries(path)[0]] if path.exists() else []
