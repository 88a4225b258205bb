"""What runs already is looked at for what its launch's end would have given it."""

from __future__ import annotations

from typing import Any

from tests import recipe_support as recipes
from tests.table import over

from sparktop.model.survey import Answer, Ask, Survey
from sparktop.operate.container import inspected
from sparktop.operate.launch import name_holder
from sparktop.operate.launch.inputs.docker import list_ask
from sparktop.recipe.container_spec import Rendered
from sparktop.recipe.render.render import render

ALWAYS = {"Name": "always", "MaximumRetryCount": 0}
ID = "ab" * 32


def running_one(policy: str, **row: Any) -> tuple[Rendered, Survey]:
    rendered = render(recipes.order(), (recipes.seat(0),))
    box = rendered.ranks[0].container
    listed = {"Names": [f"/{box.name}"], "State": "running", "Id": ID, "Labels": box.labels, **row}
    told = {"Id": ID, "Name": f"/{box.name}", "HostConfig": {"RestartPolicy": {"Name": policy}}}
    answers: dict[Ask, Answer] = {
        list_ask("spark1"): Answer(value=[listed]),
        inspected.ask("spark1", ID): Answer(value=told),
    }
    return rendered, Survey(answers=answers)


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
    assert list(name_holder.policy_remedies(rendered, wanted, survey)) == lines


def test_docker_is_asked_about_what_runs_as_asked_and_nothing_else() -> None:
    rendered, survey = running_one("no")
    assert list(name_holder.asks(rendered, survey)) == [inspected.ask("spark1", ID)]
    for other in (running_one("no", State="exited"), running_one("no", Labels={}), running_one("no", Id="x")):
        assert not list(name_holder.asks(*other))
    assert not list(name_holder.policy_remedies(rendered, ALWAYS, Survey())), "not known, not told"
