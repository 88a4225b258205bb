"""A runner that lies: whatever it answers, the run ends, says what it knows, and leaves the other node as it should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.operate_support import GO_ON, FakeLines, Stage, plan, step

from sparktop.errors import LinkLost
from sparktop.operate.runner import client as module
from sparktop.operate.runner.client import RunnerLine
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.probe import bundle

Says = Callable[[dict[str, Any]], Iterable[Any]]
"""Replies to a request: words, which get its number where they have none, or bytes as they are."""
HELLO = {"id": None, "kind": "hello", "protocol": 1, "pid": 7, "boot": "b"}
ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e" * 1000


def honest(request: dict[str, Any]) -> Iterable[Any]:
    if "lock" in request:
        yield {"kind": "lock", "held": True}
    elif "unlock" in request:
        yield {"kind": "unlocked"}
    elif "note" in request:
        yield {"kind": "answer", "problem": ""}
    elif "step" in request or "outcome" in request or "end" in request:
        yield outcome("done", results=[{"index": 0, "ok": True}])


def outcome(state: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "outcome", "state": state, "results": [], "problem": "", "undone": None, "saved": {}, **more}


class Channel:
    """A channel to a runner that says what it is told to."""

    def __init__(self, says: Says) -> None:
        self.says = says
        self.heard: list[dict[str, Any]] = []
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._out.put_nowait(b"SPARKTOP lies\n" + json.dumps(HELLO).encode() + b"\n")

    async def read(self, limit: int = 65536) -> bytes:
        return await self._out.get()

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            request = json.loads(line)
            self.heard.append(request)
            for reply in self.says(request):
                words = reply if isinstance(reply, bytes) else json.dumps({"id": request.get("id"), **reply}).encode()
                self._out.put_nowait(words + b"\n" if words else b"")

    def error_tail(self) -> str:
        return ""

    async def exit_status(self) -> int | None:
        return None

    async def close(self) -> None:
        self._out.put_nowait(b"")


class Transport:
    def __init__(self, says: Says) -> None:
        self.says = says

    async def run(self, argv: Any) -> Channel:
        return Channel(self.says)


class Lines(FakeLines):
    """spark1 is honest, spark2's runner says what it likes; one that ends is started again."""

    def __init__(self, lines: FakeLines, says: Says) -> None:
        self.__dict__.update(lines.__dict__)
        self._says = says
        self._liar: RunnerLine | None = None

    async def open(self) -> RunnerLine:
        launch = bundle.Launch(argv=("x",), payload=b"", nonce="lies", digest="")
        self._liar = await RunnerLine.open("spark2", Transport(self._says), key="k", launch=launch)  # type: ignore[arg-type]
        return self._liar

    def line(self, name: str) -> Any:
        if name != "spark2":
            return super().line(name)
        return None if self._liar is None or self._liar._ended.is_set() else self._liar

    async def wait(self, name: str) -> Any:
        return await super().wait(name) if name != "spark2" else self.line(name) or await self.open()

    async def aclose(self) -> None:
        if self._liar is not None:
            await self._liar.close()


async def tried(tmp_path: Path, says: Says, **means: Any) -> tuple[Run, Stage]:
    """A plan over both nodes, carried out to its end."""
    stage = Stage(tmp_path, "spark1", "spark2", **means)
    lines = Lines(stage.lines, says)
    object.__setattr__(stage.means, "lines", lines)
    await lines.open()
    steps = (step("first", name="spark1"), step("second", name="spark2"), step("third", name="spark1"))
    run = await stage.carry_out(plan(*steps))
    await lines.aclose()
    return run, stage


def instead(what: str, *replies: Any) -> Says:
    """Lies to one kind of request, and is honest otherwise."""

    def says(request: dict[str, Any]) -> Iterable[Any]:
        return replies if what in request else honest(request)

    return says


def always(*replies: Any) -> Says:
    """Lies to whatever is asked of a step; the lock is taken honestly."""

    def says(request: dict[str, Any]) -> Iterable[Any]:
        return replies if {"step", "outcome", "end", "secret"} & set(request) else honest(request)

    return says


async def test_the_honest_runner_serves_the_plan(tmp_path: Path) -> None:
    run, _ = await tried(tmp_path, honest)
    assert run.state is RunState.DONE


LOCKS = {
    "silence": instead("lock"),
    "garbage": instead("lock", b"{"),
    "another-kind": instead("lock", {"kind": "chunk", "text": "held"}),
    "held-by-us-for-ever": instead("lock", {"kind": "lock", "held": False, "who": "me", "what": "this [run-1]"}),
    "held-by-escapes": instead(
        "lock", {"kind": "lock", "held": False, "who": ESCAPES, "what": ESCAPES, "since": 1e300}
    ),
    "held-by-lists": instead(
        "lock", {"kind": "lock", "held": False, "who": [["x"]] * 50, "what": {"a": 1}, "since": []}
    ),
    "refused-with-escapes": instead("lock", {"kind": "refused", "problem": ESCAPES, "hint": [ESCAPES]}),
    "ends": instead("lock", {"kind": "bye", "reason": ESCAPES}, b""),
}


@pytest.mark.parametrize("says", LOCKS.values(), ids=LOCKS)
async def test_a_lie_about_the_lock_refuses_the_run(
    tmp_path: Path, says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPLY_LIMIT_S", 0.05)
    run, stage = await tried(tmp_path, says)
    assert run.state is RunState.REFUSED
    assert "spark2" in run.message
    assert stage.node.begun == []
    assert_in_order(run, stage)


STEPS = {
    "garbage": always(b"{"),
    "another-kind": always({"kind": "unlocked"}, b"[]"),
    "never-begun-for-ever": always(outcome("not started")),
    "at-it-for-ever": always(outcome("running")),
    "at-it-with-progress-of-nothing": always(
        outcome("running", progress={"index": -(2**70), "done": 2**64, "total": -1, "words": ESCAPES})
    ),
    "a-state-of-its-own": always(outcome(["done"], results={"a": 1}, saved=[1], undone="yes", progress=7)),
    "failed-with-escapes": always(
        outcome("failed", problem=ESCAPES, results=[{"problem": ESCAPES, "output": ESCAPES}])
    ),
    "refused-with-escapes": always({"kind": "refused", "problem": ESCAPES}),
    "asks-for-a-password-for-ever": always(*[{"kind": "ask secret", "wrong": 1}] * 2),
    "asks-with-no-count": always(*[{"kind": "ask secret", "wrong": [ESCAPES]}] * 2),
    "ends-every-time": always(b""),
    "floods": always(*[{"kind": "progress", "index": 0, "done": 1, "words": "x" * 60_000}] * 300, outcome("failed")),
}


@pytest.mark.parametrize("says", STEPS.values(), ids=STEPS)
async def test_a_lie_about_a_step_ends_the_run_there(tmp_path: Path, says: Says) -> None:
    run, stage = await tried(tmp_path, says)
    assert run.state is RunState.FAILED
    first, second, third = (one.state for one in run.steps)
    assert first is StepState.DONE
    assert second in (StepState.FAILED, StepState.UNKNOWN)
    assert third is StepState.SKIPPED
    assert_in_order(run, stage)


BELIEVED = {
    "results-of-other-operations": [
        {"kind": "result", "index": index, "undo": undo, "ok": True, "output": ESCAPES, "seconds": 1e39}
        for index in (-1, 2**63, 10**30)
        for undo in (True, False, "x")
    ],
    "progress-that-goes-back": [
        {"kind": "progress", "index": 0, "done": done, "total": total, "words": ESCAPES}
        for done in (5, -1, 2**64, 10**30, None, "x", 3)
        for total in (0, -1, 2**64, None)
    ],
    "news-of-no-kind": [{"kind": kind} for kind in (None, [], {"a": 1}, "hello", "lost", "unreadable")],
}


@pytest.mark.parametrize("news", BELIEVED.values(), ids=BELIEVED)
async def test_what_is_no_news_costs_nothing(tmp_path: Path, news: list[Any]) -> None:
    ids = {f"{'c' * 200}{number}\x1b[2J": "../../x\x1b[2J" for number in range(800)}
    run, stage = await tried(tmp_path, instead("step", *news, outcome("done", saved=ids)))
    assert run.state is RunState.DONE
    assert len(run.saved["spark2"]) <= 64
    assert_in_order(run, stage)


def assert_in_order(run: Run, stage: Stage) -> None:
    """spark1 is given back, and nothing that was said reached the texts raw or at length."""
    assert stage.node.locked_by is None
    texts = [
        run.message,
        run.hint,
        *(one.detail for one in run.steps),
        *(text for ids in run.saved.values() for text in ids),
    ]
    assert not [text for text in texts if "\x1b" in text or "\u202e" in text or "\x07" in text]
    assert max(map(len, texts)) < 4000


async def test_a_run_that_is_lied_to_holds_up_no_other(tmp_path: Path) -> None:
    """While spark2's runner says nothing at all, a run on spark1 goes to its end."""
    stage = Stage(tmp_path, "spark1", "spark2")
    lines = Lines(stage.lines, lambda _: ())
    object.__setattr__(stage.means, "lines", lines)
    await lines.open()
    held_up = stage.execution(plan(step("there", name="spark2")), "run-2")
    held_up.start()
    run = await stage.carry_out(plan(step("here", name="spark1"), step("more", name="spark1", on_failure=GO_ON)))
    assert run.state is RunState.DONE
    assert not held_up.run.state.is_over
    await held_up.leave()
    await lines.aclose()


async def test_replies_that_nobody_reads_end_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the operator types a password."""
    monkeypatch.setattr(module, "UNREAD_BYTES", 100_000)
    flood = [{"kind": "ask secret", "wrong": 0}, *[{"kind": "progress", "words": "x" * 1000}] * 200]
    typing = asyncio.Event()

    async def never_typed(node: str, wrong: int) -> str | None:
        await typing.wait()
        raise AssertionError(node)

    launch = bundle.Launch(argv=("x",), payload=b"", nonce="lies", digest="")
    line = await RunnerLine.open("spark2", Transport(instead("step", *flood)), key="k", launch=launch)  # type: ignore[arg-type]
    act = step("a").act
    with pytest.raises(LinkLost, match="the runner sends more than anybody reads"):
        await line.perform("r", "s", act, told=lambda _: None, secret=never_typed)  # type: ignore[arg-type]
    assert line._requests == {}
    await line.close()
