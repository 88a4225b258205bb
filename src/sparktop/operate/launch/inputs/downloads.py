"""Which nodes have a model, and the commands that download or copy it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import PurePosixPath

from sparktop.model.operation import Command
from sparktop.model.recipe import Order
from sparktop.model.survey import Output, Survey
from sparktop.operate.launch.inputs.gate_inputs import Model, disks, hub, models_of, own_model
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.models import HubFile, HubListing, ModelCopy, NodeModels
from sparktop.recipe.operator_secrets import HUB_TOKEN
from sparktop.recipe.render.environment import HUB
from sparktop.recipe.render.model_mounts import is_inside, parameter_of


class ModelOnNodes:
    """A model of the launch (its main one by default): the nodes that have it and those that lack it."""

    def __init__(
        self, order: Order, contexts: Sequence[NodeContext], survey: Survey, model: Model | None = None
    ) -> None:
        self.order, self.contexts, self.survey = order, contexts, survey
        self.spec = model or own_model(order)
        self.name, self.given_revision = self.spec.name, self.spec.revision
        self.revision = self.given_revision or "main"
        self.label = f"{self.name}@{self.given_revision[:12]}" if self.given_revision else self.name
        self.disks: Mapping[str, NodeModels] = disks([context.node for context in contexts], survey)
        self.copies = {node: disk.find(self.name, self.given_revision) for node, disk in self.disks.items()}
        complete = [
            context for context in contexts if (copy := self.copies.get(context.node)) is not None and copy.is_complete
        ]
        self.source: NodeContext | None = complete[0] if complete else None
        first = self.copies[complete[0].node] if complete else None
        # A node without an answer doesn't lack it: its gate says unknown.
        self.lacking = tuple(
            context
            for context in contexts
            if context.node in self.disks
            and (
                context not in complete
                or (first is not None and self._has_other_revision(self.copies[context.node], first))
            )
        )

    @staticmethod
    def _has_other_revision(copy: ModelCopy | None, first: ModelCopy) -> bool:
        """Ranks with different revisions of one branch would answer from different weights."""
        return copy is not None and bool(copy.revision and first.revision) and copy.revision != first.revision

    @property
    def first(self) -> NodeContext:
        """The node that the others copy it from: one that has it, else the one to download it: one that can, and has
        most of it."""
        return self.source or min(
            self.lacking,
            key=lambda context: (self.download_source(context) is None, -self.copy_bytes(context), context.index),
        )

    @property
    def hub(self) -> HubListing | None:
        """What the hub says about the model; None: no answer."""
        return hub(self.order, [context.node for context in self.contexts], self.survey, self.spec)

    @property
    def remedy(self) -> str:
        """The option that launches another model instead."""
        if not self.spec.is_more:
            return "--set model=ORG/NAME"
        name = parameter_of(self.order, self.name)
        return f"--set {name}=ORG/NAME" if name else "in the recipe, runtime_config: sparktop: models: - ORG/NAME"

    def ssh_user(self, target: NodeContext, source: NodeContext) -> str:
        """The source node's user, where ssh would use another one by default; else empty."""
        source_privileges = self.survey.privileges(source.node)
        target_privileges = self.survey.privileges(target.node)
        user = source_privileges.user if source_privileges is not None else ""
        return "" if target_privileges is not None and user == target_privileges.user else user

    def reach_ask(self, target: NodeContext, source: NodeContext) -> Output | None:
        """Whether the target reaches the source by ssh and rsync is there."""
        return ask_reach(target.node, source.fabric_ip, self.ssh_user(target, source))

    def has_rsync(self, context: NodeContext) -> bool:
        """Whether that node has an rsync that can copy a model to it."""
        return has_rsync(self.survey.value(rsync_ask(context.node)))

    def why_no_copy(self, target: NodeContext, source: NodeContext) -> str:
        """Why it can't be copied to the target; empty: it can."""
        if not source.fabric_ip or (ask := self.reach_ask(target, source)) is None:
            return f"no address of {source.node} on the link is known"
        if not self.has_rsync(target):
            return f"{target.node} has no rsync of 3.2.3 or later"
        if not has_rsync(self.survey.value(ask)):
            why = self.survey.problem(ask)
            return f"{target.node} can't copy from {source.node} by ssh" + (f": {why}" if why else "")
        return ""

    def download_source(self, context: NodeContext) -> str | None:
        """The program that can download the model on that node; empty: the engine's image; None: nothing."""
        privileges = self.survey.privileges(context.node)
        has_docker = privileges is not None and (privileges.docker == "open" or privileges.is_root)
        return download_source(self.disks[context.node], self.survey, has_docker=has_docker)

    def copy_bytes(self, context: NodeContext) -> int:
        """Bytes of the model that the node has already."""
        copy = self.copies[context.node]
        return (copy.folder_bytes or copy.size_bytes) if copy is not None else 0

    @property
    def size_bytes(self) -> int | None:
        """Size of the complete model; None: not known."""
        if self.source is not None and (copy := self.copies[self.source.node]) is not None:
            return copy.size_bytes
        return download_bytes(self.hub)


def models_on_nodes(order: Order, contexts: Sequence[NodeContext], survey: Survey) -> tuple[ModelOnNodes, ...]:
    """Every model that the launch loads from the nodes, the main one first."""
    models = [model for model in models_of(order) if not is_inside(order.recipe, model.name)]
    return tuple(ModelOnNodes(order, contexts, survey, model) for model in models)


FETCH_LIMIT_S = 24 * 3600.0


OLDEST_RSYNC = (3, 2, 3)
"""The first version with --mkpath."""


INSTALL = "uv tool install huggingface_hub    # or: pipx install huggingface_hub"


_PROGRAMS = ("hf", "huggingface-cli")
"""In huggingface_hub 1.0 and later, the older name does nothing."""


_PROGRAM_FOLDERS = (".local/bin", ".venv/bin", "venv/bin", "miniconda3/bin", "miniforge3/bin")
"""Below the home folder: a command over SSH doesn't see what a login shell adds to PATH."""


_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


_VERSION = re.compile(r"\brsync\s+version\s+v?(\d+)\.(\d+)(?:\.(\d+))?")


_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. +/-]*")


_FILES_AT_MOST = 400


_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")


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


# --- downloading


def programs_ask(node: str, home: str) -> Output:
    """Which download programs there are, in PATH and in the usual folders."""
    paths = [f"{home.rstrip('/')}/{folder}/{name}" for name in _PROGRAMS for folder in _PROGRAM_FOLDERS] if home else []
    return Output(node=node, argv=("which", "-a", *_PROGRAMS, *paths))


def download_source(disk: NodeModels, survey: Survey, *, has_docker: bool) -> str | None:
    """The path of the first program on the node, hf or its older name; empty: the library in the engine's image; None:
    nothing that can download."""
    output = survey.value(programs_ask(disk.node, disk.home))
    lines = [line for line in output.splitlines() if line.startswith("/")] if isinstance(output, str) else []
    for name in _PROGRAMS:
        for line in lines:
            if PurePosixPath(line).name == name and line.isprintable():
                return line
    if has_docker and disk.uid is not None and disk.gid is not None and _can_be_mounted(disk.cache):
        return ""
    return None


def download(
    program: str,
    disk: NodeModels,
    *,
    repo: str,
    revision: str,
    files: Sequence[str],
    image: str,
    token: str,
    hub: str,
    name: str,
) -> Command:
    """The command that downloads a model into the cache that engines use.

    Args:
        program: its path; empty: the library in the engine's image.
        files: files to download; empty: the whole repository.
        name: the container's name, where it runs in one.
    """
    environment = {
        "HF_HOME": disk.cache,
        "HF_HUB_CACHE": disk.hub,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DOWNLOAD_TIMEOUT": "60",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_SHARED_BLOBS": "1",  # every model's folder stays whole by itself, to be copied as it is
        **({"HF_ENDPOINT": hub.rstrip("/")} if hub.rstrip("/") != HUB else {}),
        **({HUB_TOKEN: token} if token else {}),
    }
    if program:
        argv = (program, "download", repo, *files, "--revision", revision)
    else:
        passed = [word for key in sorted(environment) for word in ("--env", key)]
        argv = (
            *("docker", "run", "--rm", "--init", "--name", name, "--network", "host"),
            *("--user", f"{disk.uid}:{disk.gid}", "--mount", f"type=bind,source={disk.cache},target={disk.cache}"),
            *(*passed, "--env", "HOME=/tmp", "--entrypoint", "python3", image),
            *("-c", _IN_IMAGE, repo, revision, *files),
        )
    return Command(argv=argv, limit_s=FETCH_LIMIT_S, environment=environment)


def needed_files(hub: HubListing | None) -> tuple[str, ...]:
    """Names of the files to download, where the repository has others that nobody loads; empty: all."""
    if hub is None or len(hub.needed) == len(hub.files) or not 1 < len(hub.needed) <= _FILES_AT_MOST:
        return ()
    names = tuple(file.path for file in hub.needed)
    return names if all(_FILE.fullmatch(name) and not name.endswith("/") for name in names) else ()


def download_bytes(hub: HubListing | None) -> int | None:
    """Size of the download; None: not known."""
    if hub is None:
        return None
    files: tuple[HubFile, ...] = hub.needed if needed_files(hub) else hub.files
    sizes = [file.size_bytes for file in files]
    return sum(size for size in sizes if size) if sizes and None not in sizes else None


def _can_be_mounted(path: str) -> bool:
    return path.startswith("/") and "," not in path and path.isprintable()


# --- copying


def rsync_ask(node: str) -> Output:
    return Output(node=node, argv=("rsync", "--version"))


def ask_reach(node: str, ip: str, user: str = "") -> Output | None:
    """Whether `node` reaches the node with the model by ssh and rsync is there; None where `ip` is no address."""
    where = address(ip, user)
    if where is None:
        return None
    return Output(node=node, argv=(*_SSH, "--", where, "rsync --version"), limit_s=15.0)


def address(ip: str, user: str = "") -> str | None:
    """The address as ssh takes it; None where `ip` is none."""
    try:
        parsed = ip_address(ip)
    except ValueError:
        return None
    return f"{user}@{parsed}" if _USER.fullmatch(user) else str(parsed)


def has_rsync(output: object) -> bool:
    """Whether this is the version output of an rsync that can create missing folders."""
    match = _VERSION.search(output) if isinstance(output, str) else None
    return match is not None and tuple(int(number or 0) for number in match.groups()) >= OLDEST_RSYNC


def copy(ip: str, user: str, source: str, target: str) -> Command:
    """rsync on the node that lacks the model, from the one that has it: progress can be seen there.

    Links inside the folder (snapshot to blob) stay links; one that leads out of it becomes the file it points to.
    Partial files are kept apart, under a name that no engine reads, and resumed.
    """
    host = f"[{ip}]" if ":" in ip else ip
    where = f"{user}@{host}" if _USER.fullmatch(user) else host
    return Command(
        argv=(
            *("rsync", "-rltp", "-s", "--mkpath", "--copy-unsafe-links", "--partial-dir=.rsync-partial"),
            *("--exclude=*.incomplete", "--exclude=.rsync-partial", "--exclude=.locks", "--timeout=300"),
            *("-e", _SSH_COPY, "--", f"{where}:{source.rstrip('/')}/", f"{target.rstrip('/')}/"),
        ),
        limit_s=FETCH_LIMIT_S,
    )


def cache_folder(hub: str, repo: str) -> str:
    """The model's folder in the hub cache: models--ORG--NAME."""
    return f"{hub.rstrip('/')}/models--{repo.replace('/', '--')}"
