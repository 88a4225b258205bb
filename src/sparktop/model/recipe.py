"""A launch recipe, as it is understood: the fields of sparkrun's format, and what sparktop adds to them.

The community has a format, and this is it: `recipe_version: "2"` of sparkrun, or version 1 of spark-vllm-docker
(facts/engines.md sections 5.1, 5.2). What we add stands under `runtime_config: sparktop:`, the place left for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparktop.model.engine import EngineKind

Scalar = str | int | float | bool


class Dialect(StrEnum):
    """Whose format a recipe file is written in."""

    SPARKRUN = "sparkrun v2"
    EUGR = "spark-vllm-docker v1"


class Executor(StrEnum):
    """How the ranks of an engine on several nodes find one another."""

    ALONE = "one node"
    NATIVE = "native"
    """The engine's own: vLLM's --nnodes/--node-rank/--master-addr, SGLang's --nnodes/--node-rank/--dist-init-addr."""
    RAY = "Ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What somebody measured with it; None where nobody said."""

    tokens_s: float | None = None
    """Decode of a single stream, tokens/s; with `tokens_s_most` the lower end of a range."""
    tokens_s_most: float | None = None
    first_token_s: float | None = None
    load_s: float | None = None
    available_gib: float | None = None
    """MemAvailable when it serves."""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What it takes, where the model's own files can't be read or don't tell; None: not known."""

    weights_gib: float | None = None
    """On all nodes together."""
    kv_bytes_per_token: float | None = None
    """On all nodes together."""
    active_gib: float | None = None
    """Bytes read for a token: what bandwidth is estimated by."""
    spike_gib: float | None = None
    """Beyond its share: graphs, compilation, the first request."""
    reserve_gib: float | None = None
    """Left to the host at the least; None: 20 with a desktop, 12 without."""
    share: float | None = None
    """The most that is tried as --gpu-memory-utilization or --mem-fraction-static where the user gives none; None: what
    `defaults` say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Muted:
    """A rule of the linter that this recipe is right not to follow."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where it comes from."""

    source: str
    """A field report, a playbook, a model card, by name."""
    date: str = ""
    says: str = ""
    """What the source says that matters here."""
    resolved: str = ""
    """How it was reconciled with what contradicts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A gate of the recipe's own, beyond those that every launch passes."""

    driver: str = ""
    """A branch: "580"."""
    ray: bool = False
    """The image has to carry Ray."""
    fastsafetensors: bool = False
    linger: bool = False
    rdma: bool = True
    """On two nodes: RoCE devices have to be there, a plain network is not enough."""
    equal_memory_gib: float = 5.0
    """On two nodes: how far apart their available memory may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The first request and the measurement after it."""

    prompt: str = "Reply with the single word: ready"
    max_tokens: int = 512
    """A reasoning model thinks before it answers: with few tokens its answer stays empty (facts/engines.md OPS-11)."""
    measure_tokens: int = 256
    ready_limit_s: float = 3600.0
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe; what a file says and its place."""

    id: str
    """The file's name without its ending: how it is named on a command line."""
    path: str
    dialect: Dialect
    engine: EngineKind
    model: str
    """A repository of Hugging Face's ("Qwen/Qwen3.6-35B-A3B-FP8"), or a path on the nodes."""
    container: str
    title: str = ""
    description: str = ""
    model_revision: str = ""
    more_models: tuple[str, ...] = ()
    """Repositories that have to be there too, as a draft model has; the extension's `models`."""
    executor: Executor = Executor.ALONE
    """How it runs where it runs on more than one node."""
    min_nodes: int = 1
    max_nodes: int = 1
    defaults: Mapping[str, Scalar] = field(default_factory=dict)
    """The parameters and what they are unless told otherwise: port, host, tensor_parallel, gpu_memory_utilization,
    max_model_len ..."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of every rank; a value may hold {parameters}, and "$NAME" is the operator's own variable."""
    node_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of each rank, with what is detected on its node in {fabric_ip}, {fabric_interface}, {hcas}, {node_rank}."""
    command: str = ""
    """A template of {parameters}; empty: made from `defaults`, which then are flags by their names."""
    options: Mapping[str, object] = field(default_factory=dict)
    """sparkrun's executor_config: privileged, gpus, ipc, shm_size, network, user, security_opt, cap_add, ulimit,
    devices, memory_limit, restart_policy, labels, volumes ..."""
    served_name: str = ""
    need: Need = field(default_factory=Need)
    requires: Requirement = field(default_factory=Requirement)
    proof: Proof = field(default_factory=Proof)
    expected: Expected = field(default_factory=Expected)
    muted: tuple[Muted, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    risks: tuple[str, ...] = ()
    """Known ones, told before every launch."""
    metadata: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A recipe that is to be launched, with what the operator wants of it."""

    recipe: Recipe
    values: Mapping[str, str] = field(default_factory=dict)
    """Parameters that the operator has set, over the recipe's own; "model" and "container" among them."""
    stops: tuple[tuple[str, str], ...] = ()
    """(node, engine): what may be stopped to make room."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """HF_TOKEN, VLLM_API_KEY and what else the recipe's environment names as "$NAME"."""
    secret_problems: tuple[str, ...] = ()
    """Files of secrets that were not read, and why: `recipe.ownsecrets.Found.problems`."""
    hub: str = "https://huggingface.co"
    """Where models come from: HF_ENDPOINT."""
    may_fetch: bool = True
    """Whether an image or model that isn't there may be fetched."""
