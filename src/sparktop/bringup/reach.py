"""Reach: does SSH answer, over which interface, and is the clock right."""

from __future__ import annotations

from sparktop.bringup.card import Card, Nodes, Outcome, Seen, by_hand, each, failed, judged, passed, unknown, warning
from sparktop.checks.fabric import half_of
from sparktop.checks.host import judge_clock
from sparktop.model.fleet import LinkState, node_wall_s
from sparktop.operate.launch.inputs.link import reached_ask
from sparktop.text.units import duration

_WIRELESS = ("wl", "wwan")


def _connection(seen: Seen, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    if view is None:
        return unknown("not connected yet")
    if view.link.state is LinkState.LIVE:
        facts = view.facts
        who = f"{facts.user} on {facts.hostname}, Python {facts.python_version}" if facts else "no facts yet"
        return passed(who)
    steps = (view.link.hint,) if view.link.hint else (f"ssh -v {nodes[0]}",)
    return failed(view.link.reason or f"{view.link.state}", by_hand("Make SSH answer", *steps))


def _path(seen: Seen, nodes: Nodes) -> Outcome:
    view, ask = seen.view(nodes[0]), reached_ask(nodes[0])
    words = (seen.text(ask) or "").split()
    if view is None or len(words) < 3:
        return unknown(f"which address answered: {seen.why_not(ask)}")
    address = words[2].removeprefix("::ffff:")
    interface = next((one for one in view.interfaces if address in one.plain_addresses), None)
    if interface is None:
        return passed(f"{address} answers{' (loopback)' if address.startswith('127.') else ''}")
    found = f"{address} on {interface.name} answers"
    if interface.name.startswith(_WIRELESS):
        return warning(
            f"{found}: Wi-Fi, which drops when it saves power",
            by_hand(
                "Use the 10 GbE port, and name the Spark by its address there",
                f"on {nodes[0]}: ip -br -4 addr show enP7s7",
                "or: sudo nmcli connection modify NAME wifi.powersave 2",
            ),
        )
    if half_of(interface.name) is not None:
        return warning(
            f"{found}: the cable between the Sparks, whose traffic is the model's",
            by_hand("Connect by the 10 GbE port", f"on {nodes[0]}: ip -br -4 addr show enP7s7"),
        )
    return passed(found)


def _clock(seen: Seen, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    now = node_wall_s(view, seen.picture) if view is not None else None
    ahead_s = now - seen.picture.wall_s if now is not None else None
    judgement = judge_clock(ahead_s)
    if ahead_s is None:
        return unknown(judgement.unknown)
    side = "ahead of" if ahead_s > 0 else "behind"
    found = f"{duration(abs(ahead_s))} {side} this machine" if judgement.is_problem else "as on this machine"
    return judged(judgement, found, by_hand("Set the clock", f"on {nodes[0]}: sudo timedatectl set-ntp true"))


CARDS = (
    Card(
        id="reach.ssh",
        title="SSH",
        looks_at="the connection",
        why="Everything else is asked over it.",
        sources=("NVIDIA/dgx-spark-playbooks connect-to-your-spark",),
        look=_connection,
    ),
    Card(
        id="reach.path",
        title="Management path",
        looks_at="SSH_CONNECTION, the interfaces",
        why="A `.local` name may lead over Wi-Fi, which drops, or over the cable that the model needs.",
        sources=("unslothai/unsloth PR #10280", "evanwtf/local-llm"),
        look=_path,
        asks=each(reached_ask),
    ),
    Card(
        id="reach.clock",
        title="Clock",
        looks_at="the samples' time",
        why="A wrong clock shows as TLS errors: downloads and registries fail.",
        sources=judge_clock.sources,
        look=_clock,
        root="to set it",
    ),
)
