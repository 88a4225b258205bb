"""One engine over four machines on a switch: up in its order, told at once where a rank ends, down and up together."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.launch_support import text_of
from tests.real.conftest import machines
from tests.real.console import act, acting, left_by, rules, run, watching
from tests.real.machine import CABLE, Machine
from tests.real.recipes import recipe
from tests.support import poll

NAMES = ("spark1", "spark2", "spark3", "spark4")
NAME = "vllm-four"
NO_RDMA = "    requires:\n      rdma: false\n"
Four = tuple[Machine, ...]


@pytest.fixture
def four() -> Iterator[Four]:
    """With an address each on the switch, and the model."""
    for up in machines(*NAMES):
        for number, one in enumerate(up, 1):
            one.run("ip", "address", "add", f"10.50.0.{number}/24", "dev", CABLE)
            one.run("ip", "link", "set", CABLE, "up")
            recipe(one)
        yield up


def recipe_for(load_s: float = 0.5) -> str:
    file = Path.home() / "four.yaml"
    file.write_text(text_of(8000, nodes=4, more=NO_RDMA, env={"ENGINE_LOAD_S": str(load_s)}))
    return str(file)


def boxes(four: Four) -> list[dict[str, Any]]:
    """The containers of each by name, as Docker knows them."""
    found = []
    for one in four:
        ids = one.run("docker", "ps", "--all", "--quiet").split()
        listed = json.loads(one.run("docker", "inspect", *ids)) if ids else []
        found.append({each["Name"].lstrip("/"): each for each in listed})
    return found


def states(four: Four) -> list[dict[str, str]]:
    return [{name: each["State"]["Status"] for name, each in own.items()} for own in boxes(four)]


def started(four: Four) -> list[str]:
    return [own[NAME]["State"]["StartedAt"] for own in boxes(four)]


def test_four_ranks_serve_and_one_that_dies_takes_none_unseen(four: Four) -> None:
    run("launch", recipe_for(), *NAMES)
    assert states(four) == [{NAME: "running"}] * 4
    for number, own in enumerate(boxes(four)):
        words = own[NAME]["Args"]
        assert words[words.index("--nnodes") + 1] == "4"
        assert words[words.index("--node-rank") + 1] == str(number)
        assert words[words.index("--master-addr") + 1] == "10.50.0.1"
    first = started(four)
    assert first[0] == max(first), "the head last"
    with watching(*NAMES) as watch:
        four[2].run("docker", "kill", NAME)
        told = rules(watch.until(lambda one: "cluster.rank-died" in rules(one), what="told"))["cluster.rank-died"]
        assert told["title"] == f"{NAME} on spark3 exited; spark1, spark2 and spark4 wait for it"
        assert told["nodes"] == [*NAMES]

        act("safe-restart", *NAMES, "--engine", NAME)
        second = started(four)
        assert all(now > before for now, before in zip(second, first, strict=True)), (first, second)
        assert second[0] == max(second)
        watch.until(lambda one: "cluster.rank-died" not in rules(one), what="over")
    act("relaunch", *NAMES, "--engine", NAME, "--flag=--max-model-len=2048", "--set", "grace_s=5")
    assert ["2048" in own[NAME]["Args"] for own in boxes(four)] == [True] * 4
    act("stop-engine", *NAMES, "--engine", NAME)
    assert [own[NAME] for own in states(four)] == ["exited"] * 4


@pytest.mark.parametrize("by", ["a rank that dies", "ctrl-c", "a machine without power"])
def test_what_ends_a_start_leaves_nothing_of_it(four: Four, by: str) -> None:
    with acting("launch", recipe_for(load_s=600), *NAMES) as process:
        poll(
            lambda: states(four) == [{NAME: "running"}] * 4, what="four ranks that load", otherwise=lambda: states(four)
        )
        if by == "ctrl-c":
            left_by(process, signal.SIGINT)
        elif by == "a rank that dies":
            four[3].run("docker", "kill", NAME)
        else:
            four[3].kill()
        poll(lambda: process.poll() is not None, what="its end")
    if by == "a machine without power":
        assert states(four[:3]) == [{}] * 3
        four[3].again()
        act("restore", *NAMES)
    assert states(four) == [{}] * 4
