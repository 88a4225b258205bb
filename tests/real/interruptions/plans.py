"""The plans that are interrupted: a command that changes something, and the ground that it stands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.integration.terminal import sparktop
from tests.real.engines import docker_run
from tests.real.machine import Machine
from tests.real.parts import ENGINE_IMAGE
from tests.real.recipes import recipe

PORT = 8000
NAME = "vllm"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A command that changes something, and the ground that it stands on."""

    name: str
    words: tuple[str, ...]
    ground: Callable[[tuple[Machine, ...]], object]
    machines: int = 1
    touches_engine: bool = True
    """Else what a fault does to the engine by itself is none of the plan's."""
    has_own_container: bool = False
    """A unit's `docker run` makes another one at each start: ids say nothing."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"spark{number + 1}" for number in range(self.machines))


def engine(*options: str) -> Callable[[tuple[Machine, ...]], None]:
    """The tests' own engine in a container."""

    def ground(machines: tuple[Machine, ...]) -> None:
        words = ("vllm", "serve", "tiny", "--gpu-memory-utilization", "0.1")
        machines[0].run(*docker_run(NAME, "--env", "ENGINE_LOAD_S=0.5", *options), ENGINE_IMAGE, *words)
        machines[0].until(lambda: answers(machines[0]) == "200", what="it serves")

    return ground


def answers(spark: Machine) -> str:
    """The status that the engine gives; empty where nothing listens."""
    questions = f"curl -s -o /dev/null -m 3 -w %{{http_code}} http://127.0.0.1:{PORT}/v1/models || true"
    return spark.run("sh", "-c", questions).replace("000", "")


def launchable(machines: tuple[Machine, ...]) -> None:
    recipe(machines[0], options="  restart_policy: unless-stopped")


def unit(machines: tuple[Machine, ...]) -> None:
    engine()(machines)
    done("unit", NAME, "spark1", "--install")


def proxied(machines: tuple[Machine, ...]) -> None:
    engine("--restart", "unless-stopped")(machines)
    machines[0].run("systemctl", "--quiet", "enable", "--now", "nginx")


def cabled(machines: tuple[Machine, ...]) -> None:
    done("act", "set-addresses", "spark1", "spark2")


def none(machines: tuple[Machine, ...]) -> None:
    """A machine as it is."""


def done(*words: str) -> None:
    ended = sparktop(*words, "--yes", within_s=240, is_hurried=True)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]


ALWAYS = ("--restart", "unless-stopped")
SMALL = ("--set", "target_gib=1", "--set", "grace_s=5")
PLANS = {
    plan.name: plan
    for plan in (
        Plan(name="restart", words=("act", "safe-restart", "spark1", *SMALL), ground=engine(*ALWAYS)),
        Plan(name="launch", words=("launch", "~/tiny.yaml", "spark1"), ground=launchable),
        Plan(name="unit --install", words=("unit", NAME, "spark1", "--install"), ground=engine(*ALWAYS)),
        Plan(name="set-addresses", words=("act", "set-addresses", "spark1", "spark2"), ground=none, machines=2),
        Plan(name="ssh-mesh", words=("act", "ssh-mesh", "spark1", "spark2"), ground=cabled, machines=2),
        Plan(name="reboot", words=("act", "reboot", "spark1"), ground=engine()),
        Plan(
            name="relaunch",
            words=("act", "relaunch", "spark1", "--flag=--max-model-len=2048", *SMALL),
            ground=engine(*ALWAYS),
        ),
        Plan(name="stop", words=("act", "stop-engine", "spark1", "--set", "grace_s=5"), ground=engine(*ALWAYS)),
        Plan(name="unit --remove", words=("unit", NAME, "spark1", "--remove"), ground=unit, has_own_container=True),
        Plan(
            name="expose",
            words=("expose", "llm.example.org", "spark1", "--on", "spark1"),
            ground=proxied,
            environment={"SPARKTOP_API_KEY": "canary-5f1c90"},
            touches_engine=False,
        ),
        Plan(
            name="guard",
            words=("act", "guard", "spark1", "--set", "floor_gib=0.5", "--set", "stay_minutes=30"),
            ground=engine(*ALWAYS),
            touches_engine=False,
        ),
        Plan(name="linger", words=("act", "enable-linger", "spark1"), ground=none),
        Plan(name="drop-caches", words=("act", "drop-caches", "spark1"), ground=engine(*ALWAYS), touches_engine=False),
    )
}
