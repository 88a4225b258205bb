"""Memory at rest, and the tools that later chapters need."""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.bringup.card import (
    CheckInputs,
    Nodes,
    Outcome,
    by_hand,
    card,
    each,
    passed,
    skipped,
    told,
    unknown,
)
from sparktop.checks.machine import MEMORY_AT_REST_GIB, RestFacts, judge_memory_at_rest
from sparktop.engines.ranks import is_alive
from sparktop.model.state import State
from sparktop.model.survey import Output
from sparktop.text.units import gib


def _rest(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    sample = view.sample if view is not None else None
    if view is None or sample is None:
        return unknown("no sample yet")
    engines = tuple(engine.name for engine in view.engines if is_alive(engine))
    judgement = judge_memory_at_rest(
        RestFacts(
            available_bytes=sample.memory.available_bytes, engines=engines, has_looked=view.has_looked_for_engines
        )
    )
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown)
    available = f"{gib(sample.memory.available_bytes)} available"
    if judgement.case == "busy":
        return skipped(f"{', '.join(engines)} runs: not at rest ({available})")
    holders = [f"{holder.label} {gib(holder.held_bytes)}" for holder in view.holders("gpu", "desktop", "processes")[:3]]
    return told(
        judge_memory_at_rest,
        judgement,
        node=nodes[0],
        available=available,
        holders=", ".join(holders),
        expected=MEMORY_AT_REST_GIB,
    )


def guards_ask(node: str) -> Output:
    return Output(node=node, argv=("systemctl", "is-active", "earlyoom.service", "systemd-oomd.service"))


def parse_guards(text: str | None) -> tuple[str, ...] | None:
    """The out-of-memory daemons that are active; None: systemd did not answer."""
    states = (text or "").split()
    if len(states) != 2:
        return None
    return tuple(name for name, state in zip(("earlyoom", "systemd-oomd"), states, strict=True) if state == "active")


def swap_text(seen: CheckInputs, node: str) -> str | None:
    """The swap of /proc/meminfo: "16.0 GiB", or none; None: no sample."""
    view = seen.view(node)
    if view is None or view.sample is None:
        return None
    total_bytes = view.sample.memory.swap_total_bytes
    return gib(total_bytes) if total_bytes else "none"


def _habits(seen: CheckInputs, nodes: Nodes) -> Outcome:
    swap, guards = swap_text(seen, nodes[0]), parse_guards(seen.text(guards_ask(nodes[0])))
    view = seen.view(nodes[0])
    facts = view.facts if view is not None else None
    if swap is None:
        return unknown("no sample yet")
    parts = [f"swap {swap}"]
    parts += [f"out-of-memory daemon {' and '.join(guards) or 'none'}"] if guards is not None else []
    if facts is not None and facts.is_graphical is not None:
        parts += ["desktop running (1.5 to 3 GB)" if facts.is_graphical else "no desktop"]
    return passed(", ".join(parts))


TOOLS: Mapping[str, str] = {
    "ib_write_bw": "perftest",
    "lldpctl": "lldpd",
    "ethtool": "ethtool",
    "rsync": "rsync",
    "prlimit": "util-linux",
}
"""Programs that later chapters use, and the apt package of each."""


def tools_ask(node: str) -> Output:
    return Output(node=node, argv=("which", *TOOLS))


def missing_tools(seen: CheckInputs, node: str) -> list[str] | None:
    """Those of the programs that the node doesn't have; None: it was not told."""
    answer = seen.survey.answers.get(tools_ask(node))
    if answer is None or answer.code not in (0, 1):
        return None
    there = {line.rpartition("/")[2] for line in (seen.text(tools_ask(node)) or "").split()}
    return [name for name in TOOLS if name not in there]


def _tools(seen: CheckInputs, nodes: Nodes) -> Outcome:
    missing = missing_tools(seen, nodes[0])
    if missing is None:
        return unknown(seen.why_not(tools_ask(nodes[0])))
    if not missing:
        return passed(", ".join(TOOLS))
    packages = " ".join(dict.fromkeys(TOOLS[name] for name in missing))
    return skipped(
        f"missing: {', '.join(missing)}",
        by_hand("Install what you want to be able to look at", f"on {nodes[0]}: sudo apt install {packages}"),
    )


CARDS = (
    card(judge_memory_at_rest, look=_rest),
    card("memory.habits", look=_habits, asks=each(guards_ask)),
    card("tools.programs", look=_tools, asks=each(tools_ask)),
)
