"""What runs already is looked at for what its launch's end would have given it."""

from __future__ import annotations

from typing import Any

from tests import recipe_support as recipes
from tests.table import over

from sparktop.model.survey import Answer, Question, Survey, looked_up
from sparktop.operate.container import inspected
from sparktop.operate.launch import name_holder
from sparktop.operate.launch.inputs.docker import DockerThere, docker_there, list_question
from sparktop.recipe.container_spec import Rendered
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.render import render

ALWAYS = {"Name": "always", "MaximumRetryCount": 0}
ID = "ab" * 32


def running_one(policy: str, **row: Any) -> tuple[Rendered, Survey]:
    rendered = render(resolve(recipes.order()), (recipes.seat(0),))
    box = rendered.ranks[0].container
    listed = {"Names": [f"/{box.name}"], "State": "running", "Id": ID, "Labels": box.labels, **row}
    told = {"Id": ID, "Name": f"/{box.name}", "HostConfig": {"RestartPolicy": {"Name": policy}}}
    answers: dict[Question, Answer] = {
        list_question("spark1"): Answer(value=[listed]),
        inspected.ask("spark1", ID): Answer(value=told),
    }
    return rendered, Survey(answers=answers)


def docker(survey: Survey) -> dict[str, DockerThere]:
    return {"spark1": docker_there(survey, "spark1", "image")}


@over(
    "policy, wanted, is_told",
    [
        ("no", ALWAYS, True),
        ("", ALWAYS, True),
        ("always", ALWAYS, False),
        ("unless-stopped", ALWAYS, False),
        ("no", {}, False),
    ],
)
def test_a_restart_policy_that_was_never_given_is_told(policy: str, wanted: dict[str, object], is_told: bool) -> None:
    rendered, survey = running_one(policy)
    name = rendered.ranks[0].container.name
    lines = [f"once it serves, on spark1: docker update --restart=always {name}"] if is_told else []
    assert list(name_holder.policy_remedies(rendered, wanted, docker(survey), survey)) == lines


def test_docker_is_asked_about_what_runs_as_asked_and_nothing_else() -> None:
    rendered, survey = running_one("no")
    listed = Survey(answers={list_question("spark1"): survey.answers[list_question("spark1")]})
    there = docker(listed)
    questions = looked_up(listed, lambda look_ups: [*name_holder.policy_remedies(rendered, ALWAYS, there, look_ups)])
    assert questions == (inspected.ask("spark1", ID),)
    assert name_holder.running_already(rendered, there)
    for other, told in (running_one("no", State="exited"), running_one("no", Labels={})):
        assert not name_holder.running_already(other, docker(told))
    assert not list(name_holder.policy_remedies(rendered, ALWAYS, docker(Survey()), Survey())), "not known, not told"
