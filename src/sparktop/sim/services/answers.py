"""Captured texts that a simulated Spark answers with: a scenario's own, else a healthy Spark's."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from sparktop.sim.scenario.script import CapturedAnswer, NodeScript


def captured(script: NodeScript, command: str) -> CapturedAnswer | None:
    """The answer whose name the command line or path begins with, the longest; None: nobody captured it."""
    own = [one for one in script.answers if not (one.until_reboot and script.boots)]
    for answers in (own, _healthy()):
        matching = [one for one in answers if command == one.name or command.startswith(f"{one.name} ")
                    or (" " in one.name and command.startswith(one.name))]  # fmt: skip
        if matching:
            return max(matching, key=lambda one: len(one.name))
    return None


def filled(text: str, script: NodeScript) -> str:
    """The text with the machine's own facts in place of their names: {hostname}, {user}, {driver}."""
    machine = script.machine
    for name, value in (("hostname", machine.hostname), ("user", machine.user), ("driver", machine.driver)):
        text = text.replace("{" + name + "}", value)
    return text


@cache
def _healthy() -> tuple[CapturedAnswer, ...]:
    raw = tomllib.loads(Path(__file__).with_name("answers.toml").read_text(encoding="utf-8"))
    return tuple(CapturedAnswer(**row) for row in raw["answers"])
