"""What the operator asks for, what would be done, and how it goes: request, plan of steps, run.

A plan is made by a pure planner from a picture and what was asked of the nodes beforehand (`operate.survey`), shown
as it stands, and carried out by the one executor. Bodies and contents may hold secrets: they are left out of every
`repr`, and shown only through `operate.masking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparktop.model.change import Change
from sparktop.model.finding import Finding
from sparktop.model.operation import Operation
from sparktop.model.prospect import Prospect
from sparktop.model.recipe import Expected, Order


class Risk(StrEnum):
    """What a plan may cost: nothing that runs, what runs, or the machine's state."""

    SAFE = "safe"
    DISRUPTIVE = "disruptive"
    DESTRUCTIVE = "destructive"


# --- what is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One wish of the operator's."""

    action: str
    """One of operate.actions.ACTIONS."""
    nodes: tuple[str, ...]
    target: str = ""
    """An engine's or container's name, or a pid; empty where the action means the node."""
    change: Change = field(default_factory=Change)
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the action: "target_gib", "grace_s", "way", "floor_gib", "stay_minutes" ..., as text."""
    finding: Finding | None = None
    """What it is to mend: after the run it has to be seen to resolve."""
    order: Order | None = None  # of a launch: the recipe and what is wanted of it


# --- what a step does


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Operations one after another, by the runner on the Spark: once begun they are finished, or undone, there and
    without the link."""

    operations: tuple[Operation, ...]
    undo: tuple[Operation, ...] = ()
    """Done in this order when an operation fails; each is tried, whatever the one before did."""
    takes_link: bool = False
    """The link goes with it (a reboot): its loss, or a node that has since booted anew, is no failure of this step.
    The step after it tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectEvidence:
    """What there is to see, into one archive on the operator's machine."""

    nodes: tuple[str, ...]
    engines: tuple[str, ...] = ()
    """Names; empty: all of these nodes'."""
    needs: str = ""
    """Only where an earlier step on its node has saved an id under this name: else there is nothing to collect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitGone:
    """Until these processes are gone, and no GPU process of the container is left."""

    pids: tuple[int, ...]
    container_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMemory:
    """Until so much is available and stays; where it stalls, the ladder of what may hold it is told."""

    target_bytes: int
    stable_s: float = 5.0
    unless_runs: str = ""
    """A container's id, or its name where it may have been made anew: while that runs there is nothing to wait for (the
    way back of a run that stopped nothing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitReady:
    """Until the engine of this container answers; its phases and counts are told."""

    name: str
    """The container's name; the id is another after a relaunch."""
    container_id: str = ""
    """Where one of the name is meant: its whole id, or the "{NAME}" under which an earlier step saved it."""
    is_worker: bool = False
    """A further rank serves no HTTP: it is ready when it runs and its log says so, or its head is."""
    any_run: bool = False
    """A run that was there when it began to be waited for counts too (the way back of a run that stopped nothing)."""
    together: tuple[tuple[str, str], ...] = ()
    """(node, container) of its other ranks: the end of one is the end of all."""
    longer: str = ""
    """What gives it more time, as a sentence's end: told when the time is up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitResolved:
    """Until a finding is no longer there."""

    finding: tuple[str, tuple[str, ...], str]
    """Finding.key; the subject may differ after a relaunch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitBack:
    """Until the node is back after a reboot, with another boot id."""

    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTest:
    """One short completion from the operator's side, memory sampled fast: loads is not serves (field report 001)."""

    engine: str
    """The container's or engine's name."""
    floor_bytes: int
    """Available memory below which it has failed."""
    prompt: str = "Reply with the single word: ready"
    max_tokens: int = 64
    api_key: str = field(default="", repr=False)
    """As the engine was given it; sent in a header over the forwarded line, written nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A short measurement from the operator's side, after the first request has gone well."""

    engine: str
    """The container's name."""
    expected: Expected
    floor_bytes: int
    tokens: int = 256
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOrder:
    """Words for the probe: end this container when memory runs out, without waiting for us."""

    container_id: str
    """64 hex digits, or the "{NAME}" under which an earlier step on the node saved them; empty disarms."""
    container_name: str = ""
    floor_bytes: int = 0
    empty_within_s: float | None = None
    """Also when memory would be empty within so many seconds at the rate it falls."""
    stay_s: float = 0.0
    """How long it stays armed after the console has gone; 0: it goes with it."""


Act = (
    Remote
    | CollectEvidence
    | AwaitGone
    | AwaitMemory
    | AwaitReady
    | AwaitResolved
    | AwaitBack
    | SmokeTest
    | Measure
    | GuardOrder
)


class OnFailure(StrEnum):
    """What a step's failure means for the run."""

    STOP = "stop"
    """Nothing more is done; the way back is offered."""
    ROLL_BACK = "roll back"
    """The plan's way back is taken at once."""
    GO_ON = "go on"
    """It is told, and the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing done on one node, as the review and the run show it."""

    id: str
    """Unique in its plan: "stop", "swap", "memory"; on two nodes "stop@spark2"."""
    title: str
    """ "Stop vllm-qwen36, 60 s grace"."""
    node: str
    act: Act = field(repr=False)
    limit_s: float = 60.0
    verifies: str = ""
    """What must be true afterwards, in words."""
    undone_by: str = ""
    """How it is undone, in words or as a command."""
    undoes: tuple[str, ...] = ()
    """Ids of earlier steps on its node that it takes back: once it is done, nothing of either is left to be undone."""
    on_failure: OnFailure = OnFailure.STOP
    needs_nodes: tuple[str, ...] = ()
    """On the way back: nodes besides its own without which it is worth nothing, as one rank of a pair is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that a plan changes; secrets masked."""

    what: str
    """ "environment", "flag", "option", "image", "file"."""
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done, whole, before anything is."""

    request: Request
    title: str
    """ "Safe restart of vllm-qwen36 on spark1"."""
    risk: Risk
    steps: tuple[Step, ...]
    way_back: tuple[Step, ...] = ()
    """Steps that lead back; gone by themselves after a step that says ROLL_BACK, offered otherwise."""
    is_all_or_nothing: bool = False
    """Whoever gets out in the middle is led back at once: half of it is worse than none."""
    effect: str = ""
    """What to expect, in a sentence or two."""
    outcome: str = ""
    """What is there once all has gone well: "serves Qwen/Qwen3-0.6B at http://spark1:8000/v1"; empty: as it was."""
    outcome_command: str = ""
    """A line to paste that shows it; secrets named, never written."""
    warnings: tuple[str, ...] = ()
    """What is lost, what it will not help."""
    differences: tuple[Difference, ...] = ()
    equivalent: tuple[str, ...] = ()
    """The same as commands to paste; secrets masked."""
    typed: str = ""
    """What has to be typed to confirm; empty: the button is enough."""
    seen_monotonic_s: float = 0.0
    """FleetState.monotonic_s of the picture it was made from."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Exact values that must appear nowhere."""
    prospect: Prospect | None = None  # of a launch: whether it fits, its gates, what is on disk

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.node for step in self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why not, and what would make it possible."""

    request: Request
    reason: str
    remedies: tuple[str, ...] = ()
    """What to do; commands as they would be typed."""
    prospect: Prospect | None = None  # of a launch: the picture of why


# --- how it goes


class StepState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not begun, because the run ended before it."""
    UNKNOWN = "unknown"
    """The link broke and the node hasn't said yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One step of a run."""

    step: Step
    state: StepState = StepState.WAITING
    detail: str = ""
    """What it is at, or how it ended: "available 96.4 of 108 GiB, there in 0:20"; sanitised and masked."""
    ratio: float | None = None
    """How far, where that can be told."""
    began_wall_s: float | None = None
    ended_wall_s: float | None = None


class RunState(StrEnum):
    RUNNING = "running"
    LINK_LOST = "link lost"
    """A step is under way on a node that can't be heard; it is asked when it is back."""
    ABORTING = "aborting"
    """The operator wants out; the step under way is finished or undone first."""
    ROLLING_BACK = "rolling back"
    DONE = "done"
    NO_HELP = "did not help"
    """All was done, and the finding is still there."""
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    ABORTED = "aborted"
    CUT_OFF = "cut off"
    """Its console was killed in the middle; told by a later one, from the audit."""
    REFUSED = "refused"
    """The gate let nothing through; nothing was done."""

    @property
    def is_over(self) -> bool:
        return self not in (RunState.RUNNING, RunState.LINK_LOST, RunState.ABORTING, RunState.ROLLING_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A plan being carried out, or how that ended."""

    id: str
    """Unique, sorts by time: "20261121T031211-4f2a9c"."""
    plan: Plan
    state: RunState = RunState.RUNNING
    steps: tuple[StepRun, ...] = ()
    """Those of the plan, then those of the way back as far as it was taken."""
    message: str = ""
    """How it ended, in a sentence: what was done, and what was not."""
    hint: str = ""
    """What to do next."""
    can_go_back: bool = False  # the way back is there to be taken
    evidence_path: str = ""
    before: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    """By node: "available_gib", "free_gib", "cache_gib" ..."""
    after: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    saved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By node: the ids that its steps have saved, for later ones and for the way back (`operate.saved`)."""
