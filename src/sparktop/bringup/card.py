"""One check of the bring-up: what it looks at and why, its questions, and its answer from what the nodes said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

from sparktop import sanitise
from sparktop.checks.judgement import Check, Judgement, State, View
from sparktop.dataclass import dataclass
from sparktop.engines.ranks import EngineRank, names_in_order
from sparktop.masking import mask_text
from sparktop.model.bringup import Chapter, CheckState, Gauge
from sparktop.model.finding import Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.prospect import Gate, GateState
from sparktop.model.survey import Ask, Privileges, Survey
from sparktop.operate.step.run import Run

FOUND_CHARS = 400
NO_PROGRAM = 127
"""The code of an answer where there is no such program."""


class Scope(StrEnum):
    """What one row of a check is about."""

    NODE = "each node"
    PAIR = "each two nodes"
    FLEET = "all nodes together"
    """Only where there are two or more."""
    ENGINE = "each engine"
    """On one node or several."""


class Basis(StrEnum):
    """What a result can depend on, for each of its nodes."""

    BOOT = "boot"
    DRIVER = "driver"
    KERNEL = "kernel"
    RELEASE = "release"
    ADDRESSES = "addresses"
    ENGINE = "engine"
    """Its rank there: the container and its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A check's answer."""

    state: CheckState
    found: str = ""
    remedies: tuple[Remedy, ...] = ()
    gauges: tuple[Gauge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputs:
    """What is known of the nodes: the picture, and their answers to the checks' questions."""

    picture: FleetState
    survey: Survey
    subject: str = ""
    """`Target.subject` of the row."""

    def view(self, node: str) -> NodeView | None:
        return self.picture.node(node)

    def text(self, ask: Ask) -> str | None:
        """A text answer; None where there is none."""
        value = self.survey.value(ask)
        return value if isinstance(value, str) else None

    def value(self, ask: Ask) -> Any:
        return self.survey.value(ask)

    def why_not(self, ask: Ask) -> str:
        """Why a question has no answer."""
        return self.survey.problem(ask) or "not read"

    def is_missing(self, ask: Ask) -> bool:
        """Whether the program that the question runs is not there."""
        answer = self.survey.answers.get(ask)
        return answer is not None and answer.code == NO_PROGRAM

    def has_answer(self, ask: Ask) -> bool:
        """Whether the node was asked, and could look: a file that doesn't exist is an answer, too."""
        answer = self.survey.answers.get(ask)
        return answer is not None and (answer.value is not None or not answer.problem)

    def privileges(self, node: str) -> Privileges | None:
        return self.survey.privileges(node)


Nodes = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one row is about: nodes, or an engine on them."""

    nodes: Nodes
    subject: str = ""
    """`CheckResult.subject`."""


def target_of(team: Sequence[EngineRank], picture: FleetState) -> Target:
    """The target of an engine's rows; its nodes in the picture's order, so that a row keeps its key."""
    return Target(nodes=names_in_order(team, picture), subject=team[0].engine.name)


def no_asks(seen: CheckInputs, nodes: Nodes) -> tuple[Ask, ...]:
    return ()


def each(*questions: Callable[[str], Ask]) -> Callable[[CheckInputs, Nodes], Iterator[Ask]]:
    """These questions, put to each node of the row."""

    def asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
        return (question(node) for node in nodes for question in questions)

    return asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One check."""

    id: str
    """ "chapter.name"."""
    title: str
    """What it is about, in a word or two."""
    looks_at: str
    """The file, command or figure."""
    why: str
    """What goes wrong where it fails."""
    sources: tuple[str, ...]
    look: Callable[[CheckInputs, Nodes], Outcome]
    """Pure. One node for Scope.NODE, two for Scope.PAIR, an engine's for Scope.ENGINE, else all. Of a measured check:
    the row where nothing is measured (`not_measured`)."""
    measured_by: str = ""
    """The action whose run measures it; empty: a look is enough."""
    judge: Callable[[Run, Nodes], Outcome | None] | None = None
    """Of a measured check, pure: the row of a run that has ended; None where it measured nothing."""
    asks: Callable[[CheckInputs, Nodes], Iterable[Ask]] = no_asks
    """Asked again with the answers so far, until it asks nothing new."""
    scope: Scope = Scope.NODE
    basis: tuple[Basis, ...] = ()
    """A pass, or a measurement whatever it found, is kept while these are the same; empty: looked at each time."""
    root: str = ""
    """What root would be needed for, in the check or its remedy; empty: nothing."""

    @property
    def chapter(self) -> Chapter:
        return Chapter(self.id.partition(".")[0])


def card_of(check: Check[Any], **fields: Any) -> Card:
    """The card that shows a check: its sources and, unless `fields` has another, its id are the check's."""
    return Card(**{"id": check.views.get(View.BRING_UP), "sources": check.sources, **fields})


def passed(found: str, *better: Remedy) -> Outcome:
    """The outcome of what is in order; `better`: what would be better still."""
    return Outcome(state=CheckState.PASSED, found=_clean(found), remedies=better)


def warning(found: str, *remedies: Remedy) -> Outcome:
    return Outcome(state=CheckState.WARNING, found=_clean(found), remedies=remedies)


def failed(found: str, *remedies: Remedy) -> Outcome:
    return Outcome(state=CheckState.FAILED, found=_clean(found), remedies=remedies)


def skipped(why: str, *remedies: Remedy) -> Outcome:
    return Outcome(state=CheckState.SKIPPED, found=_clean(why), remedies=remedies)


def unknown(why: str, *permits: Remedy) -> Outcome:
    return Outcome(state=CheckState.UNKNOWN, found=_clean(why), remedies=permits)


def not_measured(action: str, title: str) -> Callable[[CheckInputs, Nodes], Outcome]:
    """The `look` of a check that this action measures."""
    return lambda seen, nodes: unknown("not measured yet", by_action(action, title))


_STATES = {
    State.PASSED: CheckState.PASSED,
    State.NOTE: CheckState.PASSED,
    State.WARNING: CheckState.WARNING,
    State.FAILED: CheckState.FAILED,
    State.UNKNOWN: CheckState.UNKNOWN,
}


def state_of(judgement: Judgement) -> CheckState:
    """The state of the row that shows a check's judgement."""
    return _STATES[judgement.state]


def judged(judgement: Judgement, found: str, *remedies: Remedy, gauges: tuple[Gauge, ...] = ()) -> Outcome:
    """The outcome that shows a check's judgement; one that passed needs no remedy."""
    state = state_of(judgement)
    shown = () if state is CheckState.PASSED else remedies
    return Outcome(state=state, found=_clean(found), remedies=shown, gauges=gauges)


def from_gate(gate: Gate) -> Outcome:
    """The outcome of one node's gate."""
    remedies = (by_hand("By hand", *gate.remedy.split("; ")),) if gate.remedy else ()
    return Outcome(state=_OF_GATE[gate.state], found=_clean(gate.detail), remedies=remedies)


def from_gates(gates: Iterable[Gate], name: str) -> Outcome:
    """The outcome of a launch's gates of this name: the worst, with what each found."""
    named = sorted((gate for gate in gates if gate.name == name), key=lambda gate: _GATE_STATES.index(gate.state))
    if not named:
        return skipped("there is no link to judge")
    worst = named[-1]
    shown = [gate for gate in named if gate.state is worst.state]
    found = "; ".join(f"{gate.node}: {gate.detail}" if gate.node else gate.detail for gate in shown)
    remedies = [by_hand("By hand", *gate.remedy.split("; ")) for gate in shown if gate.remedy]
    return Outcome(state=_OF_GATE[worst.state], found=_clean(found), remedies=tuple(dict.fromkeys(remedies)))


_GATE_STATES = (GateState.PASSED, GateState.UNKNOWN, GateState.WARNED, GateState.FAILED)
_OF_GATE = {
    GateState.PASSED: CheckState.PASSED,
    GateState.WARNED: CheckState.WARNING,
    GateState.FAILED: CheckState.FAILED,
    GateState.UNKNOWN: CheckState.UNKNOWN,
}


def by_hand(title: str, *steps: str) -> Remedy:
    """A remedy for the operator: the commands, each on the node that it names."""
    return Remedy(title=title, steps=steps)


def by_action(action: str, title: str, **options: str) -> Remedy:
    """A remedy that the executor carries out, with review."""
    return Remedy(title=title, action=action, options=tuple(options.items()))


def _clean(text: str) -> str:
    """One line without secrets and control characters: parts of it come from the nodes."""
    return sanitise.line(mask_text(text), limit=FOUND_CHARS)
