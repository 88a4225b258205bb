"""A unit of systemd for a running container: its text, the plan that installs it, and the one that removes it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import pictures_support as made
from tests import relaunch_support as support
from tests import restart_support as restarts
from tests.planner_support import asks_of, plan_of
from tests.relaunch_support import TOKEN, answered, possible, refusal
from tests.support import unavailable
from tests.table import over

from sparktop.cmdline import docker_run, systemd
from sparktop.diagnose.lint.catalogue import check
from sparktop.launchspec.read.configuration import read
from sparktop.masking import mask_text
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request
from sparktop.model.survey import Answer, FileText, Output, Privileges, Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.serve import unit, unit_removal
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.recipe.export import UNIT_HEAD, environment_text

NAME = "vllm-qwen36"
PATH = f"/etc/systemd/system/{NAME}.service"
OWN_PATH = f"/home/spark/.config/systemd/user/{NAME}.service"
DENIED = Privileges(docker="open", sudo="denied", user="spark")


def spark(**more: Any) -> FleetState:
    return made.picture(restarts.spark(engines=(support.engine(**more),)))


def planned(
    picture: FleetState, *, planner: Any = unit, files: dict[str, str] | None = None, **more: Any
) -> Plan | Refusal:
    """What is planned, its questions answered as a node would; `files` by path, `options` of the request."""
    action = "install-unit" if planner is unit else "remove-unit"
    request = Request(action=action, nodes=("spark1",), target=NAME, options=more.pop("options", {}))
    survey = Survey()
    for _ in range(5):
        questions = asks_of(planner, request, picture, survey)
        if set(questions) <= set(survey.answers):
            return plan_of(planner, request, picture, survey)
        own = {ask: said for ask in questions if (said := answer(ask, files or {})) is not None}
        others = answered(picture, tuple(ask for ask in questions if ask not in own), **more).answers
        survey = Survey(answers={**survey.answers, **others, **own})
    raise AssertionError("it asks again and again")


def answer(ask: Question, files: dict[str, str]) -> Answer | None:
    if isinstance(ask, FileText):
        return Answer(value=files.get(ask.path))
    if isinstance(ask, Output) and "getent" in ask.argv:
        return Answer(value="spark:x:1000:1000::/home/spark:/bin/bash\n")
    return None


def text_of(plan: Plan | Refusal) -> str:
    (text,) = possible(plan).files.values()
    return text


def commands(plan: Plan | Refusal, *names: str) -> list[Command]:
    steps = [step for step in (*possible(plan).steps, *possible(plan).rollback) if step.id in names]
    assert len(steps) == len(names)
    return [one for step in steps if isinstance(step.act, Remote) for one in step.act.operations
            if isinstance(one, Command)]  # fmt: skip


def test_of_the_system() -> None:
    support.golden("unit_install", planned(spark(restart_policy="unless-stopped")))


def test_of_the_user_needs_no_root() -> None:
    plan = planned(spark(), options={"user": "yes"}, survey={"privileges": DENIED})
    support.golden("unit_install_user", plan)
    own = commands(plan, "write", "start")
    assert {one.privilege for one in own} == {Privilege.USER}
    assert "docker.service" not in text_of(plan), "the user's manager doesn't know it"
    assert "WantedBy=default.target" in text_of(plan)


def test_its_text_is_the_running_container_again() -> None:
    text = text_of(planned(spark(labels={"sparktop.recipe": "x", "com.docker.compose.project": "y", "mine": "z"})))
    (command,) = [row.removeprefix("ExecStart=") for row in text.splitlines() if row.startswith("ExecStart=")]
    words = systemd.split(command)
    line = docker_run.parse_run_line(words)
    options = {(name, value) for name, value, *_ in line.options}
    assert line.image == "nvcr.io/nvidia/vllm:26.05.post1-py3"
    assert line.command == list(made.ARGV)
    assert {"ipc", "network", "gpus", "ulimit", "volume"} <= {name for name, _ in options}
    assert {value for name, value in options if name == "label"} == {"mine=z"}
    assert not {"detach", "rm", "restart"} & {name for name, _ in options}


@over("options", [{}, {"user": "yes"}])
def test_the_limits_of_its_starts(options: dict[str, str]) -> None:
    text = text_of(planned(spark(), options=options))
    settings = {(one.section, one.name.text): one.value.text for one in systemd.settings(text)}
    assert settings["Unit", "StartLimitBurst"] == "3"
    assert settings["Unit", "StartLimitIntervalSec"] == "600"
    assert float(settings["Service", "RestartSec"]) >= 60
    waits = [one.value.text for one in systemd.settings(text) if one.name.text == "ExecStartPre"]
    wait = systemd.split(waits[0])
    assert wait[0] == "/usr/bin/timeout"
    assert float(settings["Service", "TimeoutStartSec"]) > float(wait[1])
    assert wait[-1] == "0.70", "what the engine itself asks for"
    specs = read(text, "vllm.service").specs
    assert [one.title for one in check(specs, mask=mask_text) if one.rule.startswith("unit")] == []
    assert [one.title for one in check(specs, mask=mask_text) if one.severity is Severity.CRITICAL] == []


@over("held_gib, share", [(10.6, 0.1693), (None, 0.0822)])
def test_one_without_a_share_waits_for_what_it_holds_now(held_gib: float | None, share: float) -> None:
    """With the 6 GiB of its processes and the host's 4, of 121.7; not for a share that nobody has set."""
    one = support.engine()
    held_bytes = made.gib(held_gib) if held_gib else None
    llama = replace(one, kind=EngineKind.LLAMA_CPP, gpu_bytes=held_bytes, argv=("llama-server", "-m", "/m.gguf"))
    text = text_of(planned(made.picture(restarts.spark(engines=(llama,)))))
    (first, *_) = (row for row in text.splitlines() if " wait-for-memory " in row)
    assert float(first.split()[-1]) == share


@over("manager", ["--system", "--user"])
def test_systemd_accepts_it(manager: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze") or unavailable("systemd-analyze isn't installed")
    options = {"user": "yes"} if manager == "--user" else {}
    path = tmp_path / f"{NAME}.service"
    path.write_text(text_of(planned(spark(), options=options)).replace("/usr/bin/docker", "/bin/true"))
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [program, manager, "verify", "--recursive-errors=no", str(path)],
        capture_output=True, text=True, check=False, timeout=60, env=environment,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_a_secret_is_in_its_own_file_alone() -> None:
    plan = possible(planned(spark()))
    assert TOKEN not in support.whole(plan) + text_of(plan)
    (secret,) = [one for one in commands(plan, "write") if TOKEN in one.content]
    assert secret.content == f'HF_TOKEN="{TOKEN}"\n'
    assert secret.argv[:3] == ("/usr/bin/install", "-m", "0600")
    assert secret.argv[-1] == f"/etc/sparktop/{NAME}.env"
    assert "EnvironmentFile=/etc/sparktop/vllm-qwen36.env" in text_of(plan)
    assert any(f"/etc/sparktop/{NAME}.env" in one.argv for one in commands(plan, "back-file")), "goes with the rollback"


def test_a_file_of_secrets_that_is_there_already_stays_on_the_way_back() -> None:
    plan = planned(spark(), files={f"/etc/sparktop/{NAME}.env": "H"})
    assert "overwritten" in " ".join(possible(plan).warnings)
    assert f"/etc/sparktop/{NAME}.env" not in commands(plan, "back-file")[1].argv


def test_what_systemd_reads_of_a_secret_is_the_secret() -> None:
    assert environment_text({"A": 'a"b\\c$d`e'}) == 'A="a\\"b\\\\c\\$d\\`e"\n'


def test_printing_needs_neither_root_nor_a_free_name() -> None:
    plan = possible(planned(spark(), options={"print": "yes"}, files={PATH: "[Unit]\n"}, survey={"privileges": DENIED}))
    assert plan.steps == ()
    assert text_of(plan).startswith(UNIT_HEAD)


def test_an_older_one_of_ours_is_replaced_and_comes_back() -> None:
    before = f"{UNIT_HEAD}{NAME} HOST --remove\n[Unit]\n"
    plan = planned(spark(), files={PATH: before})
    assert [one.content for one in commands(plan, "back-file") if one.content] == [before]


@pytest.mark.parametrize(
    ("engine", "more", "reason"),
    [
        pytest.param({}, {"files": {PATH: "[Unit]\n"}}, "did not write it", id="somebody else's file"),
        pytest.param({}, {"survey": {"privileges": DENIED}}, "sudo", id="no root"),
        pytest.param(
            {}, {"inspect": {"config": {"Cmd": ["vllm", "serve", "x", "--api-key", "sk-abcdefgh12345678"]}}},
            "holds a secret", id="a secret in the command",
        ),
        pytest.param({"status": "paused"}, {}, "is paused", id="paused"),
    ],
)  # fmt: skip
def test_refused(engine: dict[str, Any], more: dict[str, Any], reason: str) -> None:
    found = refusal(planned(spark(**engine), **more))
    assert reason in found.reason
    assert "sk-abc" not in " ".join((found.reason, *found.remedies))


def test_what_does_not_serve_is_not_given_to_systemd() -> None:
    engine = restarts.ended(support.engine())
    assert "does not serve" in refusal(planned(made.picture(restarts.spark(engines=(engine,))))).reason


def test_what_a_service_runs_already() -> None:
    picture = spark()
    engine = picture.nodes[0].engines[0]
    found = refusal(planned(_of_a_service(picture)))
    assert "vllm.service runs vllm-qwen36 on spark1 already" in found.reason
    assert engine.name in found.remedies[0]


def _of_a_service(picture: FleetState) -> FleetState:
    """The engine without a container, in a service's cgroup."""
    from sparktop.model.telemetry import Process

    engine = replace(picture.nodes[0].engines[0], container=None, name=NAME)
    rows = tuple(replace(made.process(pid, "vllm"), cgroup="/system.slice/vllm.service") for pid in engine.pids)
    assert all(isinstance(row, Process) for row in rows)
    return made.picture(restarts.spark(engines=(engine,), processes=rows))


# --- removal


UNIT = f"{UNIT_HEAD}{NAME} HOST --remove\n[Service]\nEnvironmentFile=/etc/sparktop/{NAME}.env\n"


def test_removal() -> None:
    support.golden("unit_remove", planned(spark(), planner=unit_removal, files={PATH: UNIT}))


def test_removal_of_the_users_own() -> None:
    plan = planned(spark(), planner=unit_removal, files={OWN_PATH: UNIT}, survey={"privileges": DENIED})
    assert {one.privilege for one in commands(plan, "stop", "remove")} == {Privilege.USER}
    assert any("--user" in one.argv for one in commands(plan, "stop"))


@over("files", [{}, {PATH: "[Unit]\n# by hand\n"}])
def test_only_what_sparktop_wrote_is_removed(files: dict[str, str]) -> None:
    assert "no unit of sparktop's" in refusal(planned(spark(), planner=unit_removal, files=files)).reason


def test_of_a_pair_each_node_has_its_own_and_nothing_stops_before_both_are_written() -> None:
    picture = restarts.two()
    request = Request(action="install-unit", nodes=("spark1", "spark2"), target="vllm-head")
    survey = Survey()
    for _ in range(5):
        questions = asks_of(unit, request, picture, survey)
        if set(questions) <= set(survey.answers):
            break
        own = {ask: said for ask in questions if (said := answer(ask, {})) is not None}
        others = answered(picture, tuple(ask for ask in questions if ask not in own)).answers
        survey = Survey(answers={**survey.answers, **others, **own})
    plan = possible(plan_of(unit, request, picture, survey))
    assert list(plan.files) == [
        "spark1:/etc/systemd/system/vllm-head.service",
        "spark2:/etc/systemd/system/vllm-worker.service",
    ]
    ids = [step.id for step in plan.steps]
    assert ids.index("write@spark2") < ids.index("stop@spark1") < ids.index("start@spark1")
    assert {"start@spark1", "start@spark2", "ready@spark1", "ready@spark2"} <= set(ids)
    assert "--headless" in plan.files["spark2:/etc/systemd/system/vllm-worker.service"]
    assert len(ids) == len(set(ids))
