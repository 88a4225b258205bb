"""A node's memory as a launch finds it: what is there, what goes, what stays. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One node, before a launch."""

    node: str
    total_bytes: int
    available_bytes: int
    """MemAvailable now."""
    going: tuple[tuple[str, int], ...] = ()
    """(name, bytes) of what is agreed to be stopped: their memory comes back."""
    stays: tuple[tuple[str, int], ...] = ()
    """(name, bytes) of other engines and GPU processes that stay; what they hold is not available now either."""
    stoppable: tuple[str, ...] | None = None
    """Which of `stays` can be offered as `--stop NAME`: the engines; None: all."""
    has_desktop: bool | None = None
    baseline_bytes: int | None = None
    """What was available after the boot; None: nobody looked."""

    @property
    def total(self) -> int:
        return max(0, self.total_bytes)

    @property
    def available(self) -> int:
        """Now, within the total whatever was read."""
        return min(self.total, max(0, self.available_bytes))

    @property
    def reach(self) -> int:
        """What can be available when all that goes has gone: never more than after the boot, never less than now.

        What engines hold is added up from several readings and can be counted twice; the boot's figure can't.
        """
        freed = sum(max(0, size) for _, size in self.going)
        staying = sum(max(0, size) for _, size in self.stays)
        most = self.total - staying if self.baseline_bytes is None else min(self.total - staying, self.baseline_bytes)
        return max(self.available, min(self.available + freed, most))

    def without(self, name: str) -> Room:
        """The same node, where that engine is agreed to be stopped too."""
        gone = tuple(one for one in self.stays if one[0] == name)
        kept = tuple(one for one in self.stays if one[0] != name)
        return replace(self, going=self.going + gone, stays=kept)
