"""Gates on downloads: models, the hub, copying between nodes, and disk space."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparktop.checks.host import DiskFacts, judge_disk_room
from sparktop.dataclass import dataclass
from sparktop.model.prospect import Gate
from sparktop.model.recipe import Order
from sparktop.model.state import State
from sparktop.model.survey import Ask, FileText, Output, Survey
from sparktop.model.telemetry import Disk
from sparktop.operate.launch.inputs import docker, download_steps, downloads
from sparktop.operate.launch.inputs.downloads import ModelOnNodes, models_on_nodes
from sparktop.operate.launch.inputs.gate_inputs import (
    GateInputs,
    disk_ask,
    disks,
    failed,
    gb,
    hub_ask,
    judged,
    own_model,
    passed,
    unknown,
    warned,
    why_unanswered,
)
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.models import ModelCopy, is_path, is_repo
from sparktop.recipe.operator_secrets import HUB_TOKEN, env_path
from sparktop.recipe.render.model_mounts import is_inside

_PAGES = "https://huggingface.co"


def folder_ask(node: str, model: str) -> FileText:
    """Asks for config.json of a model given by path outside of the usual folders."""
    return FileText(node=node, path=f"{model.rstrip('/')}/config.json", limit_bytes=1 << 16)


def asks(inputs: GateInputs) -> Iterator[Ask]:
    """Questions about models on the nodes, the hub, and copying between nodes."""
    yield from download_steps.asks(inputs.order, inputs.contexts, inputs.survey)
    for model in launch_models(inputs):
        if is_path(model.name) and model.name.startswith("/"):
            yield from (folder_ask(context.node, model.name) for context in model.lacking)


def launch_models(inputs: GateInputs) -> tuple[ModelOnNodes, ...]:
    """Every model that the launch loads."""
    return models_on_nodes(inputs.order, inputs.contexts, inputs.survey)


def is_missing(inputs: GateInputs) -> bool:
    """Whether a node lacks one of the models, so that it is downloaded."""
    return any(model.lacking for model in launch_models(inputs))


def gates(inputs: GateInputs) -> Iterator[Gate]:
    """Gates model and ssh, and hub for a model from a hub; for each model."""
    served = own_model(inputs.order).name
    if is_inside(inputs.order.recipe, served):
        yield unknown("model", "", f"{served} is in the container, where sparktop doesn't look")
    yield from dict.fromkeys(gate for model in launch_models(inputs) for gate in _model_gates(inputs, model))


def _model_gates(inputs: GateInputs, model: ModelOnNodes) -> Iterator[Gate]:
    name = model.name
    if not is_repo(name) and not is_path(name):
        yield failed("model", "", f"{name!r} is neither a repository nor a path", model.remedy)
        return
    for node in inputs.nodes:
        yield _model(inputs, model, node)
    if is_repo(name):
        yield _hub(inputs, model)
    if model.lacking and inputs.order.may_fetch:
        yield from (_ssh(model, target) for target in model.lacking if target is not model.first)


# --- model on the node


def _model(inputs: GateInputs, model: ModelOnNodes, node: str) -> Gate:
    survey, label = inputs.survey, model.label
    if node not in model.disks:
        why = why_unanswered(survey, disk_ask(node, inputs.order), "it was not asked")
        return unknown("model", node, f"which models {node} has is not known: {why}")
    copy = model.copies[node]
    if node not in {context.node for context in model.lacking} and copy is not None:
        return passed("model", node, f"{label} is there, {gb(copy.size_bytes)}: {copy.path}")
    if is_path(model.name) and copy is None and survey.value(folder_ask(node, model.name)):
        return passed("model", node, f"{label} has a config.json; its other files were not checked")
    state = _state(model, node, copy)
    by_hand = _by_hand(model, node)
    if not inputs.order.may_fetch:
        return failed("model", node, f"{state}, and downloads are off (--no-fetch)", by_hand)
    if model.source is not None:
        size = f"{gb(model.size_bytes)}, " if model.size_bytes else ""
        return warned("model", node, f"{state}; it is downloaded first: {size}from {model.source.node}", by_hand)
    if is_path(model.name):
        return failed("model", node, state, by_hand)
    size_bytes = model.size_bytes
    size = gb(size_bytes) if size_bytes else "its size is not known"
    return warned("model", node, f"{state}; it is downloaded first: {size}", f"{by_hand}   # to download it beforehand")


def _state(model: ModelOnNodes, node: str, copy: ModelCopy | None) -> str:
    if copy is None:
        where = f"there is no model at {model.name} on {node}"
        return where if is_path(model.name) else f"{model.label} is not on {node}"
    if copy.is_complete:
        return f"{model.label} on {node} is another revision ({copy.revision[:12]}) than on {model.first.node}"
    missing = f": {', '.join(copy.missing[:3])}" if copy.missing else ""
    count = f"{len(copy.missing)} files missing{missing}" if copy.missing else "not whole"
    return f"{model.label} is only partly on {node}, {gb(copy.size_bytes + copy.partial_bytes)}, {count}"


def _by_hand(model: ModelOnNodes, node: str) -> str:
    if is_path(model.name):
        if model.source is None:
            return f"{model.remedy}   # a repository can be fetched; or a path that is there"
        path = shlex.quote(model.name.rstrip("/"))
        return f"on {model.source.node}: rsync -a --partial {path}/ {node}:{path}/"
    revision = f" --revision {shlex.quote(model.given_revision)}" if model.given_revision else ""
    return f"on {node}: hf download {shlex.quote(model.name)}{revision}"


# --- the hub


def _hub(inputs: GateInputs, model: ModelOnNodes) -> Gate:
    order, node, label = inputs.order, inputs.head, model.label
    if not model.disks:
        return unknown("hub", "", f"whether {label} has to be fetched is not known")
    if not model.lacking or model.source is not None:
        return passed("hub", "", f"not needed: {label} is on {(model.source or inputs.contexts[0]).node}")
    if not order.may_fetch:
        return failed(
            "hub", "", f"{label} is complete on no node, downloads are off (--no-fetch)", _by_hand(model, node)
        )
    ask = hub_ask(order, node, model.spec)
    answer = model.hub if ask is not None and ask in inputs.survey.answers else None
    if answer is None:
        return unknown("hub", node, f"whether {order.hub} has {label} is not known: it was not asked")
    has_token = bool(order.secrets.get(HUB_TOKEN)) or any(disk.has_token for disk in model.disks.values())
    page = f"{(order.hub or _PAGES).rstrip('/')}/{model.name}"
    give = f"export {HUB_TOKEN}=..., or {HUB_TOKEN}=... in {env_path()} (chmod 600 {env_path()})"
    give += f", or on {node}: hf auth login"
    if answer.status in (401, 403):
        if has_token:
            detail = f"the hub does not give {label} to this token (HTTP {answer.status}): no access, or no such model"
            return _closed(node, detail, f"ask for access at {page} with the token's account", f"or another: {give}")
        detail = f"the hub does not give {label} without a token (HTTP {answer.status}): gated, private or not there"
        return _closed(node, detail, f"accept its terms at {page}, then give a token by {give}")
    if answer.status == 404:
        return failed("hub", node, f"the hub has no {label} (HTTP 404)", f"look at {page}", model.remedy)
    if not answer.is_there:
        problem = (ask and inputs.survey.problem(ask)) or answer.problem or "no answer"
        status = f" (HTTP {answer.status})" if answer.status else ""
        return failed(
            "hub",
            node,
            f"{order.hub} can't be asked from {node}{status}: {problem}",
            f"on {node}: curl -sSI {order.hub}   # a proxy: HTTPS_PROXY; a mirror: export HF_ENDPOINT=https://...",
        )
    if answer.is_gated and not has_token:
        detail = f"{label} is gated: its files come only with a token of an account that has been granted access"
        return _closed(node, detail, f"accept its terms at {page}, then give a token by {give}")
    size = f", {gb(answer.size_bytes)} in {len(answer.needed)} files" if answer.size_bytes else ""
    return passed("hub", node, f"{label} is available{size}{', gated, with a token' if answer.is_gated else ''}")


def _closed(node: str, detail: str, *steps: str) -> Gate:
    """The hub doesn't give the model to the token that there is."""
    return replace(failed("hub", node, detail, *steps), secrets=(HUB_TOKEN,))


# --- copy from node to node


def _ssh(model: ModelOnNodes, target: NodeContext) -> Gate:
    """Whether a node that lacks the model can log in to the one that has it, or gets it first."""
    source = model.first
    node, where = target.node, f"{source.node} at {source.fabric_ip}"
    reach, why = model.reach_ask(target, source), model.why_no_copy(target, source)
    if not source.fabric_ip or reach is None:
        return unknown("ssh", node, why)
    if not {reach, downloads.rsync_ask(node)} <= set(model.survey.answers):
        return unknown("ssh", node, f"whether {node} may log in to {where} was not asked")
    if why:
        return warned("ssh", node, f"{why}: nothing is copied from node to node", *_ssh_remedy(model, target, source))
    return passed("ssh", node, f"logs in to {where} without a password, rsync on both")


def _ssh_remedy(model: ModelOnNodes, target: NodeContext, source: NodeContext) -> tuple[str, ...]:
    if not model.has_rsync(target):
        return (f"on {target.node}: sudo apt-get install rsync",)
    where = downloads.address(source.fabric_ip, model.ssh_user(target, source)) or source.node
    return f"sparktop act ssh-mesh {source.node} {target.node}", f"on {target.node}: ssh {where} rsync --version"


_MODEL, _IMAGE = "the model", "the image"


def df_ask(node: str, path: str) -> Output:
    return Output(node=node, argv=("df", "-B1", "--output=avail,target", "--", path))


def disk_asks(order: Order, nodes: Sequence[str], survey: Survey) -> Iterator[Ask]:
    """Questions about free space where models and images are stored."""
    for node in nodes:
        if disk_ask(node, order) in survey.answers and docker.info_ask(node) in survey.answers:
            yield from (df_ask(node, path) for path in _target_paths(node, survey).values())


def _target_paths(node: str, survey: Survey) -> Mapping[str, str]:
    """Folders that downloads go to, by kind."""
    disk = disks((node,), survey).get(node)
    docker_info = survey.value(docker.info_ask(node))
    root = str(docker_info.get("DockerRootDir") or "") if isinstance(docker_info, Mapping) else ""
    paths = {_MODEL: disk.cache if disk is not None else "", _IMAGE: root}
    return {kind: path for kind, path in paths.items() if path.startswith("/") and path.isprintable()}


def disk_gates(inputs: GateInputs) -> Iterator[Gate]:
    """Gate disk, for each node."""
    models = launch_models(inputs)
    coming_bytes = download_steps.fetch(inputs.order, inputs.contexts, inputs.survey).coming
    image = inputs.image
    for node in inputs.nodes:
        has_disk = all(node in model.disks for model in models)
        if not has_disk or not docker.knows_image(inputs.survey, node, image):
            content = "which images" if has_disk else "which models"
            yield unknown("disk", node, f"{content} {node} has is not known, so neither is what has to be fetched")
            continue
        needs: dict[str, int | None] = {}
        for model in models:
            if (
                context := next((candidate for candidate in model.lacking if candidate.node == node), None)
            ) is not None:
                size = model.size_bytes
                rest_bytes = max(0, size - model.copy_bytes(context)) if size is not None else None
                needs[model.name if model.spec.is_more else _MODEL] = coming_bytes.get((node, model.name), rest_bytes)
        if docker.image_on(inputs.survey, node, image) is None and not docker.is_local_only(image):
            sizes = (
                other_image.size_bytes
                for other_node in inputs.nodes
                if (other_image := docker.image_on(inputs.survey, other_node, image))
            )
            needs[_IMAGE] = next(sizes, None)
        yield _disk(inputs, node, needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FreeSpace:
    mount: str
    free_bytes: int


def free_space(survey: Survey, node: str, path: str) -> _FreeSpace | None:
    """Free space of the file system that holds the path, by df; None: not known."""
    output = survey.value(df_ask(node, path)) if path else None
    lines = output.splitlines() if isinstance(output, str) else []
    words = lines[1].split(None, 1) if len(lines) > 1 else []
    if len(words) != 2 or not words[0].isdecimal() or len(words[0]) > 18:
        return None
    return _FreeSpace(mount=words[1], free_bytes=int(words[0]))


def _cache_free_space(survey: Survey, node: str) -> _FreeSpace | None:
    """Free space of a model cache that doesn't exist yet, which df can't tell."""
    disk = disks((node,), survey).get(node)
    if disk is None or disk.free_bytes is None:
        return None
    return _FreeSpace(mount=disk.cache or "the cache's disk", free_bytes=disk.free_bytes)


def _disk(inputs: GateInputs, node: str, needs: Mapping[str, int | None]) -> Gate:
    """One node's gate disk.

    Args:
        needs: bytes still to download by kind or model; None: size not known.
    """
    survey = inputs.survey
    paths, spaces = _target_paths(node, survey), dict[str, _FreeSpace]()
    for kind in needs:
        path = paths.get(kind if kind == _IMAGE else _MODEL, "")
        space = free_space(survey, node, path) or (_cache_free_space(survey, node) if kind != _IMAGE else None)
        if space is None:
            why = why_unanswered(survey, df_ask(node, path), "it was not asked") if path else "its place is not known"
            return unknown("disk", node, f"how much room there is for {kind} is not known: {why}")
        spaces[kind] = space
    view = inputs.view(node)
    listed_disks = {disk.mount: disk for disk in (view.facts.disks if view is not None and view.facts else ())}
    mounts = tuple(dict.fromkeys(space.mount for space in spaces.values()))
    gates = [
        _room(node, mount, {kind: needs[kind] for kind, space in spaces.items() if space.mount == mount},
              min(space.free_bytes for space in spaces.values() if space.mount == mount), listed_disks.get(mount))
        for mount in mounts
    ]  # fmt: skip
    gates += [
        _room(node, mount, {}, disk.free_bytes, disk) for mount, disk in listed_disks.items() if mount not in mounts
    ]
    for state in (State.FAILED, State.WARNING):
        if (gate := next((each for each in gates if each.state is state), None)) is not None:
            return gate
    return passed("disk", node, "; ".join(gate.detail for gate in gates[: len(mounts)]) or "nothing has to be fetched")


def _room(node: str, mount: str, needs: Mapping[str, int | None], free_bytes: int, disk: Disk | None) -> Gate:
    """The gate disk for one filesystem and what comes to it."""
    sizes = list(needs.values())
    facts = DiskFacts(
        free_bytes=free_bytes,
        disk=disk,
        coming_bytes=sum(size for size in sizes if size is not None),
        is_more_coming=None in sizes,
    )
    judgement = judge_disk_room(facts)
    coming_text = " and ".join(_sized_text(kind, size) for kind, size in needs.items())
    detail = f"{gb(free_bytes)} free on {mount}{f' for {coming_text}' if coming_text else ''}"
    needed_bytes = float(judgement.figures.get("needed_bytes", 0))
    after = " then" if coming_text else ""
    ending, remedy = {
        "": ("", ""),
        "short": (f": {gb(needed_bytes)} with 10 % over, {gb(needed_bytes - free_bytes)} short", _MAKE_ROOM),
        "unsized": (": it may not do", f"df -h {shlex.quote(mount)}; docker system df"),
        "full": (f": it is full{after}, and containers write their logs and caches there", _MAKE_ROOM),
        "low": (f": it is nearly full{after}", _MAKE_ROOM),
    }[judgement.case]
    return judged("disk", node, judgement, detail + ending, f"on {node}: {remedy}")


_MAKE_ROOM = "docker system df; docker image prune; hf cache ls"


def _sized_text(kind: str, size: int | None) -> str:
    return f"{kind}, {gb(size)}" if size is not None else f"{kind}, of unknown size"
