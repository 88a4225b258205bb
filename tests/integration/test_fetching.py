"""Hours of a launch in seconds: a slow command on a real Spark's runner, over links that break and consoles that close.

The command grows a folder to two parts of eight, and on when there is a file "go"; begun again it goes on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.desk import NODE, Desk, at, desk, told
from tests.integration.dockerd import IMAGE, Dockerd
from tests.integration.sshd import Sshd, sshd
from tests.runner_support import is_alive

from sparktop.model.operation import Command, ImagePull, Operation, Transfer
from sparktop.model.request import Request, Risk
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.client import RunnerLine
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at", "sshd"]
MEG = 1_000_000
SLOW = """
mkdir -p "$1"; echo $$ >>"$1.pids"
for n in 1 2 3 4 5 6 7 8; do
    [ -e "$1/part$n" ] || head -c 1000000 /dev/urandom >"$1/part$n"
    [ $n = 2 ] && while [ ! -e "$1.go" ]; do sleep 0.05; done
done
echo all is there
"""


class Model:
    """The folder that grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def transfer(self) -> Transfer:
        command = Command(argv=("/bin/sh", "-c", SLOW, "sh", str(self.folder)), limit_s=120.0)
        return Transfer(command=command, grows=str(self.folder), key=f"model x to {self.folder}", total_bytes=8 * MEG)

    def go_on(self) -> None:
        self.folder.with_name("model.go").touch()

    @property
    def pids(self) -> list[int]:
        """Of each time that the command was begun."""
        try:
            return [int(pid) for pid in self.folder.with_name("model.pids").read_text().split()]
        except FileNotFoundError:
            return []


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    made = Model(tmp_path / "model")
    yield made
    made.go_on()


def launch(at: Desk, *operations: Operation) -> Plan:
    """A download, and then something that changes the node."""
    steps = (
        Step(id="model", title="Download x", node=NODE, act=Remote(operations=operations), limit_s=120.0),
        Step(id="start", title="Start x", node=NODE, act=Remote(operations=(Command(argv=("true",)),))),
    )
    return Plan(
        request=Request(action="safe-restart", nodes=(NODE,)),
        title="Launch x",
        risk=Risk.SAFE,
        steps=steps,
        seen_monotonic_s=at.monitor.state.monotonic_s,
    )


async def ready(at: Desk) -> RunnerLine:
    def there() -> bool:
        node = at.monitor.state.node(NODE)
        return node is not None and node.sample is not None and at.lines.line(NODE) is not None

    await at.until(there, what="a node that can be acted on")
    line = at.lines.line(NODE)
    assert isinstance(line, RunnerLine)
    return line


def details(at: Desk) -> list[str]:
    return [run.steps[0].detail for run in at.shown]


async def half_way(at: Desk) -> None:
    await at.until(lambda: any("2.0 of 8 MB" in detail for detail in details(at)), what="two parts of eight")


def assert_done(run: Run, model: Model, times: int = 1) -> None:
    assert run.state is RunState.DONE, told(run)
    assert [one.state for one in run.steps] == [StepState.DONE, StepState.DONE]
    assert len(model.pids) == times
    assert len(list(model.folder.iterdir())) == 8


@pytest.mark.parametrize("what_breaks", ["the link", "the runner"])
async def test_what_breaks_in_the_middle_is_followed_on_return(
    at: Desk, sshd: Sshd, model: Model, what_breaks: str
) -> None:
    line = await ready(at)
    execution = at.begin(launch(at, model.transfer))
    await half_way(at)
    if what_breaks == "the link":
        sshd.kill_sessions()
    else:
        os.kill(line.pid, signal.SIGKILL)
    await at.until(lambda: any(run.state is RunState.LINK_LOST for run in at.shown), what="the loss")
    seen = len(at.shown)
    back = lambda: any("2.0 of 8 MB" in detail for detail in details(at)[seen:])  # noqa: E731
    await at.until(back, what="its progress on return")
    model.go_on()
    assert_done(await at.finished(execution), model)


@pytest.mark.fast
async def test_a_console_that_was_closed_and_opened_follows(
    sshd: Sshd, dockerd: Dockerd, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(sshd, dockerd, tmp_path, monkeypatch) as at:
        await ready(at)
        execution = at.begin(launch(at, model.transfer))
        await half_way(at)
    assert execution.run.state is RunState.ABORTED
    assert "goes on by itself, and the next run follows it" in execution.run.message
    async with desk(sshd, dockerd, tmp_path, monkeypatch, name="another") as at:
        line = await ready(at)
        assert await line.lock("you@desk", "something else") is None  # nobody is locked out meanwhile
        await line.unlock()
        execution = at.begin(launch(at, model.transfer))
        waits = "2.0 of 8 MB · waiting for another run's transfer of the same"
        await at.until(lambda: waits in details(at), what="the transfer of the first")
        assert len(model.pids) == 1
        model.go_on()
        assert_done(await at.finished(execution), model, times=2)  # the second time finds all there


async def test_the_way_out_ends_it_on_the_node_and_the_next_run_goes_on(at: Desk, model: Model) -> None:
    await ready(at)
    execution = at.begin(launch(at, model.transfer))
    await half_way(at)
    execution.abort()
    run = await at.finished(execution)
    assert run.state is RunState.ABORTED, told(run)
    assert "the part that arrived stays, and the next try continues from there" in run.message
    assert [one.state for one in run.steps] == [StepState.FAILED, StepState.SKIPPED]
    assert not any(is_alive(pid) for pid in model.pids)
    assert len(list(model.folder.iterdir())) == 2
    model.go_on()
    assert_done(await at.finished(at.begin(launch(at, model.transfer))), model, times=2)


async def test_an_image_that_no_registry_gives(at: Desk) -> None:
    """A registry on loopback where nobody listens; and one that is there already needs none."""
    await ready(at)
    run = await at.finished(at.begin(launch(at, ImagePull(image="localhost:9/nvidia/vllm:1", limit_s=60.0))))
    assert run.state is RunState.FAILED, told(run)
    assert "connection refused" in run.message
    assert "localhost:9" in run.message
    run = await at.finished(at.begin(launch(at, ImagePull(image=IMAGE, limit_s=60.0))))
    assert run.state is RunState.DONE, told(run)
    assert run.steps[0].detail == "was done already"
