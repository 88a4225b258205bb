"""What a console is set up with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sparktop.clock import Clock
from sparktop.dataclass import dataclass
from sparktop.observe.watch import Publish, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from sparktop.documents.attention import Attention
    from sparktop.operate.run.operating import Operating
    from sparktop.transport.base import Prompter
    from sparktop.ui.panes.header import RunLine
    from sparktop.ui.shell import ShellArgv

Start = Callable[[Publish, "Prompter"], Awaitable[Watch]]
"""Builds the Watch; called only after the first paint, because its imports take time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a console shows, and what it can do."""

    start: Start
    node_names: tuple[str, ...]
    clock: Clock
    title: str = ""
    read_only: bool = False
    protected: frozenset[str] = frozenset()
    """The nodes that may not be changed."""
    operating: Callable[[], Awaitable[Operating]] | None = None
    """Builds the planner and executor; called once there are figures."""
    shell: ShellArgv | None = None
    """Makes the command line of a shell; None: there is none to open."""
    attention: Attention | None = None
    """What is acknowledged; None: nothing yet, and it is kept in no file."""
    runs: RunLine | None = None
    """Stands where the runs do."""
    refusal: str = ""
    """Why nothing can be done here, however one asks."""
    proven: Path | None = None
    """The file of what bring-ups have proven; None: none is kept."""
    recordings: Path | None = None
    """The folder of what is recorded; None: nothing is."""
    files: tuple[str, ...] = ()
    """Listed among what can be launched."""
