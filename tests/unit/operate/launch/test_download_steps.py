"""What is fetched, how and in which order, by what the nodes and the hub have answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.table import over
from tests.unit.recipe.test_models import COMMIT, OTHER, QWEN, answer, row

from sparktop.model.engine import EngineKind
from sparktop.model.operation import Command, ImagePull, Transfer
from sparktop.model.recipe import Dialect, Order, Recipe
from sparktop.model.survey import (
    Answer,
    DockerGet,
    HubModel,
    ModelsOnDisk,
    Output,
    Privileges,
    PrivilegesQuestion,
    Question,
    Survey,
    looked_up,
)
from sparktop.operate.acts.remote import Remote
from sparktop.operate.launch.inputs import downloads
from sparktop.operate.launch.inputs.docker import docker_there
from sparktop.operate.launch.inputs.download_steps import Fetch, copy_command, fetch
from sparktop.operate.launch.inputs.downloads import ModelOnNodes, models_on_nodes
from sparktop.operate.secrets.masking import Masker, operation_entry
from sparktop.operate.step.plan import Step
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.parameters import resolve

IMAGE = "vllm/vllm-openai:v0.22.1"
TOKEN = "hf_the-operators-own"
RSYNC = "rsync  version 3.2.7  protocol version 31\n"
FILES = [
    {"path": "config.json", "size_bytes": 1000},
    {"path": "model.safetensors", "size_bytes": 35_000_000_000},
]


def order(model: str = QWEN, **more: Any) -> Order:
    recipe = Recipe(
        id="x", path="x.yaml", dialect=Dialect.SPARKRUN, engine=EngineKind.VLLM, model=model, container=IMAGE
    )
    return Order(recipe=recipe, **more)


ONE = (NodeContext(node="spark1", home="/home/x"),)
TWO = (
    NodeContext(node="spark1", index=0, home="/home/x", fabric_ip="192.168.177.11"),
    NodeContext(node="spark2", index=1, home="/home/x", fabric_ip="192.168.177.12"),
)


def fetched(models: Sequence[ModelOnNodes], survey: Survey) -> Fetch:
    image = models[0].values.image
    return fetch(models, {one.node: docker_there(survey, one.node, image) for one in models[0].contexts})


def looked(order: Order, seats: tuple[NodeContext, ...], survey: Survey) -> None:
    """All that a launch looks up of its models and its image."""
    models = models_on_nodes(resolve(order), seats, survey)
    fetched(models, survey)
    for model in models:
        for target in model.lacking if order.may_fetch else ():
            model.obstacle(target)


class Nodes:
    """Answers whatever is asked, until nothing is."""

    def __init__(self, **models: Iterable[dict[str, Any]]) -> None:
        self.models = models
        self.images = {"spark1", "spark2"}
        self.programs: dict[str, str] = dict.fromkeys(("spark1", "spark2"), "/home/x/.local/bin/hf\n")
        self.privileges = Privileges(user="x", docker="open")
        self.hub: dict[str, Any] | None = {"status": 200, "revision": COMMIT, "files": FILES, "gated": False}
        self.hubs: dict[str, dict[str, Any]] = {}
        """By repository, where the hub has something else to say of it."""
        self.reach: str | None = RSYNC
        self.rsync: str | None = RSYNC
        self.disk: dict[str, Any] = {}

    def survey(self, order: Order, seats: tuple[NodeContext, ...]) -> Survey:
        survey = Survey()
        for _ in range(5):
            left = looked_up(survey, partial(looked, order, seats))
            if not left:
                return survey
            survey = Survey(answers={**survey.answers, **{ask: self._answer(ask) for ask in left}})
        raise AssertionError("too many rounds")

    def _answer(self, ask: Question) -> Answer:
        match ask:
            case ModelsOnDisk():
                there = self.models.get(ask.node, ())
                seen = [one for one in there if one["where"] == "cache" or "/models/" in one["path"] or ask.roots]
                return Answer(value=answer(*seen, **self.disk))
            case DockerGet():
                return Answer(value={"Id": "sha256:1"} if ask.node in self.images else None)
            case PrivilegesQuestion():
                return Answer(value=self.privileges)
            case HubModel():
                return Answer(value=self.hubs.get(ask.repo, self.hub), problem="" if self.hub else "no")
            case Output() if ask.argv[0] == "which":
                return Answer(value=self.programs.get(ask.node) or None)
            case Output() if ask.argv[0] == "rsync":
                return Answer(value=self.rsync, problem="" if self.rsync else "there is no program rsync")
            case Output() if ask.argv[0] == "ssh":
                return Answer(value=self.reach, problem="" if self.reach else "ssh ended with 255: Permission denied")
        raise AssertionError(ask)

    def fetch(self, order: Order, seats: tuple[NodeContext, ...] = ONE) -> Fetch:
        survey = self.survey(order, seats)
        return fetched(models_on_nodes(resolve(order), seats, survey), survey)

    def obstacles(self, order: Order, seats: tuple[NodeContext, ...] = ONE) -> list[tuple[str, str] | None]:
        """What keeps each model from each node that lacks it."""
        models = models_on_nodes(resolve(order), seats, self.survey(order, seats))
        return [model.obstacle(target) for model in models for target in model.lacking]

    def coming_bytes(self, order: Order, seats: tuple[NodeContext, ...] = ONE) -> dict[tuple[str, str], int | None]:
        """By node and model."""
        models = models_on_nodes(resolve(order), seats, self.survey(order, seats))
        return {(one.node, model.name): model.coming_bytes(one) for model in models for one in model.lacking}


def transfer(step: Step) -> Transfer:
    assert isinstance(step.act, Remote)
    (operation,) = step.act.operations
    assert isinstance(operation, Transfer)
    return operation


def texts(found: Fetch) -> tuple[str, ...]:
    return tuple(download.text for download in found.downloads)


def test_nothing_is_fetched_where_all_is_there() -> None:
    nodes = Nodes(spark1=[row()], spark2=[row()])
    assert nodes.fetch(order(), TWO) == Fetch()
    asked = nodes.survey(order(), TWO).answers
    assert not any(isinstance(ask, HubModel | PrivilegesQuestion) for ask in asked)


def test_a_download_by_hf_with_the_token_as_a_variable_alone() -> None:
    told = order(secrets={"HF_TOKEN": TOKEN}, hub="https://mirror.example/")
    found = Nodes().fetch(told)
    (step,) = found.steps
    assert (step.id, step.node) == ("model", "spark1")
    one = transfer(step)
    assert one.command.argv == ("/home/x/.local/bin/hf", "download", QWEN, "--revision", "main")
    assert one.command.environment["HF_TOKEN"] == TOKEN
    assert one.command.environment["HF_ENDPOINT"] == "https://mirror.example"
    assert one.command.environment["HF_HOME"] == "/home/x/.cache/huggingface"
    assert one.grows == "/home/x/.cache/huggingface/hub/models--Qwen--Qwen3.6-35B-A3B-FP8"
    assert one.key == f"model {QWEN}@main to {one.grows}"
    assert one.total_bytes == 35_000_001_000
    assert TOKEN not in str(operation_entry(one, Masker())) + repr(step) + repr(found)
    assert texts(found) == (f"model {QWEN} (35.0 GB) on spark1, from mirror.example",)
    assert Nodes().coming_bytes(told) == {("spark1", QWEN): 35_000_001_000}


def test_the_older_program_and_a_pinned_revision() -> None:
    nodes = Nodes()
    nodes.programs["spark1"] = "/usr/local/bin/huggingface-cli\n"
    one = transfer(nodes.fetch(order(values={"model_revision": COMMIT})).steps[0])
    assert one.command.argv == ("/usr/local/bin/huggingface-cli", "download", QWEN, "--revision", COMMIT)
    assert "HF_TOKEN" not in one.command.environment
    assert "HF_ENDPOINT" not in one.command.environment


def test_hf_is_preferred_and_strange_answers_are_no_program() -> None:
    nodes = Nodes()
    nodes.programs["spark1"] = "/usr/bin/huggingface-cli\n/opt/x\x1b/hf\nhf\n/home/x/.local/bin/hf\n"
    assert transfer(nodes.fetch(order()).steps[0]).command.argv[0] == "/home/x/.local/bin/hf"


def test_only_what_is_loaded_is_downloaded() -> None:
    nodes = Nodes()
    assert nodes.hub is not None
    nodes.hub["files"] = [*FILES, {"path": "original/model.safetensors", "size_bytes": 10**11}]
    one = transfer(nodes.fetch(order()).steps[0])
    assert one.command.argv[2:] == (QWEN, "config.json", "model.safetensors", "--revision", "main")
    assert one.total_bytes == 35_000_001_000
    nodes.hub["files"] = [*nodes.hub["files"], {"path": "--token", "size_bytes": 1}]
    one = transfer(nodes.fetch(order()).steps[0])
    assert one.command.argv[2:] == (QWEN, "--revision", "main")
    assert one.total_bytes == 135_000_001_001


GGUF = "acme/M-GGUF"
GGUFS = ("M-BF16-00001-of-00002.gguf", "M-BF16-00002-of-00002.gguf", "M-Q4_K_M.gguf", "M-Q8_0.gguf")


def llama(model: str = f"{GGUF}:BF16", **more: Any) -> Order:
    recipe = replace(order().recipe, engine=EngineKind.LLAMA_CPP, model=model)
    return Order(recipe=recipe, **more)


def nodes_of_gguf(*names: str) -> Nodes:
    """One that has these files of the repository, and a hub that has all."""
    there = row(GGUF, ggufs=dict.fromkeys(names, 10**9), folder_bytes=10**10, is_complete=False)
    nodes = Nodes(spark1=[there] if names else [])
    nodes.hub = {"status": 200, "revision": OTHER, "files": [{"path": name, "size_bytes": 10**9} for name in GGUFS]}
    return nodes


def test_of_a_repository_of_quants_one_is_downloaded() -> None:
    """Another one that is there isn't it, and nothing of its bytes counts."""
    for nodes in (nodes_of_gguf(), nodes_of_gguf("M-Q8_0.gguf"), nodes_of_gguf("M-Q4_K_M.gguf", GGUFS[0])):
        one = transfer(nodes.fetch(llama()).steps[0])
        assert one.command.argv[1:] == ("download", GGUF, *GGUFS[:2], "--revision", "main")
    assert one.total_bytes is None, "the folder holds others"
    assert nodes_of_gguf("M-Q8_0.gguf").coming_bytes(llama()) == {("spark1", GGUF): 2 * 10**9}
    assert nodes_of_gguf(*GGUFS[:2]).fetch(llama()) == Fetch()
    single = transfer(nodes_of_gguf().fetch(llama(f"{GGUF}:Q8_0")).steps[0])
    assert single.command.argv[1:] == ("download", GGUF, "M-Q8_0.gguf", "--revision", "main")
    assert (single.total_bytes, single.key.split(" to ")[0]) == (10**9, f"model {GGUF}:Q8_0@main")


@over("names, commit", [((), OTHER), (GGUFS[:2], COMMIT)])
def test_which_file_the_engine_is_told(names: tuple[str, ...], commit: str) -> None:
    """The one that is there, or the one that is about to come."""
    nodes = nodes_of_gguf(*names)
    (model,) = models_on_nodes(resolve(llama()), ONE, nodes.survey(llama(), ONE))
    folder = f"/home/x/.cache/huggingface/hub/models--acme--M-GGUF/snapshots/{commit}"
    assert model.with_files(ONE[0]).model_file == f"{folder}/{GGUFS[0]}"


def test_a_quant_that_nobody_has_is_refused_with_those_that_there_are() -> None:
    asked = llama(f"{GGUF}:Q2_K")
    (model,) = models_on_nodes(resolve(asked), ONE, nodes_of_gguf().survey(asked, ONE))
    with pytest.raises(CannotRender, match="of the quant Q2_K: M-BF16-00001-of-00002"):
        model.with_files(ONE[0])


def test_a_hub_that_tells_no_commit_is_refused() -> None:
    nodes = nodes_of_gguf()
    assert nodes.hub is not None
    del nodes.hub["revision"]
    (model,) = models_on_nodes(resolve(llama()), ONE, nodes.survey(llama(), ONE))
    with pytest.raises(CannotRender, match="the hub told no commit"):
        model.with_files(ONE[0])


def test_no_image_of_llama_cpp_downloads() -> None:
    nodes = nodes_of_gguf()
    nodes.programs = {}
    assert nodes.fetch(llama()) == Fetch()
    assert nodes.obstacles(llama()) == [
        ("no hf is there to download it, and no image of llama.cpp has Python", f"on spark1: {downloads.INSTALL}")
    ]


def test_without_hf_the_engine_s_image_downloads_as_the_user() -> None:
    nodes = Nodes()
    nodes.programs = {}
    found = nodes.fetch(order(secrets={"HF_TOKEN": TOKEN}))
    folder, step = found.steps
    assert isinstance(folder.act, Remote)
    assert folder.act.operations[0] == Command(argv=("mkdir", "-p", "--", "/home/x/.cache/huggingface/hub"))
    argv = transfer(step).command.argv
    assert argv[:2] == ("docker", "run")
    assert argv[argv.index("--user") + 1] == "1000:1000"
    assert argv[argv.index("HF_TOKEN") - 1 : argv.index("HF_TOKEN") + 1] == ("--env", "HF_TOKEN")
    assert not any(TOKEN in word for word in argv)
    assert argv[argv.index("--entrypoint") : argv.index("--entrypoint") + 4] == ("--entrypoint", "python3", IMAGE, "-c")
    assert argv[-2:] == (QWEN, "main")
    assert "engine's image" in texts(found)[0]


def test_without_either_it_is_refused_with_the_line_that_installs() -> None:
    nodes = Nodes()
    nodes.programs = {}
    nodes.privileges = Privileges(user="x", docker="denied")
    assert nodes.fetch(order()) == Fetch()
    (obstacle,) = nodes.obstacles(order())
    assert obstacle is not None
    assert "nothing there can download it" in obstacle[0]
    assert obstacle[1] == f"on spark1: {downloads.INSTALL}"


def test_the_second_node_copies_over_the_fabric() -> None:
    found = Nodes().fetch(order(), TWO)
    assert [(step.id, step.node) for step in found.steps] == [("model@spark1", "spark1"), ("copy@spark2", "spark2")]
    one = transfer(found.steps[1])
    folder = "/home/x/.cache/huggingface/hub/models--Qwen--Qwen3.6-35B-A3B-FP8"
    assert one.command.argv[0] == "rsync"
    assert one.command.argv[-3:] == ("--", f"192.168.177.11:{folder}/", f"{folder}/")
    assert "BatchMode=yes" in one.command.argv[one.command.argv.index("-e") + 1]
    assert (one.grows, one.total_bytes) == (folder, 35_000_001_000)
    assert texts(found)[1] == f"model {QWEN} (35.0 GB) on spark2, over the fabric from spark1"


@over("has", ["spark1", "spark2"])
def test_whoever_has_it_is_copied_from_and_the_hub_is_not_asked(has: str) -> None:
    nodes = Nodes(**{has: [row()]})
    found = nodes.fetch(order(), TWO)
    (step,) = found.steps
    other = "spark2" if has == "spark1" else "spark1"
    assert (step.id, step.node) == (f"copy@{other}", other)
    assert not any(isinstance(ask, HubModel) for ask in nodes.survey(order(), TWO).answers)


@over(
    "reach, rsync, why",
    [
        (None, RSYNC, "Permission denied"),
        (RSYNC, None, "has no rsync"),
        (RSYNC, "rsync  version 3.1.3  protocol version 31", "3.2.3 or later"),
        ("bash: rsync: command not found", RSYNC, "can't copy"),
    ],
)
def test_what_can_t_be_copied_is_downloaded_there_too_and_said(reach: str | None, rsync: str | None, why: str) -> None:
    nodes = Nodes()
    nodes.reach, nodes.rsync = reach, rsync
    found = nodes.fetch(order(), TWO)
    assert [step.id for step in found.steps] == ["model@spark1", "model@spark2"]
    assert "not from spark1" in texts(found)[1]
    assert why in texts(found)[1]


def test_a_node_that_can_t_copy_from_the_one_that_has_it_is_asked_for_hf() -> None:
    nodes = Nodes(spark1=[row()])
    nodes.reach = None
    (step,) = nodes.fetch(order(), TWO).steps
    assert step.id == "model@spark2"
    assert transfer(step).command.argv[0] == "/home/x/.local/bin/hf"


def test_two_states_of_one_branch_are_made_one() -> None:
    nodes = Nodes(spark1=[row()], spark2=[row(revision=OTHER)])
    found = nodes.fetch(order(), TWO)
    (step,) = found.steps
    assert step.id == "copy@spark2"
    assert transfer(step).total_bytes is None  # the folder holds the other state too


def test_half_a_model_is_gone_on_with_where_more_of_it_is() -> None:
    half = row(is_complete=False, missing=["model.safetensors"], folder_bytes=20_000_000_000)
    nodes = Nodes(spark2=[half])
    assert [step.id for step in nodes.fetch(order(), TWO).steps] == ["model@spark2", "copy@spark1"]
    coming = nodes.coming_bytes(order(), TWO)
    assert coming == {("spark2", QWEN): 15_000_001_000, ("spark1", QWEN): 35_000_001_000}


@over("status", [401, 403, 404, 0, 500])
def test_what_the_hub_does_not_give(status: int) -> None:
    nodes = Nodes()
    nodes.hub = {"status": status, "problem": "why", "files": []}
    assert nodes.fetch(order()) == Fetch()


def test_a_cache_that_is_root_s() -> None:
    nodes = Nodes()
    nodes.disk = {"writable": False}
    (obstacle,) = nodes.obstacles(order())
    assert obstacle is not None
    assert "not writable" in obstacle[0]
    assert 'chown -R "$USER":' in obstacle[1]


def test_nothing_may_be_fetched() -> None:
    nodes = Nodes()
    nodes.images = set()
    assert nodes.fetch(order(may_fetch=False)) == Fetch()


def test_images_come_first_to_each_node_that_lacks_it() -> None:
    nodes = Nodes(spark1=[row()])
    nodes.images = {"spark1"}
    found = nodes.fetch(order(), TWO)
    assert [step.id for step in found.steps] == ["image@spark2", "copy@spark2"]
    assert isinstance(found.steps[0].act, Remote)
    assert found.steps[0].act.operations == (ImagePull(image=IMAGE),)
    local = Nodes(spark1=[row()])
    local.images = set()
    assert local.fetch(order(values={"container": "vllm-node"})) == Fetch()


def test_a_folder_of_one_node_is_copied_to_the_other_s_home() -> None:
    plain = row("mine", where="folder", path="/home/x/models/mine", folder="/home/x/models/mine", revision="")
    found = Nodes(spark1=[plain]).fetch(order("~/models/mine"), TWO)
    (step,) = found.steps
    assert transfer(step).command.argv[-2:] == ("192.168.177.11:/home/x/models/mine/", "/home/x/models/mine/")
    assert Nodes().fetch(order("/models/none"), TWO) == Fetch()


def test_a_folder_that_can_t_be_copied_is_not_fetched() -> None:
    plain = row("mine", where="folder", path="/srv/mine", folder="/srv/mine", revision="")
    nodes = Nodes(spark1=[plain])
    nodes.reach = None
    assert nodes.fetch(order("/srv/mine"), TWO) == Fetch()
    (obstacle,) = nodes.obstacles(order("/srv/mine"), TWO)
    assert obstacle is not None
    assert "Permission denied" in obstacle[0]


def test_a_place_where_models_are_not_looked_for_is_looked_at_by_itself() -> None:
    apart = row("mine", where="folder", path="/srv/mine", folder="/srv/mine", revision="")
    nodes = Nodes(spark1=[apart], spark2=[apart])
    assert nodes.fetch(order("/srv/mine"), TWO) == Fetch()
    assert nodes.fetch(order("/srv/mine", may_fetch=False), TWO) == Fetch()
    assert transfer(Nodes(spark1=[apart]).fetch(order("/srv/mine"), TWO).steps[0]).grows == "/srv/mine"


# --- a model and its draft


EAGLE = "org/Eagle"
BOTH = {"more_models": (EAGLE,), "command": "sglang {draft}", "defaults": {"draft": EAGLE}}


def with_draft(**more: Any) -> Order:
    made = order(**more)
    return replace(made, recipe=replace(made.recipe, **BOTH))


def test_a_draft_comes_after_the_model_once_from_the_hub_and_over_the_fabric() -> None:
    nodes = Nodes()
    nodes.hubs[EAGLE] = {"status": 200, "files": [{"path": "model.safetensors", "size_bytes": 2_000_000_000}]}
    found = nodes.fetch(with_draft(), TWO)
    assert [step.id for step in found.steps] == ["model@spark1", "copy@spark2", "model-2@spark1", "copy-2@spark2"]
    first, second = transfer(found.steps[2]), transfer(found.steps[3])
    assert first.command.argv[2:] == (EAGLE, "--revision", "main")
    assert second.command.argv[-1] == "/home/x/.cache/huggingface/hub/models--org--Eagle/"
    assert (first.total_bytes, second.total_bytes) == (2_000_000_000, 2_000_000_000)
    assert texts(found)[2:] == (
        f"model {EAGLE} (2.0 GB) on spark1, from huggingface.co",
        f"model {EAGLE} (2.0 GB) on spark2, over the fabric from spark1",
    )
    coming = nodes.coming_bytes(with_draft(), TWO)
    assert [coming[node, QWEN] for node in ("spark1", "spark2")] == [35_000_001_000] * 2
    assert [coming[node, EAGLE] for node in ("spark1", "spark2")] == [2_000_000_000] * 2
    assert len({transfer(step).key for step in found.steps}) == 4


def test_on_one_node_too() -> None:
    found = Nodes().fetch(with_draft())
    assert [step.id for step in found.steps] == ["model", "model-2"]
    only = Nodes(spark1=[row()]).fetch(with_draft())
    assert [(step.id, step.title) for step in only.steps] == [("model", f"Download {EAGLE} (35.0 GB) to spark1")]


def test_one_question_a_node_and_one_to_the_hub_for_each_that_is_missing() -> None:
    def asked(nodes: Nodes, told: Order) -> tuple[list[str], list[str]]:
        answers = nodes.survey(told, TWO).answers
        disks = [ask.node for ask in answers if isinstance(ask, ModelsOnDisk)]
        return disks, [ask.repo for ask in answers if isinstance(ask, HubModel)]

    there = ["spark1", "spark2"]
    assert asked(Nodes(), with_draft()) == (there, [QWEN, EAGLE])
    assert asked(Nodes(spark1=[row()], spark2=[row()]), with_draft()) == (there, [EAGLE])
    assert asked(Nodes(spark1=[row(), row(EAGLE)]), with_draft()) == (there, [])
    assert asked(Nodes(), with_draft(values={"draft": "me/Other"})) == (there, [QWEN, "me/Other"])


def test_another_draft_is_fetched_where_the_operator_names_one() -> None:
    found = Nodes(spark1=[row(), row(EAGLE)]).fetch(with_draft(values={"draft": "me/Other"}))
    assert [transfer(step).command.argv[2] for step in found.steps] == ["me/Other"]


def test_each_is_copied_from_where_it_is() -> None:
    found = Nodes(spark1=[row()], spark2=[row(EAGLE)]).fetch(with_draft(), TWO)
    assert [(step.id, step.node) for step in found.steps] == [("copy@spark2", "spark2"), ("copy@spark1", "spark1")]


def test_what_stands_in_the_way_of_one_keeps_no_other_back() -> None:
    nodes = Nodes()
    nodes.disk = {"writable": False}
    first, second = nodes.obstacles(with_draft())
    assert first == second
    away = Nodes()
    away.hubs[EAGLE] = {"status": 404, "files": []}
    assert [transfer(step).command.argv[2] for step in away.fetch(with_draft()).steps] == [QWEN]


def test_in_the_engine_s_image_the_folder_is_made_once() -> None:
    nodes = Nodes()
    nodes.programs = {}
    found = nodes.fetch(with_draft())
    assert [step.id for step in found.steps] == ["cache", "model", "model-2"]
    names = [argv[argv.index("--name") + 1] for argv in (transfer(step).command.argv for step in found.steps[1:])]
    assert len(set(names)) == 2


def test_places_where_models_are_not_looked_for_are_one_question() -> None:
    apart = [
        row(name, where="folder", path=f"/srv/{name}", folder=f"/srv/{name}", revision="") for name in ("mine", "eagle")
    ]
    nodes = Nodes(spark1=apart)
    told = with_draft(model="/srv/mine", values={"draft": "/srv/eagle"})
    assert nodes.fetch(told) == Fetch()
    asked = [ask.roots for ask in nodes.survey(told, ONE).answers if isinstance(ask, ModelsOnDisk)]
    assert asked == [(), ("/srv/mine", "/srv/eagle")]
    beside = with_draft(values={"draft": "/srv/eagle"})
    here = Nodes(spark1=[row(), apart[1]])
    assert here.fetch(beside) == Fetch()
    assert Nodes(spark1=[row()]).fetch(beside) == Fetch()


@over("model", ["--help", "a/b c", "a/b;rm", "../x", ""])
def test_hostile_names_come_into_no_argv(model: str) -> None:
    assert Nodes().fetch(order(model)) == Fetch()


def test_hostile_revisions_too() -> None:
    assert Nodes().fetch(order(values={"model_revision": "--token"})) == Fetch()


def test_keys_are_the_same_in_every_run() -> None:
    first, second = (Nodes().fetch(order(), TWO) for _ in range(2))
    assert first == second
    assert len({transfer(step).key for step in first.steps}) == 2


def test_another_user_and_an_address_of_the_sixth_version() -> None:
    assert copy_command("fd00::1", "nvidia", "/a", "/b").argv[-2:] == ("nvidia@[fd00::1]:/a/", "/b/")
    assert downloads.address("fd00::1", "nvidia") == "nvidia@fd00::1"
    assert downloads.address("-oProxyCommand=x") is None
    assert downloads.address("10.0.0.1", "-l x") == "10.0.0.1"
