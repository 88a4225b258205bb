"""Reach: does SSH answer, over which interface, and is the clock right."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.bringup.card import (
    CheckInputs,
    Nodes,
    Outcome,
    by_action,
    by_hand,
    card,
    each,
    failed,
    passed,
    skipped,
    told,
    unknown,
    warning,
)
from sparktop.checks.fabric import half_of
from sparktop.checks.host import judge_clock
from sparktop.checks.identity import NameFacts, judge_login, judge_lookup
from sparktop.model.fleet import Contact, LinkState, LoginMethod, node_wall_s
from sparktop.model.survey import Ask, OperatorKeys
from sparktop.operate.launch.inputs.link import reached_ask
from sparktop.operate.setup.login_key import MAKE_KEY, shown_key
from sparktop.text.units import duration

_KEYS_AT_MOST = 5
_WIRELESS = ("wl", "wwan")


def _connection(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    if view is None:
        return unknown("not connected yet")
    if view.link.state is LinkState.LIVE:
        facts = view.facts
        who = f"{facts.user} on {facts.hostname}, Python {facts.python_version}" if facts else "no facts yet"
        return passed(who)
    steps = (view.link.hint,) if view.link.hint else (f"ssh -v {nodes[0]}",)
    return failed(view.link.reason or f"{view.link.state}", by_hand("Make SSH answer", *steps))


def _name(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, view = nodes[0], seen.view(nodes[0])
    if view is None:
        return unknown("not looked up yet")
    contact = view.link.contact
    if not contact.host:
        return skipped("this machine itself") if view.link.state is LinkState.LIVE else unknown("not looked up yet")
    facts = NameFacts(
        contact=contact,
        is_live=view.link.state is LinkState.LIVE,
        own_addresses=frozenset[str]().union(*(one.plain_addresses for one in view.interfaces)),
        host_name=view.facts.hostname.partition(".")[0] if view.facts is not None else "",
    )
    return told(
        judge_lookup,
        judge_lookup(facts),
        host=contact.host,
        via=contact.via,
        reached=_reached(contact),
        answered=contact.answered or "ADDRESS",
        node=node,
    )


def _reached(contact: Contact) -> str:
    """The addresses of the name, with the one that answered."""
    shown = [f"{address} (answered)" if address == contact.answered else address for address in contact.addresses[:6]]
    return ", ".join(shown) or "no address"


def _login_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    view = seen.view(nodes[0])
    if view is not None and view.link.contact.login is LoginMethod.PASSWORD:
        yield OperatorKeys(node=nodes[0])


def _login(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, view, ask = nodes[0], seen.view(nodes[0]), OperatorKeys(node=nodes[0])
    contact = view.link.contact if view is not None else Contact()
    if view is not None and view.link.state is LinkState.LIVE and not contact.host:
        return skipped("this machine itself")
    keys = seen.value(ask) or ()
    why = seen.survey.problem(ask)
    lacks = f"your keys can't be listed: {why}" if why else "there is no key on this machine yet"
    installs = (
        by_action("install-key", f"Install the key {shown_key(key)}", key=key.fingerprint)
        for key in keys[:_KEYS_AT_MOST]
    )
    judgement = judge_login(contact.login)
    return told(judge_login, judgement, *installs, no_key="" if keys else lacks, make_key=MAKE_KEY, node=node)


def _path(seen: CheckInputs, nodes: Nodes) -> Outcome:
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


def _clock(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    now = node_wall_s(view, seen.picture) if view is not None else None
    ahead_s = now - seen.picture.wall_s if now is not None else None
    difference = f"{duration(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'}" if ahead_s is not None else ""
    return told(judge_clock, judge_clock(ahead_s), node=nodes[0], difference=difference)


CARDS = (
    card(judge_lookup, look=_name),
    card("reach.ssh", look=_connection),
    card(judge_login, look=_login, asks=_login_asks),
    card("reach.path", look=_path, asks=each(reached_ask)),
    card(judge_clock, look=_clock),
)
