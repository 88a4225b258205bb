"""What a relaunch of a service says of itself beforehand: what it disturbs, what stays, the same by hand. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sparktop import sanitise
from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import span
from sparktop.model.plan import Request, Step
from sparktop.operate import changewords, unitdropsteps, unitsteps
from sparktop.operate.part import Part
from sparktop.operate.privilege import root_argvs, sudo_note
from sparktop.operate.survey import Survey

if TYPE_CHECKING:
    from sparktop.operate.unit import Dropped


def effect(request: Request, made: Sequence[Dropped]) -> str:
    head = made[0]
    took = f" Its last load took {span(head.start.load_s)}." if head.start.load_s is not None else ""
    return (
        f"{head.name} is down until {head.unit} has loaded it anew.{took}{changewords.proof(request)} "
        f"The change stays in {head.place.path}; the way back is that file "
        f"{'as it was' if head.place.before else 'removed'}."
    )


def warnings(made: Sequence[Dropped], steps: Sequence[Step], survey: Survey) -> Iterator[str]:
    part = made[0].changing.part
    if part.requests:
        yield f"{part.requests} requests that {part.name} holds are lost."
    for one in made:
        yield from reload_danger(one.changing.part)
        yield from one.start.target.warnings
        yield from one.changing.notes
        if one.place.is_stale:
            yield (
                f"The files of {one.unit} on {one.node} were changed since systemd read them: that takes effect too."
            )
        note = sudo_note(survey.privileges(one.node), root_argvs(steps, one.node), one.node, with_lines=False)
        if note:
            yield note
    if part.box is not None:
        yield "A container that a service makes anew has no id before: the guard is armed over it when it has loaded."


def reload_danger(part: Part) -> Iterator[str]:
    """What daemon-reload may do to others (facts/engines.md section 2.7); that of the user's own manager does not."""
    if part.origin.is_own:
        return
    own = part.engine.container.container_id if part.engine.container else ""
    others = {
        engine.container.name
        for engine in part.view.engines
        if engine.container is not None and is_alive(engine) and engine.container.container_id not in ("", own)
    }
    by_id = {box.container_id: box.name for box in part.view.containers.containers}
    for gpu in part.view.gpu.gpus if part.view.gpu else ():
        for user in gpu.processes or ():
            table = part.view.processes.processes if part.view.processes else ()
            cgroup = next((process.cgroup for process in table if process.pid == user.pid), "") or ""
            others |= {name for each, name in by_id.items() if each != own and each and each in cgroup}
    if others:
        named = ", ".join(sanitise.name(name) for name in sorted(others))
        yield (
            "systemd reads its files anew (daemon-reload): with NVIDIA's container toolkit before 1.18.1 that can take "
            f"the GPU from containers that run on {part.node}: {named}. They would say 'Failed to initialize NVML: "
            "Unknown Error', and have to be started anew."
        )


def equivalent(down: Sequence[Dropped], up: Sequence[Dropped]) -> Iterator[str]:
    for one in down:
        yield f"on {one.node}: {unitsteps.typed(one.changing.part, 'stop')}"
    for one in up:
        part, node = one.changing.part, one.node
        yield f"on {node}: grep MemAvailable /proc/meminfo   # until it is {one.start.target.target_bytes // 1024} kB"
        folder = shlex.quote(one.place.path.rpartition("/")[0])
        sudo = "" if part.origin.is_own else "sudo "
        yield f"on {node}: {sudo}mkdir -p -- {folder}"
        yield f"on {node}: {sudo}tee -- {shlex.quote(one.place.path)} >/dev/null <<'END'"
        yield from (sanitise.line(row) for row in one.text.splitlines())
        yield "END"
        yield f"on {node}: {unitdropsteps.reload_typed(part)}"
        yield f"on {node}: {unitsteps.typed(part, 'start')}"
