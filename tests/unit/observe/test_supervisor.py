"""What the supervisor makes of each failure, without a network."""

from __future__ import annotations

from tests.table import over

from sparktop.clock import ManualClock
from sparktop.errors import (
    AuthRefused,
    HostKeyRefused,
    LinkLost,
    NoBanner,
    NoNetwork,
    NoRoute,
    PortClosed,
    TransportError,
    TurnedAway,
    UnknownName,
)
from sparktop.model.fleet import LinkState, Reach
from sparktop.observe.node_state import NodeState
from sparktop.observe.supervisor import backoff_s, reach_of


@over("error", [NoRoute("x"), PortClosed("x")])
def test_a_dead_network_is_asked_often(error: TransportError) -> None:
    waits = [backoff_s(error, failures) for failures in range(1, 50)]
    assert max(waits) <= 1.0
    assert waits[0] < 0.5


def test_a_starved_host_is_asked_at_most_twice_a_minute() -> None:
    assert min(backoff_s(NoBanner("x"), failures) for failures in range(1, 50)) >= 30.0


@over("kind", [LinkLost, TurnedAway])
def test_other_failures_back_off_to_half_a_minute(kind: type[TransportError]) -> None:
    waits = [backoff_s(kind("x"), failures) for failures in range(1, 20)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1.0, 30.0)
    assert backoff_s(kind("x"), 0) < 0.5  # it had been live: most often only the connection broke


@over(
    "error, reach",
    [
        (NoBanner("x"), Reach.SSH_SILENT),
        (PortClosed("x"), Reach.NO_SSHD),
        (TurnedAway("x"), Reach.NO_SSHD),
        (NoRoute("x"), Reach.NO_HOST),
        (NoNetwork("x"), Reach.NO_NETWORK),
        (UnknownName("x"), Reach.UNTESTED),
        (AuthRefused("x"), Reach.UNTESTED),
        (HostKeyRefused("x"), Reach.UNTESTED),
    ],
)
def test_a_failed_attempt_says_what_of_the_host_is_there(error: TransportError, reach: Reach) -> None:
    assert reach_of(error) is reach


def test_a_host_that_was_gone_is_known_for_it_until_it_is_live() -> None:
    book = NodeState("spark1", clock=ManualClock(), changed=lambda _: None)
    seen = []
    for state, reach in (
        (LinkState.LIVE, Reach.UNTESTED),
        (LinkState.LOST, Reach.SSH_SILENT),
        (LinkState.LOST, Reach.NO_HOST),
        (LinkState.LOST, Reach.SSH_SILENT),
        (LinkState.LIVE, Reach.UNTESTED),
    ):
        book.link(state, "", reach=reach)
        seen.append(book.view().link.was_gone)
    assert seen == [False, False, True, True, False]
