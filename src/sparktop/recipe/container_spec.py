"""A recipe rendered for its nodes: an argv and a container specification per rank, never a shell string."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from sparktop.dataclass import dataclass
from sparktop.model.engine import EngineKind
from sparktop.recipe.patches import PatchedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """What rendering needs to know of one node; detected on the node, never taken from a file."""

    node: str
    index: int = 0
    """0: the head."""
    home: str = ""
    """The user's home on the node."""
    cache: str = ""
    """The Hugging Face cache there ("/home/x/.cache/huggingface"): HF_HOME or the default."""
    model_path: str = ""
    """Where the model's files are on the node (its folder or snapshot); empty: not there yet."""
    model_file: str = ""
    """The one file of it that the engine is told, there already or where its download puts it."""
    encoder_file: str = ""
    """That of its image encoder, alike."""
    lacking: tuple[str, ...] = ()
    """Further models of the launch that aren't complete on the node."""
    fabric_ip: str = ""
    """The node's address in a network of all the launch's nodes; empty on a single node."""
    fabric_interface: str = ""
    hcas: tuple[str, ...] = ()
    """RDMA devices that are up, in the order of their names."""
    gid_index: int | None = None
    """GID index of RoCE v2 with that address; None: unknown, or it differs between HCAs: NCCL picks one."""
    is_ring: bool = False
    """`hcas` lead over cables in networks of their own: to its neighbours alone."""

    @property
    def has_all(self) -> bool:
        """Whether an engine there needs nothing from the hub."""
        return bool(self.model_path) and not self.lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount of a container."""

    source: str
    target: str
    is_read_only: bool = False

    @property
    def text(self) -> str:
        """ "SOURCE:TARGET:ro", as `-v` has it."""
        return f"{self.source}:{self.target}{':ro' if self.is_read_only else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container, as it is created through Docker's API (`host_config.body`) and as files are exported for it."""

    name: str
    image: str
    argv: tuple[str, ...]
    """Docker's Cmd."""
    entrypoint: tuple[str, ...] | None = None
    """None: the image's own; (): no entrypoint."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_names: tuple[str, ...] = ()
    """Names in `environment` whose values are secrets of the operator."""
    detected_names: tuple[str, ...] = ()
    """Names in `environment` whose values were detected on the node now, and may differ after a reboot."""
    mounts: tuple[Mount, ...] = ()
    host: Mapping[str, object] = field(default_factory=dict)
    """Docker's HostConfig by its API's names, without Binds."""
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRank:
    """One rank: the engine's command line, and the container it runs in."""

    node: str
    index: int
    container: ContainerSpec
    argv: tuple[str, ...]
    """The engine's argv, for the linter and the review; the container's Cmd may hold more (Ray's start before it).
    For a rank whose container only joins Ray: the `ray start` argv."""
    serves: bool = True
    """Whether this rank answers HTTP requests: the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A rendered launch: all ranks, the head first."""

    recipe_id: str
    engine: EngineKind
    image: str
    ranks: tuple[RenderedRank, ...]
    port: int
    served_name: str
    """The model's name in requests."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The final value of every parameter."""
    notes: tuple[str, ...] = ()
    """Which of the recipe's settings were not used, and why."""
    patched: PatchedImage | None = None
    """What the ranks run where the recipe changes `image`."""

    post_exec: tuple[str, ...] = ()
    """The recipe's, with its parameters filled in."""

    @property
    def head(self) -> RenderedRank:
        return self.ranks[0]


class CannotRender(Exception):
    """A recipe can't become a launch; `reason` names the field, `remedies` say how to fix it.

    Args:
        text: the reason, without the key.
        key: what it is about, dotted: "executor_config.volumes", "port"; empty: no single key.
        is_unsupported: it is valid, and sparktop doesn't support it.
        is_settable: `--set` fixes it at the launch.
        nearest: the name that was probably meant.
        offset: where in the command's template it is.
    """

    def __init__(
        self,
        text: str,
        *remedies: str,
        key: str = "",
        is_unsupported: bool = False,
        is_settable: bool = False,
        nearest: str = "",
        offset: int = 0,
    ) -> None:
        self.text = text
        self.key = key
        self.reason = f"{key} {text}" if key else text
        self.remedies = remedies
        self.is_unsupported = is_unsupported
        self.is_settable = is_settable
        self.nearest = nearest
        self.offset = offset
        super().__init__(self.reason)
