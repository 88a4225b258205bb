"""Gate of the disks: room for what a launch fetches, where the model's cache and Docker's images lie. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparktop.model.prospect import Gate
from sparktop.operate.launching import fetchsteps, gates_docker, gates_image
from sparktop.operate.launching.gates_model import wanted_of
from sparktop.operate.launching.looked import (
    GB,
    Looked,
    failed,
    gb,
    image_of,
    passed,
    unknown,
    warned,
    why_not,
)
from sparktop.operate.launching.seats import disk_ask, disks
from sparktop.operate.survey import Ask, Output, Survey

MARGIN = 1.1
"""Of what is fetched: temporary files, and layers before they are unpacked."""
UNSIZED_BYTES = 50 * GB
"""Room for what doesn't tell its size beforehand: an image is 20 to 30 GB unpacked, its layers beside it meanwhile."""
_MODEL, _IMAGE = "the model", "the image"


def df_ask(node: str, path: str) -> Output:
    return Output(node=node, argv=("df", "-B1", "--output=avail,target", "--", path))


def asks(nodes: Sequence[str], survey: Survey) -> Iterator[Ask]:
    """Of both places, once it is known where they are."""
    for node in nodes:
        if disk_ask(node) in survey.answers and gates_docker.info_ask(node) in survey.answers:
            yield from (df_ask(node, path) for path in _places(node, survey).values())


def _places(node: str, survey: Survey) -> Mapping[str, str]:
    """Where their bytes will lie."""
    there = disks((node,), survey).get(node)
    told = survey.value(gates_docker.info_ask(node))
    root = str(told.get("DockerRootDir") or "") if isinstance(told, Mapping) else ""
    found = {_MODEL: there.cache if there is not None else "", _IMAGE: root}
    return {what: path for what, path in found.items() if path.startswith("/") and path.isprintable()}


def gates(looked: Looked) -> Iterator[Gate]:
    """disk, for each node."""
    models = wanted_of(looked)
    coming = fetchsteps.fetch(looked.order, looked.seats, looked.survey).coming
    image = image_of(looked.order, looked.rendered)
    for node in looked.nodes:
        has_disk = node in models[0].disks
        if not has_disk or not gates_image.was_told(looked.survey, node, image):
            what = "which images" if has_disk else "which models"
            yield unknown("disk", node, f"{what} {node} has is not known, so neither is what has to be fetched")
            continue
        needs: dict[str, int | None] = {}
        for wanted in models:
            if (seat := next((one for one in wanted.lacking if one.node == node), None)) is not None:
                size = wanted.size_bytes
                rest = max(0, size - wanted.there_bytes(seat)) if size is not None else None
                needs[wanted.model if wanted.one.is_more else _MODEL] = coming.get((node, wanted.model), rest)
        if gates_image.there(looked.survey, node, image) is None and not gates_image.is_local_only(image):
            sizes = (one.size_bytes for each in looked.nodes if (one := gates_image.there(looked.survey, each, image)))
            needs[_IMAGE] = next(sizes, None)
        yield _disk(looked, node, needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    mount: str
    free_bytes: int


def room(survey: Survey, node: str, path: str) -> _Room | None:
    """Of the file system that holds the path, as df says it."""
    said = survey.value(df_ask(node, path)) if path else None
    lines = said.splitlines() if isinstance(said, str) else []
    words = lines[1].split(None, 1) if len(lines) > 1 else []
    if len(words) != 2 or not words[0].isdecimal() or len(words[0]) > 18:
        return None
    return _Room(mount=words[1], free_bytes=int(words[0]))


def _as_told(survey: Survey, node: str) -> _Room | None:
    """As the answer on models has it, where df was not heard: of a cache that isn't there yet."""
    there = disks((node,), survey).get(node)
    if there is None or there.free_bytes is None:
        return None
    return _Room(mount=there.cache or "the cache's disk", free_bytes=there.free_bytes)


def _disk(looked: Looked, node: str, needs: Mapping[str, int | None]) -> Gate:
    """`needs`: bytes that are still to come, None where their number isn't known."""
    survey = looked.survey
    if not needs:
        return passed("disk", node, "nothing has to be fetched")
    places, rooms = _places(node, survey), dict[str, _Room]()
    for what in needs:
        path = places.get(what if what == _IMAGE else _MODEL, "")
        found = room(survey, node, path) or (_as_told(survey, node) if what != _IMAGE else None)
        if found is None:
            why = why_not(survey, df_ask(node, path), "it was not asked") if path else "its place is not known"
            return unknown("disk", node, f"how much room there is for {what} is not known: {why}")
        rooms[what] = found
    said = []
    for mount in dict.fromkeys(one.mount for one in rooms.values()):
        here = [what for what, one in rooms.items() if one.mount == mount]
        free = min(rooms[what].free_bytes for what in here)
        wanted = sum(size for what in here if (size := needs[what]) is not None) * MARGIN
        unsized = UNSIZED_BYTES if None in (needs[what] for what in here) else 0
        what_comes = " and ".join(_sized(what, needs[what]) for what in here)
        detail = f"{gb(free)} free on {mount} for {what_comes}"
        if free < wanted:
            mend = f"on {node}: docker system df; docker image prune; hf cache ls"
            return failed("disk", node, f"{detail}: {gb(wanted)} with 10 % over, {gb(wanted - free)} short", mend)
        if free < wanted + unsized:
            return warned(
                "disk", node, f"{detail}: it may not do", f"on {node}: df -h {shlex.quote(mount)}; docker system df"
            )
        said.append(detail)
    return passed("disk", node, "; ".join(said))


def _sized(what: str, size: int | None) -> str:
    return f"{what}, {gb(size)}" if size is not None else f"{what}, of unknown size"
