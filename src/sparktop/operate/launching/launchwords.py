"""What a launch says of itself before it is begun: effect, warnings, the same as commands. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparktop.diagnose.live.window import gib, span
from sparktop.model.guard import GuardPhase
from sparktop.model.operation import ImagePull, Transfer
from sparktop.model.plan import Remote, Step
from sparktop.model.prospect import Fit, GateState
from sparktop.operate.launching import makeroom
from sparktop.operate.launching.outlook import Outlook
from sparktop.operate.launching.place import Place
from sparktop.operate.privilege import root_argvs, sudo_note
from sparktop.probe.remote import mask_argv
from sparktop.recipe.dockerline import docker_run, one_line, secret_names, shown_line


def effect(found: Outlook, made: Sequence[Place]) -> str:
    """What to expect."""
    recipe = found.order.recipe
    took = f" Its load took {span(recipe.expected.load_s)} elsewhere." if recipe.expected.load_s else ""
    back = any(one.comes_back for one in found.goings)
    after = ", and what was stopped is started again" if back else ""
    what = "container is" if len(made) == 1 else "containers are"
    link = "," if back else " and"
    return (
        f"It is started when there is memory for it, proven by one request, and measured.{took} If that fails, its log "
        f"is kept{link} the {what} removed{after}."
    )


def warnings(found: Outlook, made: Sequence[Place], steps: Sequence[Step]) -> Iterator[str]:
    """What is lost, what is guessed, and what isn't as it should be."""
    yield from makeroom.warnings(found.goings)
    yield from found.order.recipe.risks
    if found.rendered is not None:
        yield from found.rendered.notes
    budget = found.budget
    if budget is not None and budget.fit is Fit.TIGHT:  # its sentence names the first lever
        yield budget.sentence
        yield from (f"To leave more room: {lever}" for lever in budget.levers[1:2])
    if budget is not None and budget.unknowns:
        yield f"The budget is an estimate: {'; '.join(budget.unknowns)}."
    for gate in found.gates:  # with what to do they stand in the prospect, and so does what isn't known
        if gate.state is GateState.WARNED and gate.name != "memory":
            yield gate.sentence
    for one in made:
        was = one.view.guard
        if was is not None and was.phase is GuardPhase.ARMED:
            yield (
                f"The guard that is armed on {one.node} over {was.container_name} is replaced, and armed again as it "
                "was at the end."
            )
        if one.taken is not None:
            yield (
                f"The container that is called {one.name} on {one.node} now is kept as {one.taken.before_name}; remove "
                f"it with: docker rm {one.taken.before_name}"
            )
        note = sudo_note(found.looked.survey.privileges(one.node), root_argvs(steps, one.node), one.node)
        if note:
            yield note
    if any(one.policy for one in made):
        yield "It gets its restart policy when it has served, not before."


def equivalent(found: Outlook, up: Sequence[Place], grace_s: float) -> Iterator[str]:
    """The same by hand, in its order."""
    for step in found.fetch.steps:
        for operation in step.act.operations if isinstance(step.act, Remote) else ():
            if isinstance(operation, ImagePull):
                yield f"on {step.node}: docker pull {shlex.quote(operation.image)}"
            elif isinstance(operation, Transfer):
                yield f"on {step.node}: {shlex.join(mask_argv(operation.command.argv))}"
    yield from makeroom.by_hand(found.goings, grace_s)
    for one in up:
        where = f"on {one.node}: "
        if one.target_bytes is not None:
            kib = one.target_bytes // 1024
            yield f"{where}grep MemAvailable /proc/meminfo   # until it is {kib} kB ({gib(one.target_bytes)})"
        if one.taken is not None:
            yield f"{where}docker rename {one.taken.name} {one.taken.before_name}"
        hidden = secret_names([str(pair) for pair in one.body.get("Env") or ()])
        if hidden:
            yield f"{where}export {' '.join(map(shlex.quote, hidden))}   # each with its value"
        yield f"{where}{shown_line(one_line(docker_run(one.name, one.body, one.image)))}"
        if one.policy:
            yield f"{where}docker update --restart={one.policy.get('Name')} {one.name}   # when it has served"
