"""Where compiled kernels are kept, and what the recipe's own mounts and settings leave of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.recipe_support import order, pair, seat
from tests.table import over
from tests.unit.recipe.test_read import recipe_of, with_line

from sparktop.model.engine import EngineKind
from sparktop.model.survey import Answer, Survey, looked_up
from sparktop.operate.launch.launch_text import kernel_notes
from sparktop.recipe.container_spec import ContainerSpec, Rendered
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.compiled import TARGET, folder_of
from sparktop.recipe.render.render import render

SOURCE = "/home/me/.cache/sparktop/compiled/vllm-openai-v0.19.0/model-"


def made(**more: Any) -> ContainerSpec:
    return render(resolve(order(keeps_compiled=True, **more)), [seat()]).head.container


def kept(container: ContainerSpec) -> dict[str, str]:
    return {name: value for name, value in container.environment.items() if value.startswith(TARGET)}


def test_they_are_kept_by_image_and_model() -> None:
    folders = {folder_of(render(resolve(order(keeps_compiled=True, **more)), [seat()]).head)
               for more in ({}, {"model": "org/other"}, {"container": "a/b:1"}, {})}  # fmt: skip
    assert len(folders) == 3
    assert any(folder.startswith(SOURCE) for folder in folders)
    assert kept(made())["VLLM_CACHE_ROOT"] == "/cache/compiled/vllm"
    assert "SGLANG_CACHE_DIR" not in kept(made())
    assert "SGLANG_CACHE_DIR" in kept(made(engine=EngineKind.SGLANG, command="sglang serve --model-path {model}"))


@over(
    "options, environment, lost",
    [
        ({"volumes": ["/a:/root/.triton"]}, {}, {"TRITON_CACHE_DIR"}),
        ({"volumes": ["/a:/root/.cache"]}, {}, {"VLLM_CACHE_ROOT", "FLASHINFER_WORKSPACE_BASE"}),
        ({"volumes": ["/a:/root/.cache/huggingface"]}, {}, set()),
        ({}, {"TRITON_CACHE_DIR": "/mine"}, {"TRITON_CACHE_DIR"}),
    ],
)
def test_the_recipes_own_places_win(options: Mapping[str, object], environment: dict[str, str], lost: set[str]) -> None:
    container = made(options=options, environment=environment)
    assert set(kept(made())) - set(kept(container)) == lost
    targets = [mount.target for mount in container.mounts]
    assert len(targets) == len(set(targets))


@over(
    "more",
    [
        {"options": {"user": "1000:1000"}},
        {"options": {"volumes": [f"/a:{TARGET}"]}},
        {"keeps_compiled": False},
    ],
)
def test_nothing_is_kept_where_it_could_not_be_written_or_is_not_wanted(more: dict[str, Any]) -> None:
    container = render(resolve(order(**{"keeps_compiled": True, **more})), [seat()]).head.container
    assert kept(container) == {}
    assert not any(mount.source.startswith(SOURCE) for mount in container.mounts)


def test_a_recipe_that_names_sparkruns_place_of_the_hubs_cache_has_it_there() -> None:
    container = made(environment={"A": "/cache/huggingface/x"})
    assert ("/home/me/.cache/huggingface", "/cache/huggingface") in [(m.source, m.target) for m in container.mounts]


@over("line, keeps", [("runtime_cache: false", False), ("runtime_cache: {enabled: false}", False), ("x: 1", True)])
def test_a_recipe_may_switch_it_off(line: str, keeps: bool) -> None:
    assert recipe_of(with_line(line)).keeps_compiled is keeps


@over(
    "sizes, said",
    [
        ((Answer(value="500000\t/x"), Answer(value="500000\t/x")), ["spark1 keeps 0.5 GB", "spark2 keeps 0.5 GB"]),
        ((Answer(value="500000\t/x"), Answer(code=1, problem="du exited")), ["spark1 keeps", "spark2 has no compiled"]),
        ((Answer(code=1, problem="du exited"), Answer(code=1, problem="du exited")), []),
        ((Answer(value="500000\t/x"), Answer(problem="no answer")), ["spark1 keeps"]),
    ],
)
def test_how_much_is_kept_is_told_and_that_one_of_two_has_none(sizes: tuple[Answer, ...], said: list[str]) -> None:
    launch = two()
    questions = looked_up(Survey(), lambda look_ups: list(kernel_notes(launch, look_ups)))
    notes = list(kernel_notes(launch, Survey(answers=dict(zip(questions, sizes, strict=True)))))
    assert len(notes) == len(said)
    assert all(note.startswith(text) for note, text in zip(notes, said, strict=True))


def two() -> Rendered:
    return render(
        resolve(order(keeps_compiled=True, min_nodes=2, max_nodes=2, values={"tensor_parallel": "2"})), pair()
    )
