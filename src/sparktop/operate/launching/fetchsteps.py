"""What has to come to the nodes before a launch, and how: images, then each model, once from the hub. Pure.

    asks(order, seats, survey)   questions, again and again with the answers so far, until there are none left
    fetch(order, seats, survey)  -> Fetch: the steps in their order, sentences for the review, problems that refuse

An image comes from its registry to each node that lacks it. A model that no node has whole is downloaded to one, by
huggingface_hub's own command line there (`hf download`, or its older name), else by the same library inside the
engine's image, as the user, so that nothing of root's is left in the cache. The further nodes copy it over the fabric;
where they can't, they download it too, and the review says so. What the model is loaded with, such as a draft, comes
after it in the same way. Interrupted, each goes on from what is there: of a
download, newer versions of huggingface_hub keep whole files and begin a half one anew.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from itertools import count

from sparktop.model.operation import Command, ImagePull, Operation, Transfer
from sparktop.model.plan import Remote, Step
from sparktop.model.recipe import Order
from sparktop.operate.launching import fetchways
from sparktop.operate.launching.fetchneeds import Wanted, all_wanted
from sparktop.operate.launching.gates_image import ask as image_ask
from sparktop.operate.launching.gates_image import is_local_only
from sparktop.operate.launching.looked import gb, image_of
from sparktop.operate.launching.seats import disk_ask, hub_ask, place_ask
from sparktop.operate.survey import Ask, AskPrivileges, Survey
from sparktop.recipe.models import Disk, Hub, is_path, is_repo, is_revision
from sparktop.recipe.rendered import Seat

PULL_LIMIT_S = 4 * 3600.0
SLACK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """All that comes."""

    steps: tuple[Step, ...] = ()
    sentences: tuple[str, ...] = ()
    """For `Prospect.fetches`: what, how much, where to, and by which way."""
    problems: tuple[str, ...] = ()
    """Why it can't come: any of them refuses the launch."""
    remedies: tuple[str, ...] = ()
    """What would make it possible, as it would be typed."""
    coming: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By node and model: what its disk has to have room for beyond what is there; one is missing where that isn't
    known."""

    @property
    def coming_bytes(self) -> Mapping[str, int]:
        """By node, of all models of which it is known."""
        found: dict[str, int] = {}
        for (node, _), size in self.coming.items():
            found[node] = found.get(node, 0) + size
        return found


# --- questions


def asks(order: Order, seats: Sequence[Seat], survey: Survey) -> Iterator[Ask]:
    """What is there; then, where something is missing, the ways by which it could come."""
    nodes = [seat.node for seat in seats]
    for node in nodes:
        yield disk_ask(node)
        if (image := image_ask(node, image_of(order))) is not None:
            yield image
    if any(disk_ask(node) not in survey.answers for node in nodes):
        return
    for wanted in all_wanted(order, seats, survey):
        yield from _asks(wanted)


def _asks(wanted: Wanted) -> Iterator[Ask]:
    """Of one model."""
    order, seats, survey = wanted.order, wanted.seats, wanted.survey
    for seat in wanted.lacking:
        is_elsewhere = wanted.found[seat.node] is None and is_path(wanted.model)
        if is_elsewhere and (place := place_ask(order, seat.node)) is not None:
            yield place
    if not wanted.lacking or not order.may_fetch:
        return
    for seat in seats:
        yield AskPrivileges(node=seat.node)
    if wanted.source is None and is_repo(wanted.model):
        for seat in wanted.lacking:
            if (disk := wanted.disks.get(seat.node)) is not None:
                yield fetchways.programs_ask(seat.node, disk.home)
        if (hub := hub_ask(order, seats[0].node, wanted.one)) is not None:
            yield hub
    for target in wanted.lacking:
        for source in seats:
            if source.node == target.node or (wanted.source is not None and source.node != wanted.source.node):
                continue
            yield fetchways.rsync_ask(target.node)
            if AskPrivileges(node=source.node) in survey.answers:  # it says the user
                reach = wanted.reach_ask(target, source)
                yield from (reach,) if reach is not None else ()


# --- steps


def fetch(order: Order, seats: Sequence[Seat], survey: Survey) -> Fetch:
    """What has to come, before anything is stopped."""
    made = _Made(mark=len(seats) > 1)
    _images(order, seats, survey, made)
    for wanted in all_wanted(order, seats, survey):
        if not wanted.lacking:
            continue
        if not order.may_fetch:
            for seat in wanted.lacking:
                made.refuse(f"{wanted.called} is not whole on {seat.node}, and nothing may be fetched")
        elif is_path(wanted.model):
            _folder(wanted, made)
        elif is_repo(wanted.model) and is_revision(wanted.revision):
            _model(wanted, made)
        else:
            made.refuse(f"{wanted.called!r} is no model of a hub, and no path on the nodes")
    return made.fetch()


class _Made:
    """What is put together."""

    def __init__(self, *, mark: bool) -> None:
        self.has_marks = mark
        self.steps: list[Step] = []
        self.sentences: list[str] = []
        self.problems: list[str] = []
        self.remedies: list[str] = []
        self.coming: dict[tuple[str, str], int] = {}

    def refuse(self, problem: str, *remedies: str) -> None:
        self.problems += [problem] if problem not in self.problems else []
        self.remedies += [one for one in remedies if one not in self.remedies]

    def step(self, kind: str, node: str, title: str, *operations: Operation, limit_s: float, verifies: str) -> None:
        taken = {step.id for step in self.steps}
        names = (f"{kind}{f'-{number}' if number > 1 else ''}" for number in count(1))
        marked = (f"{name}@{node}" if self.has_marks else name for name in names)
        self.steps.append(
            Step(
                id=next(one for one in marked if one not in taken),
                title=title,
                node=node,
                act=Remote(operations=operations),
                limit_s=limit_s + SLACK_S,
                verifies=verifies,
                undone_by="nothing needs to be: what has come stays on disk, and the next time goes on from it",
            )
        )

    def fetch(self) -> Fetch:
        return Fetch(
            steps=() if self.problems else tuple(self.steps),
            sentences=tuple(self.sentences),
            problems=tuple(self.problems),
            remedies=tuple(self.remedies),
            coming=self.coming,
        )


# --- images


def _images(order: Order, seats: Sequence[Seat], survey: Survey, made: _Made) -> None:
    image = image_of(order)
    for seat in seats:
        ask = image_ask(seat.node, image)
        if ask is None or ask not in survey.answers or survey.value(ask) is not None or survey.problem(ask):
            continue  # it is there, or its gate says why that isn't known
        if not order.may_fetch:
            made.refuse(f"the image {image} is not on {seat.node}, and nothing may be fetched", f"docker pull {image}")
        elif is_local_only(image):
            made.refuse(
                f"the image {image} is not on {seat.node}, and no registry has it: it is built there",
                f"build it on {seat.node}, or: docker save {shlex.quote(image)} | ssh {seat.node} docker load",
            )
        else:
            made.step(
                "image",
                seat.node,
                f"Pull the image {image} on {seat.node}",
                ImagePull(image=image, limit_s=PULL_LIMIT_S),
                limit_s=PULL_LIMIT_S,
                verifies="Docker has it",
            )
            made.sentences.append(f"image {image} on {seat.node}, from its registry")


# --- the model, from the hub


def _model(wanted: Wanted, made: _Made) -> None:
    source, lacking = wanted.source, list(wanted.lacking)
    size = wanted.size_bytes
    _check_folders(wanted, made)
    if source is None:
        hub_said = wanted.hub
        if hub_said is not None and not hub_said.is_there:
            made.refuse(_why_not_there(wanted, hub_said))
            return
        # Where most of it is already, and something there can download.
        lacking.sort(key=lambda seat: (wanted.way(seat) is None, -wanted.there_bytes(seat), seat.index))
        source = lacking.pop(0)
        _download(wanted, source, made, size)
    for target in lacking:
        if why := wanted.why_no_copy(target, source):
            before = len(made.sentences)
            _download(wanted, target, made, size)
            made.sentences[before:] = [f"{said}, not from {source.node}: {why}" for said in made.sentences[before:]]
        else:
            _copy(wanted, source, target, made, size)


def _check_folders(wanted: Wanted, made: _Made) -> None:
    for seat in wanted.lacking:
        disk, found = wanted.disks[seat.node], wanted.found[seat.node]
        if not disk.is_writable or (found is not None and not found.is_writable):
            made.refuse(
                f"{disk.hub} on {seat.node} is not its user's to write into: a container has run there as root",
                f'on {seat.node}: sudo chown -R "$USER": {shlex.quote(disk.cache)}',
            )


def _why_not_there(wanted: Wanted, said: Hub) -> str:
    where = wanted.order.hub
    if said.status in (401, 403):
        return f"{where} does not give {wanted.called}: it is gated, private or not there (HTTP {said.status})"
    if said.status == 404:
        return f"{where} has no {wanted.called} (HTTP 404)"
    return f"{where} can't be asked for {wanted.called}: {said.problem or f'HTTP {said.status}'}"


def _download(wanted: Wanted, seat: Seat, made: _Made, size: int | None) -> None:
    order, disk = wanted.order, wanted.disks[seat.node]
    way = wanted.way(seat)
    if way is None or not disk.cache or not disk.hub:
        made.refuse(
            f"nothing on {seat.node} can download a model: no hf, and its user may not use Docker",
            f"on {seat.node}: {fetchways.INSTALL}",
        )
        return
    folder = fetchways.cache_folder(disk.hub, wanted.model)
    key = f"model {wanted.model}@{wanted.revision} to {folder}"
    if not way.program:
        _folder_first(seat, disk, made)
    command = fetchways.download(
        way,
        disk,
        repo=wanted.model,
        revision=wanted.revision,
        files=fetchways.wanted_files(wanted.hub),
        image=image_of(order),
        token=order.secrets.get(fetchways.TOKEN, ""),
        hub=order.hub,
        name=f"sparktop-fetch-{blake2s(key.encode(), digest_size=6).hexdigest()}",
    )
    total = _grown(wanted, seat, size)
    made.step(
        "model",
        seat.node,
        f"Download {wanted.called}{_sized(size)} to {seat.node}",
        Transfer(command=command, grows=folder, key=key, total_bytes=total),
        limit_s=command.limit_s,
        verifies="every file of it is there",
    )
    _coming(wanted, seat, made, size)
    host = order.hub.split("//")[-1].split("/")[0]
    by = "" if way.program else ", by the engine's image, as no hf is there"
    made.sentences.append(f"model {wanted.called}{_sized(size)} on {seat.node}, from {host}{by}")


def _folder_first(seat: Seat, disk: Disk, made: _Made) -> None:
    """Docker would make a missing folder of a mount, as root."""
    if any(step.node == seat.node and step.id.startswith("cache") for step in made.steps):
        return
    made.step(
        "cache",
        seat.node,
        f"Make the cache's folder on {seat.node}",
        Command(argv=("mkdir", "-p", "--", disk.hub)),
        limit_s=30.0,
        verifies="it is there",
    )


def _copy(wanted: Wanted, source: Seat, target: Seat, made: _Made, size: int | None) -> None:
    there, here = wanted.disks[source.node], wanted.disks[target.node]
    found = wanted.found[source.node]
    is_there = found is not None and found.is_complete
    folder = found.folder if found is not None and is_there else fetchways.cache_folder(there.hub, wanted.model)
    _copy_step(
        wanted,
        source,
        target,
        made,
        folder=folder,
        goal=fetchways.cache_folder(here.hub, wanted.model),
        total=(found.folder_bytes or size) if found is not None and is_there else size,
        size=size,
    )


def _copy_step(
    wanted: Wanted,
    source: Seat,
    target: Seat,
    made: _Made,
    *,
    folder: str,
    goal: str,
    total: int | None,
    size: int | None,
) -> None:
    command = fetchways.copy(source.fabric_ip, wanted.user_for(target, source), folder, goal)
    made.step(
        "copy",
        target.node,
        f"Copy {wanted.called}{_sized(size)} from {source.node} to {target.node}",
        Transfer(
            command=command,
            grows=goal,
            key=f"copy {wanted.model}@{wanted.revision} from {source.node} to {goal}",
            total_bytes=_grown(wanted, target, total),
        ),
        limit_s=command.limit_s,
        verifies="rsync finds nothing that differs",
    )
    _coming(wanted, target, made, total)
    made.sentences.append(f"model {wanted.called}{_sized(size)} on {target.node}, over the fabric from {source.node}")


def _coming(wanted: Wanted, seat: Seat, made: _Made, size: int | None) -> None:
    if size is not None:
        made.coming[seat.node, wanted.model] = max(0, size - wanted.there_bytes(seat))


def _grown(wanted: Wanted, seat: Seat, size: int | None) -> int | None:
    """How large the folder is in the end; not known where it holds another state of the model already."""
    found = wanted.found[seat.node]
    return None if found is not None and found.is_complete else size


def _sized(size: int | None) -> str:
    return f" ({gb(size)})" if size else ""


# --- the model, by its place


def _folder(wanted: Wanted, made: _Made) -> None:
    """A folder that one node has is copied to the same place of the other."""
    source = wanted.source
    for target in wanted.lacking:
        if source is None:
            made.refuse(
                f"there is no whole model at {wanted.model} on {target.node}",
                f"{wanted.remedy}   # a repository can be fetched",
            )
            continue
        found = wanted.found[source.node]
        if found is None:
            continue
        goal = _same_place(found.folder, wanted.disks[source.node], wanted.disks[target.node])
        if why := wanted.why_no_copy(target, source):
            by_hand = f"rsync -rltp --copy-unsafe-links {shlex.quote(found.folder)}/ {target.node}:{shlex.quote(goal)}/"
            made.refuse(
                f"{wanted.model} is on {source.node} and not on {target.node}, and {why}",
                f"on {source.node}: {by_hand}",
            )
            continue
        total = found.folder_bytes or found.size_bytes
        _copy_step(wanted, source, target, made, folder=found.folder, goal=goal, total=total, size=found.size_bytes)


def _same_place(path: str, there: Disk, here: Disk) -> str:
    """In the home of each."""
    if there.home and here.home and path.startswith(there.home.rstrip("/") + "/"):
        return here.home.rstrip("/") + path[len(there.home.rstrip("/")) :]
    return path
