"""One check of the bring-up: what it looks at and why, its questions, and its answer from what the nodes said."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from sparktop import sanitise
from sparktop.checks.judgement import SEVERITY_ORDER, Check, Judgement, View
from sparktop.dataclass import dataclass
from sparktop.engines.ranks import EngineRank, names_in_order
from sparktop.knowledge.card import found
from sparktop.masking import mask_text
from sparktop.model.bringup import Chapter, Gauge
from sparktop.model.finding import Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.prospect import Gate
from sparktop.model.state import State
from sparktop.model.survey import FileText, Output, Question, Survey
from sparktop.model.telemetry import HostFacts, Sample
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

    state: State
    found: str = ""
    remedies: tuple[Remedy, ...] = ()
    gauges: tuple[Gauge, ...] = ()


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


class Unread(Exception):
    """What a row needs was not read; says why. The row is then unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputs:
    """What is known for one row: what it is about, the picture, and the answers to the checks' questions."""

    picture: FleetState
    survey: Survey
    target: Target

    @property
    def nodes(self) -> Nodes:
        return self.target.nodes

    @property
    def node(self) -> str:
        """The only node of a row of Scope.NODE."""
        return self.nodes[0]

    @property
    def own(self) -> NodeView:
        return self.view(self.node)

    @property
    def facts(self) -> HostFacts:
        """The node's; raises Unread."""
        return _read(self.own.facts, "not read yet")

    @property
    def sample(self) -> Sample:
        """The node's newest; raises Unread."""
        return _read(self.own.sample, "no sample yet")

    def view(self, node: str) -> NodeView:
        return next(view for view in self.picture.nodes if view.name == node)

    def text(self, question: Question) -> str | None:
        """A text answer; None where there is none."""
        return self.survey.text(question)

    def words(self, question: Question) -> str:
        """A text answer without spaces around it; "" where there is none."""
        return (self.text(question) or "").strip()

    def read(self, question: Question) -> str:
        """A text answer; raises Unread."""
        return _read(self.text(question), self.why_not(question))

    def code(self, question: Question) -> int | None:
        """The exit code of the command that the question runs; None: not known."""
        answer = self.survey.answers.get(question)
        return answer.code if answer is not None else None

    def why_not(self, question: Question) -> str:
        """Why a question has no answer."""
        return self.survey.problem(question) or "not read"

    def is_missing(self, question: Question) -> bool:
        """Whether the program that the question runs is not there."""
        return self.code(question) == NO_PROGRAM

    def has_answer(self, question: Question) -> bool:
        """Whether the node was asked, and could look: a file that doesn't exist is an answer, too."""
        answer = self.survey.answers.get(question)
        return answer is not None and (answer.value is not None or not answer.problem)


_T = TypeVar("_T")


def _read(value: _T | None, why_not: str) -> _T:
    if value is None:
        raise Unread(why_not)
    return value


NodeQuestion = Callable[[str], Question]
"""A question to be put to a node."""


def command(*argv: str, limit_s: float = 5.0) -> Callable[[str], Output]:
    """What a read-only command prints there."""
    return lambda node: Output(node=node, argv=argv, limit_s=limit_s)


def file(path: str, limit_bytes: int = 16384) -> Callable[[str], FileText]:
    """What a file holds there."""
    return lambda node: FileText(node=node, path=path, limit_bytes=limit_bytes)


def each(*questions: NodeQuestion) -> Callable[[CheckInputs], Iterator[Question]]:
    """These questions, put to each node of the row."""

    def of_each(seen: CheckInputs) -> Iterator[Question]:
        return (question(node) for node in seen.nodes for question in questions)

    return of_each


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
    look: Callable[[CheckInputs], Outcome]
    """Pure. One node for Scope.NODE, two for Scope.PAIR, an engine's for Scope.ENGINE, else all. Of a measured check:
    the row where nothing is measured (`not_measured`)."""
    measured_by: str = ""
    """The action whose run measures it; empty: a look is enough."""
    judge: Callable[[Run, Nodes], Outcome | None] | None = None
    """Of a measured check, pure: the row of a run that has ended; None where it measured nothing."""
    questions: Callable[[CheckInputs], Iterable[Question | None]] = each()
    """Asked again with the answers so far, until it asks nothing new; None: a question that can't be put yet."""
    scope: Scope = Scope.NODE
    basis: tuple[Basis, ...] = ()
    """A pass, or a measurement whatever it found, is kept while these are the same; empty: looked at each time."""
    root: str = ""
    """What root would be needed for, in the check or its remedy; empty: nothing."""

    @property
    def chapter(self) -> Chapter:
        return Chapter(self.id.partition(".")[0])


def card(shown: str | Check[Any], check: Check[Any] | None = None, **fields: Any) -> Card:
    """The card of an id, or of a check under its own: with its words in rows.toml, and the check's sources."""
    if not isinstance(shown, str):
        check, shown = shown, shown.views[View.BRING_UP]
    sources = {} if check is None else {"sources": check.sources}
    words = {**sources, **_rows().get(shown, {}), **fields}
    return Card(**words | {"id": shown, "sources": tuple(words["sources"])})


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("rows.toml").read_text("utf-8"))


def outcome(state: State, found: str, *remedies: Remedy, gauges: tuple[Gauge, ...] = ()) -> Outcome:
    """The outcome in this state, on one line: its text comes from the nodes in part, and is masked and sanitised."""
    shown = sanitise.line(mask_text(found), limit=FOUND_CHARS)
    return Outcome(state=state, found=shown, remedies=remedies, gauges=gauges)


passed, warning, failed, skipped, unknown = (
    partial(outcome, state) for state in (State.PASSED, State.WARNING, State.FAILED, State.SKIPPED, State.UNKNOWN)
)


def not_measured(action: str, title: str) -> Callable[[CheckInputs], Outcome]:
    """The `look` of a check that this action measures."""
    return lambda seen: unknown("not measured yet", by_action(action, title))


def judged(judgement: Judgement, found: str, *remedies: Remedy, gauges: tuple[Gauge, ...] = ()) -> Outcome:
    """The outcome that shows a check's judgement; one that passed needs no remedy."""
    state = judgement.state.shown
    shown = () if state is State.PASSED else remedies
    return outcome(state, found, *shown, gauges=gauges)


def told(
    check: Check[Any],
    judgement: Judgement,
    *remedies: Remedy,
    why: str = "",
    gauges: tuple[Gauge, ...] = (),
    **figures: object,
) -> Outcome:
    """The outcome that shows a check's judgement in the words of its card; `remedies` take the place of the card's.

    `why`: why nothing is known, where a question had no answer.
    """
    if judgement.unknown:
        return outcome(State.UNKNOWN, f"{judgement.unknown}: {why}" if why else judgement.unknown, gauges=gauges)
    said = found(check.id, judgement.case or judgement.state, {**judgement.figures, **figures})
    return judged(judgement, said.title, *(remedies or said.remedies), gauges=gauges)


def worst_of(judge: Callable[[_T], Judgement], subjects: Iterable[_T]) -> tuple[Judgement, _T]:
    """The worst judgement of several subjects, and which it is about; of equals the first."""
    judgements = [(judge(subject), subject) for subject in subjects]
    return max(judgements, key=lambda judged: SEVERITY_ORDER.index(judged[0].state))


def from_gates(*gates: Gate) -> Outcome:
    """The outcome of gates of one name: the worst, with what each found on which node, where there are several."""
    if not gates:
        return skipped("there is no link to judge")
    worst = max((gate.state for gate in gates), key=SEVERITY_ORDER.index)
    shown = [gate for gate in gates if gate.state is worst]
    found = "; ".join(f"{gate.node}: {gate.detail}" if gate.node and gates[1:] else gate.detail for gate in shown)
    remedies = dict.fromkeys(by_hand("By hand", *gate.steps) for gate in shown if gate.steps)
    return outcome(worst, found, *remedies)


def by_hand(title: str, *steps: str) -> Remedy:
    """A remedy for the operator: the commands, each on the node that it names."""
    return Remedy(title=title, steps=steps)


def by_action(action: str, title: str, **options: str) -> Remedy:
    """A remedy that the executor carries out, with review."""
    return Remedy(title=title, action=action, options=tuple(options.items()))
