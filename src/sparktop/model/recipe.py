"""A launch recipe: the fields of sparkrun's format, and sparktop's own additions.

The format is the community's: `recipe_version: "2"` of sparkrun, or version 1 of spark-vllm-docker
(docs/facts/engines.md sections 5.1, 5.2). sparktop's additions are under `runtime_config: sparktop:`, the place meant
for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.engine import EQUAL_MEMORY_GIB, EngineKind

Scalar = str | int | float | bool
MOST_NODES = 8
"""Sparks of one engine; more of them in one place are not known of (docs/facts/bringup.md section 9)."""


class Dialect(StrEnum):
    """The format a recipe file is written in."""

    SPARKRUN = "sparkrun v2"
    EUGR = "spark-vllm-docker v1"
    ADOPTED = "no recipe: a launch file, or a container"


class Executor(StrEnum):
    """How the ranks of an engine on several nodes find each other."""

    ALONE = "one node"
    NATIVE = "native"
    """The engine's own: vLLM's --nnodes/--node-rank/--master-addr, SGLang's --nnodes/--node-rank/--dist-init-addr."""
    RAY = "Ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Figures that somebody measured with the recipe; None where there are none."""

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
    """Memory the model needs, where its own files can't be read or don't say; None: unknown."""

    weights_gib: float | None = None
    """On all nodes together."""
    kv_bytes_per_token: float | None = None
    """On all nodes together."""
    active_gib: float | None = None
    """Bytes read per token, for the bandwidth estimate."""
    spike_gib: float | None = None
    """Outside its share: graphs, compilation, the first request."""
    reserve_gib: float | None = None
    """The least that must stay available for the host; None: 20 with a desktop, 12 without."""
    share: float | None = None
    """Upper limit of a computed --gpu-memory-utilization or --mem-fraction-static, where the user sets none; None:
    the value in `defaults`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Muted:
    """A lint rule that this recipe ignores, with the reason."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """A source of the recipe."""

    source: str
    """A field report, a playbook, a model card, by name."""
    date: str = ""
    says: str = ""
    """What the source says that is relevant here."""
    resolved: str = ""
    """How contradictions with other sources were resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Pre-launch checks of the recipe's own, beyond those of every launch."""

    driver: str = ""
    """A branch: "580"."""
    ray: bool = False
    """The image must contain Ray."""
    fastsafetensors: bool = False
    linger: bool = False
    rdma: bool = True
    """On two nodes: RoCE devices must be present, a plain network is not enough."""
    equal_memory_gib: float = EQUAL_MEMORY_GIB
    """On two nodes: the largest allowed difference of their available memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The first request and the measurement after it."""

    prompt: str = "Reply with the single word: ready"
    max_tokens: int = 512
    """A reasoning model thinks before it answers: with few tokens its answer stays empty (docs/facts/engines.md
    OPS-11)."""
    measure_tokens: int = 256
    ready_limit_s: float = 3600.0
    is_reasoning: bool = False


class SourceKind(StrEnum):
    """How a source of recipes is kept."""

    FOLDER = "folder"
    """Read where it lies."""
    GIT = "git"
    """A copy of a repository, as it was at one commit."""
    SPARKRUN = "sparkrun"
    """A registry of sparkrun's, read in its cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSource:
    """A named collection of recipes, which somebody else may have written."""

    name: str
    """Without the `@` that it has before a recipe's name."""
    kind: SourceKind
    place: str
    """The repository's URL, or the folder."""
    tree: str
    """The folder that holds all its files."""
    folders: tuple[str, ...]
    """The folders in it that hold recipes; `tree` alone where nothing says which."""
    commit: str = ""
    """Empty: a folder that is no git checkout."""
    day: str = ""
    """When the commit was made: "2026-06-13"."""
    covers: str = ""
    """The URL of sparkrun's registry of the same name, which it hides."""
    is_trusted: bool = False
    """The operator has agreed to launch from it, as it is at this commit."""

    @property
    def text(self) -> str:
        """ "@arena: https://github.com/a/b at 3075780 of 2026-06-13"."""
        at = f" at {self.commit[:7]}" if self.commit else ""
        return f"@{self.name}: {self.place}{at}{f' of {self.day}' if self.day else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchFile:
    """A file of a mod."""

    path: str
    """Below the mod's folder: "run.sh"."""
    content: bytes = field(repr=False)
    is_program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One change to the image before the engine starts: a mod's files, or a shell command."""

    name: str
    """ "mods/fix-x", "pre_exec 1"."""
    files: tuple[PatchFile, ...] = ()
    """Of a mod; its `run.sh` makes the change."""
    command: str = ""
    """Of a `pre_exec`; may hold {parameters}."""
    source: RecipeSource | None = None
    """The source of recipes that a mod was found in; None: the recipe's own, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeService:
    """The service of a compose file on a Spark, which `docker compose up` starts there."""

    node: str
    path: str
    """Absolute, on the node."""
    digests: Mapping[str, str]
    """Path -> SHA-256 of each file that it was read from; empty: there was no such file."""
    name: str = ""
    project: str = ""
    risks: tuple[str, ...] = ()
    """Those of the recipe that it has too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe: the contents of its file, and the file's path."""

    id: str
    """The file's name without its ending: its name on the command line."""
    path: str
    dialect: Dialect
    engine: EngineKind
    model: str
    """A repository of Hugging Face's ("Qwen/Qwen3.6-35B-A3B-FP8"), of llama.cpp's with a quant after a colon, or a
    path on the nodes."""
    container: str
    mmproj: str = ""
    """The image encoder that llama.cpp loads: a part of its name, or a word for any or none."""
    pulls: str = ""
    """The image that is pulled where no node has `container`, a local name; empty: `container` itself."""
    patches: tuple[Patch, ...] = ()
    """Applied to the image once, in order."""
    post_exec: tuple[str, ...] = ()
    """Shell commands for the head's container once it serves; may hold {parameters}."""
    title: str = ""
    description: str = ""
    model_revision: str = ""
    more_models: tuple[str, ...] = ()
    """Further repositories it needs, such as a draft model; the extension's `models`."""
    executor: Executor = Executor.ALONE
    """How it runs on more than one node."""
    min_nodes: int = 1
    max_nodes: int = 1
    defaults: Mapping[str, Scalar] = field(default_factory=dict)
    """The parameters and their defaults: port, host, tensor_parallel, gpu_memory_utilization, max_model_len ..."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of every rank; a value may hold {parameters}, and "$NAME" is the operator's own variable."""
    node_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of each rank, with detected values of its node: {fabric_ip}, {fabric_interface}, {hcas},
    {node_rank}."""
    command: str = ""
    """A template with {parameters}; empty: built from `defaults`, which then become flags."""
    options: Mapping[str, object] = field(default_factory=dict)
    """sparkrun's executor_config: privileged, gpus, ipc, shm_size, network, user, security_opt, cap_add, ulimit,
    devices, memory_limit, restart_policy, labels, volumes ..."""
    served_name: str = ""
    has_model_inside: bool = False
    """The model's path is one in the container: of its image, or of a volume that nobody can look into."""
    keeps_compiled: bool = True
    """Whether compiled kernels are kept on the node between starts: `runtime_cache`."""
    need: Need = field(default_factory=Need)
    requires: Requirement = field(default_factory=Requirement)
    proof: Proof = field(default_factory=Proof)
    expected: Expected = field(default_factory=Expected)
    muted: tuple[Muted, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    risks: tuple[str, ...] = ()
    """Known risks, shown before every launch."""
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    source: RecipeSource | None = None
    """Where it is from; None for a shipped recipe, one of the operator's own, and a file."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Parameters without a default, each with where the launch that it was made of uses it: {"MODEL": "run.sh:12"}.
    They may stand in its model, image and options too."""
    compose: ComposeService | None = None
    """The service that it was made of, where that is all that it describes."""
    unset: Recipe | None = field(default=None, repr=False)
    """The recipe before it was given its settings: they may be given anew."""

    def with_settings(self, values: Mapping[str, str]) -> Recipe:
        """The recipe with these settings in its model, image and options; those in texts are filled in by a render."""
        given = [(f"{{{name}}}", value) for name, value in values.items() if name in self.settings]

        def filled(value: object) -> object:
            if isinstance(value, list):
                return [filled(one) for one in value]
            for reference, text in given if isinstance(value, str) else ():
                value = str(value).replace(reference, text)
            return value

        empty = self.unset or self
        if not given:
            return empty
        return replace(
            empty,
            model=str(filled(empty.model)),
            container=str(filled(empty.container)),
            model_revision=str(filled(empty.model_revision)),
            options={name: filled(value) for name, value in empty.options.items()},
            unset=empty,
        )

    @property
    def new_sources(self) -> tuple[RecipeSource, ...]:
        """Its source and those of its mods that the operator hasn't agreed to yet."""
        every = (self.source, *(patch.source for patch in self.patches))
        return tuple(dict.fromkeys(source for source in every if source is not None and not source.is_trusted))

    @property
    def consent(self) -> str:
        """What is typed to agree to them: "@arena @eugr"."""
        return " ".join(f"@{source.name}" for source in self.new_sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretProblem:
    """A secret's value, or a file of secrets, that was refused."""

    text: str
    """What was refused, why, and the next step."""
    name: str = ""
    """The secret whose value can't be taken; empty: a file that was not read."""
    remedy: str = ""
    """The command to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A launch request: a recipe with the operator's settings."""

    recipe: Recipe
    values: Mapping[str, str] = field(default_factory=dict)
    """Parameters set by the operator, overriding the recipe's; may include "model" and "container"."""
    stops: tuple[tuple[str, str], ...] = ()
    """(node, engine) that may be stopped to free memory."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """HF_TOKEN, VLLM_API_KEY and other variables that the recipe's environment refers to as "$NAME"."""
    secret_problems: tuple[SecretProblem, ...] = ()
    """Secret files that were refused, and why: `recipe.operator_secrets.SecretValues.problems`."""
    hub: str = "https://huggingface.co"
    """The hub to download models from: HF_ENDPOINT."""
    may_fetch: bool = True
    """Whether a missing image or model may be downloaded."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "recipe", self.recipe.with_settings(self.values))
