"""What can be done to a simulated Spark: one frozen dataclass each, as it reaches the machine."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.sim.script import ContainerScript, DiskModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Somebody is about to act: the scenario mends nothing by itself any more, and doesn't start over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContainer:
    """A container is asked to end, and made to where it doesn't listen."""

    name: str
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KillContainer:
    name: str
    exit_code: int = 137


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
    """Another restart policy."""

    name: str
    restart_policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateContainer:
    """A new container, made in the image of `like` where one is known that runs the same."""

    script: ContainerScript
    like: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveImage:
    """An image has come."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveModel:
    """So much of a model lies on the disk."""

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
    """`way` is "manager" (the display manager starts anew) or "console" (it ends)."""

    way: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """systemctl start, stop or restart."""

    verb: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A completion is asked of an engine: what a first one may set off."""

    port: int
    tokens: int = 0
    """That will be generated for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot:
    pass


Act = (
    Hold | StopContainer | KillContainer | StartContainer | RenameContainer | RemoveContainer | UpdateContainer
    | CreateContainer | HaveImage | HaveModel | DropCaches | SignalProcess | Desktop | Unit | Request | Reboot
)  # fmt: skip
