"""A container made on a simulated Spark: of a launch, or anew in the image of the one that it succeeds."""

from __future__ import annotations

from dataclasses import replace

from sparktop.sim import launched, startup
from sparktop.sim.aftermath import Moment, held_by, of_container
from sparktop.sim.launched import flag_value
from sparktop.sim.script import ContainerScript, NodeScript
from sparktop.sim.tracks import Track

_WEIGHT_FLAGS = ("--gpu-memory-utilization", "--mem-fraction-static")


def created(now: Moment, script: ContainerScript, like: str) -> NodeScript:
    """The node with a container that has never run.

    Of a launch it is the engine that its command line asks for; else processes and endpoint are those of `like`.
    """
    node = now.script
    number = sum(1 for one in node.containers if one.key) + sum(one.created_s is not None for one in node.containers)
    template = next((one for one in node.containers if one.name == like), None)
    key = f"{script.name}#{number + 1}@{now.t:.3f}"
    box = replace(script, key=key, runs=(), log=(), created_s=now.t)
    is_own = template is None or template.launched is not None or bool(launched.label(box, launched.LAUNCH))
    if is_own and (asked := launched.asked(now, box)) is not None:
        return _launched(now, replace(box, launched=asked))
    if template is None:
        return replace(node, containers=(*node.containers, box))
    share = _share(template.argv, box.argv)
    reaction = template.reaction
    held = held_by(node, template)
    if share != 1.0 and held:
        reaction = replace(reaction, gpu_gib=sum(held.values()) * share)
    box = replace(box, reaction=reaction, notes=startup.notes(template))
    processes = tuple(
        replace(
            one,
            container=script.name,
            pid=one.pid + 100_003 * (number + 1),
            parent_pid=one.parent_pid + 100_003 * (number + 1) if one.parent_pid > 1 else 1,
            argv=_argv_of_process(one.argv, template.argv, box.argv),
            state="S",
            wait_channel=None if one.wait_channel == "nvidia_wait_gsp" else one.wait_channel,
            gpu_gib=Track.constant(held[one.pid]) if one.pid in held else None,
            resident_gib=Track.constant(one.resident_gib.stretches[0].at(0.0)),
            swapped_gib=Track.constant(0.0),
        )
        for one in of_container(node, like)
    )
    engines = node.engines
    old = next((one for one in engines if one.name == like), None)
    if old is not None:
        port = flag_value(box.argv, "--port")
        fresh = replace(
            old, name=script.name, serves=(), prompt_tokens=0.0, generation_tokens=0.0, requests=0.0,
            port=int(port) if port and port.isdecimal() else old.port,
        )  # fmt: skip
        engines = (*engines, fresh)
    return replace(node, containers=(*node.containers, box), processes=(*node.processes, *processes), engines=engines)


def _launched(now: Moment, box: ContainerScript) -> NodeScript:
    """An engine of its own."""
    node = now.script
    asked = box.launched
    assert asked is not None
    box = replace(box, reaction=replace(box.reaction, group=launched.label(box, launched.LAUNCH), ranks=asked.ranks))
    processes, engine = launched.parts(now, box)
    return replace(
        node,
        containers=(*node.containers, box),
        processes=(*node.processes, *processes),
        engines=(*node.engines, engine) if engine is not None else node.engines,
    )


def _share(old: tuple[str, ...], new: tuple[str, ...]) -> float:
    """How much less or more memory another command line asks for."""
    for flag in _WEIGHT_FLAGS:
        before, after = flag_value(old, flag), flag_value(new, flag)
        try:
            if before and after:
                return float(after) / float(before)
            if after and flag == "--gpu-memory-utilization":
                return float(after) / 0.92
        except (ValueError, ZeroDivisionError):
            return 1.0
    return 1.0


def _argv_of_process(argv: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """A process's command line where it was its container's: the container's new one, after what came before it."""
    if len(argv) >= len(old) and argv[len(argv) - len(old) + 1 :] == old[1:]:
        return (*argv[: len(argv) - len(old) + 1], *new[1:])
    return argv
