"""Relaunch of a service's engine: its drop-in, whole plans, systemd's quoting, and the operations on a play systemd."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import pictures_support as made
from tests import relaunch_support as support
from tests import restart_support as restarts
from tests.plan_golden import compare_plan
from tests.relaunch_support import INFINIBAND, asked, possible, refusal
from tests.table import over

from sparktop.cmdline import docker_run, systemd
from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.model.change import Change
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Privilege
from sparktop.model.survey import Answer, FileText, Output, Privileges, Question
from sparktop.model.telemetry import Process, Unit
from sparktop.operate.acts.remote import Remote
from sparktop.operate.relaunch import systemd_drop_in
from sparktop.operate.step.plan import OnFailure, Plan, Refusal, Step

DENIED = Privileges(docker="open", sudo="denied", user="spark")
LESS = Change(flags={"--gpu-memory-utilization": "0.60"}, environment={"NCCL_DEBUG": "INFO"})
FRAGMENT = "/etc/systemd/system/vllm.service"
SHOWN = f"FragmentPath={FRAGMENT}\nDropInPaths=\nNeedDaemonReload=no\nType=simple\n"
DOCKER = (
    "/usr/bin/docker run --rm --name vllm-qwen36 --gpus all --ipc=host -e NCCL_DEBUG=WARN "
    "-e HF_TOKEN=${HF_TOKEN} --env-file=/etc/vllm.env \\\n    nvcr.io/nvidia/vllm:26.05.post1-py3 "
    + " ".join(made.ARGV)
)


def file_of(command: str, *more: str, path: str = FRAGMENT) -> str:
    rows = ["[Unit]", "Description=vLLM", "", "[Service]", *more, f"ExecStart={command}", "Restart=always"]
    return "\n".join([f"# {path}", *rows]) + "\n"


def service(command: str = DOCKER, **more: Any) -> FleetState:
    """A node whose vllm.service runs the engine's container."""
    engine = support.engine(auto_remove=True, restart_policy="no")
    node = restarts.spark(engines=(engine, *more.pop("others", ())))
    assert node.facts is not None
    node = replace(node, facts=replace(node.facts, units=(Unit(name="vllm.service", active="active"),)))
    return made.picture(node)


def planned(change: Change, picture: FleetState, files: str, **more: Any) -> Plan | Refusal:
    request = asked(change, target=picture.nodes[0].engines[0].name)
    return support.planned(request, picture, lambda ask: answer(ask, files, more), **more)


def answer(ask: Question, files: str, more: dict[str, Any]) -> Answer | None:
    if isinstance(ask, FileText) and ask.path.endswith("/sparktop.conf"):
        return Answer(value=more.get("before"))
    if not isinstance(ask, Output):
        return None
    if "cat" in ask.argv:
        return Answer(value=files)
    if "getent" in ask.argv:
        return Answer(value="spark:x:1000:1000::/home/spark:/bin/bash\n")
    if "Id,ExecStart" in ask.argv:
        words = " ".join(files.rpartition("ExecStart=")[2].partition("Restart=")[0].replace("\\\n", " ").split())
        own = "--user" in ask.argv
        text = f"Id=vllm.service\nExecStart={{ path=x ; argv[]={words} ; ignore_errors=no ; }}\n"
        return Answer(value="" if own else text)
    return Answer(value=more.get("shown", SHOWN))


def dropped(plan: Plan | Refusal) -> str:
    """The drop-in's text."""
    (step,) = [one for one in possible(plan).steps if one.id == "write"]
    assert isinstance(step.act, Remote)
    return next(one.content for one in step.act.operations if isinstance(one, Command) and "-D" in one.argv)


def words_of(text: str) -> list[str]:
    command = [row for row in text.splitlines() if row.startswith("ExecStart=") and row != "ExecStart="]
    assert len(command) == 1
    return systemd.split(command[0].removeprefix("ExecStart="))


def test_a_service_that_runs_a_container() -> None:
    other = made.engine("sglang-other", container=made.container("sglang-other"))
    plan = planned(LESS, service(others=(other,)), file_of(DOCKER))
    support.golden("relaunch_unit", plan)
    ways = {step.id: step.on_failure for step in possible(plan).steps}
    assert ways["write"] is ways["start"] is ways["ready"] is OnFailure.ROLL_BACK


def test_only_what_was_asked_is_another() -> None:
    words = words_of(dropped(planned(LESS, service(), file_of(DOCKER))))
    before = systemd.split(DOCKER.replace("\\\n", " "))
    assert [word for word in words if word not in before] == ["--env=NCCL_DEBUG=INFO", "0.60"]
    assert [word for word in before if word not in words] == ["NCCL_DEBUG=WARN", "0.70"]
    assert f"HF_TOKEN={systemd.LIVE}{{HF_TOKEN}}" in words


def test_options_of_the_container() -> None:
    words = words_of(dropped(planned(INFINIBAND, service(), file_of(DOCKER))))
    assert "--device=/dev/infiniband:/dev/infiniband:rwm" in words
    assert words.index("--device=/dev/infiniband:/dev/infiniband:rwm") < words.index(made.engine().container.image)  # type: ignore[union-attr]
    words = words_of(dropped(planned(Change(options={"IpcMode": "private"}), service(), file_of(DOCKER))))
    assert "--ipc=host" not in words


def test_an_earlier_drop_in_is_kept_and_put_back() -> None:
    before = systemd_drop_in.written(DOCKER.replace("\\\n", " "), {"A": "1 %"})
    files = file_of("/bin/old") + f"\n# {FRAGMENT}.d/sparktop.conf\n{before}"
    shown = SHOWN.replace("DropInPaths=", f"DropInPaths={FRAGMENT}.d/sparktop.conf")
    plan = possible(planned(LESS, service(), files, before=before, shown=shown))
    compare_plan("relaunch_unit_dropin", plan)
    assert 'Environment="A=1 %%"' in dropped(plan)
    back = next(step for step in plan.rollback if step.id == "back-file")
    assert isinstance(back.act, Remote)
    assert any(isinstance(one, Command) and one.content == before for one in back.act.operations)


def vars_of(process: Process) -> dict[str, Any]:
    return {field.name: getattr(process, field.name) for field in fields(process)}


def native(
    files: str, change: Change = LESS, cgroup: str = "/system.slice/vllm.service", **more: Any
) -> Plan | Refusal:
    engine = replace(made.engine("vllm"), container=None)
    rows = tuple(
        Process(**(vars_of(one) | {"cgroup": cgroup})) for one in (made.process(pid, "vllm") for pid in engine.pids)
    )
    node = restarts.spark(engines=(engine,), processes=rows)
    return planned(change, made.picture(node), files, **more)


def test_a_service_without_a_container() -> None:
    command = "/opt/venv/bin/vllm serve Qwen/Qwen3.6-35B-A3B-FP8 --gpu-memory-utilization 0.70"
    plan = native(file_of(command))
    compare_plan("relaunch_unit_native", plan)
    text = dropped(plan)
    assert "Environment=NCCL_DEBUG=INFO" in text
    assert words_of(text)[-2:] == ["--gpu-memory-utilization", "0.60"]
    # an EnvironmentFile= would win over Environment=
    text = dropped(native(file_of(command, "EnvironmentFile=/etc/vllm.env")))
    assert words_of(text)[:2] == ["/usr/bin/env", "NCCL_DEBUG=INFO"]


def test_the_users_own_service_needs_no_root() -> None:
    cgroup = "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service"
    command = "%h/venv/bin/vllm serve Qwen/Qwen3.6-35B-A3B-FP8"
    plan = possible(
        native(file_of(command), cgroup=cgroup, survey={"privileges": Privileges(docker="open", sudo="denied")})
    )
    compare_plan("relaunch_unit_user", plan)
    text = dropped(plan)
    assert "ExecStart=%h/venv/bin/vllm" in text.replace('"', "")
    commands = [one for step in plan.steps if isinstance(step.act, Remote) for one in step.act.operations
                if isinstance(one, Command) and "drop" not in step.id]  # fmt: skip
    assert all(one.privilege is Privilege.USER for one in commands)
    assert any("/home/spark/.config/systemd/user/vllm.service.d/sparktop.conf" in one.argv for one in commands)
    assert not any("daemon-reload" in warning for warning in plan.warnings)


@over(
    "files, change, more, words",
    [
        (file_of("/usr/bin/docker start -a vllm-qwen36"), LESS, {}, "made elsewhere"),
        (file_of(DOCKER.replace("-e NCCL", "--hologram x -e NCCL")), LESS, {}, "no option of Docker's"),
        (file_of(DOCKER.replace("${HF_TOKEN}", support.TOKEN)), LESS, {}, "holds a secret"),
        (file_of(DOCKER), Change(environment={"HF_TOKEN": "hf_new"}), {}, "HF_TOKEN is a secret"),
        (file_of(DOCKER + " $EXTRA"), LESS, {}, "$EXTRA"),
        (file_of(DOCKER), LESS, {"shown": SHOWN.replace("/etc/systemd/system", "/nix/store/x")}, "NixOS"),
        (file_of(DOCKER), LESS, {"before": "[Service]\n"}, "was not written by sparktop"),
        (file_of(DOCKER), LESS, {"survey": {"privileges": DENIED}}, "sudo"),
        (file_of(DOCKER) + f"# {FRAGMENT}.d/z.conf\n[Service]\nExecStart=\nExecStart={DOCKER}\n", LESS,
         {"shown": SHOWN.replace("DropInPaths=", f"DropInPaths={FRAGMENT}.d/z.conf")}, "comes after"),
        (file_of(DOCKER, "ExecStart=/bin/true"), LESS, {}, "2 commands"),
        (file_of(DOCKER), Change(options={"Ipc": "x"}), {}, "did you mean IpcMode"),
    ],
)  # fmt: skip
def test_refusals(files: str, change: Change, more: dict[str, Any], words: str) -> None:
    found = refusal(planned(change, service(), files, **more))
    assert words in found.reason, found.reason
    assert support.TOKEN not in " ".join(found.remedies)


# --- hostile words


EVIL = "a\x1b]52;c;AAAA\x07$(reboot)`id`'\"\n%n %% $HOME ${X} \\n ; --rm"


def test_hostile_values_stay_words() -> None:
    change = Change(environment={"X": EVIL}, flags={"--served-model-name": EVIL})
    plan = possible(planned(change, service(), file_of(DOCKER)))
    text = dropped(plan)
    assert len([row for row in text.splitlines() if row and not row.startswith("#")]) == 3, "one line each"
    words = words_of(text)
    assert f"--env=X={EVIL}" in words
    assert EVIL in words
    assert "\x1b" not in support.whole(plan)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\ue000\ue001"), max_size=20)


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True),
                       TEXT))  # fmt: skip
def test_variables_of_a_drop_in_come_back(environment: dict[str, str]) -> None:
    assert systemd_drop_in.variables(systemd_drop_in.written("/bin/true", dict(environment))) == environment


@over("line", ["docker ps", "docker run", "docker run -d", "docker run --nope x IMAGE", "docker"])
def test_what_is_no_docker_run_is_not_edited(line: str) -> None:
    with pytest.raises(CannotEdit):
        docker_run.parse_run_line(line.split())


def test_a_docker_run_line_taken_apart_is_the_line() -> None:
    words = shlex.split("docker run -it --rm -p8000:8000 -e A=1 --net host -v/a:/b --gpus=all -- IMAGE serve -e X")
    line = docker_run.parse_run_line(words)
    assert line.words == words
    assert (line.image, line.command) == ("IMAGE", ["serve", "-e", "X"])
    assert [name for name, *_ in line.options] == ["tty", "rm", "publish", "env", "network", "volume", "gpus", ""]


# --- the operations, on a systemd that only takes notes


def carry_out(step: Step, folder: Path, systemctl: Path) -> bool:
    """As the runner does it: operations in order, the undo where one fails."""
    assert isinstance(step.act, Remote)

    def run(one: Command) -> bool:
        held = folder / "content"
        held.write_text(one.content)
        names = {"/usr/bin/systemctl": str(systemctl), "{content}": str(held)}
        argv = [names.get(word, word.replace("/etc/systemd", str(folder / "etc"))) for word in one.argv]
        return subprocess.run(argv, check=False, capture_output=True).returncode in one.accepts

    commands = [one for one in step.act.operations if isinstance(one, Command)]
    if all(run(one) for one in commands):
        return True
    for one in step.act.undo:
        assert isinstance(one, Command)
        run(one)
    return False


def test_the_drop_in_is_written_and_taken_away(tmp_path: Path) -> None:
    notes, systemctl = tmp_path / "notes", tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {notes}\n[ ! -e {tmp_path}/fails ]\n')
    systemctl.chmod(0o755)
    plan = possible(planned(LESS, service(), file_of(DOCKER)))
    steps = {step.id: step for step in (*plan.steps, *plan.rollback)}
    path = tmp_path / "etc/system/vllm.service.d/sparktop.conf"

    def told(*names: str) -> Sequence[str]:
        for name in names:
            assert carry_out(steps[name], tmp_path, systemctl)
        said = notes.read_text().splitlines()
        notes.unlink()
        return said

    assert told("check", "stop", "write", "start") == [
        "stop -- vllm.service", "daemon-reload", "start --no-block -- vllm.service"
    ]  # fmt: skip
    assert path.read_text() == dropped(plan)
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert not carry_out(steps["check"], tmp_path, systemctl), "it is there now: somebody else's by this plan"
    assert told("back-stop", "back-file", "back-start")[1:3] == ["daemon-reload", "reset-failed -- vllm.service"]
    assert not path.exists()
    (tmp_path / "fails").touch()
    assert not carry_out(steps["write"], tmp_path, systemctl)
    assert not path.exists(), "undone"
