"""What started an engine, and what Docker's inspect tells a planner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests import pictures_support as made
from tests import restart_support as restarts
from tests.relaunch_support import engine as engine_in
from tests.restart_support import inspect
from tests.table import over

from sparktop.model.engine import Engine
from sparktop.model.fleet import NodeView
from sparktop.model.survey import Answer, Survey
from sparktop.model.telemetry import Unit
from sparktop.operate.container.inspected import ask, inspected
from sparktop.operate.plan.origin import Origin, OriginKind, origin, questions


def node(*units: str):
    found = made.node()
    assert found.facts is not None
    return replace(found, facts=replace(found.facts, units=tuple(Unit(name=name) for name in units)))


def shown(command: str, unit: str = "vllm.service") -> str:
    return f"Id={unit}\nExecStart={{ path=/x ; argv[]={command} ; ignore_errors=no ; start_time=[n/a] }}\n"


def found(engine=None, text: str = "", *units: str):
    view = node(*(units or ("vllm.service",)))
    engine = engine or view.engines[0]
    system, own = questions(engine, view)
    return origin(engine, view, Survey(answers={system: Answer(value=text), own: Answer(value="")}), None)


@over(
    "command",
    [
        "/usr/bin/docker run --rm --name vllm-qwen36 --gpus all IMAGE",
        "/usr/bin/docker run --name=vllm-qwen36 IMAGE",
        "/usr/bin/docker start -a vllm-qwen36",
        f"docker start -a {made.container().container_id}",
    ],
)
def test_service_that_runs_the_container_is_its_origin(command: str) -> None:
    assert found(None, shown(command)).kind is OriginKind.UNIT
    assert found(None, shown(command)).unit == "vllm.service"


@over(
    "command",
    [
        "/usr/bin/docker run --name another IMAGE",
        "/usr/bin/docker compose up -d vllm-qwen36",
        "/usr/bin/echo vllm-qwen36",
        "/usr/bin/docker run --name vllm-qwen36-2 IMAGE",
        "",
    ],
)
def test_other_services_are_not(command: str) -> None:
    assert found(None, shown(command)).kind is OriginKind.PLAIN


def test_service_of_the_user_s_own_manager_is_known_as_that() -> None:
    view = node("vllm.service")
    system, own = questions(view.engines[0], view)
    assert own.argv[:3] == ("env", "XDG_RUNTIME_DIR=/run/user/1000", "systemctl")
    text = shown("docker run --name vllm-qwen36 I")
    made_of = origin(view.engines[0], view, Survey(answers={system: Answer(value=""), own: Answer(value=text)}), None)
    assert (made_of.unit, made_of.is_own) == ("vllm.service", True)


def test_docker_s_own_service_is_nobody_s_origin() -> None:
    assert questions(made.engine(), node("docker.service", "containerd.service", "ssh.service", "-x.service")) == ()


@given(st.text(max_size=300))
def test_any_answer_of_systemd_s_is_read(text: str) -> None:
    assert found(None, text).kind in (OriginKind.PLAIN, OriginKind.UNIT)
    assert found(None, shown(text)).unit in ("", "vllm.service")


@over(
    "cgroup, kind, unit, own",
    [
        ("/system.slice/my-vllm.service", OriginKind.UNIT, "my-vllm.service", False),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/v.service", OriginKind.UNIT, "v.service", True),
        ("/user.slice/user-1000.slice/session-4.scope", OriginKind.PROCESS, "", False),
        ("/system.slice/ssh.service", OriginKind.PROCESS, "", False),
        ("", OriginKind.PROCESS, "", False),
    ],
)
def test_process_in_no_container_is_told_by_its_cgroup(cgroup, kind, unit, own) -> None:
    engine = made.engine("vllm:8000", container=None, pids=(76811,))
    view = made.node(engines=(engine,), processes=(made.process(76811, "vllm", cgroup=cgroup),))
    told = origin(engine, view, Survey(), None)
    assert (told.kind, told.unit, told.is_own) == (kind, unit, own)


def test_inspect_is_read() -> None:
    box = made.container(ipc_mode="host", auto_remove=False)
    raw = inspect(box, environment=["VLLM_API_KEY=key-7"])
    got = inspected("spark1", box.container_id, Survey(answers={ask("spark1", box.container_id): Answer(value=raw)}))
    assert got is not None
    assert (got.name, got.running, got.restarts, got.ipc_mode, got.api_key) == (
        "vllm-qwen36", True, True, "host", "key-7",
    )  # fmt: skip
    assert "key-7" not in repr(got)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["Id", "Name", "State", "HostConfig", "Config", "Args", "Env", "RestartPolicy", "Labels"]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_any_inspect_is_read(raw: object) -> None:
    whole = {**raw, "Id": "a" * 64, "Name": "/x"} if isinstance(raw, dict) else raw
    for value in (raw, whole):
        got = inspected("spark1", "a" * 64, Survey(answers={ask("spark1", "a" * 64): Answer(value=value)}))
        assert got is None or got.container_id == "a" * 64


# --- by the container's labels, name and command


def told(engine: Engine, view: NodeView | None = None, units: str = "") -> Origin:
    view = view or restarts.spark(engines=(engine,))
    answers = {question: Answer(value=units) for question in questions(engine, view)}
    box = None
    if engine.container is not None:
        container_id = engine.container.container_id
        answers[ask("spark1", container_id)] = Answer(value=inspect(engine.container))
        box = inspected("spark1", container_id, Survey(answers=answers))
        assert box is not None
    return origin(engine, view, Survey(answers=answers), box)


COMPOSE = {
    "com.docker.compose.project": "llm",
    "com.docker.compose.service": "engine",
    "com.docker.compose.project.working_dir": "/srv/llm",
    "com.docker.compose.project.config_files": "/srv/llm/a.yaml,/srv/llm/b.yaml",
    "com.docker.compose.project.environment_file": "/srv/llm/.env",
}
SLEEPS = ("sleep", "infinity")
CASES: list[tuple[dict[str, Any], OriginKind]] = [
    ({}, OriginKind.PLAIN),
    ({"labels": {"com.nvidia.version": "26.05"}}, OriginKind.PLAIN),
    ({"labels": COMPOSE}, OriginKind.COMPOSE),
    ({"labels": {"com.docker.compose.project": "llm"}}, OriginKind.PLAIN),
    ({"labels": {"sparktop.recipe": "minimax"}}, OriginKind.RECIPE),
    ({"labels": {"PODMAN_SYSTEMD_UNIT": "vllm.service"}}, OriginKind.PODMAN),
    ({"name": "sparkrun_ab12cd_solo", "argv": SLEEPS}, OriginKind.SPARKRUN),
    ({"name": "sparkrun_ab12cd_node_1"}, OriginKind.SPARKRUN),
    ({"name": "vllm_node", "argv": SLEEPS, "auto_remove": True, "ipc_mode": "host", "is_privileged": True},
     OriginKind.EUGR),
    ({"name": "mine", "argv": SLEEPS}, OriginKind.EXEC),
    ({"name": "node-31415", "argv": ("bash", "-c", "ray start --block --head")}, OriginKind.RUN_CLUSTER),
]  # fmt: skip


@over("box, kind", CASES, ids=[f"{kind.name} {index}" for index, (_, kind) in enumerate(CASES)])
def test_kinds(box: dict[str, Any], kind: OriginKind) -> None:
    starter = told(engine_in(**box))
    assert starter.kind is kind
    assert starter.evidence, "it says why"
    assert starter.is_launched == ("argv" in box or kind is OriginKind.SPARKRUN)
    assert starter.is_in_sleeping_container == ("argv" in box)


def test_compose_in_detail() -> None:
    starter = told(engine_in(labels=COMPOSE))
    assert (starter.project, starter.service, starter.working_dir) == ("llm", "engine", "/srv/llm")
    assert starter.config_files == ("/srv/llm/a.yaml", "/srv/llm/b.yaml")
    assert starter.environment_file == "/srv/llm/.env"


def test_a_service_wins_over_labels() -> None:
    engine = engine_in(labels=COMPOSE)
    view = restarts.spark(engines=(engine,), facts=replace(made.facts("spark1"), units=(Unit(name="vllm.service"),)))
    command = f"argv[]=docker start -a {engine.container.name} ; ignore_errors=no"
    starter = told(engine, view, units=f"Id=vllm.service\nExecStart={{ path=/x ; {command} }}\n")
    assert (starter.kind, starter.unit, starter.is_service) == (OriginKind.UNIT, "vllm.service", True)


def test_a_bare_process() -> None:
    assert told(made.engine(container=None)).kind is OriginKind.PROCESS


def test_newer_sparkrun_is_known_by_its_label() -> None:
    one = told(engine_in(name="sparkrun_7d7b_15b3_solo", labels={"sparkrun.cluster_id": "sparkrun_7d7b_15b3"}))
    assert (one.kind, one.evidence) == (OriginKind.SPARKRUN, ("label sparkrun.cluster_id=sparkrun_7d7b_15b3",))
