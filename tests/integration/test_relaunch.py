"""A relaunch's plan carried out on a real Docker Engine: the swap, its undoing at every operation, and the way back."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import pictures_support as made
from tests import restart_support as restarts
from tests.integration.dockerd import IMAGE, Dockerd, _start, _stop
from tests.integration.operations import Hands
from tests.integration.test_recreate import said
from tests.support import unavailable

from sparktop.model.change import Change
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Answer, DockerGet, Privileges, PrivilegesQuestion, Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.relaunch import relaunch
from sparktop.operate.run.run_text import by_hand
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import Run, StepRun
from sparktop.operate.step.step_result import StepState
from sparktop.transport.docker.inspection import container_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NAME = "engine-under-test"
SCRIPT = "vllm serve org/model --port 8000 --dtype half; trap 'exit 0' TERM; while sleep 0.1; do :; done"
"""There is no vllm in the image: what counts is that its words stand there."""
LESS = Change(flags={"--dtype": "auto"}, environment={"NEW": "1"})
BEFORE = f"{NAME}-before-20260528T202640"


def cli(dockerd: Dockerd, *argv: str, check: bool = True) -> str:
    out = subprocess.run(
        ["docker", "-H", f"unix://{dockerd.socket_path}", *argv], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0 or not check, out.stderr
    return out.stdout.strip()


@pytest.fixture
def hands(dockerd: Dockerd) -> Iterator[Hands]:
    yield Hands(dockerd)
    for name in cli(dockerd, "ps", "-aq", "--filter", f"name={NAME}").split():
        cli(dockerd, "rm", "-f", "-v", name, check=False)


def started(dockerd: Dockerd, *options: str) -> dict[str, Any]:
    cli(dockerd, "run", "-d", "--name", NAME, "--network", "host", *options, IMAGE, "sh", "-c", SCRIPT)
    found: dict[str, Any] = dockerd.api.inspect_container(NAME)
    return found


def picture(dockerd: Dockerd) -> FleetState:
    box = container_of(dockerd.api.inspect_container(NAME))
    return made.picture(
        restarts.spark(engines=(made.engine(NAME, container=box, argv=("vllm", "serve", "org/model")),))
    )


def plan_of(hands: Hands, change: Change, **options: str) -> Plan:
    """What the planner makes of it, its questions answered by the real Engine."""
    fleet = picture(hands.docker)
    request = Request(action="relaunch", nodes=("spark1",), target=NAME, change=change, options=options)
    answers: dict[Question, Answer] = {}
    for _ in range(5):
        questions = [ask for ask in relaunch.questions(request, fleet, Survey(answers=answers)) if ask not in answers]
        for ask in questions:
            if isinstance(ask, DockerGet):
                answers[ask] = Answer(value=hands.get(ask.path))
            elif isinstance(ask, PrivilegesQuestion):
                answers[ask] = Answer(value=Privileges(user="spark", docker="open", sudo="free"))
            else:
                answers[ask] = Answer(value="")
    plan = relaunch.plan(request, fleet, Survey(answers=answers))
    assert isinstance(plan, Plan), plan
    return plan


def carried_out(hands: Hands, plan: Plan, until: str = "", *, fails_at: int = -1) -> bool:
    """All remote steps (the caches excepted: they are the machine's) up to one, which may be made to fail."""
    for step in hands.remote_steps(plan):
        if step.id.startswith(("drop", "shm")):
            continue
        if not hands.perform(step, fails_at=fails_at if step.id == until else -1):
            return False
        if step.id == until:
            return True
    return True


def back(hands: Hands, plan: Plan) -> None:
    hands.problems.clear()
    for step in hands.remote_steps(plan, back=True):
        assert hands.perform(step), hands.problems


def assert_old_serves(hands: Hands, old: dict[str, Any]) -> None:
    now = hands.docker.api.inspect_container(NAME)
    assert now["Id"] == old["Id"]
    assert now["State"]["Running"] is True
    assert now["HostConfig"]["RestartPolicy"] == old["HostConfig"]["RestartPolicy"]
    assert said(now) == said(old)


@pytest.mark.fast
def test_the_new_one_takes_its_place_and_the_old_one_is_kept(dockerd: Dockerd, hands: Hands) -> None:
    old = started(dockerd, "--restart", "unless-stopped", "-e", "TOKEN=canary", "-v", "/data")
    plan = plan_of(hands, LESS)
    assert carried_out(hands, plan, "swap"), hands.problems
    new = dockerd.api.inspect_container(NAME)
    assert new["State"]["Running"] is True
    assert new["HostConfig"]["RestartPolicy"]["Name"] == "no", "it has not served yet"
    assert carried_out(hands, plan_after(plan, "swap")), hands.problems
    new = dockerd.api.inspect_container(NAME)
    assert new["Id"] != old["Id"]
    assert new["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    kept = dockerd.api.inspect_container(BEFORE)
    assert (kept["Id"], kept["State"]["Running"]) == (old["Id"], False)
    assert kept["HostConfig"]["RestartPolicy"]["Name"] == "no"
    one, other = said(old), said(new)
    for each in (one, other):
        each["HostConfig"].pop("Binds"), each.pop("Mounts"), each.pop("Args")
    assert other["Config"].pop("Cmd") == ["sh", "-c", SCRIPT.replace("--dtype half", "--dtype auto")]
    assert other["Config"].pop("Env") == sorted([*one["Config"].pop("Env"), "NEW=1"])
    one["Config"].pop("Cmd")
    assert one == other
    assert new["Mounts"][0]["Name"] == old["Mounts"][0]["Name"]


def plan_after(plan: Plan, step_id: str) -> Plan:
    ids = [step.id for step in plan.steps]
    return replace(plan, steps=plan.steps[ids.index(step_id) + 1 :])


def test_the_way_back_from_the_end(dockerd: Dockerd, hands: Hands) -> None:
    old = started(dockerd, "--restart", "on-failure:3")
    plan = plan_of(hands, LESS)
    assert carried_out(hands, plan), hands.problems
    back(hands, plan)
    assert_old_serves(hands, old)
    aside = dockerd.api.inspect_container(f"{NAME}-failed-20260528T202640")
    assert aside["State"]["Running"] is False
    assert aside["HostConfig"]["RestartPolicy"]["Name"] == "no"


@pytest.mark.parametrize("until", ["policy-off", "kill", "swap", "policy"])
def test_the_lines_to_undo_it_by_hand_lead_back_when_they_are_pasted(
    dockerd: Dockerd, hands: Hands, until: str
) -> None:
    old = started(dockerd, "--restart", "unless-stopped")
    plan = plan_of(hands, LESS)
    assert carried_out(hands, plan, until), hands.problems
    count = [step.id for step in plan.steps].index(until) + 1
    done = tuple(StepRun(step=step, state=StepState.DONE) for step in plan.steps[:count])
    for line in by_hand(Run(id="r", plan=plan, steps=done, saved={"spark1": hands.saved})):
        environment = {**os.environ, "DOCKER_HOST": f"unix://{dockerd.socket_path}"}
        line = line.replace("stop -t 60", "stop -t 1")  # its shell is deaf to SIGTERM
        subprocess.run(["bash", "-ec", line], env=environment, check=True, capture_output=True, timeout=60)
    assert_old_serves(hands, old)
    assert not [one for one in cli(dockerd, "ps", "-a", "--format", "{{.Names}}").split() if "-next-" in one]


def test_what_is_asked_to_be_removed_is(dockerd: Dockerd, hands: Hands) -> None:
    started(dockerd)
    assert carried_out(hands, plan_of(hands, LESS, keep_old="no")), hands.problems
    assert hands.get(f"/containers/{BEFORE}/json") is None


@pytest.mark.parametrize("at", range(5))
def test_a_swap_that_fails_is_undone(dockerd: Dockerd, hands: Hands, at: int) -> None:
    old = started(dockerd, "--restart", "unless-stopped")
    plan = plan_of(hands, LESS)
    step = next(one for one in plan.steps if one.id == "swap")
    assert isinstance(step.act, Remote)
    assert len(step.act.operations) == 5
    assert not carried_out(hands, plan, "swap", fails_at=at)
    assert [one for one in hands.problems if one.startswith("undo")] == []
    assert_old_serves(hands, old)
    assert hands.get(f"/containers/{BEFORE}/json") is None
    back(hands, plan)
    assert_old_serves(hands, old)
    assert len(cli(dockerd, "ps", "-aq", "--filter", f"name={NAME}").split()) == 1


def test_a_start_that_fails_brings_the_old_one_back(dockerd: Dockerd, hands: Hands) -> None:
    old = started(dockerd, "--restart", "always")
    device = {"PathOnHost": "/dev/there-is-none", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}
    plan = plan_of(hands, Change(options={"Devices": [device]}))
    assert not carried_out(hands, plan)
    assert "/dev/there-is-none" in hands.problems[0]
    assert_old_serves(hands, old)
    assert len(cli(dockerd, "ps", "-aq", "--filter", f"name={NAME}").split()) == 1


def test_a_name_that_is_taken_undoes_it(dockerd: Dockerd, hands: Hands) -> None:
    old = started(dockerd)
    cli(dockerd, "create", "--name", BEFORE, IMAGE, "true")
    assert not carried_out(hands, plan_of(hands, LESS))
    (problem,) = hands.problems
    assert "409" in problem
    assert_old_serves(hands, old)


def test_nothing_is_stopped_when_it_is_another_run(dockerd: Dockerd, hands: Hands) -> None:
    old = started(dockerd)
    plan = plan_of(hands, LESS)
    cli(dockerd, "restart", "-t", "1", NAME)
    assert not carried_out(hands, plan)
    assert hands.problems == [f"make: {NAME} was restarted, renamed or removed since the plan was made: plan again"]
    assert dockerd.api.inspect_container(old["Id"])["State"]["Running"] is True


def test_a_container_that_has_vanished_ends_it_at_the_first_step(dockerd: Dockerd, hands: Hands) -> None:
    started(dockerd)
    plan = plan_of(hands, LESS)
    cli(dockerd, "rm", "-f", NAME)
    assert not carried_out(hands, plan)
    assert len(hands.problems) == 1
    assert cli(dockerd, "ps", "-aq", "--filter", f"name={NAME}") == ""


def test_a_tag_that_is_moved_ends_it_at_the_first_step(dockerd: Dockerd, hands: Hands) -> None:
    cli(dockerd, "tag", IMAGE, "moving:tag")
    cli(dockerd, "run", "-d", "--name", NAME, "moving:tag", "sh", "-c", SCRIPT)
    plan = plan_of(hands, LESS)
    cli(dockerd, "create", "--name", f"{NAME}-other", IMAGE, "true")
    cli(dockerd, "commit", f"{NAME}-other", "moving:tag")
    assert not carried_out(hands, plan)
    assert "was removed or replaced" in hands.problems[0]
    plan = plan_of(hands, LESS)
    assert any("by its id" in warning for warning in plan.warnings)
    assert carried_out(hands, plan), hands.problems


def test_rm(dockerd: Dockerd, hands: Hands) -> None:
    started(dockerd, "--rm", "--label", "kept=1")
    plan = plan_of(hands, LESS)
    assert carried_out(hands, plan), hands.problems
    new = dockerd.api.inspect_container(NAME)
    assert new["HostConfig"]["AutoRemove"] is True
    assert "NEW=1" in new["Config"]["Env"]
    back(hands, plan)
    again = dockerd.api.inspect_container(NAME)
    assert again["State"]["Running"] is True
    assert again["Config"]["Labels"] == {"kept": "1"}
    assert "NEW=1" not in (again["Config"]["Env"] or ())


def test_the_way_back_of_rm_leaves_another_that_has_its_name_alone(dockerd: Dockerd, hands: Hands) -> None:
    started(dockerd, "--rm")
    plan = plan_of(hands, LESS)
    assert carried_out(hands, plan), hands.problems
    aside, old = hands.remote_steps(plan, back=True)
    assert hands.perform(aside), hands.problems
    cli(dockerd, "create", "--name", NAME, IMAGE, "sh")
    assert not hands.perform(old)
    assert dockerd.api.inspect_container(NAME)["State"]["Status"] == "created"


def test_rm_that_fails_to_start_is_made_again(dockerd: Dockerd, hands: Hands) -> None:
    started(dockerd, "--rm", "--label", "kept=1")
    device = {"PathOnHost": "/dev/there-is-none", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}
    assert not carried_out(hands, plan_of(hands, Change(options={"Devices": [device]})))
    again = dockerd.api.inspect_container(NAME)
    assert (again["State"]["Running"], again["Config"]["Labels"]) == (True, {"kept": "1"})


def test_one_that_has_ended_is_relaunched_and_left_stopped_on_the_way_back(dockerd: Dockerd, hands: Hands) -> None:
    old = started(dockerd)
    cli(dockerd, "stop", "-t", "2", NAME)
    plan = plan_of(hands, LESS)
    assert carried_out(hands, plan), hands.problems
    assert dockerd.api.inspect_container(NAME)["State"]["Running"] is True
    back(hands, plan)
    now = dockerd.api.inspect_container(NAME)
    assert (now["Id"], now["State"]["Running"]) == (old["Id"], False)


def test_the_writable_layer_is_counted(dockerd: Dockerd, hands: Hands) -> None:
    started(dockerd)
    cli(dockerd, "exec", NAME, "sh", "-c", "mkdir -p /opt/site && echo patched > /opt/site/patched.py")
    plan = plan_of(hands, LESS)
    (told,) = [one for one in plan.warnings if "writable layer" in one]
    assert told.partition(" ")[0] not in ("", "0")
    assert "docker commit" in told


@pytest.fixture
def cramped() -> Iterator[Dockerd]:
    """A Docker Engine whose disk is a small tmpfs."""
    for program in ("dockerd", "busybox", "runc", "mount"):
        if shutil.which(program) is None:
            unavailable(f"no {program} here")
    if os.geteuid() != 0:
        unavailable("dockerd needs root")
    root = Path(tempfile.mkdtemp(prefix="spk-full-", dir="/tmp"))
    (root / "data").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(root / "data")], check=False)
    if mounted.returncode:
        shutil.rmtree(root)
        unavailable("no tmpfs can be mounted here")
    try:
        engine = _start(root)
        try:
            yield engine
        finally:
            for name in cli(engine, "ps", "-aq").split():
                cli(engine, "rm", "-f", name, check=False)
            engine.api.close()
            _stop(engine.process)
    finally:
        for place in ("exec/netns/default", "data"):  # dockerd leaves a network namespace mounted
            subprocess.run(["umount", "-l", str(root / place)], check=False, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


def test_a_full_disk_stops_nothing(cramped: Dockerd) -> None:
    hands = Hands(cramped)
    old = started(cramped, "--restart", "always")
    plan = plan_of(hands, LESS)
    disk = os.statvfs(cramped.root / "data")
    (cramped.root / "data" / "filler").write_bytes(b"\0" * (disk.f_bavail * disk.f_frsize))
    assert not carried_out(hands, plan)
    (problem,) = hands.problems
    assert "no space left on device" in problem
    assert problem.startswith("make"), "before anything is stopped"
    now = cramped.api.inspect_container(old["Id"])
    assert (now["Name"], now["State"]["StartedAt"]) == (old["Name"], old["State"]["StartedAt"])
    assert now["State"]["Running"] is True
    assert now["HostConfig"]["RestartPolicy"]["Name"] == "always"
