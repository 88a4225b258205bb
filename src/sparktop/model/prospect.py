"""The outlook of a launch, for review and refusal: whether it fits, failed checks, models on disk."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.state import State


class Fit(StrEnum):
    FITS = "fits"
    TIGHT = "tight"
    """It fits, but leaves less than the reserve, or less cache than the context needs."""
    NO = "does not fit"
    UNKNOWN = "not known"

    @property
    def words(self) -> str:
        """What a sentence about it begins with."""
        return _FIT_WORDS[self]


_FIT_WORDS = {Fit.FITS: "Fits", Fit.TIGHT: "Tight", Fit.NO: "Does not fit", Fit.UNKNOWN: "Not known whether it fits"}


class SliceKind(StrEnum):
    """What a part of a node's memory is used for."""

    HOST = "host"
    """The system, the desktop, remaining caches: all used memory that is no engine's."""
    OTHERS = "others"
    """Engines and GPU processes that keep running."""
    TO_BE_STOPPED = "going"
    """Engines that will be stopped: in the bar before the launch only."""
    WEIGHTS = "weights"
    CACHE = "KV cache"
    OVERHEAD = "graphs and spike"
    """Graphs, compilation, the first request: outside the share."""
    UNTOUCHED = "rest of its share"
    """Within its share: for activations, and cache beyond the requested context."""
    RESERVE = "reserve"
    FREE = "free"
    SHORT = "short"
    """Missing memory: beyond the machine's total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One part of a node's memory bar."""

    kind: SliceKind
    label: str
    """ "weights", "vllm-qwen36"."""
    size_bytes: int
    amount: str = ""
    """GiB, where they aren't the size: "34.6" also counts what the bar cuts off, "11.2 of 20.0"; empty: the size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBudget:
    """One node's memory before and after the launch; slices fill `total_bytes` unless there is a SHORT one."""

    node: str
    total_bytes: int
    available_bytes: int
    """MemAvailable now."""
    before: tuple[Slice, ...]
    after: tuple[Slice, ...]
    left_bytes: int
    """Expected to be available once it serves, after the peak; negative: this much is missing."""
    fit: Fit
    sentence: str
    """ "80.2 GiB of 121.7 for it, 26.1 left to the host"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change of a launch that would improve its prospect."""

    values: Mapping[str, str] = field(default_factory=dict)
    """Parameters to set."""
    stops: tuple[str, ...] = ()
    """Engines to stop."""
    nodes: int = 0
    """Number of nodes; 0: unchanged."""
    words: str = ""
    """Shown instead of the options: a whole command, or what it is good for."""

    @property
    def text(self) -> str:
        """As it is shown, and mostly typed: "--set gpu_memory_utilization=0.76 --stop vllm-qwen36"."""
        return self.words or " ".join(
            (
                *(f"--set {name}={shlex.quote(value)}" for name, value in self.values.items()),
                *(f"--stop {shlex.quote(name)}" for name in self.stops),
            )
        )

    @property
    def can_be_applied(self) -> bool:
        """False: it is only shown."""
        return bool(self.values or self.stops or self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Whether a launch fits into memory, per node and overall."""

    fit: Fit
    why: str
    """ "at 0.90 it takes 109.5 GiB of spark1, where 101.7 can be given"."""
    advice: str = ""
    """A sentence on what would change the verdict, or that nothing does."""
    nodes: tuple[NodeBudget, ...] = ()
    levers: tuple[Lever, ...] = ()
    """Changes that would improve the verdict, the best first."""
    share: float | None = None
    """The --gpu-memory-utilization or --mem-fraction-static to use; None: none."""
    share_source: str = ""
    """ "computed: ...", "as you set it", "the recipe's"."""
    context_tokens: int | None = None
    """The max_model_len or context_length of this budget."""
    cache_tokens: int | None = None
    """How many tokens the cache holds at that share."""
    unknowns: tuple[str, ...] = ()
    """What was estimated, and why."""
    figures: tuple[str, ...] = ()
    """What was measured here, or set by the operator, in the place of what sparktop computes."""

    @property
    def sentence(self) -> str:
        """The verdict: "Does not fit: at 0.90 it takes 109.5 GiB of spark1, where 101.7 can be given."."""
        return f"{self.fit.words}: {self.why}. {self.advice}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One check before a launch."""

    name: str
    """One of recipe-lint, docker, gpu-runtime, driver, image, image-version, model, hub, disk, port, name, linger,
    memory, context, secrets, link, rate, mtu, hca, gid, peer, ssh, equal-memory, same-driver."""
    node: str
    """Empty: all nodes."""
    state: State
    detail: str
    """The result, with its figure."""
    steps: tuple[str, ...] = ()
    """What to do next, in order; commands where possible."""
    levers: tuple[Lever, ...] = ()
    """Changes of the launch that would open it; `steps` say them too."""
    secrets: tuple[str, ...] = ()
    """Names of secrets that would open it."""

    @property
    def remedy(self) -> str:
        """The steps in one line."""
        return "; ".join(self.steps)

    @property
    def sentence(self) -> str:
        """ "port on spark1: port 8000 is free". After "secrets:" whatever follows would be masked as one."""
        where = f" on {self.node}" if self.node else ""
        return f"{self.name}{where}{' -' if self.name == 'secrets' else ':'} {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDisk:
    """A model that is on a node's disk."""

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
    """It is the model that the recipe names."""
    note: str = ""
    """What it is to the recipe: "the same model in NVFP4"; empty: nothing."""

    @property
    def setting(self) -> str:
        """The value for `--set model=`: the repository where the model is in the hub's cache, else its folder."""
        return self.name if "/models--" in self.path and self.name.count("/") == 1 else self.path

    @property
    def text(self) -> str:
        """The note with its nodes and how to take it: "the same model, on spark1: --set model=/srv/models/..."."""
        where = f"on {' and '.join(self.nodes)}" if self.nodes else ""
        text = ", ".join(filter(None, (self.note, where, "" if self.is_complete else "not complete")))
        if self.is_wanted:
            return text if self.is_complete else f"{text}: a download goes on from there"
        return f"{text}: --set model={shlex.quote(self.setting)}" if self.is_complete and self.note else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """An image or a model that comes to one node before a launch."""

    kind: str
    """"image" or "model"."""
    name: str
    node: str
    source: str
    """"from its registry", "over the fabric from spark1"."""
    size: str = ""
    """"34.6 GB"; empty: not known."""

    @property
    def text(self) -> str:
        """ "model org/M (34.6 GB) on spark1, from huggingface.co"."""
        size = f" ({self.size})" if self.size else ""
        return f"{self.kind} {self.name}{size} on {self.node}, {self.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """The outlook of one launch."""

    recipe_id: str
    title: str
    nodes: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    """The final value of every parameter."""
    budget: Budget | None = None
    gates: tuple[Gate, ...] = ()
    on_disk: tuple[OnDisk, ...] = ()
    fetches: tuple[Download, ...] = ()
    risks: tuple[str, ...] = ()
    runs: tuple[tuple[str, str], ...] = ()
    """(node, container) of every rank, where the whole launch already runs with these values."""
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """The launch as files to keep, by kind ("run", "compose", "systemd") and file name; secrets named, never
    written."""
