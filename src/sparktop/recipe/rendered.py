"""What a recipe becomes for the nodes it is launched on: an argv and a container a rank, never a shell string."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparktop.model.engine import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A node as a recipe is rendered for it; what was detected there, never what a file says."""

    node: str
    index: int = 0
    """0: the head."""
    home: str = ""
    """The user's home on the node."""
    cache: str = ""
    """The Hugging Face cache there ("/home/x/.cache/huggingface"): HF_HOME or the default."""
    model_path: str = ""
    """Where the model's files are on the node (its folder or snapshot); empty: not there yet."""
    lacking: tuple[str, ...] = ()
    """Further models of the launch that aren't whole there yet."""
    fabric_ip: str = ""
    """Its address on the link to the other node; empty on one node."""
    fabric_interface: str = ""
    hcas: tuple[str, ...] = ()
    """RDMA devices that are up, in the order of their names."""
    gid_index: int | None = None
    """Of RoCE v2 with that address; None: not found, or the HCAs differ: NCCL finds it by itself."""

    @property
    def has_all(self) -> bool:
        """Whether an engine there needs nothing of the hub."""
        return bool(self.model_path) and not self.lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    source: str
    target: str
    is_read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container, as Docker's API is asked for it (`recipe.docker.body`) and as files are written for it."""

    name: str
    image: str
    argv: tuple[str, ...]
    """Docker's Cmd."""
    entrypoint: tuple[str, ...] | None = None
    """None: the image's own; () none at all."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_names: tuple[str, ...] = ()
    """Of `environment`: those whose values are the operator's secrets."""
    detected_names: tuple[str, ...] = ()
    """Of `environment`: those whose values were found on the node at this moment, and may be others after a reboot."""
    mounts: tuple[Mount, ...] = ()
    host: Mapping[str, object] = field(default_factory=dict)
    """Docker's HostConfig by its API's names, without Binds."""
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank: the engine's own command line, and the container it runs in."""

    node: str
    index: int
    container: ContainerSpec
    argv: tuple[str, ...]
    """Of the engine, for the linter and the review; the container's Cmd may hold more (Ray's start before it). Of a
    rank whose container only joins Ray: what joins."""
    serves: bool = True
    """Whether it answers HTTP: the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """All ranks, the head first."""

    recipe_id: str
    engine: EngineKind
    image: str
    ranks: tuple[Rank, ...]
    port: int
    served_name: str
    """How requests name the model."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Every parameter as it was used."""
    notes: tuple[str, ...] = ()
    """Where the recipe's own words were not taken, and why."""

    @property
    def head(self) -> Rank:
        return self.ranks[0]


class CannotRender(Exception):
    """A recipe that can't become a launch; the reason names the field, the remedies what would do."""

    def __init__(self, reason: str, *remedies: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedies = remedies
