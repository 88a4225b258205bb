"""Relaunch of a compose service: whole plans, the override file, what the shell had given, and what can't be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests import pictures_support as made
from tests import relaunch_support as support
from tests import restart_support as restarts
from tests.plan_golden import compare_plan
from tests.relaunch_support import INFINIBAND, asked, possible, refusal
from tests.table import over

from sparktop.cmdline import variables
from sparktop.model.change import Change
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command
from sparktop.model.survey import Answer, DockerGet, FileText, Output, Privileges, Question
from sparktop.operate.acts.remote import Remote
from sparktop.operate.relaunch import compose_override
from sparktop.operate.step.plan import OnFailure, Plan, Refusal

LESS = Change(flags={"--gpu-memory-utilization": "0.60"}, environment={"NCCL_DEBUG": "INFO"})
FOLDER = "/srv/my llm"
LABELS = {
    "com.docker.compose.project": "llm",
    "com.docker.compose.service": "engine",
    "com.docker.compose.project.working_dir": FOLDER,
    "com.docker.compose.project.config_files": f"{FOLDER}/compose.yaml",
    "com.docker.compose.container-number": "1",
}
OVERRIDE = f"{FOLDER}/compose.sparktop.yaml"
FILE = """\
x-common: &common
  ipc: host
services:
  engine:
    <<: *common
    image: nvcr.io/nvidia/vllm:${TAG:-26.05.post1-py3}
    command: vllm serve ${MODEL} --host 0.0.0.0 --port 8000 --gpu-memory-utilization 0.70 --max-model-len 32768
    environment:
      HF_TOKEN: ${HF_TOKEN}
      NCCL_DEBUG: WARN
  other:
    image: busybox
"""
LOGGING = "logging: {options: {%s}}"
NO_COMPOSE = Privileges(user="spark", docker="open", sudo="free", has_compose=False)


def composed(**more: Any) -> FleetState:
    one = support.engine(labels={**LABELS, **more.pop("labels", {})}, **more)
    return made.picture(restarts.spark(engines=(one,)))


def planned(change: Change, picture: FleetState | None = None, **more: Any) -> Plan | Refusal:
    """`files` by path; `outputs` by the program."""
    return support.planned(asked(change), picture or composed(), lambda ask: answer(ask, more), **more)


def answer(ask: Question, more: dict[str, Any]) -> Answer | None:
    if isinstance(ask, FileText):
        files = {f"{FOLDER}/compose.yaml": FILE, **more.get("files", {})}
        return Answer(value=files.get(ask.path))
    if isinstance(ask, Output):
        found: Answer = more.get("outputs", {}).get(ask.argv[0], Answer(value=""))
        return found
    if isinstance(ask, DockerGet) and ask.path.startswith("/containers/json"):
        return Answer(value=[{}] * more.get("siblings", 1))
    if isinstance(ask, DockerGet) and ask.path == "/version":
        return Answer(value={"ApiVersion": more.get("api", "1.41")})
    return None


def commands(plan: Plan | Refusal, step: str) -> list[Command]:
    (one,) = [one for one in (*possible(plan).steps, *possible(plan).rollback) if one.id == step]
    assert isinstance(one.act, Remote)
    return [each for each in one.act.operations if isinstance(each, Command)]


def brought_up(plan: Plan | Refusal) -> Command:
    return next(one for one in commands(plan, "up") if "-d" in one.argv)


def override(plan: Plan | Refusal) -> str:
    return next(one.content for one in commands(plan, "up") if one.argv[0] == "/usr/bin/install")


def service(plan: Plan | Refusal) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(override(plan))["services"]["engine"]
    return found


# --- plans


def test_a_compose_service() -> None:
    plan = planned(LESS)
    support.golden("relaunch_compose", plan)
    assert support.TOKEN not in support.whole(plan)
    assert support.TOKEN not in repr(plan)
    assert possible(plan).secrets == (support.TOKEN,)
    ways = {step.id: step.on_failure for step in possible(plan).steps}
    assert ways["up"] is ways["ready"] is OnFailure.ROLL_BACK
    assert ways["check"] is ways["smoke"] is OnFailure.STOP


def test_what_the_shell_had_given_goes_by_the_environment() -> None:
    up = brought_up(planned(LESS))
    assert up.environment == {"HF_TOKEN": support.TOKEN, "MODEL": "Qwen/Qwen3.6-35B-A3B-FP8"}
    assert support.TOKEN not in " ".join(up.argv)
    files = {f"{FOLDER}/.env": f"MODEL=Qwen/Qwen3.6-35B-A3B-FP8\nHF_TOKEN='{support.TOKEN}'\n"}
    assert brought_up(planned(LESS, files=files)).environment == {}
    plan = planned(LESS, files={f"{FOLDER}/.env": "MODEL=another\n"})
    assert brought_up(plan).environment["MODEL"] == "Qwen/Qwen3.6-35B-A3B-FP8"
    assert any("MODEL has changed in its env file" in warning for warning in possible(plan).warnings)


def test_a_secret_of_the_change_is_in_no_file() -> None:
    change = Change(environment={"VLLM_API_KEY": "canary-0d1f"}, flags={"--hf-token": "hf_canaryabcdefghijklmnopqrst"})
    plan = planned(change)
    compare_plan("relaunch_compose_secret", plan)
    assert "canary" not in override(plan)
    assert "canary" not in support.whole(plan)
    assert service(plan)["environment"] == {"VLLM_API_KEY": "${VLLM_API_KEY:?a secret that is kept in no file}"}
    assert service(plan)["command"][-1] == "${SPARKTOP_HF_TOKEN:?a secret that is kept in no file}"
    given = brought_up(plan).environment
    assert given["VLLM_API_KEY"] == "canary-0d1f"
    assert given["SPARKTOP_HF_TOKEN"] == "hf_canaryabcdefghijklmnopqrst"
    assert {"canary-0d1f", "hf_canaryabcdefghijklmnopqrst"} <= set(possible(plan).secrets)
    assert any("kept in no file" in warning for warning in possible(plan).warnings)


def test_a_new_value_of_a_variable_that_files_use_elsewhere_reaches_only_its_place() -> None:
    used = FILE.replace("NCCL_DEBUG: WARN", "NCCL_DEBUG: WARN\n      OTHER_TOKEN: x${HF_TOKEN}")
    raw = {"config": {"Env": [f"HF_TOKEN={support.TOKEN}", f"OTHER_TOKEN=x{support.TOKEN}", "NCCL_DEBUG=WARN"]}}
    new = "hf_zyxwvutsrqponmlkjihgfedcba0"
    change = Change(environment={"HF_TOKEN": new})
    plan = planned(change, files={f"{FOLDER}/compose.yaml": used}, inspect=raw)
    assert brought_up(plan).environment["HF_TOKEN"] == support.TOKEN
    assert brought_up(plan).environment["SPARKTOP_HF_TOKEN"] == new


def test_options_image_and_what_is_taken_away() -> None:
    options = {**INFINIBAND.options, "ShmSize": 1 << 34, "CapAdd": ["IPC_LOCK"], "RestartPolicy": {"Name": "always"}}
    images = {"org/new:2": support.IMAGE, support.IMAGE_ID: support.IMAGE,
              "nvcr.io/nvidia/vllm:26.05.post1-py3": support.IMAGE}  # fmt: skip
    change = Change(options=options, image="org/new:2", environment={"NCCL_DEBUG": None})
    plan = planned(change, images=images)
    compare_plan("relaunch_compose_options", plan)
    assert service(plan) == {
        "image": "org/new:2",
        "environment": {"NCCL_DEBUG": None},
        "ulimits": {"memlock": {"soft": -1, "hard": -1}},
        "devices": ["/dev/infiniband:/dev/infiniband:rwm"],
        "shm_size": 1 << 34,
        "cap_add": ["IPC_LOCK"],
        "restart": "always",
    }
    assert brought_up(plan).argv[:3] == ("env", "-u", "NCCL_DEBUG")


def test_an_earlier_override_is_merged_and_put_back() -> None:
    before = compose_override.written(
        compose_override.merged(None, "engine", {"environment": {"A": "1$"}, "shm_size": 5})
    )
    labels = {"com.docker.compose.project.config_files": f"{FOLDER}/compose.yaml,{OVERRIDE}"}
    raw = {"config": {"Env": [f"HF_TOKEN={support.TOKEN}", "NCCL_DEBUG=WARN", "A=1$"]}}
    plan = planned(LESS, composed(labels=labels), files={OVERRIDE: before}, inspect=raw)
    compare_plan("relaunch_compose_override", plan)
    assert service(plan)["environment"] == {"A": "1$$", "NCCL_DEBUG": "INFO"}
    assert service(plan)["shm_size"] == 5
    assert brought_up(plan).argv.count(OVERRIDE) == 1
    back = commands(plan, "back-old")
    assert back[0].content == before
    assert OVERRIDE in back[1].argv
    # one that the container was not made with is no part of what is changed
    plan = planned(LESS, files={OVERRIDE: before})
    assert service(plan)["environment"] == {"NCCL_DEBUG": "INFO"}
    assert OVERRIDE not in commands(plan, "back-old")[1].argv
    assert any("is not in use" in warning for warning in possible(plan).warnings)


def test_a_tag_that_moved_and_a_file_that_was_edited_are_told() -> None:
    other = {**support.IMAGE, "Id": "sha256:" + "77" * 32}
    images = {"nvcr.io/nvidia/vllm:26.05.post1-py3": other, support.IMAGE_ID: support.IMAGE}
    assert any("a different image" in warning for warning in possible(planned(LESS, images=images)).warnings)
    edited = FILE.replace("NCCL_DEBUG: WARN", "NCCL_IB_HCA: mlx5_0")
    plan = possible(planned(LESS, files={f"{FOLDER}/compose.yaml": edited}))
    assert any("were edited after" in warning and "NCCL_IB_HCA" in warning for warning in plan.warnings)


def test_version_1_where_there_is_no_other() -> None:
    more = {"survey": {"privileges": NO_COMPOSE}, "outputs": {"docker-compose": Answer(value="1.29.2\n")}}
    assert brought_up(planned(LESS, **more)).argv[:2] == ("docker-compose", "-p")
    assert "ContainerConfig" in refusal(planned(LESS, api="1.50", **more)).reason
    more["outputs"] = {"docker-compose": Answer(problem="there is no program docker-compose on this machine")}
    found = refusal(planned(LESS, **more))
    assert "neither `docker compose` nor docker-compose" in found.reason
    assert any("apt-get install" in line for line in found.remedies)


def test_its_name_follows_the_version_that_makes_it() -> None:
    one = support.engine(name="llm_engine_1", labels=LABELS)
    plan = possible(planned(LESS, made.picture(restarts.spark(engines=(replace(one, name="llm_engine_1"),)))))
    assert "until llm-engine-1 answers" in support.whole(plan)


@over(
    "labels, more, words",
    [
        ({}, {"files": {f"{FOLDER}/compose.yaml": None}}, "can't be read on spark1: it doesn't exist"),
        ({"com.docker.compose.project.config_files": "-"}, {}, "standard input"),
        ({"com.docker.compose.project.working_dir": "C:\\llm"}, {}, "brought up elsewhere"),
        ({"com.docker.compose.project": "--help"}, {}, "none that compose would take"),
        ({"com.docker.compose.service": "-d; reboot"}, {}, "none that compose would take"),
        ({"com.docker.compose.project.environment_file": "x.env"}, {}, "env file /srv/my llm/x.env no longer exists"),
        ({}, {"siblings": 2}, "2 containers of its service"),
        ({}, {"files": {f"{FOLDER}/compose.yaml": "{"}}, "no longer a compose file"),
        ({}, {"files": {f"{FOLDER}/compose.yaml": "services: {x: {image: y}}"}}, "no service engine"),
        ({}, {"files": {f"{FOLDER}/compose.yaml": FILE + "networks: {a: {name: $NET}}\n"}}, "take NET from the shell"),
        (
            {"com.docker.compose.project.config_files": "compose.yaml,more.yaml"},
            {
                "files": {
                    f"{FOLDER}/compose.yaml": FILE.replace("  other:", f"    {LOGGING % 'max-size: $SIZE'}\n  other:"),
                    f"{FOLDER}/more.yaml": f"services: {{engine: {{{LOGGING % 'tag: x'}}}}}",
                }
            },
            "take SIZE from the shell",
        ),
        ({}, {"files": {OVERRIDE: "services: {}\n"}, "used": True}, "was not written by sparktop"),
        ({}, {"outputs": {"test": Answer(problem="test ended with 1")}}, "may not write into"),
        ({}, {"images": {}}, "compose would pull or build another"),
    ],
)  # fmt: skip
def test_refusals(labels: dict[str, str], more: dict[str, Any], words: str) -> None:
    if more.pop("used", False):
        labels = {"com.docker.compose.project.config_files": f"{FOLDER}/compose.yaml,{OVERRIDE}"}
    found = refusal(planned(LESS, composed(labels=labels), **more))
    assert words in found.reason, found.reason
    assert any("up -d --no-deps" in line for line in found.remedies)


@over(
    "change, words",
    [
        (Change(options={"IpcMode": None}), "can't take the option IpcMode away"),
        (Change(options={"Ipc": "x"}), "did you mean IpcMode"),
        (Change(options={"LogConfig": {"Type": "none"}}), "has no word in an override file"),
        (Change(image="org/gone:1"), "is not on spark1"),
        (Change(flags={"--gpu-memory-utilization": "0.70"}), "already"),
    ],
)
def test_changes_that_can_not_be_said(change: Change, words: str) -> None:
    assert words in refusal(planned(change)).reason


def test_what_is_demanded_for_others_is_given_a_word() -> None:
    file = FILE.replace("image: busybox", "image: ${OTHER:?wanted}")
    plan = planned(LESS, files={f"{FOLDER}/compose.yaml": file})
    assert brought_up(plan).environment["OTHER"] == "not-given"
    assert any("compose demands OTHER" in warning for warning in possible(plan).warnings)


def test_hostile_values_stay_values() -> None:
    evil = "a\x1b]52;c;AAAA\x07$(reboot)`id`'\"\n${HOME} $$ #: - [ {"
    plan = possible(planned(Change(environment={"X": evil}, flags={"--served-model-name": evil})))
    text = support.whole(plan)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert service(plan)["environment"]["X"] == evil.replace("$", "$$")
    assert service(plan)["command"][-1] == evil.replace("$", "$$")
    assert override(plan).isprintable() or "\x1b" not in override(plan)


# --- what is said in files


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=24)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@given(TEXT)
def test_an_escaped_text_fills_in_to_itself(text: str) -> None:
    assert variables.filled(variables.escaped(text), {}) == text
    assert list(variables.references(variables.escaped(text))) == []


@given(TEXT, TEXT, TEXT, NAMES, st.sampled_from(["${%s}", "${%s:-x}", "${%s-x}", "${%s:?x}"]))
def test_a_value_is_told_by_what_became_of_it(before: str, value: str, after: str, name: str, form: str) -> None:
    template = variables.escaped(before) + form % name + variables.escaped(after)
    actual = variables.filled(template, {name: value})
    if actual is not None:
        told = variables.recover_values(template, actual)
        assert told is not None
        assert variables.filled(template, told) == actual


@given(st.text(alphabet="ab${}:-?+_ ", max_size=30), st.dictionaries(NAMES, TEXT, max_size=2), TEXT)
def test_any_template_can_be_read(template: str, known: dict[str, str], actual: str) -> None:
    variables.filled(template, known)
    found = variables.recover_values(template, actual)
    assert found is None or isinstance(found, dict)


@over(
    "template, actual, told",
    [
        ("${A}", "x", {"A": "x"}),
        ("$A/$A", "x/x", {"A": "x"}),
        ("$A/$A", "x/y", None),
        ("${A}:${B}", "x:y", {"A": "x", "B": "y"}),
        ("${A}:${B}", "x:y:z", None),
        ("${A:+yes}", "yes", None),
        ("a$$b", "a$b", {}),
        ("a$$b", "other", None),
        ("${A:-${B}}", "x", {"A": "x"}),
    ],
)
def test_what_is_told(template: str, actual: str, told: dict[str, str] | None) -> None:
    assert variables.recover_values(template, actual) == told


def test_env_files() -> None:
    text = "# c\nA=1\nexport B='$x # y'\nC=\"a b\" \nD=a # c\nE=$A\n F = g\nbroken\nG='\n"
    assert variables.env_file(text) == {
        "A": "1", "B": "$x # y", "C": "a b", "D": "a", "E": None, "F": "g", "G": None
    }  # fmt: skip


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "environment": st.dictionaries(NAMES, st.none() | TEXT, max_size=3),
        "command": st.lists(TEXT, min_size=1, max_size=4),
        "image": TEXT,
        "ipc": st.sampled_from(["host", "private"]),
        "shm_size": st.integers(0, 2**40),
        "devices": st.lists(TEXT, max_size=3, unique=True),
    },
)


def meant(value: Any) -> Any:
    """What compose makes of a file's texts."""
    if isinstance(value, dict):
        return {key: meant(one) for key, one in value.items()}
    if isinstance(value, list):
        return [meant(one) for one in value]
    return variables.filled(value, {}) if isinstance(value, str) else value


@given(SETTINGS, SETTINGS, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True))
def test_overrides_are_merged(first: dict[str, Any], second: dict[str, Any], name: str) -> None:
    before = compose_override.written(compose_override.merged(None, name, first))
    after = compose_override.written(compose_override.merged(before, name, second))
    found = meant(yaml.safe_load(after)["services"][name])
    assert found.get("environment", {}) == {**first.get("environment", {}), **second.get("environment", {})}
    for key in ("command", "image", "ipc", "shm_size"):
        assert found.get(key) == second.get(key, first.get(key))
    devices = [
        *first.get("devices", []),
        *(one for one in second.get("devices", []) if one not in first.get("devices", [])),
    ]
    assert found.get("devices", []) == devices
    assert compose_override.written(compose_override.merged(after, name, second)) == after, (
        "the same again changes nothing"
    )


@over("text", ["1e3", "no", "0o17", "012", "12:30", "~", "", "null", "=", "2026-05-28", "0x1F", "<<"])
def test_words_that_yaml_takes_for_something_else_are_quoted(text: str) -> None:
    written = compose_override.written(
        compose_override.merged(None, "s", {"environment": {"A": text}, "command": [text]})
    )
    assert written.count(f'"{text}"') == 2
