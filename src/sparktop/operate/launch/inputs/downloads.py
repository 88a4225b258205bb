"""Which nodes have a model that a launch loads, and where those that lack it can get it. Pure.

A model that no node has complete is downloaded to one, by huggingface_hub's command line (`hf download`, or its older
name), else by the same library inside the engine's image. Each other node copies it over the fabric; where it can't, it
downloads it too. Further models (a draft, for instance) come in the same way.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import PurePosixPath

from sparktop.model.recipe import Order
from sparktop.model.survey import HubModel, ModelsOnDisk, Output, Survey
from sparktop.operate.launch.inputs.link import Fabric
from sparktop.recipe import gguf
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.model_config import ModelFacts
from sparktop.recipe.models import (
    HubListing,
    NodeModels,
    hub_listing_of,
    is_path,
    is_repo,
    is_revision,
    node_models_of,
)
from sparktop.recipe.operator_secrets import HUB_TOKEN
from sparktop.recipe.parameters import LaunchValues
from sparktop.recipe.render.model_mounts import is_inside, own_cache
from sparktop.recipe.render.more_models import more_models, parameter_of

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


def models_on_nodes(values: LaunchValues, contexts: Sequence[NodeContext], survey: Survey) -> tuple[ModelOnNodes, ...]:
    """Every model that the launch loads, the served one first."""
    return tuple(ModelOnNodes(values, contexts, survey, name) for name in _names(values))


def _names(values: LaunchValues) -> tuple[str, ...]:
    return (values.model, *(name for name in more_models(values) if name != values.model))


def _wanted(values: LaunchValues, name: str) -> gguf.Wanted | None:
    """What is loaded of a model in a hub; None: its whole folder, or a path."""
    recipe = values.order.recipe
    is_one_file = recipe.engine.traits.file_flag and name == values.model and not is_path(name)
    return gguf.wanted(name, recipe.mmproj) if is_one_file else None


class ModelOnNodes:
    """A model of the launch: the nodes that have it and those that lack it."""

    def __init__(self, values: LaunchValues, contexts: Sequence[NodeContext], survey: Survey, name: str) -> None:
        self.values, self.contexts, self.survey = values, contexts, survey
        self.given, self.is_more = name, name != values.model
        self.wanted = _wanted(values, name)
        self.name = self.wanted.repository if self.wanted is not None else name
        self.given_revision = "" if self.is_more else values.revision
        self.revision = self.given_revision or "main"
        self.label = f"{name}@{self.given_revision[:12]}" if self.given_revision else name
        self.disks: Mapping[str, NodeModels] = disks(values, [context.node for context in contexts], survey)
        self.copies = {
            node: disk.find(self.name, self.given_revision, wanted=self.wanted) for node, disk in self.disks.items()
        }
        complete = {
            context.node: copy
            for context in contexts
            if (copy := self.copies.get(context.node)) is not None and copy.is_complete
        }
        self.source = next((context for context in contexts if context.node in complete), None)
        revision = next(iter(complete.values())).revision if complete else ""
        # Ranks with different revisions of one branch would answer from different weights.
        whole = {
            node for node, copy in complete.items() if not (copy.revision and revision) or copy.revision == revision
        }
        # A node without an answer doesn't lack it: its gate says unknown.
        lacking = set() if self.is_inside else self.disks.keys() - whole
        self.lacking = tuple(context for context in contexts if context.node in lacking)

    @property
    def order(self) -> Order:
        return self.values.order

    @property
    def is_inside(self) -> bool:
        """Whether the container brings it: sparktop doesn't look there."""
        return is_inside(self.order.recipe, self.given)

    @property
    def is_in_a_hub(self) -> bool:
        return is_repo(self.name) and is_revision(self.revision)

    @property
    def first(self) -> NodeContext:
        """The node that the others copy it from: one that has it, else the one to download it: one that can, and has
        most of it."""
        return self.source or min(
            self.lacking,
            key=lambda context: (self.download_program(context) is None, -self.copy_bytes(context), context.index),
        )

    @property
    def hub(self) -> HubListing | None:
        """What the hub says about the model, asked where it is to come from there; None: no answer."""
        if not self.lacking or self.source is not None or not is_repo(self.name) or not self.order.may_fetch:
            return None
        answer = self.survey.answer(self.hub_question(self.contexts[0].node))
        hub = hub_listing_of(self.name, answer.value) if answer is not None else None
        return hub.of_gguf(self.wanted) if hub is not None and self.wanted is not None else hub

    def with_files(self, context: NodeContext) -> NodeContext:
        """The node with the files that its engine is told, of a model of which one is loaded: those that are there, or
        where a download puts them.

        Raises:
            CannotRender: which they are is not clear.
        """
        hub, copy = self.hub, self.copies.get(context.node)
        if self.wanted is None or self.is_inside:
            return context
        if copy is not None and copy.is_complete:
            choice, folder = copy.choice, copy.path
        else:
            choice = hub.choice if hub is not None else None
            folder = snapshot_folder(self.disks[context.node].hub, self.name, hub.revision) if hub is not None else ""
        if choice is not None and choice.problem:
            raise CannotRender(choice.problem, "--set model=ORG/NAME:QUANT, by a part of its name that only it has")
        if choice is None:
            return context
        if not folder:
            raise CannotRender(f"where {self.label} will be on {context.node} is not known: the hub told no commit")
        encoder = f"{folder}/{choice.encoder}" if choice.encoder else ""
        return replace(context, model_file=f"{folder}/{choice.weights[0]}", encoder_file=encoder)

    @property
    def facts(self) -> ModelFacts | None:
        """Its facts: from complete files on a node, else from the hub, else from partial files."""
        if (hub := self.hub) is not None and hub.facts is not None:
            return hub.facts
        copies = sorted(filter(None, self.copies.values()), key=lambda copy: not copy.is_complete)
        return copies[0].facts if copies else None

    @property
    def remedy(self) -> str:
        """The option that launches another model instead."""
        if not self.is_more:
            return "--set model=ORG/NAME" + (":QUANT" if self.wanted is not None else "")
        name = parameter_of(self.values, self.name)
        return f"--set {name}=ORG/NAME" if name else "in the recipe, runtime_config: sparktop: models: - ORG/NAME"

    def hub_question(self, node: str) -> HubModel:
        """Asks the hub about it."""
        token = self.order.secrets.get(HUB_TOKEN, "")
        return HubModel(node=node, repo=self.name, revision=self.revision, hub=self.order.hub, token=token)

    def ssh_user(self, target: NodeContext) -> str:
        """The user of the node that it is copied from, where ssh would use another one by default; else empty."""
        source_privileges = self.survey.privileges(self.first.node)
        target_privileges = self.survey.privileges(target.node)
        user = source_privileges.user if source_privileges is not None else ""
        return "" if target_privileges is not None and user == target_privileges.user else user

    def reach_question(self, target: NodeContext) -> Output | None:
        """Whether the target reaches the node that it is copied from by ssh, and rsync is there; None where that one
        has no address on the link."""
        return ask_reach(target.node, self.first.fabric_ip, self.ssh_user(target))

    def has_rsync(self, context: NodeContext) -> bool:
        """Whether that node has an rsync that can copy a model to it."""
        return has_rsync(self.survey.text(rsync_question(context.node)))

    def why_no_copy(self, target: NodeContext) -> str:
        """Why it can't be copied to the target; empty: it can."""
        source, question = self.first.node, self.reach_question(target)
        if question is None:
            return f"no address of {source} on the link is known"
        reach = self.survey.text(question)
        if not self.has_rsync(target):
            return f"{target.node} has no rsync of 3.2.3 or later"
        if not has_rsync(reach):
            why = self.survey.problem(question)
            return f"{target.node} can't copy from {source} by ssh" + (f": {why}" if why else "")
        return ""

    def is_copied(self, target: NodeContext) -> bool:
        """Whether a node that lacks it gets it from another one; else it downloads it."""
        return self.order.may_fetch and target is not self.first and not self.why_no_copy(target)

    def obstacle(self, target: NodeContext) -> tuple[str, str] | None:
        """(why it can't come to a node that lacks it, what to do about that, where it isn't copied by hand); None: it
        can."""
        node, disk, copy = target.node, self.disks[target.node], self.copies[target.node]
        if is_path(self.name):
            return (self.why_no_copy(target), "") if self.source is not None and not self.is_copied(target) else None
        if not disk.is_writable or (copy is not None and not copy.is_writable):
            why = f"{disk.hub} there is not writable for its user: a container has written there as root"
            return why, f'on {node}: sudo chown -R "$USER": {shlex.quote(disk.cache)}'
        if not self.is_copied(target) and self.download_program(target) is None:
            if self.wanted is not None:
                name = self.order.recipe.engine.traits.name
                return f"no hf is there to download it, and no image of {name} has Python", f"on {node}: {INSTALL}"
            return "nothing there can download it: no hf, and its user may not use Docker", f"on {node}: {INSTALL}"
        return None

    def download_program(self, context: NodeContext) -> str | None:
        """The path of the first program on the node, hf or its older name, that can download the model; empty: the
        library in the engine's image; None: nothing that can."""
        disk = self.disks[context.node]
        if not disk.cache or not disk.hub or not is_repo(self.name):
            return None
        output = self.survey.text(programs_question(disk.node, disk.home)) or ""
        lines = [line for line in output.splitlines() if line.startswith("/")]
        for name in _PROGRAMS:
            for line in lines:
                if PurePosixPath(line).name == name and line.isprintable():
                    return line
        if self.wanted is not None:
            return None
        privileges = self.survey.privileges(context.node)
        has_docker = privileges is not None and (privileges.docker == "open" or privileges.is_root)
        can_be_mounted = disk.cache.startswith("/") and "," not in disk.cache and disk.cache.isprintable()
        return "" if has_docker and disk.uid is not None and disk.gid is not None and can_be_mounted else None

    def copy_bytes(self, context: NodeContext) -> int:
        """Bytes of the model that the node has already."""
        copy = self.copies[context.node]
        return (copy.folder_bytes or copy.size_bytes) if copy is not None else 0

    @property
    def size_bytes(self) -> int | None:
        """Size of the complete model; None: not known."""
        if self.source is not None and (copy := self.copies[self.source.node]) is not None:
            return copy.size_bytes
        if (hub := self.hub) is None:
            return None
        sizes = [file.size_bytes for file in (hub.needed if needed_files(hub) else hub.files)]
        return sum(size for size in sizes if size) if sizes and None not in sizes else None

    def coming_bytes(self, target: NodeContext) -> int | None:
        """Bytes that a node which lacks it still gets; None: not known."""
        copy = self.copies[self.source.node] if self.source is not None else None
        total = copy.folder_bytes if copy is not None and self.is_copied(target) else 0
        total_bytes = total or self.size_bytes
        return max(0, total_bytes - self.copy_bytes(target)) if total_bytes is not None else None


def programs_question(node: str, home: str) -> Output:
    """Which download programs there are, in PATH and in the usual folders."""
    paths = [f"{home.rstrip('/')}/{folder}/{name}" for name in _PROGRAMS for folder in _PROGRAM_FOLDERS] if home else []
    return Output(node=node, argv=("which", "-a", *_PROGRAMS, *paths))


def needed_files(hub: HubListing | None) -> tuple[str, ...]:
    """Names of the files to download, where the repository has others that nobody loads; empty: all."""
    least = 2 if hub is None or hub.choice is None else 1
    if hub is None or len(hub.needed) == len(hub.files) or not least <= len(hub.needed) <= _FILES_AT_MOST:
        return ()
    names = tuple(file.path for file in hub.needed)
    return names if all(_FILE.fullmatch(name) and not name.endswith("/") for name in names) else ()


def cache_folder(hub: str, repo: str) -> str:
    """The model's folder in the hub cache: models--ORG--NAME."""
    return f"{hub.rstrip('/')}/models--{repo.replace('/', '--')}"


def snapshot_folder(hub: str, repo: str, revision: str) -> str:
    """Where a download puts the files of this commit; empty: which commit isn't known."""
    return f"{cache_folder(hub, repo)}/snapshots/{revision}" if hub and revision else ""


def rsync_question(node: str) -> Output:
    return Output(node=node, argv=("rsync", "--version"))


def ask_reach(node: str, ip: str, user: str = "") -> Output | None:
    """Whether `node` reaches the node with the model by ssh and rsync is there; None where `ip` is no address."""
    where = address(ip, user)
    return Output(node=node, argv=(*_SSH, "--", where, "rsync --version"), limit_s=15.0) if where is not None else None


def has_rsync(output: str | None) -> bool:
    """Whether this is the version output of an rsync that can create missing folders."""
    match = _VERSION.search(output or "")
    return match is not None and tuple(int(number or 0) for number in match.groups()) >= OLDEST_RSYNC


def address(ip: str, user: str = "", *, brackets: bool = False) -> str | None:
    """The address as ssh takes it, one of IPv6 in brackets for rsync; None where `ip` is none."""
    try:
        parsed = ip_address(ip)
    except ValueError:
        return None
    host = f"[{parsed}]" if brackets and parsed.version == 6 else str(parsed)
    return f"{user}@{host}" if _USER.fullmatch(user) else host


def disk_question(node: str, order: Order | None = None) -> ModelsOnDisk:
    """Asks for the models on a node, in the cache that the order's recipe mounts where it does."""
    return ModelsOnDisk(node=node, cache=own_cache(order.recipe) if order is not None else "")


def disks(values: LaunchValues, nodes: Sequence[str], survey: Survey) -> Mapping[str, NodeModels]:
    """Models on disk by node, for nodes that answered; of a path outside of the usual folders too."""
    recipe = values.order.recipe
    paths = tuple(name for name in _names(values) if is_path(name) and not is_inside(recipe, name))
    by_node: dict[str, NodeModels] = {}
    for node in nodes:
        disk = node_models_of(node, survey.value(disk_question(node, values.order)))
        if disk is not None and any(disk.find(path) is None for path in paths):
            folders = ModelsOnDisk(node=node, roots=paths, cache=own_cache(recipe))
            disk = node_models_of(node, survey.value(folders)) or disk
        if disk is not None:
            by_node[node] = disk
    return by_node


def node_contexts(
    values: LaunchValues, nodes: Sequence[str], links: Mapping[str, Fabric], survey: Survey
) -> tuple[NodeContext, ...]:
    """What a recipe is rendered with for each node, head first."""
    disks_by_node = disks(values, nodes, survey)
    served, *extra = _names(values)
    contexts = []
    for index, node in enumerate(nodes):
        disk, link = disks_by_node.get(node), links.get(node)
        wanted = _wanted(values, served)
        name = wanted.repository if wanted is not None else served
        copy = disk.find(name, values.revision, wanted=wanted) if disk is not None else None
        contexts.append(
            NodeContext(
                node=node,
                index=index,
                home=disk.home if disk is not None else "",
                cache=disk.cache if disk is not None else "",
                model_path=copy.path if copy is not None and copy.is_complete else "",
                lacking=tuple(
                    name
                    for name in extra
                    if disk is None or (own := disk.find(name, "")) is None or not own.is_complete
                ),
                fabric_ip=link.ip if link is not None else "",
                fabric_interface=link.interface if link is not None else "",
                hcas=link.hcas if link is not None else (),
                gid_index=link.gid_index if link is not None else None,
                is_ring=link is not None and link.is_ring,
            )
        )
    return tuple(contexts)
