"""What a trial found, and the verdict on it: pure. Docker's word counts, never sparktop's own.

A lie is an end that isn't so: "done" over an engine that doesn't answer, "rolled back" over other containers than
before, a restart policy that is gone and nowhere named. A loss is a container that is no longer there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

NOTICED_S = 2.0
"""What breaks during the last check, and so shortly before the end is told, or after it, belongs to the next picture:
what broke before that check began does not, however short it was."""
CODES = {"done": 0, "aborted": 130}
"""State of a run -> exit code; 1 for every other one."""


class Promise(Enum):
    """What an action says of its engine when it is done."""

    SERVES = "it runs, with its restart policy, and answers"
    STOPPED = "it is stopped, with its restart policy"
    BROKEN = "it is stopped, without a restart policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A container as Docker has it."""

    node: str
    container_id: str
    name: str
    status: str
    policy: str

    @property
    def runs(self) -> bool:
        return self.status == "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How one console ended."""

    code: int | None
    """Its exit code; negative: the signal that killed it; None: it never ended."""
    state: str
    """Of its last run, in the audit: empty where there is no end; "nothing" where no run was begun."""
    at_wall_s: float
    said: str
    """All that it wrote, the message of that end, and what the next console said on the same nodes."""
    checked_wall_s: float = 0.0
    """When the last step of that run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a trial found, by Docker and by reading."""

    names: tuple[str, ...]
    """The containers that the promise is about, one a node, the head's first."""
    nodes: tuple[str, ...]
    promise: Promise
    policy: str
    """That which they had, or shall have."""
    before: tuple[Box, ...]
    after: tuple[Box, ...]
    answers: bool
    """The engine's port gives its models."""
    told: tuple[Told, ...]
    """One for each console, the later end last."""
    fault_wall_s: float | None = None
    """When the fault was over that hurts the engine itself; None for all others."""
    removed: frozenset[str] = frozenset()
    """Ids of containers that the fault removed."""
    secrets: tuple[str, ...] = ()
    """Where one was found."""
    controls: tuple[str, ...] = ()
    """Where a control character was found."""
    is_code_of_run: bool = True
    """The exit code is that of the last run; not so where a way back was taken after it."""

    def boxes(self, name: str) -> list[Box]:
        return [box for box in self.after if box.name == name]


def problems(facts: Facts) -> tuple[str, ...]:
    """What is a lie, a loss or a leak; nothing where all that was told is true."""
    return tuple(dict.fromkeys(_problems(facts)))


def _problems(facts: Facts) -> Iterator[str]:
    yield from (f"a secret in {place}" for place in facts.secrets)
    yield from (f"a control character in {place}" for place in facts.controls)
    there = {box.container_id for box in facts.after}
    for box in facts.before:
        if box.container_id not in there | facts.removed:
            yield f"{box.name} on {box.node} is lost"
    for told in facts.told:
        yield from _of_its_form(told, is_code_of_run=facts.is_code_of_run)
    acted = [told for told in facts.told if told.state not in ("refused", "nothing")]
    if not acted:
        if not _is_hurt(facts, facts.told[-1]) and not _same(facts):
            yield "nothing was done, it says, and it is not as before"
        return
    last = acted[-1]
    if _is_done(facts, last):
        if not _is_hurt(facts, last):
            yield from (f"done, and {why}" for why in _broken_promises(facts))
    elif last.state == "rolled back" and not _is_hurt(facts, last):
        if not _same(facts, aside=" ".join(last.said.split()), runs=True):
            yield "as it was before, it says, and it is not"
        elif not facts.answers:
            yield "as it was before, it says, and nothing answers"
    said = " ".join(told.said for told in facts.told)
    yield from _unsaid(facts, last, " ".join(said.split()))


def _is_done(facts: Facts, told: Told) -> bool:
    """It says so: in the audit, or by its exit code alone where the audit can't write the evidence."""
    return told.state == "done" or (told.code == 0 and facts.is_code_of_run)


def _of_its_form(told: Told, *, is_code_of_run: bool) -> Iterator[str]:
    if told.code is None:
        yield "it never ends"
    if "Traceback (most recent call last)" in told.said:
        yield "a traceback"
    if told.code is None or told.code < 0 or not told.state or told.state == "nothing" or not is_code_of_run:
        return
    if told.code != CODES.get(told.state, 1):
        yield f"exit {told.code}, and the audit says {told.state}"


def _is_hurt(facts: Facts, told: Told) -> bool:
    """The fault has hurt the engine when its end was as good as told."""
    return facts.fault_wall_s is not None and facts.fault_wall_s > max(told.at_wall_s - NOTICED_S, told.checked_wall_s)


def _same(facts: Facts, aside: str = "", *, runs: bool = False) -> bool:
    """Every container is as it was, but what the fault removed; what was set `aside` is named there, and runs not.

    Whether they run counts where it was promised (`runs`), and where no fault stops them."""
    earlier = {box.container_id for box in facts.before}
    runs |= facts.fault_wall_s is None

    def rows(boxes: tuple[Box, ...]) -> set[tuple[str, ...]]:
        return {
            (box.container_id, box.name, box.policy, str(box.runs) if runs else "")
            for box in boxes
            if box.container_id not in facts.removed
            and (box.container_id in earlier or box.runs or not names(box.name, aside))
        }

    return rows(facts.before) == rows(facts.after)


def _broken_promises(facts: Facts) -> Iterator[str]:
    for node, name in zip(facts.nodes, facts.names, strict=True):
        box = next((one for one in facts.boxes(name) if one.node == node), None)
        if box is None:
            yield f"{name} on {node} isn't there"
            continue
        if box.runs is not (facts.promise is Promise.SERVES):
            yield f"{name} on {node} is {box.status}"
        wanted = "no" if facts.promise is Promise.BROKEN else facts.policy
        if box.policy != wanted:
            yield f"the restart policy of {name} on {node} is {box.policy}, not {wanted}"
    if facts.promise is Promise.SERVES and not facts.answers:
        yield "nothing answers"


def _unsaid(facts: Facts, last: Told, said: str) -> Iterator[str]:
    """What an end that isn't done has left behind without a word."""
    if _is_done(facts, last):
        return
    earlier = {box.container_id: box for box in facts.before}
    for box in facts.after:
        old = earlier.get(box.container_id)
        if old is None:
            is_left = box.status == "created" or (box.runs and box.policy != facts.policy)
            if is_left and not names(box.name, said):
                yield f"{box.name} on {box.node} is left {box.status}, unsaid"
            continue
        # One that was set aside is told by both its names: that it is renamed back, and what the policy is then.
        tells = tells_policy(box.name, said) or (names(box.name, said) and tells_policy(old.name, said))
        if box.policy != old.policy and facts.promise is not Promise.BROKEN and not tells:
            yield f"the restart policy of {box.name} on {box.node} was {old.policy} and is {box.policy}, unsaid"
        stays_up = facts.promise is Promise.SERVES and not _is_hurt(facts, last)
        if (
            stays_up
            and old.runs
            and not box.runs
            and not any(tells_stopped(name, said) for name in (box.name, old.name))
        ):
            yield f"{box.name} on {box.node} is {box.status}, unsaid"


def _whole(name: str) -> str:
    """A pattern of the name, and of no longer one that it begins or ends."""
    return rf"(?<![\w.-]){re.escape(name)}(?![\w.-]*\w)"


def names(name: str, said: str) -> bool:
    return re.search(_whole(name), said) is not None


def tells_policy(name: str, said: str) -> bool:
    """The command that gives its restart policy back, a sentence on it, or one that it is stopped, with a way back."""
    own = _whole(name)
    return (
        re.search(rf"{own}[^.;]* is stopped.* (?:way back|roll(?:s|ed)? (?:it )?back|rollback)", said) is not None
        or re.search(rf"docker update --restart=\S+ {own}", said) is not None
        or re.search(rf"{own}[^.;]* without (?:its|a) restart policy", said) is not None
    )


def tells_stopped(name: str, said: str) -> bool:
    """The command that starts it, or the word."""
    own = _whole(name)
    word = r"is stopped|has ended|ended|exited|does not run|doesn't run|was killed"
    return re.search(rf"docker start {own}|{own}(?: on \S+)? (?:{word})|Done: [^.]*[Ss]top {own}", said) is not None
