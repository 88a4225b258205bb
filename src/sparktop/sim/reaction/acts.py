"""The acts that can be done to a simulated Spark, one frozen dataclass each."""

from __future__ import annotations

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.script import ContainerScript, DiskModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Somebody is about to act: the scenario stops repairing itself and doesn't restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContainer:
    """Stop a container: SIGTERM, then SIGKILL after the grace period."""

    name: str
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KillContainer:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContainer:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameContainer:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveContainer:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateContainer:
    """Set another restart policy."""

    name: str
    restart_policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateContainer:
    """Create a container, with the behaviour of `like` where a known one runs the same engine."""

    script: ContainerScript
    like: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveImage:
    """An image has been pulled."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveModel:
    """A model, or a part of it, has been downloaded."""

    model: DiskModel


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCaches:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalProcess:
    pid: int
    signal: str
    """TERM, KILL, HUP ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desktop:
    """`way` is "manager" (restart the display manager) or "console" (stop it)."""

    way: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Linger:
    """loginctl enable-linger or disable-linger of the login user."""

    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFile:
    """Write a file, or with no text remove it."""

    path: str
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyNetplan:
    """Take over the addresses and MTUs of the files in /etc/netplan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """systemctl start, stop or restart of a unit."""

    verb: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionAct:
    """A completion request to an engine; the first one may trigger a fault."""

    port: int
    tokens: int = 0
    """How many tokens will be generated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGpu:
    """A program of nobody's engine computes for so long."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot:
    pass


Act = (
    Hold | StopContainer | KillContainer | StartContainer | RenameContainer | RemoveContainer | UpdateContainer
    | CreateContainer | HaveImage | HaveModel | DropCaches | SignalProcess | Desktop | Linger | Unit | CompletionAct
    | WriteFile | ApplyNetplan | LoadGpu | Reboot
)  # fmt: skip
