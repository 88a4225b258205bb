"""Without a host, the command lines for the hosts that can be found stand in the error."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.transport import mdns


@pytest.fixture(autouse=True)
def _announced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def announced_hosts() -> tuple[str, ...]:
        return ("nas.local", "spark-1a2b.local")

    monkeypatch.setattr(mdns, "announced_hosts", announced_hosts)


def test_aliases_announced_hosts_and_the_demo_are_offered_as_command_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = Path.home() / ".ssh/config"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("Host github.com spark1 $(reboot)\n" + "".join(f"Host lab{number}\n" for number in range(7)))
    assert main([]) == 2
    lines = [line.split("  ") for line in capsys.readouterr().err.splitlines()]
    typed = [line[2] for line in lines[2:]]
    assert lines[0][0] == "sparktop: no host is given, and `hosts` is not set in ~/.config/sparktop/config.toml"
    assert typed[:3] == ["sparktop spark1", "sparktop github.com", "sparktop lab0"]
    assert typed[5:] == [
        "sparktop lab3",
        "sparktop ...",
        "sparktop spark-1a2b.local",
        "sparktop nas.local",
        "sparktop local",
        "sparktop demo",
    ]
    assert lines[8][-1].strip() == "ssh alias, 3 more"


def test_a_command_that_wants_a_host_offers_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 2
    said = capsys.readouterr().err
    assert "sparktop status spark-1a2b.local" in said
    assert "\n    sparktop demo" in said
