"""A demo's incident is recorded, its console killed, and what was found is told from the recording."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.integration.terminal import sparktop, terminal

from sparktop.cli.record import find
from sparktop.record.reader import entries
from sparktop.record.tape import recordings


@pytest.mark.slow
def test_a_killed_consoles_incident_is_told_by_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "sparktop/demo/recordings/spark1"

    def lost() -> bool:
        """Whether the tape says that the node was lost, as the disk has it."""
        found = recordings(folder)
        return bool(found) and any(b'"state":"lost"' in entry.payload for entry in entries(found[-1].files))

    with terminal("demo", "memory-spike") as at:
        while not lost():
            assert at.looks(0.2), at.text[-3000:]
        os.kill(at.pid, signal.SIGKILL)
    assert {"found", "link"} <= {event.kind for event in find([str(folder)], None).told() or ()}
    listed = sparktop("replay")
    assert "spark1" in listed.stdout
    assert "a demo" in listed.stdout
    told = [json.loads(line) for line in sparktop("events", "spark1", "spark2").stdout.splitlines()]
    kinds = [(event["kind"], event["subject"]) for event in told if event["nodes"] == ["spark1"]]
    spike, gone = kinds.index(("found", "memory.first-request-spike")), kinds.index(("link", "lost"))
    assert spike < gone
    assert told == sorted(told, key=lambda event: event["at_s"])
    page = tmp_path / "night.html"
    assert f"the page is in {page}" in sparktop("report", "spark1", "spark2", "-o", str(page)).stderr
    assert "No samples of spark1" in page.read_text()
    assert sparktop("replay", "spark1").returncode == 2, "it wants a terminal"
    nothing = sparktop("events", "spark9")
    assert nothing.returncode == 2
    assert "nothing of spark9 was recorded" in nothing.stderr
