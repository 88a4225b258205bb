"""The scripts that bring Ray up, run by a real shell with a stand-in `ray`: they wait, end, and become the engine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.recipe_support import order, pair, seat, seats_for, shipped

from sparktop.cmdline.engine_command import of_container, of_process
from sparktop.diagnose.logs.engine_state import EngineLogState, advance_all
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order
from sparktop.model.telemetry import LogLine
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render import rank_argv
from sparktop.recipe.render.host_config import body
from sparktop.recipe.render.render import render

HOSTILE = ["a'b", 'c"d', "$(touch /tmp/never)", "`id`", "e\nf", "; exit 9", "", "--x", "{{y}}", "é\\n", "&& true"]
STAND_IN = """#!/bin/sh
printf '%s\\n' "$*" >> "$SAID"
if [ "$1" = status ]; then
  asked=$(grep -c '^status' "$SAID")
  echo "Active:"; echo " 1 node_aa"
  [ "$asked" -ge 3 ] && [ -z "$ALONE" ] && echo " 1 node_bb"
  echo "Pending:"; echo " (no pending nodes)"
fi
exit 0
"""


@pytest.fixture
def programs(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """An environment in which `ray` writes down what it is asked, and `sleep` takes no time."""
    for name, text in (("ray", STAND_IN), ("sleep", "#!/bin/sh\nexit 0\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    said = tmp_path / "said"
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SAID": str(said), "ALONE": ""}, said


def run(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_the_head_waits_for_the_other_node_and_becomes_the_engine(programs: tuple[dict[str, str], Path]) -> None:
    environment, said = programs
    engine = ["python3", "-c", "import json, os, sys; print(json.dumps(sys.argv[1:]), os.getpid())", *HOSTILE]
    head, other = pair()
    command, last = rank_argv.under_ray(tuple(engine), head, (head, other), "6379")
    found = run(command, environment)
    assert last == tuple(engine)
    assert found.returncode == 0, found.stderr
    *phases, last = found.stdout.splitlines()
    assert phases == [
        "sparktop: starting Ray at 192.168.100.10:6379",
        "sparktop: waiting for 1 of 2 Ray nodes",
        "sparktop: all 2 Ray nodes joined, starting the engine",
    ]
    assert json.loads(last.rpartition(" ")[0]) == HOSTILE
    assert said.read_text(encoding="utf-8").splitlines()[0].startswith("start --head --node-ip-address=192.168.100.10")


def test_the_head_gives_up_where_the_other_node_never_comes(programs: tuple[dict[str, str], Path]) -> None:
    environment, _ = programs
    command, _ = rank_argv.under_ray(("echo", "engine"), pair()[0], pair(), "6379", limit_s=0)
    found = run(command, {**environment, "ALONE": "1"})
    assert found.returncode == 1
    assert "1 of 2" in found.stdout
    lines = [LogLine(text=text) for text in found.stdout.splitlines()]
    assert advance_all(EngineLogState(), lines, EngineKind.VLLM).failure, "the console reads why it ended"
    assert "engine\n" not in found.stdout


def test_the_worker_waits_for_the_heads_port_and_stays_with_ray(programs: tuple[dict[str, str], Path]) -> None:
    environment, said = programs
    nodes = seat(0, fabric_ip="127.0.0.1"), seat(1, fabric_ip="127.0.0.2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command, last = rank_argv.under_ray((), nodes[1], nodes, port)
        found = run(command, environment)
    assert found.returncode == 0, found.stderr
    joined = f"start --address=127.0.0.1:{port} --node-ip-address=127.0.0.2 --object-store-memory=1073741824 --block"
    assert said.read_text(encoding="utf-8").splitlines() == [joined]
    assert ("ray", *joined.split()) == last
    found = run(rank_argv.under_ray((), nodes[1], nodes, port, limit_s=0)[0], environment)
    assert found.returncode == 1
    assert "gave up" in found.stdout


def test_the_scripts_are_the_same_whatever_is_launched() -> None:
    one = shipped("minimax-m2.7-nvfp4-ray")
    plain = render(resolve(Order(recipe=one)), seats_for(one))
    other = render(
        resolve(Order(recipe=one, values={"served_model_name": "$(x)' \"y", "ray_port": "6380"})), seats_for(one)
    )
    for made in (plain, other):
        for rank, script in zip(made.ranks, (rank_argv.HEAD_SCRIPT, rank_argv.WORKER_SCRIPT), strict=True):
            assert body(rank.container)["Cmd"][:3] == ["sh", "-c", script]
    assert "6380" in other.ranks[1].container.argv
    assert "$(x)' \"y" in other.head.argv


def test_the_engine_is_known_in_the_container_and_when_it_has_taken_the_scripts_place() -> None:
    one = shipped("minimax-m2.7-nvfp4-ray")
    made = render(resolve(Order(recipe=one)), seats_for(one))
    found = of_container(made.head.container.argv)
    assert found is not None
    assert (found.kind, found.model, found.port) == (EngineKind.VLLM, one.model, 8000)
    assert of_process(made.head.container.argv) is None
    assert of_process(("/usr/bin/python3", "/usr/local/bin/vllm", *made.head.argv[1:])) == found
    assert of_container(made.ranks[1].container.argv) is None


def test_rays_backend_is_said_where_the_recipe_does_not() -> None:
    made = render(
        resolve(
            order(command="vllm serve {model} -tp 2", defaults={}, max_nodes=2, executor=Executor.RAY, environment={})
        ),
        pair(),
    )
    assert made.head.argv[-2:] == ("--distributed-executor-backend", "ray")
    for index, rank in enumerate(made.ranks):
        environment = rank.container.environment
        assert environment["RAY_memory_monitor_refresh_ms"] == "0"
        assert environment["RAY_NODE_IP_ADDRESS"] == environment["VLLM_HOST_IP"] == f"192.168.100.{10 + index}"
    sglang = order(engine=EngineKind.SGLANG, command="sglang serve {model} --tp 2", max_nodes=2, executor=Executor.RAY)
    with pytest.raises(CannotRender, match="SGLang"):
        render(resolve(sglang), pair())
