"""What is stopped and stays down: no start, and a way back that starts it as it was."""

from __future__ import annotations

from sparktop.operate.plan.starter import Starter, Steps


class NoStart(Starter):
    """Of the phases of `plan.sequence` none but those that its subclasses need to see it down."""

    @property
    def is_head(self) -> bool:
        return True

    def await_memory(self) -> Steps:
        return ()

    def start(self) -> Steps:
        return ()

    def await_ready(self) -> Steps:
        """See it stay down."""
        return ()

    def guard_request(self) -> Steps:
        return ()

    def prove(self) -> Steps:
        return ()

    def restore_guard(self) -> Steps:
        return ()
