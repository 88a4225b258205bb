"""When a compose file's service is launched as itself, and why it can't be."""

from __future__ import annotations

from typing import Any

from tests.table import over
from tests.unit.operate.launch.launch_support import COMPOSE, COMPOSE_FILES, FOLDER, Sparks, composed

from sparktop.model.operation import Command
from sparktop.model.recipe import ComposeService, Order
from sparktop.model.survey import Answer, DockerGet, Output, Privileges, Question
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.step.plan import Plan, Refusal

PATH = f"{FOLDER}/compose.yaml"
SECRETS = {"HF_TOKEN": "hf_canaryABCDEFGHIJKLMN"}
NO_COMPOSE = Privileges(user="spark", docker="open", sudo="free", has_compose=False)
OWN = {"project": "llm", "service": "engine", "oneoff": "False"}


class Spot(Sparks):
    """One Spark with the files, and with the compose program of this version."""

    def __init__(self, version: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.version = version
        self.files |= COMPOSE_FILES
        if version:
            self.rights = NO_COMPOSE

    def _answer(self, ask: Question, order: Order) -> Answer:
        if isinstance(ask, Output) and ask.argv[0] == "docker-compose":
            return Answer(value=self.version) if self.version[:1].isdecimal() else Answer(problem="none")
        if isinstance(ask, DockerGet) and ask.path == "/version":
            return Answer(value={"ApiVersion": "1.43"})
        return super()._answer(ask, order)

    def has(self, name: str, state: str = "exited", **labels: str) -> None:
        """A container."""
        said = {f"com.docker.compose.{label}": value for label, value in labels.items()}
        self.listed["spark1"] = [{"Id": "ef" * 32, "Names": [f"/{name}"], "State": state, "Labels": said, "Image": "x"}]


def launched(spot: Spot, **more: Any) -> Plan | Refusal:
    return spot.planned(Order(**{"recipe": more.get("recipe") or composed(), "secrets": SECRETS, **more}))


def commands(plan: Plan | Refusal) -> list[str]:
    """Of the compose program."""
    assert isinstance(plan, Plan), plan.reason
    operations = [one for step in plan.steps if isinstance(step.act, Remote) for one in step.act.operations]
    argvs = [getattr(one, "argv", ()) for one in operations]
    return [" ".join(argv) for argv in argvs if "compose" in " ".join(argv[:2])]


@over(
    "version, name, program",
    [("", "llm-engine-1", "docker compose"), ("1.29.2", "llm_engine_1", "docker-compose")],
)
def test_compose_makes_it_and_starts_it_under_the_name_that_it_gives(version: str, name: str, program: str) -> None:
    plan = launched(Spot(version))
    options = f"{program} -p llm --project-directory {FOLDER} -f {PATH}"
    up = "--no-deps --no-build --no-recreate -- engine"
    assert commands(plan) == [f"{options} config --quiet", f"{options} up --no-start {up}", f"{options} up -d {up}"]
    assert isinstance(plan, Plan)
    assert f"Runs `{program} -f {PATH} up -d --no-deps engine`." in plan.effect
    assert any(step.title == f"Wait until {name} answers" for step in plan.steps)


@over(
    "labels, line",
    [
        ({"project": "mine"}, f"docker compose -f {PATH} -p mine up -d --no-deps engine"),
        ({"project": "llm"}, f"docker compose -f {PATH} up -d --no-deps engine"),
    ],
)
def test_its_project_is_the_one_that_containers_of_the_file_have(labels: dict[str, str], line: str) -> None:
    place = {"project__config_files": "compose.yaml", "project__working_dir": FOLDER}
    recipe = composed(**labels, **place)
    plan = launched(Spot(), recipe=recipe)
    assert isinstance(plan, Plan), plan.reason
    assert f"on spark1: {line}" in plan.equivalent
    assert recipe.defaults["name"] == f"{labels['project']}-engine-1"


OTHER = COMPOSE.replace("    command", "    env_file: a.env\n    command")


@over(
    "files, now, version, why, remedy",
    [
        ({}, {}, "none", "neither `docker compose` nor docker-compose works", "apt-get install docker-compose-plugin"),
        ({}, {PATH: None}, "", f"{PATH} on spark1 can't be read any more: permission denied", "ls -l"),
        ({}, {PATH: ""}, "", f"{PATH} on spark1 is gone since sparktop read {PATH}", "read it again"),
        ({}, {PATH: COMPOSE + "#"}, "", f"{PATH} on spark1 was changed since", "read it again"),
        ({}, {f"{FOLDER}/.env": "MODEL=Other/One\n"}, "", f"{FOLDER}/.env on spark1 was changed", "read it again"),
        ({PATH: OTHER}, {f"{FOLDER}/a.env": "A=1\n"}, "", f"{FOLDER}/a.env on spark1 was added since", "read it again"),
        (
            {PATH: COMPOSE.replace("0.6", "0.6 --api-key ${OUR_KEY}")},
            {},
            "",
            f"takes OUR_KEY from the shell or from {FOLDER}/.env, and neither sets it",
            f"echo OUR_KEY=... >> {FOLDER}/.env",
        ),
    ],
)
def test_what_compose_would_not_start_as_it_was_read_is_refused(
    files: dict[str, str], now: dict[str, str | None], version: str, why: str, remedy: str
) -> None:
    spot = Spot(version)
    spot.files |= files | now
    found = launched(spot, recipe=composed({**COMPOSE_FILES, **files}))
    assert isinstance(found, Refusal)
    assert why in found.reason
    assert remedy in " ".join(found.remedies)
    assert found.prospect is not None


@over(
    "name, state, labels, why, remedy",
    [
        ("llm-engine-1", "exited", OWN, "of engine on spark1 already (exited)", "act safe-restart spark1 --engine llm"),
        ("llm-engine-1", "created", OWN, "of engine on spark1 already (created)", "docker rm llm-engine-1"),
        ("renamed", "running", OWN, "made renamed of engine", "sparktop act relaunch spark1 --engine renamed"),
        ("llm-engine-1", "exited", {}, "compose didn't make of engine", "docker rename llm-engine-1 llm-engine-1-old"),
    ],
)  # fmt: skip
def test_what_up_would_recreate_or_fail_at_is_refused(
    name: str, state: str, labels: dict[str, str], why: str, remedy: str
) -> None:
    spot = Spot()
    spot.has(name, state, **labels)
    found = launched(spot)
    assert isinstance(found, Refusal)
    assert why in found.reason
    assert remedy in " ".join(found.remedies)


@over("labels", [{**OWN, "service": "other"}, {**OWN, "project": "x"}, {**OWN, "oneoff": "True"}])
def test_other_containers_of_the_project_stay(labels: dict[str, str]) -> None:
    spot = Spot()
    spot.has("llm-other-1", **labels)
    assert commands(launched(spot))


@over(
    "recipe",
    [
        composed({**COMPOSE_FILES, f"{FOLDER}/compose.override.yaml": "services: {}"}),
        composed({**COMPOSE_FILES, PATH: COMPOSE.replace("    network_mode: host\n", "")}),
        composed(project="llm", project__config_files=f"{PATH},{FOLDER}/more.yaml"),
    ],
)
def test_what_its_file_alone_does_not_tell_is_a_container_of_our_own(recipe: Any) -> None:
    """Another file is laid over it; it publishes no port."""
    assert recipe.compose is None
    assert not commands(launched(Spot(), recipe=recipe))


def test_elsewhere_than_where_the_file_lies_it_is_a_container_of_our_own() -> None:
    plan = launched(Spot(nodes=("spark2",)))
    assert not commands(plan)
    assert isinstance(plan, Plan)
    assert any("Launched elsewhere than on spark1 alone" in text for text in plan.warnings)


@over(
    "command, share",
    [("--gpu-memory-utilization 0.6", "0.60"), ("--gpu-memory-utilization=0.6", "0.60"), ("", "0.90")],
)
def test_the_share_is_the_file_s_own_not_one_that_would_fit(command: str, share: str) -> None:
    files = {**COMPOSE_FILES, PATH: COMPOSE.replace("--gpu-memory-utilization 0.6", command)}
    spot = Spot(available_gib=60.0)
    spot.files |= files
    found = launched(spot, recipe=composed(files))
    assert found.prospect is not None
    assert found.prospect.budget is not None
    assert f"{found.prospect.budget.share:.2f}" == share


def test_a_volume_with_models_is_the_container_s_own_affair() -> None:
    files = {**COMPOSE_FILES, PATH: COMPOSE.replace("~/.cache/huggingface:", "models:") + "volumes: {models: {}}\n"}
    spot = Spot()
    spot.files |= files
    spot.models["spark1"] = None
    plan = launched(spot, recipe=composed(files))
    assert commands(plan)
    assert isinstance(plan, Plan)
    assert not any(step.id.startswith("model") for step in plan.steps)
    assert any("in a volume, or downloads it as it starts" in text for text in plan.warnings)


def test_only_an_image_that_is_there_is_started_where_the_file_builds_it() -> None:
    files = {**COMPOSE_FILES, PATH: COMPOSE.replace("image: vllm/vllm-openai:v0.20.2", "build: .")}
    spot = Spot()
    spot.files |= files
    recipe = composed(files)
    assert commands(launched(spot, recipe=recipe))
    spot.images["spark1"] = False
    found = launched(spot, recipe=recipe)
    assert isinstance(found, Refusal)
    assert "llm-engine" in found.reason


def test_a_key_that_the_file_does_not_take_is_none_of_the_engine_s() -> None:
    plan = launched(Spot(), secrets={**SECRETS, "VLLM_API_KEY": "sk-canary-4f2a9c77"})
    assert isinstance(plan, Plan), plan.reason
    assert "key:" not in plan.outcome
    assert any("VLLM_API_KEY is set, and" in text for text in plan.warnings)


@over("key, given", [("sk-of-the-file-77", {}), ("sk-of-the-shell-1", {"VLLM_API_KEY": "sk-of-the-shell-1"})])
def test_a_secret_of_the_env_file_is_given_to_compose_only_where_it_is_another(key: str, given: dict[str, str]) -> None:
    text = COMPOSE.replace("{HF_TOKEN:", "{VLLM_API_KEY: $VLLM_API_KEY, HF_TOKEN:")
    files = {PATH: text, f"{FOLDER}/.env": "MODEL=Qwen/Qwen3-0.6B\nVLLM_API_KEY=sk-of-the-file-77\n"}
    spot = Spot()
    spot.files |= files
    plan = launched(spot, recipe=composed(files), secrets={**SECRETS, "VLLM_API_KEY": key})
    assert isinstance(plan, Plan), plan.reason
    (smoke,) = (step.act for step in plan.steps if isinstance(step.act, SmokeTest))
    assert smoke.api_key == key
    assert "sk-of-the" not in repr(plan)
    environments = [one.environment for step in plan.steps if isinstance(step.act, Remote)
                    for one in step.act.operations if isinstance(one, Command)]  # fmt: skip
    assert environments.count({**SECRETS, **given}) == 3


def test_what_was_read_is_kept_by_its_digest_alone() -> None:
    service = composed({**COMPOSE_FILES, f"{FOLDER}/.env": "MODEL=a/b\nHF_TOKEN=hf_canaryABCDEFGHIJKLMN\n"}).compose
    assert isinstance(service, ComposeService)
    assert "hf_canary" not in repr(service)
    assert set(service.digests) == {PATH, f"{FOLDER}/.env"}
