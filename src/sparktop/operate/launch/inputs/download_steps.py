"""Downloads before a launch: images, then each model, downloaded once and copied to the other nodes. Pure.

    asks(order, contexts, survey)   questions, in rounds with the answers so far, until there are none left
    fetch(order, contexts, survey)  -> Fetch: steps in order, downloads for the review, problems that refuse the launch

Each node that lacks the image pulls it from its registry. A model that no node has complete is downloaded to one, by
huggingface_hub's command line (`hf download`, or its older name), else by the same library inside the engine's image,
as the user, so that root owns nothing in the cache. Each other node copies it over the fabric; where it can't, it
downloads it too, and the review says so. Further models (a draft, for instance) follow in the same way. An interrupted
transfer resumes: newer versions of huggingface_hub keep complete files and restart a partial one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from hashlib import blake2s
from itertools import count

from sparktop.dataclass import dataclass
from sparktop.model.operation import Command, ImagePull, Operation, Transfer
from sparktop.model.prospect import Download
from sparktop.model.recipe import Order
from sparktop.model.survey import Ask, AskPrivileges, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.launch.inputs import downloads
from sparktop.operate.launch.inputs.docker import image_ask, is_local_only
from sparktop.operate.launch.inputs.downloads import ModelOnNodes, models_on_nodes
from sparktop.operate.launch.inputs.gate_inputs import disk_ask, gb, hub_ask, model_folders_ask
from sparktop.operate.step.plan import Step
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.models import HubListing, NodeModels, is_path, is_repo, is_revision
from sparktop.recipe.operator_secrets import HUB_TOKEN
from sparktop.recipe.parameters import resolve

PULL_LIMIT_S = 4 * 3600.0
SLACK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Downloads needed before a launch: steps, review text and blocking problems."""

    steps: tuple[Step, ...] = ()
    downloads: tuple[Download, ...] = ()
    """In the order in which they come."""
    problems: tuple[str, ...] = ()
    """Why a download isn't possible: any of them refuses the launch."""
    remedies: tuple[str, ...] = ()
    """To make it possible, as typed."""
    coming: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Bytes still to download by (node, model); missing where the size isn't known."""


# --- questions


def asks(order: Order, contexts: Sequence[NodeContext], survey: Survey) -> Iterator[Ask]:
    """Questions about images and models on the nodes; then, for what is missing, where it can come from."""
    nodes = [context.node for context in contexts]
    for node in nodes:
        yield disk_ask(node, order)
        if (image := image_ask(node, resolve(order).image)) is not None:
            yield image
    if any(disk_ask(node, order) not in survey.answers for node in nodes):
        return
    for model in models_on_nodes(order, contexts, survey):
        yield from _model_asks(model)


def _model_asks(model: ModelOnNodes) -> Iterator[Ask]:
    """The questions about one model."""
    order, contexts, survey = model.order, model.contexts, model.survey
    for context in model.lacking:
        is_elsewhere = model.copies[context.node] is None and is_path(model.name)
        if is_elsewhere and (ask := model_folders_ask(order, context.node)) is not None:
            yield ask
    if not model.lacking or not order.may_fetch:
        return
    for context in contexts:
        yield AskPrivileges(node=context.node)
    if model.source is None and is_repo(model.name):
        for context in model.lacking:
            if (disk := model.disks.get(context.node)) is not None:
                yield downloads.programs_ask(context.node, disk.home)
        if (hub := hub_ask(order, contexts[0].node, model.spec)) is not None:
            yield hub
    source = model.first
    for target in model.lacking:
        if source.node == target.node:
            continue
        yield downloads.rsync_ask(target.node)
        if AskPrivileges(node=source.node) in survey.answers:  # has the ssh user
            reach = model.reach_ask(target, source)
            yield from (reach,) if reach is not None else ()


# --- steps


def fetch(order: Order, contexts: Sequence[NodeContext], survey: Survey) -> Fetch:
    """The downloads, before anything is stopped."""
    builder = _FetchBuilder(mark=len(contexts) > 1)
    _pull_images(order, contexts, survey, builder)
    for model in models_on_nodes(order, contexts, survey):
        if not model.lacking:
            continue
        if not order.may_fetch:
            for context in model.lacking:
                builder.refuse(f"{model.label} is not whole on {context.node}, and downloads are off (--no-fetch)")
        elif is_path(model.name):
            _copy_folder(model, builder)
        elif is_repo(model.name) and is_revision(model.revision):
            _fetch_model(model, builder)
        else:
            builder.refuse(f"{model.label!r} is no model of a hub, and no path on the nodes")
    return builder.fetch()


class _FetchBuilder:
    """Collects steps, downloads and problems of a Fetch."""

    def __init__(self, *, mark: bool) -> None:
        self.has_marks = mark
        self.steps: list[Step] = []
        self.downloads: list[Download] = []
        self.problems: list[str] = []
        self.remedies: list[str] = []
        self.coming: dict[tuple[str, str], int] = {}

    def refuse(self, problem: str, *remedies: str) -> None:
        self.problems += [problem] if problem not in self.problems else []
        self.remedies += [remedy for remedy in remedies if remedy not in self.remedies]

    def step(self, kind: str, node: str, title: str, *operations: Operation, limit_s: float, verifies: str) -> None:
        used_ids = {step.id for step in self.steps}
        names = (f"{kind}{f'-{number}' if number > 1 else ''}" for number in count(1))
        marked = (f"{name}@{node}" if self.has_marks else name for name in names)
        self.steps.append(
            Step(
                id=next(step_id for step_id in marked if step_id not in used_ids),
                title=title,
                node=node,
                act=Remote(operations=operations),
                limit_s=limit_s + SLACK_S,
                verifies=verifies,
            )
        )

    def fetch(self) -> Fetch:
        return Fetch(
            steps=() if self.problems else tuple(self.steps),
            downloads=tuple(self.downloads),
            problems=tuple(self.problems),
            remedies=tuple(self.remedies),
            coming=self.coming,
        )


# --- images


def _pull_images(order: Order, contexts: Sequence[NodeContext], survey: Survey, builder: _FetchBuilder) -> None:
    image = resolve(order).image
    for context in contexts:
        ask = image_ask(context.node, image)
        if ask is None or ask not in survey.answers or survey.value(ask) is not None or survey.problem(ask):
            continue  # present, or unknown: its gate says why
        if not order.may_fetch:
            builder.refuse(
                f"the image {image} is not on {context.node}; downloads are off (--no-fetch)", f"docker pull {image}"
            )
        elif is_local_only(image):
            builder.refuse(
                f"the image {image} is not on {context.node}, and no registry has it: it is built there",
                f"build it on {context.node}, or: docker save {shlex.quote(image)} | ssh {context.node} docker load",
            )
        else:
            builder.step(
                "image",
                context.node,
                f"Pull the image {image} on {context.node}",
                ImagePull(image=image, limit_s=PULL_LIMIT_S),
                limit_s=PULL_LIMIT_S,
                verifies="Docker has it",
            )
            builder.downloads.append(Download(kind="image", name=image, node=context.node, source="from its registry"))


# --- the model, from the hub


def _fetch_model(model: ModelOnNodes, builder: _FetchBuilder) -> None:
    source, size = model.first, model.size_bytes
    _refuse_read_only(model, builder)
    if model.source is None:
        hub = model.hub
        if hub is not None and not hub.is_there:
            builder.refuse(_hub_problem(model, hub))
            return
        _download(model, source, builder, size)
    for target in (context for context in model.lacking if context is not source):
        if why := model.why_no_copy(target, source):
            before = len(builder.downloads)
            _download(model, target, builder, size)
            builder.downloads[before:] = [
                replace(download, source=f"{download.source}, not from {source.node}: {why}")
                for download in builder.downloads[before:]
            ]
        else:
            _copy(model, source, target, builder, size)


def _refuse_read_only(model: ModelOnNodes, builder: _FetchBuilder) -> None:
    for context in model.lacking:
        disk, copy = model.disks[context.node], model.copies[context.node]
        if not disk.is_writable or (copy is not None and not copy.is_writable):
            builder.refuse(
                f"{disk.hub} on {context.node} is not writable for its user: a container has written there as root",
                f'on {context.node}: sudo chown -R "$USER": {shlex.quote(disk.cache)}',
            )


def _hub_problem(model: ModelOnNodes, hub: HubListing) -> str:
    where = model.order.hub
    if hub.status in (401, 403):
        return f"{where} does not give {model.label}: it is gated, private or not there (HTTP {hub.status})"
    if hub.status == 404:
        return f"{where} has no {model.label} (HTTP 404)"
    return f"{where} could not be asked for {model.label}: {hub.problem or f'HTTP {hub.status}'}"


def _download(model: ModelOnNodes, context: NodeContext, builder: _FetchBuilder, size: int | None) -> None:
    order, disk = model.order, model.disks[context.node]
    program = model.download_source(context)
    if program is None or not disk.cache or not disk.hub:
        builder.refuse(
            f"nothing on {context.node} can download a model: no hf, and its user may not use Docker",
            f"on {context.node}: {downloads.INSTALL}",
        )
        return
    folder = downloads.cache_folder(disk.hub, model.name)
    key = f"model {model.name}@{model.revision} to {folder}"
    if not program:
        _create_cache_folder(context, disk, builder)
    command = downloads.download(
        program,
        disk,
        repo=model.name,
        revision=model.revision,
        files=downloads.needed_files(model.hub),
        image=resolve(order).image,
        token=order.secrets.get(HUB_TOKEN, ""),
        hub=order.hub,
        name=f"sparktop-fetch-{blake2s(key.encode(), digest_size=6).hexdigest()}",
    )
    total = _final_bytes(model, context, size)
    builder.step(
        "model",
        context.node,
        f"Download {model.label}{_size_note(size)} to {context.node}",
        Transfer(command=command, grows=folder, key=key, total_bytes=total),
        limit_s=command.limit_s,
        verifies="all its files are there",
    )
    host = order.hub.split("//")[-1].split("/")[0]
    means = "" if program else ", by the engine's image, as no hf is there"
    _note_download(model, context, builder, size, f"from {host}{means}", size)


def _create_cache_folder(context: NodeContext, disk: NodeModels, builder: _FetchBuilder) -> None:
    """Create the folder that is mounted, which Docker would create as root."""
    if any(step.node == context.node and step.id.startswith("cache") for step in builder.steps):
        return
    builder.step(
        "cache",
        context.node,
        f"Make the cache's folder on {context.node}",
        Command(argv=("mkdir", "-p", "--", disk.hub)),
        limit_s=30.0,
        verifies="it is there",
    )


def _copy(
    model: ModelOnNodes, source: NodeContext, target: NodeContext, builder: _FetchBuilder, size: int | None
) -> None:
    folder, goal = (downloads.cache_folder(model.disks[context.node].hub, model.name) for context in (source, target))
    total, source_copy = size, model.copies[source.node]
    if source_copy is not None and source_copy.is_complete:
        folder, total = source_copy.folder, source_copy.folder_bytes or size
    _copy_step(model, source, target, builder, folder=folder, goal=goal, total=total, size=size)


def _copy_step(
    model: ModelOnNodes,
    source: NodeContext,
    target: NodeContext,
    builder: _FetchBuilder,
    *,
    folder: str,
    goal: str,
    total: int | None,
    size: int | None,
) -> None:
    command = downloads.copy(source.fabric_ip, model.ssh_user(target, source), folder, goal)
    builder.step(
        "copy",
        target.node,
        f"Copy {model.label}{_size_note(size)} from {source.node} to {target.node}",
        Transfer(
            command=command,
            grows=goal,
            key=f"copy {model.name}@{model.revision} from {source.node} to {goal}",
            total_bytes=_final_bytes(model, target, total),
        ),
        limit_s=command.limit_s,
        verifies="rsync finds nothing that differs",
    )
    _note_download(model, target, builder, size, f"over the fabric from {source.node}", total)


def _note_download(
    model: ModelOnNodes, context: NodeContext, builder: _FetchBuilder, size: int | None, source: str, total: int | None
) -> None:
    """Note what comes to the node: for the review the model's size, for the disk all of its folder."""
    if total is not None:
        builder.coming[context.node, model.name] = max(0, total - model.copy_bytes(context))
    size_text = gb(size) if size else ""
    builder.downloads.append(Download(kind="model", name=model.label, node=context.node, source=source, size=size_text))


def _final_bytes(model: ModelOnNodes, context: NodeContext, size: int | None) -> int | None:
    """The folder's final size; None where it holds another revision of the model already."""
    copy = model.copies[context.node]
    return None if copy is not None and copy.is_complete else size


def _size_note(size: int | None) -> str:
    return f" ({gb(size)})" if size else ""


# --- the model, from a folder on a node


def _copy_folder(model: ModelOnNodes, builder: _FetchBuilder) -> None:
    """Copy a model given by path from the node that has it, to the same path on the other."""
    source = model.source
    for target in model.lacking:
        if source is None:
            builder.refuse(
                f"there is no whole model at {model.name} on {target.node}",
                f"{model.remedy}   # a repository can be fetched",
            )
            continue
        source_copy = model.copies[source.node]
        if source_copy is None:
            continue
        goal = _same_path(source_copy.folder, model.disks[source.node], model.disks[target.node])
        if why := model.why_no_copy(target, source):
            by_hand = (
                f"rsync -rltp --copy-unsafe-links {shlex.quote(source_copy.folder)}/ {target.node}:{shlex.quote(goal)}/"
            )
            builder.refuse(
                f"{model.name} is on {source.node} and not on {target.node}, and {why}",
                f"on {source.node}: {by_hand}",
            )
            continue
        size = source_copy.size_bytes
        total = source_copy.folder_bytes or size
        _copy_step(model, source, target, builder, folder=source_copy.folder, goal=goal, total=total, size=size)


def _same_path(path: str, source_disk: NodeModels, target_disk: NodeModels) -> str:
    """The path on the other node: below its user's home where it is below the home on the first."""
    if source_disk.home and target_disk.home and path.startswith(source_disk.home.rstrip("/") + "/"):
        return target_disk.home.rstrip("/") + path[len(source_disk.home.rstrip("/")) :]
    return path
