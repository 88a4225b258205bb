"""A runner whose replies can't be read, or don't come: each request ends, and says why."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import pytest
from tests.runner_support import NODE, no_secret, sh, until

from sparktop.errors import NoAnswer
from sparktop.model.survey import Answer, Output
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner import client as module
from sparktop.operate.runner.api import OutcomeState
from sparktop.operate.runner.client import RunnerLine
from sparktop.probe import bundle
from sparktop.transport.local import LocalTransport

RUNNER = """
import json, sys
replies = json.loads(sys.argv[1])
print("SPARKTOP lies")
print(json.dumps({"kind": "hello", "protocol": 1, "pid": 7, "boot": "b"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    for word in request:
        for reply in replies.get(word, []):
            print(reply.replace("ID", str(request["id"])).replace("LONG", "x" * 300_000), flush=True)
"""
"""Says what the test wants to the request that has a word."""
UNREADABLE = {
    "no-json": "Traceback (most recent call last):",
    "no-text": "\x00\x1b[2J",
    "a-list": "[1]",
    "no-number": '{"id": ID, "kind": "lock", "held": NaN}',
    "nested": '{"id": ID, "kind": ' + "[" * 90 + "]" * 90 + "}",
    "digits": '{"id": ID, "kind": "outcome", "state": ' + "9" * 400 + "}",
    "too-long": '{"id": ID, "kind": "lock", "who": "LONG"}',
    "no-id": '{"kind": "lock", "held": true}',
    "an-id-of-nobody": '{"id": 99999, "kind": "lock", "held": true}',
    "an-id-that-is-true": '{"id": true, "kind": "lock", "held": true}',
    "a-second-greeting": '{"kind": "hello", "protocol": 1, "pid": 8, "boot": "c"}',
    "another-kind": '{"id": ID, "kind": "chunk", "text": "held"}',
    "a-kind-that-is-a-list": '{"id": ID, "kind": ["lock", "outcome", "unlocked"]}',
    "no-kind": '{"id": ID, "held": true}',
}
NO_NEWS = ("another-kind", "a-kind-that-is-a-list", "no-kind")
"""Passed over while a step's outcome is waited for."""
OUTCOME = '{"id": ID, "kind": "outcome", "state": "STATE"}'
STEP = Remote(operations=(sh("echo"),))
Start = Callable[[Mapping[str, Sequence[str]]], Awaitable[RunnerLine]]
CALLS: dict[str, Callable[[RunnerLine], Awaitable[object]]] = {
    "lock": lambda line: line.lock("me", "a plan"),
    "unlock": lambda line: line.unlock(),
    "outcome": lambda line: line.outcome("r", "s"),
    "end": lambda line: line.end("r", "s"),
    "step": lambda line: line.perform("r", "s", STEP, told=lambda _: None, secret=no_secret),
}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    transport = LocalTransport()
    lines: list[RunnerLine] = []

    async def started(replies: Mapping[str, Sequence[str]]) -> RunnerLine:
        argv = (sys.executable, "-c", RUNNER, json.dumps(replies))
        launch = bundle.Launch(argv=argv, payload=b"", nonce="lies", digest="")
        lines.append(await RunnerLine.open(NODE, transport, key="k", launch=launch))
        return lines[-1]

    yield started
    for line in lines:
        await line.close()
    await transport.close()


@pytest.mark.parametrize(
    ("call", "reply"),
    [(call, reply) for call in CALLS for reply in UNREADABLE if call != "step" or reply not in NO_NEWS],
)
async def test_what_can_t_be_read_is_named_at_once(start: Start, call: str, reply: str) -> None:
    line = await start({word: [UNREADABLE[reply]] for word in CALLS})
    with pytest.raises(NoAnswer, match="the runner's answer could not be read: ") as caught:
        await CALLS[call](line)
    assert caught.value.hint == "plan again; if it stays, start sparktop again: that starts another runner on spark1"
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("call", [call for call in CALLS if call != "step"])
async def test_silence_has_a_limit(start: Start, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    line = await start({})
    monkeypatch.setattr(module, "REPLY_LIMIT_S", 0.05)
    with pytest.raises(NoAnswer, match=r"the runner gave no answer within \d+ s") as caught:
        await CALLS[call](line)
    assert caught.value.hint == "spark1 may be short of memory: wait, then plan again"


@pytest.mark.parametrize("held", ['"yes"', "1", "null"])
async def test_a_lock_is_held_or_not(start: Start, held: str) -> None:
    line = await start({"lock": ['{"id": ID, "kind": "lock", "held": HELD}'.replace("HELD", held)]})
    with pytest.raises(NoAnswer, match="it doesn't say whether the lock is held"):
        await line.lock("me", "a plan")


@pytest.mark.parametrize("state", ["done", "failed", "not started"])
async def test_a_step_s_unreadable_reply_is_asked_about(start: Start, state: str) -> None:
    line = await start({"step": ["garbage"], "outcome": [OUTCOME.replace("STATE", state)]})
    outcome = await line.perform("r", "s", STEP, told=lambda _: None, secret=no_secret)
    assert outcome.state is OutcomeState(state)


async def test_a_step_that_still_runs_is_heard_on(start: Start) -> None:
    """The outcome request's reply comes first; the step's own comes after it, on the step's number."""
    own = '{"id": 1, "kind": "outcome", "state": "failed", "problem": "no room"}'
    line = await start({"step": ["garbage"], "outcome": [OUTCOME.replace("STATE", "running"), own]})
    outcome = await line.perform("r", "s", STEP, told=lambda _: None, secret=no_secret)
    assert (outcome.state, outcome.problem) == (OutcomeState.FAILED, "no room")


async def test_a_question_waits_its_time_and_names_what_came(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_SLACK_S", 0.3)
    ask = Output(node=NODE, argv=("true",), limit_s=0.1)
    line = await start({"output": ["[]", "{"]})
    assert (await line.ask([ask]))[ask] == Answer(
        problem="the runner's answer could not be read: a reply is no object: list"
    )
    line = await start({"output": ["[]", '{"id": ID, "kind": "answer", "found": true}']})
    assert (await line.ask([ask]))[ask] == Answer(value="")


async def test_the_first_is_named_on_the_screen() -> None:
    transport, named = LocalTransport(), []
    argv = (sys.executable, "-c", RUNNER, json.dumps({"lock": ["[]"], "unlock": ["{"]}))
    launch = bundle.Launch(argv=argv, payload=b"", nonce="lies", digest="")
    line = await RunnerLine.open(
        NODE, transport, key="k", launch=launch, fault=lambda where, error: named.append(f"{where}: {error}")
    )
    for call in ("lock", "unlock"):
        with pytest.raises(NoAnswer):
            await CALLS[call](line)
    await until(lambda: named)
    assert named == ["runner's replies: a reply is no object: list"]
    await line.close()
    await transport.close()
