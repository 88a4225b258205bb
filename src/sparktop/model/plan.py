"""Requests and plans of steps: what the operator asks for, and what sparktop would do.

A pure planner makes a plan from a picture of the fleet and a survey of the nodes; it is shown as it is, and carried out
by the one executor. Bodies and contents may hold secrets: they are excluded from every `repr`, and shown only through
`operate.secrets.masking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from sparktop.dataclass import dataclass
from sparktop.model.change import Change
from sparktop.model.finding import Finding, FindingKey
from sparktop.model.operation import ImagePull, Operation, Transfer
from sparktop.model.proof import Prove
from sparktop.model.survey import PublicKey

if TYPE_CHECKING:
    from sparktop.model.prospect import Prospect
    from sparktop.model.recipe import Expected, Order


class Risk(StrEnum):
    """What a plan puts at risk: nothing, running requests, or the machine's state."""

    SAFE = "safe"
    DISRUPTIVE = "disruptive"
    DESTRUCTIVE = "destructive"


# --- what is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the operator."""

    action: str
    """One of operate.actions.ACTIONS."""
    nodes: tuple[str, ...]
    target: str = ""
    """Name of an engine or container, or a pid; empty where the action is about the node."""
    change: Change = field(default_factory=Change)
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the action: "target_gib", "grace_s", "way", "floor_gib", "stay_minutes" ..., as text."""
    finding: Finding | None = None
    """The finding to fix: after the run it must be resolved."""
    also: tuple[Finding, ...] = ()
    """Other findings that its change fixes: they must be resolved too."""
    order: Order | None = None  # of a launch: the recipe and what is wanted of it
    secret: str = field(default="", repr=False)
    """A key that the action writes on a node; in no option, which the audit keeps."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings to fix, the one that was chosen first."""
        return () if self.finding is None else (self.finding, *self.also)


# --- what a step does


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Operations that the runner on the Spark carries out in order; once started, they are completed or undone even
    if the connection is lost."""

    operations: tuple[Operation, ...]
    undo: tuple[Operation, ...] = ()
    """Carried out in this order when an operation fails; each is tried, even if the one before failed."""
    takes_link: bool = False
    """The step ends the connection (a reboot): its loss, or a node that has rebooted since, is no failure of this
    step. The next step checks the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectEvidence:
    """Collect all evidence into one archive on the operator's machine."""

    nodes: tuple[str, ...]
    engines: tuple[str, ...] = ()
    """Names; empty: all engines of these nodes."""
    needs: str = ""
    """Collect only if an earlier step on the node has saved an id under this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitGone:
    """Wait until these processes, and all GPU processes of the container, have ended."""

    pids: tuple[int, ...]
    container_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMemory:
    """Wait until this much memory is available and stays so; if it stalls, report what may hold it, step by step."""

    target_bytes: int
    stable_s: float = 5.0
    unless_runs: str = ""
    """A container's id, or its name where it may have been recreated: while it runs there is nothing to wait for
    (the rollback of a run that stopped nothing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitReady:
    """Wait until this container's engine answers; reports its phases and counts."""

    name: str
    """The container's name; its id changes with a relaunch."""
    container_id: str = ""
    """For one specific container of that name: its full id, or the "{NAME}" under which an earlier step saved it."""
    is_worker: bool = False
    """A worker rank serves no HTTP: it is ready when it runs and its log says so, or when its head is ready."""
    any_run: bool = False
    """A container run from before the wait counts too (the rollback of a run that stopped nothing)."""
    together: tuple[tuple[str, str], ...] = ()
    """(node, container) of its other ranks: if one exits, all have failed."""
    longer: str = ""
    """How to allow more time, as the end of a sentence: reported when time is up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitServing:
    """Check that this engine still is what the plan promised: running since it became ready, and answering."""

    name: str
    """As in AwaitReady, like the next two."""
    container_id: str = ""
    is_worker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitResolved:
    """Wait until findings are resolved."""

    findings: tuple[FindingKey, ...]
    """Their keys; the subjects may differ after a relaunch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitBack:
    """Wait until the node is back after a reboot, with a new boot id."""

    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTest:
    """One short completion from the operator's side, with fast memory samples: a loaded engine may still fail to
    serve (field report 001)."""

    engine: str
    """The container's or engine's name."""
    floor_bytes: int
    """The test fails if available memory drops below this."""
    prompt: str = "Reply with the single word: ready"
    max_tokens: int = 64
    api_key: str = field(default="", repr=False)
    """The engine's key; sent in a header over the forwarded connection, never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A short benchmark from the operator's side, after the first request succeeded."""

    engine: str
    """The container's name."""
    expected: Expected
    floor_bytes: int
    tokens: int = 256
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckExposed:
    """Ask a reverse proxy as a client does: it must refuse who has no key, and serve who has it, and only that."""

    name: str
    """The host name that it serves."""
    port: int = 80
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLogin:
    """Log in at the node again, on a connection of its own and with this key alone."""

    key: PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One PCIe half of the cable, from the end that sends to the end that receives."""

    device: str
    """RDMA device of the sending end."""
    gid_index: int
    """Of RoCE v2, as read for this plan: it moves when addresses change."""
    ip: str
    peer_device: str
    peer_gid_index: int
    peer_ip: str
    mtu: int | None = None
    """The smaller one of both interfaces; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLink:
    """Load the cable for some seconds, from the step's node to another one; what both nodes run for it ends with it."""

    peer: str
    halves: tuple[Half, ...]
    """One, or the two of one cable at once."""
    is_latency: bool = False
    """The time of small messages instead of the bandwidth."""
    seconds: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePower:
    """Load the node's GPU for some seconds, and keep its clock and power meanwhile."""

    library: str
    """Path of cuBLAS on the node."""
    seconds: int
    limit_s: int
    """After so long the program is ended, whatever becomes of sparktop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureCollective:
    """Read what a collective's head has measured, once its container has ended."""

    peer: str
    """The node of the other rank."""
    container_id: str
    """The "{NAME}" under which an earlier step on the node saved it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOrder:
    """An order to the probe: kill this container when memory runs low, without waiting for the console."""

    container_id: str
    """64 hex digits, or the "{NAME}" under which an earlier step on the node saved them; empty disarms."""
    container_name: str = ""
    floor_bytes: int = 0
    empty_within_s: float | None = None
    """Also kill it when memory would be empty within this time at its current rate."""
    stay_s: float = 0.0
    """How long the guard stays armed after the console disconnects; 0: it ends with the connection."""


Act = (
    Remote
    | CollectEvidence
    | AwaitGone
    | AwaitMemory
    | AwaitReady
    | AwaitServing
    | AwaitResolved
    | AwaitBack
    | SmokeTest
    | Measure
    | CheckExposed
    | CheckLogin
    | MeasureLink
    | MeasureCollective
    | Prove
    | MeasurePower
    | GuardOrder
)


class OnFailure(StrEnum):
    """What the run does when a step fails."""

    STOP = "stop"
    """No further steps start; the rollback is offered."""
    ROLL_BACK = "roll back"
    """The rollback starts at once."""
    GO_ON = "go on"
    """The failure is reported, and the run continues."""
    FAIL_AT_END = "fail at the end"
    """The run continues, and has failed in the end: what the plan promises is not all so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step on one node, as the review and the run show it."""

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
    """How to undo it, in words or as a command."""
    by_hand: str = ""
    """The command that does it by hand, where the run could not; empty: there is none."""
    has_no_undo: bool = False
    """Nothing undoes it by hand, or has to; `undone_by` says why."""
    undoes: tuple[str, ...] = ()
    """Ids of earlier steps on its node that it reverts: once it is done, neither has to be undone."""
    on_failure: OnFailure = OnFailure.STOP
    stops: str = ""
    """Name of the engine that it stops."""
    leaves: str = ""
    """In a rollback: name of the container that it sets aside, for its log."""
    needs_nodes: tuple[str, ...] = ()
    """In a rollback: other nodes that it depends on, as one rank of a pair does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that a plan changes; secrets masked."""

    what: str
    """ "environment", "flag", "option", "image", "file", "address", "rule", "line", "mode"."""
    name: str
    before: str | None
    after: str | None
    node: str = ""
    """The node it is on, where a plan doesn't make the same one on all of its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete plan, before any of it is carried out."""

    request: Request
    title: str
    """ "Safe restart of vllm-qwen36 on spark1"."""
    risk: Risk
    steps: tuple[Step, ...]
    way_back: tuple[Step, ...] = ()
    """The steps of the rollback; started automatically after a step with ROLL_BACK, else offered."""
    is_way_back: bool = False
    """Its steps lead back from another plan."""
    is_all_or_nothing: bool = False
    """If the operator aborts, the rollback starts at once: a partial result is worse than none."""
    effect: str = ""
    """What to expect, in one or two sentences."""
    outcome: str = ""
    """The result of success: "serves Qwen/Qwen3-0.6B at http://spark1:8000/v1"; empty: as before."""
    outcome_command: str = ""
    """A command line that shows the result; secrets named, never written."""
    warnings: tuple[str, ...] = ()
    """What is lost, and what the plan won't fix."""
    doubt: str = ""
    """Why it is expected to fail now, also the first of `warnings`; empty: nothing says so."""
    differences: tuple[Difference, ...] = ()
    equivalent: tuple[str, ...] = ()
    """The same as command lines to paste; secrets masked."""
    typed: str = ""
    """What must be typed to confirm; empty: a button is enough."""
    seen_monotonic_s: float = 0.0
    """FleetState.monotonic_s of the picture it was made from."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Exact values that must never be shown or written."""
    prospect: Prospect | None = None  # of a launch: whether it fits, its gates, what is on disk
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> text of each file that it writes and anybody may read; on several nodes the node's name comes first."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.node for step in self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request was refused, and what would make it possible."""

    request: Request
    reason: str
    remedies: tuple[str, ...] = ()
    """The next steps; commands as they would be typed."""
    prospect: Prospect | None = None  # of a launch: the picture of why
    is_verdict: bool = False
    """It doesn't fit: the reason is the budget's own sentence."""


def only_fetches(act: Act) -> bool:
    """Whether a step only downloads to its node."""
    return (
        isinstance(act, Remote)
        and bool(act.operations)
        and all(isinstance(one, ImagePull | Transfer) for one in act.operations)
    )
