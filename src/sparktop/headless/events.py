"""`sparktop events`: what happened, one JSON object a line, on one clock."""

from __future__ import annotations

import json

from sparktop.model.event import Event
from sparktop.observe.replay.replay import Replay


def events(replay: Replay, *, since_s: float) -> int:
    """Print what a recording tells from a moment on; the exit code."""
    for picture in replay.play(seen=False):
        if picture.wall_s >= since_s:
            for event in picture.news:
                print(json.dumps(as_data(event), ensure_ascii=False))
    return 0


def as_data(event: Event) -> dict[str, object]:
    """The event as JSON-ready data; its time in seconds since the epoch."""
    return {
        "at_s": round(event.at_s, 3),
        "kind": str(event.kind),
        "nodes": list(event.nodes),
        "severity": str(event.severity) if event.severity else None,
        "subject": event.subject,
        "text": event.text,
        "is_consequence": event.is_consequence,
    }
