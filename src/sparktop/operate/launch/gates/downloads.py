"""Gates on downloads: models, the hub, copying between nodes, and disk space."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sparktop.checks.host import DiskFacts, judge_disk_room
from sparktop.model.prospect import Gate
from sparktop.model.state import State
from sparktop.model.survey import Output, Survey
from sparktop.model.telemetry import Disk
from sparktop.operate.launch.inputs import docker, downloads
from sparktop.operate.launch.inputs.downloads import ModelOnNodes, disk_question
from sparktop.operate.launch.inputs.gate_inputs import GateInputs, failed, judged, passed, unknown, warned
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.models import ModelCopy, NodeModels, is_path
from sparktop.recipe.operator_secrets import HUB_TOKEN, env_path
from sparktop.text.units import gb

_PAGES = "https://huggingface.co"


def model_gates(inputs: GateInputs) -> Iterator[Gate]:
    """Whether each node has each model, or how it gets it."""
    for model in inputs.models:
        if model.is_inside and not model.is_more:
            yield unknown("", f"{model.name} is in the container, where sparktop doesn't look")
        elif model.is_inside:
            continue
        elif is_path(model.name) or model.is_in_a_hub:
            yield from (_model(inputs, model, node) for node in inputs.nodes)
        else:
            yield failed("", f"{model.label!r} is neither a repository nor a path", model.remedy)


def hub_gates(inputs: GateInputs) -> Iterator[Gate]:
    """Whether the hub gives each model that is from a hub."""
    yield from dict.fromkeys(_hub(inputs, model) for model in inputs.models if model.is_in_a_hub)


def ssh_gates(inputs: GateInputs) -> Iterator[Gate]:
    """Whether each node that lacks a model can copy it."""
    for model in inputs.models if inputs.order.may_fetch else ():
        if is_path(model.name) or model.is_in_a_hub:
            yield from (_ssh(model, target) for target in model.lacking if target is not model.first)


# --- model on the node


def _model(inputs: GateInputs, model: ModelOnNodes, node: str) -> Gate:
    survey, label = inputs.survey, model.label
    if node not in model.disks:
        why = survey.problem(disk_question(node, inputs.order)) or "it was not asked"
        return unknown(node, f"which models {node} has is not known: {why}")
    copy, target = model.copies[node], next((one for one in model.lacking if one.node == node), None)
    if target is None and copy is not None:
        file = f"/{copy.choice.weights[0]}" if copy.choice is not None and copy.choice.weights else ""
        return passed(node, f"{label} is there, {gb(copy.size_bytes)}: {copy.path}{file}")
    state = _state(model, node, copy)
    by_hand = _by_hand(model, node)
    if not inputs.order.may_fetch:
        return failed(node, f"{state}, and downloads are off (--no-fetch)", by_hand)
    if target is not None and (obstacle := model.obstacle(target)) is not None:
        why, remedy = obstacle
        return failed(node, f"{state}, and {why}", remedy or by_hand)
    if model.source is not None:
        size = f"{gb(model.size_bytes)}, " if model.size_bytes else ""
        return warned(node, f"{state}; it is downloaded first: {size}from {model.source.node}", by_hand)
    if is_path(model.name):
        return failed(node, state, by_hand)
    size_bytes = model.size_bytes
    size = gb(size_bytes) if size_bytes else "its size is not known"
    return warned(node, f"{state}; it is downloaded first: {size}", f"{by_hand}   # to download it beforehand")


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
    files = downloads.needed_files(model.hub) if model.wanted is not None else ()
    if model.wanted is not None and not files:  # all of its quants would be hundreds of GB
        files = ("--include", f"*{model.wanted.quant or 'QUANT'}*")
    return f"on {node}: hf download {shlex.join((model.name, *files))}{revision}"


# --- the hub


def _hub(inputs: GateInputs, model: ModelOnNodes) -> Gate:
    order, node, label = inputs.order, inputs.head, model.label
    if not model.disks:
        return unknown("", f"whether {label} has to be fetched is not known")
    if not model.lacking or model.source is not None:
        return passed("", f"not needed: {label} is on {(model.source or inputs.contexts[0]).node}")
    if not order.may_fetch:
        return failed("", f"{label} is complete on no node, downloads are off (--no-fetch)", _by_hand(model, node))
    question = model.hub_question(node)
    answer = model.hub
    if answer is None:
        return unknown(node, f"whether {order.hub} has {label} is not known: it was not asked")
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
        return failed(node, f"the hub has no {label} (HTTP 404)", f"look at {page}", model.remedy)
    if not answer.is_there:
        problem = inputs.survey.problem(question) or answer.problem or "no answer"
        status = f" (HTTP {answer.status})" if answer.status else ""
        return failed(
            node,
            f"{order.hub} can't be asked from {node}{status}: {problem}",
            f"on {node}: curl -sSI {order.hub}   # a proxy: HTTPS_PROXY; a mirror: export HF_ENDPOINT=https://...",
        )
    if answer.is_gated and not has_token:
        detail = f"{label} is gated: its files come only with a token of an account that has been granted access"
        return _closed(node, detail, f"accept its terms at {page}, then give a token by {give}")
    if answer.choice is not None and answer.choice.problem:
        return failed(node, answer.choice.problem, model.remedy)
    size = f", {gb(answer.size_bytes)} in {len(answer.needed)} files" if answer.size_bytes else ""
    return passed(node, f"{label} is available{size}{', gated, with a token' if answer.is_gated else ''}")


def _closed(node: str, detail: str, *steps: str) -> Gate:
    """The hub doesn't give the model to the token that there is."""
    return replace(failed(node, detail, *steps), secrets=(HUB_TOKEN,))


# --- copy from node to node


def _ssh(model: ModelOnNodes, target: NodeContext) -> Gate:
    """Whether a node that lacks the model can log in to the one that has it, or gets it first."""
    source = model.first
    node, where = target.node, f"{source.node} at {source.fabric_ip}"
    reach, why = model.reach_question(target), model.why_no_copy(target)
    if reach is None:
        return unknown(node, why)
    if None in map(model.survey.answer, (reach, downloads.rsync_question(node))):
        return unknown(node, f"whether {node} may log in to {where} was not asked")
    if why:
        return warned(node, f"{why}: nothing is copied from node to node", *_ssh_remedy(model, target))
    return passed(node, f"logs in to {where} without a password, rsync on both")


def _ssh_remedy(model: ModelOnNodes, target: NodeContext) -> tuple[str, ...]:
    source = model.first
    if not model.has_rsync(target):
        return (f"on {target.node}: sudo apt-get install rsync",)
    where = downloads.address(source.fabric_ip, model.ssh_user(target)) or source.node
    return f"sparktop act ssh-mesh {source.node} {target.node}", f"on {target.node}: ssh {where} rsync --version"


_MODEL, _IMAGE = "the model", "the image"


def df_question(node: str, path: str) -> Output:
    return Output(node=node, argv=("df", "-B1", "--output=avail,target", "--", path))


def _target_paths(node: str, disk: NodeModels | None, survey: Survey) -> Mapping[str, str]:
    """Folders that downloads go to, by kind."""
    root = str(docker.info(survey, node).get("DockerRootDir") or "")
    paths = {_MODEL: disk.cache if disk is not None else "", _IMAGE: root}
    return {kind: path for kind, path in paths.items() if path.startswith("/") and path.isprintable()}


def disk_gates(inputs: GateInputs) -> Iterator[Gate]:
    """Gate disk, for each node."""
    models = inputs.models
    for node in inputs.nodes:
        has_disk = all(node in model.disks for model in models if not model.is_inside)
        if not has_disk or not inputs.docker[node].knows_image:
            content = "which images" if has_disk else "which models"
            yield unknown(node, f"{content} {node} has is not known, so neither is what has to be fetched")
            continue
        needs: dict[str, int | None] = {}
        for model in models:
            if (target := next((one for one in model.lacking if one.node == node), None)) is not None:
                needs[model.name if model.is_more else _MODEL] = model.coming_bytes(target)
        if inputs.docker[node].lacks_image and not docker.is_local_only(inputs.image):
            needs[_IMAGE] = next((there.image.size_bytes for there in inputs.docker.values() if there.image), None)
        yield _disk(inputs, node, needs)


def _free_space(survey: Survey, node: str, path: str, disk: NodeModels | None) -> tuple[str, int] | None:
    """(mount, free bytes) of the file system that holds the path, by df; None: not known.

    Args:
        disk: of a model cache, which may not exist yet: its free space is told with the models.
    """
    output = survey.text(df_question(node, path)) if path else None
    lines = (output or "").splitlines()
    words = lines[1].split(None, 1) if len(lines) > 1 else []
    if len(words) == 2 and words[0].isdecimal() and len(words[0]) <= 18:
        return words[1], int(words[0])
    if disk is None or disk.free_bytes is None:
        return None
    return disk.cache or "the cache's disk", disk.free_bytes


def _disk(inputs: GateInputs, node: str, needs: Mapping[str, int | None]) -> Gate:
    """One node's gate disk.

    Args:
        needs: bytes still to download by kind or model; None: size not known.
    """
    survey = inputs.survey
    cache = inputs.models[0].disks.get(node)
    paths, spaces = _target_paths(node, cache, survey), dict[str, tuple[str, int]]()
    for kind in needs:
        path = paths.get(kind if kind == _IMAGE else _MODEL, "")
        space = _free_space(survey, node, path, cache if kind != _IMAGE else None)
        if space is None:
            unasked = "it was not asked" if path else "its place is not known"
            why = survey.problem(df_question(node, path)) or unasked
            return unknown(node, f"how much room there is for {kind} is not known: {why}")
        spaces[kind] = space
    facts = inputs.view(node).facts
    listed_disks = {disk.mount: disk for disk in (facts.disks if facts is not None else ())}
    mounts = tuple(dict.fromkeys(mount for mount, _ in spaces.values()))
    gates = [
        _room(node, mount, {kind: needs[kind] for kind, (at, _) in spaces.items() if at == mount},
              min(free_bytes for at, free_bytes in spaces.values() if at == mount), listed_disks.get(mount))
        for mount in mounts
    ]  # fmt: skip
    gates += [
        _room(node, mount, {}, disk.free_bytes, disk) for mount, disk in listed_disks.items() if mount not in mounts
    ]
    for state in (State.FAILED, State.WARNING):
        if (gate := next((each for each in gates if each.state is state), None)) is not None:
            return gate
    return passed(node, "; ".join(gate.detail for gate in gates[: len(mounts)]) or "nothing has to be fetched")


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
    return judged(node, judgement, detail + ending, f"on {node}: {remedy}")


_MAKE_ROOM = "docker system df; docker image prune; hf cache ls"


def _sized_text(kind: str, size: int | None) -> str:
    return f"{kind}, {gb(size)}" if size is not None else f"{kind}, of unknown size"
