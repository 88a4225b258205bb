"""The line of a node's guard, and the changes of its link."""

from __future__ import annotations

from tests.pictures_support import WALL_S, node
from tests.table import over

from sparktop.documents.node_figures import guard_line, story
from sparktop.model.fleet import LinkChange, LinkState
from sparktop.model.guard import GuardPhase, GuardState


@over(
    "phase, ago_s, is_told",
    [
        (GuardPhase.DISARMED, 30.0, True),
        (GuardPhase.DISARMED, 600.0, False),
        (GuardPhase.FIRED, 600.0, True),
        (GuardPhase.FAILED, 600.0, True),
    ],
)
def test_a_guard_that_was_disarmed_long_ago_takes_no_line(phase: GuardPhase, ago_s: float, is_told: bool) -> None:
    guard = GuardState(phase=phase, container_name="vllm", since_wall_s=WALL_S - ago_s, detail="by sparktop")
    assert bool(guard_line(node(guard=guard), 80)) is is_told


def test_a_change_of_the_link_says_its_state_once() -> None:
    texts = ("live", "samples are back")
    history = tuple(LinkChange(wall_s=WALL_S, state=LinkState.LIVE, text=text) for text in texts)
    shown = [line.plain.split("● ")[1].rstrip() for line in story(node(link_history=history), 80, 5)]
    assert shown == ["live", "live samples are back"]
