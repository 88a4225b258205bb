"""Review text of a launch: effect, warnings, equivalent commands, and the endpoint it serves."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from sparktop.cmdline.engine_argv import has, is_pooling
from sparktop.engines.listening import ANYWHERE, is_loopback, listen_host
from sparktop.engines.questions import first_question
from sparktop.errors import UsageError
from sparktop.masking import mask_argv
from sparktop.model.fleet import Contact
from sparktop.model.operation import ImagePull, Transfer
from sparktop.model.prospect import Fit, Prospect
from sparktop.model.recipe import SourceKind
from sparktop.model.state import State
from sparktop.model.survey import Output, Survey
from sparktop.operate.acts.patch_image import PatchImage
from sparktop.operate.acts.post_exec import PostExec
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import lifecycle
from sparktop.operate.launch import engines_to_stop
from sparktop.operate.launch.inputs.gate_inputs import GateInputs
from sparktop.operate.launch.planned_rank import PlannedRank, guard_notes
from sparktop.operate.plan.start_steps import typed_memory
from sparktop.operate.secrets.sudo import sudo_notes
from sparktop.operate.step.plan import Step
from sparktop.recipe.container_spec import Rendered, RenderedRank
from sparktop.recipe.render.compiled import folder_of
from sparktop.text.sentences import listed
from sparktop.text.units import gb, gib, span
from sparktop.transport.targets import parse_target


def effect(inputs: GateInputs, ranks: Sequence[PlannedRank]) -> str:
    """What the review says will happen."""
    recipe = inputs.order.recipe
    took = f" Its load took {span(recipe.expected.load_s)} elsewhere." if recipe.expected.load_s else ""
    comes_back = any(engine.comes_back for engine in inputs.engines_to_stop)
    after = ", and what was stopped starts again" if comes_back else ""
    up = f"Runs `{inputs.compose.command}`. It" if inputs.compose is not None else "It"
    containers = "container is" if len(ranks) == 1 else "containers are"
    link = "," if comes_back else " and"
    measured = "" if is_pooling(ranks[0].rendered.argv, recipe.engine) else ", and measured"
    return (
        f"{up} starts when there is memory for it, is proven by one request{measured}.{took} If that fails, its log is "
        f"saved{link} the {containers} removed{after}."
    )


def warnings(
    inputs: GateInputs, prospect: Prospect, ranks: Sequence[PlannedRank], steps: Sequence[Step]
) -> Iterator[str]:
    """What the review warns of: a new source, engines that are stopped, risks, memory, gates, the guard, sudo."""
    for source in inputs.order.recipe.new_sources:
        kept = "at this commit" if source.commit else "also after its files change"
        if source.commit and source.kind is not SourceKind.GIT:
            kept = "until it is at another commit"
        yield (
            f"First launch from {source.text}. Its recipes choose the image, command, mounts and rights of what runs "
            f"here, and its mods change the image. Running this agrees to all of them, {kept}."
        )
    yield from engines_to_stop.warnings(inputs.engines_to_stop)
    yield from _of_compose(inputs)
    yield from inputs.order.recipe.risks
    if inputs.rendered is not None:
        yield from inputs.rendered.notes
        if (patched := inputs.rendered.patched) is not None:
            names = ", ".join(
                f"{patch.name} of {patch.source.text}" if patch.source else patch.name for patch in patched.patches
            )
            yield (
                f"The recipe changes its image ({names}): that is done once on each node and kept as {patched.name}; "
                f"remove it with: docker rmi {patched.name}"
            )
        if inputs.rendered.post_exec:
            yield (
                "The recipe runs commands of its own in the container, as root, once it serves (post_exec): that is "
                "part of this launch, and not of a later start of the container."
            )
        yield from kernel_notes(inputs.rendered, inputs.survey)
    budget = inputs.budget
    if budget is not None and budget.fit is Fit.TIGHT:  # its sentence has the first lever
        yield budget.sentence
        yield from (f"To leave more room: {lever.text}" for lever in budget.levers[1:2])
    if budget is not None and budget.unknowns:
        yield f"The budget is an estimate: {'; '.join(budget.unknowns)}."
    for gate in prospect.gates:  # remedies and unknowns are shown in the prospect
        if gate.state is State.WARNING and gate.name != "memory":
            yield gate.sentence
    for rank in ranks:
        yield from guard_notes(rank)
        if rank.container.old is not None:
            yield (
                f"The container that is called {rank.name} on {rank.node} now is kept as "
                f"{rank.container.before_name}; remove "
                f"it with: docker rm {rank.container.before_name}"
            )
        yield from sudo_notes(steps, inputs.survey.privileges(rank.node), rank.node)
    if any(rank.container.has_policy for rank in ranks):
        yield "It gets its restart policy only once it has served."


def _of_compose(inputs: GateInputs) -> Iterator[str]:
    """Whose container it is, where the recipe was made of a compose file on a Spark."""
    compose, service = inputs.compose, inputs.order.recipe.compose
    if compose is not None:
        yield (
            f"Compose makes the container: `ps`, `logs` and `down` of the project {compose.service.project} know it. "
            "A rollback removes it, not the networks and volumes that compose makes for it."
        )
        if compose.environment:
            names = listed(compose.environment)
            yield f"Compose is given {names} now, and no file keeps it: a later `docker compose up` wants it again."
    elif service is not None:
        why = "with other values" if inputs.order.values else f"elsewhere than on {service.node} alone"
        yield (
            f"Launched {why}, it is a container of sparktop's own; else `docker compose up` would start the service "
            f"{service.name} of {service.path}."
        )


_KERNELS_KB = 1024
"""Less is folders, and nothing compiled in them."""


def kernel_notes(rendered: Rendered, survey: Survey) -> Iterator[str]:
    """How much compiled code is kept where, and how it is cleared; on a pair, that one node has none."""
    sizes = {rank.node: _kernels_kb(rank, survey) for rank in rendered.ranks if folder_of(rank)}
    full = [node for node, size_kb in sizes.items() if size_kb is not None and size_kb >= _KERNELS_KB]
    empty = [node for node, size_kb in sizes.items() if size_kb is not None and size_kb < _KERNELS_KB]
    for rank in rendered.ranks:
        if rank.node in full:
            folder = shlex.quote(folder_of(rank))
            kept = gb((sizes[rank.node] or 0) * 1024)
            yield f"{rank.node} keeps {kept} of compiled kernels of this model; clear them with: sudo rm -r {folder}"
    if full and empty:
        yield (
            f"{' and '.join(empty)} has no compiled kernels of this model yet, {' and '.join(full)} has: one rank "
            "compiles for minutes while the other waits."
        )


def _kernels(rank: RenderedRank) -> Output:
    return Output(node=rank.node, argv=("du", "-sk", "--", folder_of(rank)), limit_s=10.0)


def _kernels_kb(rank: RenderedRank, survey: Survey) -> int | None:
    """None: not known; 0 where the folder isn't there."""
    answer = survey.answer(_kernels(rank))
    if answer is None:
        return None
    words = (answer.text or "").split()
    if words and words[0].isdecimal():
        return int(words[0])
    return 0 if answer.code == 1 else None


def equivalent(inputs: GateInputs, up: Sequence[PlannedRank], steps: Sequence[Step], grace_s: float) -> Iterator[str]:
    """The same launch as shell commands, in order."""
    for step in steps:
        for operation in step.act.operations if isinstance(step.act, Remote) else ():
            if isinstance(operation, ImagePull):
                yield f"on {step.node}: docker pull {shlex.quote(operation.image)}"
            elif isinstance(operation, Transfer):
                yield f"on {step.node}: {shlex.join(mask_argv(operation.command.argv))}"
    for step in steps:
        if isinstance(step.act, PatchImage):
            yield from (f"on {step.node}: {line}" for line in step.act.commands())
    yield from engines_to_stop.by_hand(inputs.engines_to_stop, grace_s)
    for rank in up:
        if rank.target_bytes is not None:
            yield f"{typed_memory(rank.node, rank.target_bytes)} ({gib(rank.target_bytes)})"
        yield from lifecycle.typed_new(rank.container, rank.image) if inputs.compose is None else inputs.compose.typed()
    for step in steps:
        if isinstance(step.act, PostExec):
            yield from (f"on {step.node}: {line}" for line in step.act.commands())


def outcome(rendered: Rendered, contact: Contact, *, has_key: bool) -> str:
    """ "serves Qwen/Qwen3-0.6B at http://spark1:8000/v1", with the host as the operator names it."""
    there, host = _asked_at(rendered, contact)
    where = f"serves {rendered.served_name} at {_base_url(rendered, host)}"
    if is_loopback(listens_on := listen_host(rendered.head.argv, rendered.engine)):
        where += f", on {there} alone: it listens on {listens_on}"
    elif there:
        where += f" on {there}"
    return f"{where}, key: as {rendered.engine.traits.key_variable}" if has_key else where


def first_request(rendered: Rendered, contact: Contact, *, has_key: bool) -> str:
    """A request to paste into a shell: here, or on the node where only that one is known to reach the engine."""
    there, host = _asked_at(rendered, contact)
    path, asked = first_question(rendered.head.argv, rendered.engine, rendered.served_name)
    body = {"model": rendered.served_name, **asked}
    words = ["curl", f"{_base_url(rendered, host)}/{path}", "-H", "Content-Type: application/json"]
    name = rendered.engine.traits.key_variable
    key = f' -H "Authorization: Bearer ${name}"' if has_key else ""  # the shell's own, never its value
    line = f"{shlex.join(words)}{key} -d {shlex.quote(json.dumps(body))}"
    return f"on {there}: {line}" if there else line


def _base_url(rendered: Rendered, host: str) -> str:
    scheme = "https" if has(rendered.head.argv, "ssl-certfile", "ssl-cert-file") else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{rendered.port}/v1"


def _asked_at(rendered: Rendered, contact: Contact) -> tuple[str, str]:
    """(the node to ask the engine on, empty: from here; its host there): what ssh looks up, as the node's name may be
    an alias that only ssh knows. Where ssh takes a jump host or a tunnel, that leads nobody else there."""
    node, listens_on = rendered.head.node, listen_host(rendered.head.argv, rendered.engine)
    if is_loopback(listens_on):
        return node, listens_on
    if contact.via or is_loopback(contact.host):
        return node, "localhost" if listens_on in ANYWHERE else listens_on
    try:
        return "", contact.host or parse_target(node).host
    except UsageError:
        return "", node
