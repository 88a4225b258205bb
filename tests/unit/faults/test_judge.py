"""The verdict of a fault trial: what is a lie, a loss or a leak, and what is not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from tests.faults.draw import ACTIONS, FAULTS, drawn
from tests.faults.judge import Box, Facts, Promise, Told, problems
from tests.table import over

VLLM = Box(node="spark1", container_id="a" * 64, name="vllm", status="running", policy="always")
DONE = Told(code=0, state="done", at_wall_s=1000.0, said="✓ Restart policy of vllm back to always")


def facts(after: Box | None = VLLM, told: Told = DONE, *extra: Box, **more: Any) -> Facts:
    """A restart of one engine; `after`: what became of its container."""
    given: dict[str, Any] = {
        "names": ("vllm",),
        "nodes": ("spark1",),
        "promise": Promise.SERVES,
        "policy": "always",
        "before": (VLLM,),
        "after": (*(() if after is None else (after,)), *extra),
        "answers": True,
        "told": (told,),
    }
    return Facts(**given | more)


def told(state: str, said: str = "", *, code: int | None = 1) -> Told:
    return replace(DONE, state=state, said=said, code=code)


STOPPED = replace(VLLM, status="exited")
NO_POLICY = replace(VLLM, policy="no")
NEW = Box(node="spark1", container_id="b" * 64, name="vllm-next", status="created", policy="no")
KILLED = told("", code=-9)
OUT = told("aborted", code=130)

TRUE: dict[str, Facts] = {
    "done and serving": facts(),
    "stopped as promised": facts(STOPPED, promise=Promise.STOPPED, answers=False),
    "a loop that is broken": facts(replace(STOPPED, policy="no"), promise=Promise.BROKEN, answers=False),
    "done, by its exit code alone: what made room is stopped": facts(
        VLLM, told("", code=0), replace(STOPPED, name="old", container_id="c" * 64, policy="no"),
        before=(VLLM, replace(VLLM, name="old", container_id="c" * 64)),
    ),
    "killed as it was told": facts(STOPPED, replace(DONE, checked_wall_s=999.0), answers=False, fault_wall_s=999.5),
    "set aside by a relaunch, and how it comes back": facts(
        replace(NO_POLICY, name="vllm-before"),
        told("aborted", "docker rename vllm-before vllm; docker start vllm; docker update --restart=always vllm",
             code=130),
        replace(NEW, name="vllm", status="running", policy="always"),
    ),
    "removed by the fault": facts(
        None, told("failed", "vllm is not there"), answers=False, removed=frozenset({VLLM.container_id}),
        fault_wall_s=900.0,
    ),
    "refused, and nothing done": facts(told=told("refused")),
    "refused, and the fault killed it": facts(STOPPED, told("refused"), fault_wall_s=900.0),
    "rolled back": facts(told=told("rolled back")),
    "rolled back, the new one set aside": facts(
        VLLM, told("rolled back", "set aside as vllm-failed"), replace(NEW, name="vllm-failed", status="exited")
    ),
    "the policy is told": facts(NO_POLICY, told("failed", "By hand: docker update --restart=always vllm")),
    "the next console tells it": facts(
        NO_POLICY, replace(KILLED, said="vllm on spark1 runs without its restart policy (always).")
    ),
    "that it is stopped is told": facts(STOPPED, replace(OUT, said="By hand: docker start vllm"), answers=False),
    "what is left over is told": facts(VLLM, replace(OUT, said="vllm-next on spark1 was made"), NEW),
    "the way back taken, the exit code of the run before": facts(
        told=told("done", code=130), is_code_of_run=False
    ),
    "refused here, done there": replace(facts(), told=(told("refused"), DONE)),
}  # fmt: skip

FALSE: dict[str, tuple[Facts, str]] = {
    "done over a dead engine": (facts(STOPPED, answers=False), "vllm on spark1 is exited"),
    "done, and nothing answers": (facts(answers=False), "nothing answers"),
    "dead before the last check": (
        facts(STOPPED, replace(DONE, checked_wall_s=999.8), answers=False, fault_wall_s=999.5),
        "is exited",
    ),
    "killed by the fault, and not a word": (
        facts(STOPPED, told("failed", "it would not"), answers=False, fault_wall_s=900.0),
        "exited, unsaid",
    ),
    "rolled back, and not running since the fault": (
        facts(STOPPED, told("rolled back"), fault_wall_s=900.0),
        "as it was before, it says",
    ),
    "set aside without a word on its policy": (
        facts(replace(NO_POLICY, name="vllm-before"), told("aborted", "docker start vllm-before", code=130)),
        "was always and is no, unsaid",
    ),
    "dead long before it was told": (facts(STOPPED, answers=False, fault_wall_s=990.0), "is exited"),
    "done without its policy": (facts(NO_POLICY), "the restart policy of vllm on spark1 is no, not always"),
    "done, and not there": (facts(None, before=()), "vllm on spark1 isn't there"),
    "done, and it still runs": (facts(promise=Promise.STOPPED), "vllm on spark1 is running"),
    "exit 0 without an end": (facts(STOPPED, told("", code=0), answers=False), "is exited"),
    "exit 0 over a failed run": (facts(told=told("failed", code=0)), "exit 0, and the audit says failed"),
    "exit 1 over a done run": (facts(told=told("done")), "exit 1, and the audit says done"),
    "lost": (facts(None, told("failed")), "vllm on spark1 is lost"),
    "refused, and stopped": (facts(STOPPED, told("refused"), answers=False), "nothing was done, it says"),
    "nothing begun, and stopped": (facts(STOPPED, told("nothing"), answers=False), "nothing was done, it says"),
    "rolled back to another": (facts(NO_POLICY, told("rolled back")), "as it was before, it says"),
    "rolled back, and a new one runs": (
        facts(VLLM, told("rolled back", "vllm-next"), replace(NEW, status="running")),
        "as it was before, it says",
    ),
    "rolled back to silence": (facts(told=told("rolled back"), answers=False), "nothing answers"),
    "the policy gone, unsaid": (facts(NO_POLICY, KILLED), "was always and is no, unsaid"),
    "another's policy told": (
        facts(NO_POLICY, told("failed", "docker update --restart=always vllm-other")),
        "was always and is no, unsaid",
    ),
    "stopped, unsaid": (facts(STOPPED, OUT, answers=False), "vllm on spark1 is exited, unsaid"),
    "left over, unsaid": (facts(VLLM, replace(OUT, said="vllm"), NEW), "vllm-next on spark1 is left created, unsaid"),
    "it never ends": (facts(told=told("", code=None)), "it never ends"),
    "a traceback": (facts(told=replace(OUT, said="Traceback (most recent call last):")), "a traceback"),
    "a secret": (facts(secrets=("audit.jsonl",)), "a secret in audit.jsonl"),
    "a control character": (facts(controls=("the output",)), "a control character in the output"),
}


@over("name", TRUE)
def test_what_is_so_is_no_lie(name: str) -> None:
    assert problems(TRUE[name]) == ()


@over("name", FALSE)
def test_what_is_not_so_is_found(name: str) -> None:
    found, words = FALSE[name]
    assert any(words in one for one in problems(found)), problems(found)


def test_a_seed_is_one_trial_and_seeds_on_end_play_every_combination_once() -> None:
    count = len(ACTIONS) * len(FAULTS) * 2
    trials = [drawn(5000 + number, actions=ACTIONS, faults=FAULTS, nodes=(1, 2)) for number in range(count)]
    assert set(Counter((one.action, one.fault, one.nodes) for one in trials).values()) == {1}
    assert all(one.victim < one.nodes and 0 <= one.share < 1 for one in trials)
    for one in trials[:20]:  # as the line of the trial says
        again = drawn(one.seed, actions=(one.action,), faults=(one.fault,), nodes=(one.nodes,))
        assert again == one
