"""What runs, and the compose files and scripts beside what runs, are found on a node, each with its recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests import pictures_support as made
from tests import restart_support as restarts
from tests.table import over

from sparktop.model.engine import Containers
from sparktop.model.survey import Answer, DockerGet, FileText, Output, Question
from sparktop.operate.launch.launches_here import MAX_FILES, LaunchHere, launches_here

COMPOSE = """\
services:
  llm: {image: vllm/vllm-openai:v1, container_name: vllm-qwen36, network_mode: host, command: --model Org/Running}
  next: {image: vllm/vllm-openai:v1, container_name: next, network_mode: host, command: --model $MODEL, env_file: a.env}
  web: {image: web:1}
"""
FILES = {"/srv/compose.yaml": COMPOSE, "/srv/.env": "MODEL=Org/Next\n", "/srv/a.env": "A=1\n"}
LABELS = {
    "com.docker.compose.project": "srv",
    "com.docker.compose.service": "llm",
    "com.docker.compose.project.working_dir": "/srv",
    "com.docker.compose.project.config_files": "/srv/compose.yaml",
}
CONTAINER = made.container(labels=LABELS, argv=("vllm", "serve", "Org/Running", "--port", "8000"))


async def found(files: Mapping[str, str], *, tells: bool = True) -> tuple[LaunchHere, ...]:
    view = restarts.spark(engines=(made.engine(container=CONTAINER),))
    view = replace(view, containers=Containers(containers=(CONTAINER,), available=True))
    inspect = restarts.inspect(CONTAINER)
    inspect = {**inspect, "Config": {**inspect["Config"], "Cmd": list(CONTAINER.argv), "Image": "vllm/vllm-openai:v1"}}

    async def ask(questions: Sequence[Question]) -> Mapping[Question, Answer]:
        return {one: answer(one) for one in questions}

    def answer(one: Question) -> Answer:
        if isinstance(one, FileText):
            return Answer(value=files.get(one.path))
        if isinstance(one, Output):
            assert one.argv[-1] == "/srv"
            return Answer(value="\n".join(files))
        assert isinstance(one, DockerGet)
        if not tells:
            return Answer(problem="it hangs")
        command = {"Entrypoint": ["vllm", "serve"], "Cmd": ["Org/Own"]} if "/own/" in one.path else {}
        return Answer(value=inspect if one.path.startswith("/containers/") else {"Config": command})

    return await launches_here(made.picture(view), ask)


@over(
    "files, tells, wanted",
    [
        (FILES, True, [("vllm-qwen36", True, "Org/Running"), ("next", False, "Org/Next")]),
        ({}, True, [("vllm-qwen36", True, "Org/Running")]),
        (FILES, False, [("vllm-qwen36", True, ""), ("next", False, "Org/Next")]),
        ({**FILES, "/srv/.env": ""}, True, [("vllm-qwen36", True, "Org/Running"), ("next", False, "{MODEL}")]),
        (
            {
                "/srv/compose.yaml": COMPOSE.partition("  next")[0],
                "/srv/a.sh": "docker run --name a i/vllm:1 vllm serve $1\n",
                "/srv/own.sh": "docker run --name own own/vllm:1\n",
                "/srv/other.sh": "docker run nginx\n",
            },
            True,
            [("vllm-qwen36", True, "Org/Running"), ("a", False, "{ARG1}"), ("own", False, "Org/Own")],
        ),
        ({"/srv/compose.yaml": "services: ["}, True, [("vllm-qwen36", True, "Org/Running")]),
        (
            {
                "/srv/running.sh": "docker run --name vllm-qwen36 i/vllm:1 vllm serve Org/Running\n",
                "/srv/any.sh": "docker run --name vllm-qwen36 i/vllm:1 vllm serve $1\n",
                "/srv/next.sh": "docker run --name vllm-qwen36 i/vllm:1 vllm serve Org/Next\n",
                "/srv/compose.other.yaml": "services: {o: {image: i/vllm:1, command: vllm serve Org/Other}}",
            },
            True,
            [("vllm-qwen36", True, "Org/Running"), ("vllm-qwen36", False, "Org/Next"), ("srv-o-1", False, "Org/Other")],
        ),
    ],
)
async def test_what_is_there_is_found(
    files: Mapping[str, str], tells: bool, wanted: list[tuple[str, bool, str]]
) -> None:
    rows = await found(files, tells=tells)
    recipes = [(one.adopted.name, one.is_running, one.adopted.reading.recipe) for one in rows]
    assert [(name, running, recipe.model if recipe else "") for name, running, recipe in recipes] == wanted
    assert all(one.node == "spark1" for one in rows)
    assert all(one.adopted.reading.recipe or one.adopted.reading.errors for one in rows)


async def test_files_that_are_not_read_are_told_in_one_row() -> None:
    rows = await found({f"/srv/{number:02}.sh": "docker run nginx\n" for number in range(MAX_FILES + 3)})
    (row,) = (row for row in rows if not row.is_running)
    (problem,) = row.adopted.reading.errors
    assert str(problem).startswith("/srv/20.sh:1: this file and 2 more that may launch an engine aren't read")
    assert problem.remedy == "sparktop launch /srv/20.sh spark1"
