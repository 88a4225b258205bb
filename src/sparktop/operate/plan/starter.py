"""What the sequence asks of whatever starts an engine."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.model.survey import Survey
from sparktop.operate.step.plan import Step

Steps = Iterable[Step]


class Starter:
    """One rank's engine and how it comes up, or stays down: the steps of each phase of `plan.sequence`, none where it
    needs none."""

    @property
    def is_head(self) -> bool:
        return True

    def prepare(self) -> Steps:
        """Before anything stops: what can be rejected is rejected here."""
        return ()

    def await_memory(self) -> Steps:
        return ()

    def make_room(self, survey: Survey) -> Steps:
        """Once its memory is back: /dev/shm, caches."""
        return ()

    def before_start(self) -> Steps:
        """Before the first rank starts: its change is written, its guard armed where its container is there already."""
        return ()

    def start(self) -> Steps:
        """The start alone: one rank may wait for another only so long."""
        return ()

    def guard_load(self) -> Steps:
        """The guard while it loads, where its container is there only now."""
        return ()

    def await_ready(self) -> Steps:
        """See it come up, or stay down."""
        return ()

    def guard_request(self) -> Steps:
        """The guard during the first request."""
        return ()

    def prove(self) -> Steps:
        """The first request; of the head alone."""
        return ()

    def restore_guard(self) -> Steps:
        return ()

    def on_ready(self) -> Steps:
        """What it gets once it has served: its restart policy."""
        return ()

    # the way back

    def take_back(self, grace_s: float) -> Steps:
        """Stop what has come up."""
        return ()

    def restore_guard_first(self) -> Steps:
        """The guard as it was, where the container that the plan's own is over is gone by now."""
        return ()

    def undo_change(self) -> Steps:
        return ()

    def await_old_memory(self) -> Steps:
        return ()

    def start_old(self) -> Steps:
        return ()

    def await_old_ready(self) -> Steps:
        return ()

    def settle_old(self) -> Steps:
        """Its guard and its restart policy, once it answers: Docker would restart a failing engine forever."""
        return ()
