"""What a launch would find: whether it fits, what stands in its way, what is on disk; for review and refusal alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fit(StrEnum):
    FITS = "fits"
    TIGHT = "tight"
    """It goes in, and leaves less than the reserve, or less cache than the context needs."""
    NO = "does not fit"
    UNKNOWN = "not known"


class SliceKind(StrEnum):
    """What a part of a node's memory is for."""

    HOST = "host"
    """The system, the desktop, caches that stay: whatever is used and is no engine's."""
    OTHERS = "others"
    """Engines and GPU processes that stay."""
    GOING = "going"
    """Of what is agreed to be stopped: in the picture before, never after."""
    WEIGHTS = "weights"
    CACHE = "KV cache"
    OVERHEAD = "graphs and spike"
    """Graphs, compilation, the first request: beyond the share."""
    UNTOUCHED = "rest of its share"
    """Within its share, for activations and more cache than was asked for."""
    RESERVE = "reserve"
    FREE = "free"
    SHORT = "short"
    """What is not there: beyond the machine's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    kind: SliceKind
    label: str
    """ "weights 34.6", "vllm-qwen36"."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBudget:
    """One node's memory, before and after; slices fill `total_bytes` unless some of it is SHORT."""

    node: str
    total_bytes: int
    available_bytes: int
    """Now."""
    before: tuple[Slice, ...]
    after: tuple[Slice, ...]
    left_bytes: int
    """Expected to be available when it serves, the spike past; negative: short of that."""
    fit: Fit
    sentence: str
    """ "80.2 GiB of 121.7 for it, 26.1 left to the host"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Whether it fits, per node and altogether."""

    fit: Fit
    sentence: str
    """The verdict: "Does not fit: at 0.90 it takes 109.5 GiB of spark1, where 101.7 can be given"."""
    nodes: tuple[NodeBudget, ...] = ()
    levers: tuple[str, ...] = ()
    """What would change it, as it would be typed: "--set gpu_memory_utilization=0.76"."""
    share: float | None = None
    """--gpu-memory-utilization or --mem-fraction-static that is to be used; None: none is."""
    share_source: str = ""
    """ "computed: ...", "as you set it", "the recipe's"."""
    context_tokens: int | None = None
    """max_model_len or context_length that it was made for."""
    cache_tokens: int | None = None
    """How many tokens the cache would hold at that share."""
    unknowns: tuple[str, ...] = ()
    """What was guessed, and why: each makes it an estimate."""


class GateState(StrEnum):
    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    UNKNOWN = "not known"
    """It couldn't be looked at; says why. A launch goes on, and tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One thing that was looked at before a launch."""

    name: str
    """One of recipe-lint, docker, gpu-runtime, driver, image, image-version, model, hub, disk, port, name, linger,
    memory, context, secrets, link, rate, mtu, hca, gid, peer, ssh, equal-memory, same-driver."""
    node: str
    """Empty: of all."""
    state: GateState
    detail: str
    """What was found, with its figure."""
    remedy: str = ""
    """What to do, as it would be typed where it can be."""

    @property
    def sentence(self) -> str:
        """ "port on spark1: port 8000 is free". After "secrets:" whatever follows would be masked as one."""
        where = f" on {self.node}" if self.node else ""
        return f"{self.name}{where}{' -' if self.name == 'secrets' else ':'} {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDisk:
    """A model that a node has already."""

    name: str
    """Repository, or folder's name."""
    path: str
    """The folder with its config.json on the node."""
    nodes: tuple[str, ...]
    size_bytes: int
    quantisation: str = ""
    """fp8, nvfp4, mxfp4, awq, gptq, bf16 ...; empty: not known."""
    is_complete: bool = True
    is_wanted: bool = False
    """It is what the recipe names."""
    note: str = ""
    """ "the same model in NVFP4: --set model=..."."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """All of it."""

    recipe_id: str
    title: str
    nodes: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    """Every parameter as it would be used."""
    budget: Budget | None = None
    gates: tuple[Gate, ...] = ()
    on_disk: tuple[OnDisk, ...] = ()
    fetches: tuple[str, ...] = ()
    """ "image ... (about 21 GB) on spark2", "model ..., 34.6 GB, on spark1, then over the fabric to spark2"."""
    risks: tuple[str, ...] = ()
    runs: tuple[tuple[str, str], ...] = ()
    """(node, container) of every rank, where all of it runs already, launched with these values."""
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """The same to keep, by kind ("run", "compose", "systemd") and file name; secrets named, never written."""
