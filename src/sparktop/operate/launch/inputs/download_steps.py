"""Downloads before a launch: images, then each model, downloaded once and copied to the other nodes. Pure.

Each node that lacks the image pulls it from its registry. Models are downloaded as the user, so that root owns nothing
in the cache. An interrupted transfer resumes: newer versions of huggingface_hub keep complete files and restart a
partial one. What stands in the way is told by the gates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2s
from itertools import count

from sparktop.dataclass import dataclass
from sparktop.model.operation import Command, ImagePull, Operation, Transfer
from sparktop.model.prospect import Download
from sparktop.operate.acts.remote import Remote
from sparktop.operate.launch.inputs.docker import DockerThere, is_local_only
from sparktop.operate.launch.inputs.downloads import ModelOnNodes, address, cache_folder, needed_files
from sparktop.operate.step.plan import Step
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.models import NodeModels, is_path
from sparktop.recipe.operator_secrets import HUB_TOKEN
from sparktop.recipe.render.environment import HUB
from sparktop.text.units import gb

PULL_LIMIT_S = 4 * 3600.0
FETCH_LIMIT_S = 24 * 3600.0
SLACK_S = 60.0
_SSH_COPY = (
    "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o Compression=no "
    "-o Ciphers=^aes128-gcm@openssh.com"
)
"""Prefers a cipher that the CPU has in hardware."""
_IN_IMAGE = (
    "import sys\n"
    "from huggingface_hub import snapshot_download\n"
    "snapshot_download(sys.argv[1], revision=sys.argv[2], allow_patterns=sys.argv[3:] or None)\n"
)
"""The call that the command line makes: an image may have either program, depending on its age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Downloads before a launch, in the order in which they come."""

    steps: tuple[Step, ...] = ()
    downloads: tuple[Download, ...] = ()
    """What the review says of them."""


_Fetched = tuple[Step, Download | None]


def fetch(models: Sequence[ModelOnNodes], docker: Mapping[str, DockerThere]) -> Fetch:
    """The downloads of a launch's image and of all its models, before anything is stopped; none where the order forbids
    them."""
    if not models[0].order.may_fetch:
        return Fetch()
    contexts = models[0].contexts
    fetched = [*_pull_images(models[0].values.image, docker), *(one for model in models for one in _fetch_model(model))]
    steps: dict[str, Step] = {}
    for step, download in fetched:
        if download is None and any(known.act == step.act and known.node == step.node for known in steps.values()):
            continue  # the folder that several models go to
        names = (f"{step.id}{f'-{number}' if number > 1 else ''}" for number in count(1))
        marked = (f"{name}@{step.node}" if len(contexts) > 1 else name for name in names)
        step_id = next(name for name in marked if name not in steps)
        steps[step_id] = replace(step, id=step_id)
    return Fetch(steps=tuple(steps.values()), downloads=tuple(one for _, one in fetched if one is not None))


def _step(kind: str, node: str, title: str, operation: Operation, *, limit_s: float, verifies: str) -> Step:
    act, limit_s = Remote(operations=(operation,)), limit_s + SLACK_S
    return Step(id=kind, title=title, node=node, act=act, limit_s=limit_s, verifies=verifies)


def _pull_images(image: str, docker: Mapping[str, DockerThere]) -> Iterator[_Fetched]:
    for node, there in docker.items():
        if there.lacks_image and not is_local_only(image):
            title, pull = f"Pull the image {image} on {node}", ImagePull(image=image, limit_s=PULL_LIMIT_S)
            yield (
                _step("image", node, title, pull, limit_s=PULL_LIMIT_S, verifies="Docker has it"),
                Download(kind="image", name=image, node=node, source="from its registry"),
            )


def _fetch_model(model: ModelOnNodes) -> Iterator[_Fetched]:
    """Download it to the first node where none has it, and copy it to the others; where one can't copy it, it
    downloads it too."""
    if not model.lacking or not (model.is_in_a_hub or (is_path(model.name) and model.source is not None)):
        return
    if model.source is None and model.hub is not None and not model.hub.is_there:
        return
    for target in sorted(model.lacking, key=lambda context: context is not model.first):
        if model.is_copied(target):
            yield _copy(model, target)
        elif model.is_in_a_hub:
            yield from _download(model, target)


def _download(model: ModelOnNodes, context: NodeContext) -> Iterator[_Fetched]:
    order, disk, program = model.order, model.disks[context.node], model.download_program(context)
    if program is None:
        return
    if not program:  # Docker would create the folder that is mounted as root
        make = Command(argv=("mkdir", "-p", "--", disk.hub))
        title = f"Make the cache's folder on {context.node}"
        yield _step("cache", context.node, title, make, limit_s=30.0, verifies="it is there"), None
    folder = cache_folder(disk.hub, model.name)
    key = f"model {model.given}@{model.revision} to {folder}"
    command = _download_command(model, disk, program, key)
    transfer = Transfer(command=command, grows=folder, key=key, total_bytes=_final_bytes(model, context))
    title = f"Download {model.label}{_size_note(model)} to {context.node}"
    means = "" if program else ", by the engine's image, as no hf is there"
    why = "" if context is model.first else f", not from {model.first.node}: {model.why_no_copy(context)}"
    source = f"from {order.hub.split('//')[-1].split('/')[0]}{means}{why}"
    verifies = "all its files are there"
    yield (
        _step("model", context.node, title, transfer, limit_s=FETCH_LIMIT_S, verifies=verifies),
        _review(model, context, source),
    )


def _download_command(model: ModelOnNodes, disk: NodeModels, program: str, key: str) -> Command:
    """The command that downloads a model into the cache that engines use.

    Args:
        program: its path; empty: the library in the engine's image.
    """
    order, files = model.order, needed_files(model.hub)
    token, hub = order.secrets.get(HUB_TOKEN, ""), order.hub.rstrip("/")
    environment = {
        "HF_HOME": disk.cache,
        "HF_HUB_CACHE": disk.hub,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DOWNLOAD_TIMEOUT": "60",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_SHARED_BLOBS": "1",  # every model's folder stays whole by itself, to be copied as it is
        **({"HF_ENDPOINT": hub} if hub != HUB else {}),
        **({HUB_TOKEN: token} if token else {}),
    }
    argv: tuple[str, ...] = (program, "download", model.name, *files, "--revision", model.revision)
    if not program:
        name = f"sparktop-fetch-{blake2s(key.encode(), digest_size=6).hexdigest()}"
        passed = [word for variable in sorted(environment) for word in ("--env", variable)]
        argv = (
            *("docker", "run", "--rm", "--init", "--name", name, "--network", "host"),
            *("--user", f"{disk.uid}:{disk.gid}", "--mount", f"type=bind,source={disk.cache},target={disk.cache}"),
            *(*passed, "--env", "HOME=/tmp", "--entrypoint", "python3", model.values.image),
            *("-c", _IN_IMAGE, model.name, model.revision, *files),
        )
    return Command(argv=argv, limit_s=FETCH_LIMIT_S, environment=environment)


def _copy(model: ModelOnNodes, target: NodeContext) -> _Fetched:
    """From the first node: its cache's folder, or a model given by path to the same path."""
    source, node = model.first, target.node
    near, far, copy = model.disks[source.node], model.disks[node], model.copies[source.node]
    folder, total = cache_folder(near.hub, model.name), model.size_bytes
    if copy is not None and copy.is_complete:
        folder, total = copy.folder, copy.folder_bytes or model.size_bytes
    goal = _same_path(folder, near, far) if is_path(model.name) else cache_folder(far.hub, model.name)
    transfer = Transfer(
        command=copy_command(source.fabric_ip, model.ssh_user(target), folder, goal),
        grows=goal,
        key=f"copy {model.name}@{model.revision} from {source.node} to {goal}",
        total_bytes=_final_bytes(model, target, total),
    )
    title = f"Copy {model.label}{_size_note(model)} from {source.node} to {node}"
    return (
        _step("copy", node, title, transfer, limit_s=FETCH_LIMIT_S, verifies="rsync finds nothing that differs"),
        _review(model, target, f"over the fabric from {source.node}"),
    )


def copy_command(ip: str, user: str, source: str, target: str) -> Command:
    """rsync on the node that lacks the model, from the one that has it: progress can be seen there.

    Links inside the folder (snapshot to blob) stay links; one that leads out of it becomes the file it points to.
    Partial files are kept apart, under a name that no engine reads, and resumed.
    """
    where = address(ip, user, brackets=True)
    return Command(
        argv=(
            *("rsync", "-rltp", "-s", "--mkpath", "--copy-unsafe-links", "--partial-dir=.rsync-partial"),
            *("--exclude=*.incomplete", "--exclude=.rsync-partial", "--exclude=.locks", "--timeout=300"),
            *("-e", _SSH_COPY, "--", f"{where}:{source.rstrip('/')}/", f"{target.rstrip('/')}/"),
        ),
        limit_s=FETCH_LIMIT_S,
    )


def _same_path(path: str, source: NodeModels, target: NodeModels) -> str:
    """The path on the other node: below its user's home where it is below the home on the first."""
    home = source.home.rstrip("/")
    if home and target.home and path.startswith(f"{home}/"):
        return target.home.rstrip("/") + path[len(home) :]
    return path


def _final_bytes(model: ModelOnNodes, context: NodeContext, total: int | None = None) -> int | None:
    """The folder's final size; None where it holds another revision, or another file, of the model already."""
    copy = model.copies[context.node]
    holds_other = copy is not None and (copy.is_complete or model.wanted is not None)
    return None if holds_other else total or model.size_bytes


def _size_note(model: ModelOnNodes) -> str:
    return f" ({gb(model.size_bytes)})" if model.size_bytes else ""


def _review(model: ModelOnNodes, context: NodeContext, source: str) -> Download:
    size = gb(model.size_bytes) if model.size_bytes else ""
    return Download(kind="model", name=model.label, node=context.node, source=source, size=size)
