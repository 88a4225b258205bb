"""Review text of a launch: effect, warnings, equivalent commands, and the endpoint it serves."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from sparktop.cmdline.engine_argv import has
from sparktop.engines.listening import ANYWHERE, is_loopback, listen_host
from sparktop.errors import UsageError
from sparktop.masking import mask_argv
from sparktop.model.fleet import Contact
from sparktop.model.operation import ImagePull, Transfer
from sparktop.model.prospect import Fit
from sparktop.model.recipe import SourceKind
from sparktop.model.state import State
from sparktop.operate.acts.patch_image import PatchImage
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import lifecycle
from sparktop.operate.launch import compiled, make_room
from sparktop.operate.launch.planned_rank import PlannedRank
from sparktop.operate.launch.prospect import LaunchInputs
from sparktop.operate.plan.start_steps import typed_memory
from sparktop.operate.secrets.sudo import sudo_notes
from sparktop.operate.step.plan import Step
from sparktop.recipe.container_spec import Rendered
from sparktop.recipe.operator_secrets import ENGINE_KEY
from sparktop.text.units import gib, span
from sparktop.transport.targets import parse_target


def effect(inputs: LaunchInputs, ranks: Sequence[PlannedRank]) -> str:
    """What the review says will happen."""
    recipe = inputs.order.recipe
    took = f" Its load took {span(recipe.expected.load_s)} elsewhere." if recipe.expected.load_s else ""
    comes_back = any(engine.comes_back for engine in inputs.engines_to_stop)
    after = ", and what was stopped starts again" if comes_back else ""
    containers = "container is" if len(ranks) == 1 else "containers are"
    link = "," if comes_back else " and"
    return (
        f"It starts when there is memory for it, is proven by one request, and measured.{took} If that fails, its log "
        f"is saved{link} the {containers} removed{after}."
    )


def warnings(inputs: LaunchInputs, ranks: Sequence[PlannedRank], steps: Sequence[Step]) -> Iterator[str]:
    """What the review warns of: a new source, engines that are stopped, risks, memory, gates, the guard, sudo."""
    for source in inputs.order.recipe.new_sources:
        kept = "at this commit" if source.commit else "also after its files change"
        if source.commit and source.kind is not SourceKind.GIT:
            kept = "until it is at another commit"
        yield (
            f"First launch from {source.text}. Its recipes choose the image, command, mounts and rights of what runs "
            f"here, and its mods change the image. Running this agrees to all of them, {kept}."
        )
    yield from make_room.warnings(inputs.engines_to_stop)
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
        yield from compiled.notes(inputs.rendered, inputs.gate_inputs.survey)
    budget = inputs.budget
    if budget is not None and budget.fit is Fit.TIGHT:  # its sentence has the first lever
        yield budget.sentence
        yield from (f"To leave more room: {lever.text}" for lever in budget.levers[1:2])
    if budget is not None and budget.unknowns:
        yield f"The budget is an estimate: {'; '.join(budget.unknowns)}."
    for gate in inputs.gates:  # remedies and unknowns are shown in the prospect
        if gate.state is State.WARNING and gate.name != "memory":
            yield gate.sentence
    for rank in ranks:
        yield from rank.guard_notes()
        if rank.container.old is not None:
            yield (
                f"The container that is called {rank.name} on {rank.node} now is kept as "
                f"{rank.container.before_name}; remove "
                f"it with: docker rm {rank.container.before_name}"
            )
        yield from sudo_notes(steps, inputs.gate_inputs.survey, rank.node)
    if any(rank.container.has_policy for rank in ranks):
        yield "It gets its restart policy only once it has served."


def equivalent(inputs: LaunchInputs, up: Sequence[PlannedRank], steps: Sequence[Step], grace_s: float) -> Iterator[str]:
    """The same launch as shell commands, in order."""
    for step in inputs.fetch.steps:
        for operation in step.act.operations if isinstance(step.act, Remote) else ():
            if isinstance(operation, ImagePull):
                yield f"on {step.node}: docker pull {shlex.quote(operation.image)}"
            elif isinstance(operation, Transfer):
                yield f"on {step.node}: {shlex.join(mask_argv(operation.command.argv))}"
    for step in steps:
        if isinstance(step.act, PatchImage):
            yield from (f"on {step.node}: {line}" for line in step.act.commands())
    yield from make_room.by_hand(inputs.engines_to_stop, grace_s)
    for rank in up:
        if rank.target_bytes is not None:
            yield f"{typed_memory(rank.node, rank.target_bytes)} ({gib(rank.target_bytes)})"
        yield from lifecycle.typed_new(rank.container, rank.image)


_PROMPT = "Say hello."


def outcome(rendered: Rendered, contact: Contact, *, has_key: bool) -> str:
    """ "serves Qwen/Qwen3-0.6B at http://spark1:8000/v1", with the host as the operator names it."""
    there, host = _asked_at(rendered, contact)
    where = f"serves {rendered.served_name} at {_base_url(rendered, host)}"
    if is_loopback(_listen_host(rendered)):
        where += f", on {there} alone: it listens on {_listen_host(rendered)}"
    elif there:
        where += f" on {there}"
    return f"{where}, key: as {ENGINE_KEY}" if has_key else where


def first_request(rendered: Rendered, contact: Contact, *, has_key: bool) -> str:
    """A request to paste into a shell: here, or on the node where only that one is known to reach the engine."""
    there, host = _asked_at(rendered, contact)
    body = {"model": rendered.served_name, "messages": [{"role": "user", "content": _PROMPT}]}
    words = ["curl", f"{_base_url(rendered, host)}/chat/completions", "-H", "Content-Type: application/json"]
    key = f' -H "Authorization: Bearer ${ENGINE_KEY}"' if has_key else ""  # the shell's own, never its value
    line = f"{shlex.join(words)}{key} -d {shlex.quote(json.dumps(body))}"
    return f"on {there}: {line}" if there else line


def _base_url(rendered: Rendered, host: str) -> str:
    scheme = "https" if has(rendered.head.argv, "ssl-certfile") else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{rendered.port}/v1"


def _listen_host(rendered: Rendered) -> str:
    return listen_host(rendered.head.argv, rendered.engine)


def _asked_at(rendered: Rendered, contact: Contact) -> tuple[str, str]:
    """(the node to ask the engine on, empty: from here; its host there): what ssh looks up, as the node's name may be
    an alias that only ssh knows. Where ssh takes a jump host or a tunnel, that leads nobody else there."""
    node, listens_on = rendered.head.node, _listen_host(rendered)
    if is_loopback(listens_on):
        return node, listens_on
    if contact.via or is_loopback(contact.host):
        return node, "localhost" if listens_on in ANYWHERE else listens_on
    try:
        return "", contact.host or parse_target(node).host
    except UsageError:
        return "", node
