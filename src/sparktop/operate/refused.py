"""The exception by which a planner refuses a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparktop.model.request import Request
from sparktop.operate.step.plan import Refusal

if TYPE_CHECKING:
    from sparktop.model.prospect import Prospect


class Refused(Exception):
    """A request that can't be planned, and what would make it possible; caught where a plan is asked for."""

    def __init__(
        self,
        reason: str,
        remedies: Sequence[str] = (),
        *,
        prospect: Prospect | None = None,
        is_verdict: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedies = tuple(remedies)
        self.prospect = prospect
        self.is_verdict = is_verdict

    def refusal(self, request: Request) -> Refusal:
        """The answer to the request."""
        return Refusal(
            request=request,
            reason=self.reason,
            remedies=self.remedies,
            prospect=self.prospect,
            is_verdict=self.is_verdict,
        )


@contextmanager
def refused_options() -> Iterator[None]:
    """Refuses the request where one of its options can't be read, which a ValueError says."""
    try:
        yield
    except ValueError as error:
        raise Refused(str(error), ("sparktop act --list explains each option",)) from error
