"""The recipe of a container as it runs: from what Docker tells of it, where nothing is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sparktop.engines.ranks import EngineRank
from sparktop.launchspec.read.docker import container_specs
from sparktop.model.survey import Answer, Ask, DockerGet
from sparktop.operate.container import inspected
from sparktop.operate.refused import Refused
from sparktop.recipe.read.adopt import Adopted, adopted

AskNodes = Callable[[Sequence[Ask]], Awaitable[Mapping[Ask, Answer]]]


async def running_recipe(rank: EngineRank, ask: AskNodes) -> Adopted:
    """The recipe of this engine's container.

    Raises:
        Refused: it has none, Docker doesn't tell, or its command starts no engine.
    """
    engine, node = rank.engine, rank.node.name
    container = engine.container
    if container is None:
        reason = f"{engine.name} on {node} runs without a container, and sparktop launches containers"
        raise Refused(reason, (f"to start it with the Spark: sparktop act relaunch {node} --engine {engine.name}",))
    inspect = await _told(inspected.ask(node, container.container_id), ask)
    path = inspected.image_path(str(inspect.get("Image") or ""))
    image = await _told(DockerGet(node=node, path=path), ask) if path else {}
    specs = container_specs(inspect, image, argv=engine.argv)
    if not specs:
        raise Refused(f"{engine.name} on {node}: its command starts no engine that a recipe can be made of")
    return adopted(specs[0], folder="/", name=container.name)


async def _told(question: DockerGet, ask: AskNodes) -> Mapping[str, Any]:
    answer = (await ask([question]))[question]
    if not isinstance(answer.value, Mapping):
        why = answer.problem or "there is none any more"
        raise Refused(f"Docker on {question.node} doesn't tell what the container is: {why}")
    return answer.value
