"""Reach: does SSH answer, over which interface, and is the clock right."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.bringup.card import (
    Card,
    CheckInputs,
    Nodes,
    Outcome,
    by_action,
    by_hand,
    card_of,
    each,
    failed,
    judged,
    passed,
    skipped,
    unknown,
    warning,
)
from sparktop.checks.fabric import half_of
from sparktop.checks.host import judge_clock
from sparktop.checks.identity import NameFacts, judge_login, judge_lookup
from sparktop.checks.judgement import Judgement, State
from sparktop.model.finding import Remedy
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
    judgement = judge_lookup(facts)
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown)
    host, figures = contact.host, judgement.figures
    reached = _reached(contact)
    found = {
        "via": f"{host} is looked up by {contact.via}",
        "number": f"{host}: an address, no name",
        "no-mdns": f"no machine answers to {host} (mDNS)",
        "no-name": f"the name service knows no {host}",
        "ipv6": f"{host} has IPv6 addresses alone: {reached}",
        "several": f"{host} is {reached}; {figures.get('address')} is another machine's",
        "other-name": f"{host} leads to the machine that calls itself {figures.get('name')}",
    }.get(judgement.case, f"{host} is {reached}")
    return judged(judgement, found, *_name_remedies(judgement, node, contact))


def _reached(contact: Contact) -> str:
    """The addresses of the name, with the one that answered."""
    shown = [f"{address} (answered)" if address == contact.answered else address for address in contact.addresses[:6]]
    return ", ".join(shown) or "no address"


def _name_remedies(judgement: Judgement, node: str, contact: Contact) -> Iterator[Remedy]:
    host, address = contact.host, contact.answered or "ADDRESS"
    match judgement.case:
        case "no-mdns" | "no-name":
            yield by_hand(
                "Find the Spark by its address",
                *(() if judgement.case == "no-mdns" else (f"try its mDNS name: sparktop {host}.local",)),
                "in the router's list of leases, look for the name on the quick-start card, such as spark-abcd",
                "here: avahi-browse -rt _ssh._tcp   # macOS: dns-sd -B _ssh._tcp",
                "join the Spark's own network: guest and office Wi-Fi drop mDNS",
                "then: sparktop bringup USER@ADDRESS",
            )
        case "ipv6":
            yield by_hand(
                "Connect by IPv4: a firewall of the Spark may let IPv4 alone in",
                f"here: ssh -4 {host}   # in ~/.ssh/config: AddressFamily inet",
                "the Spark's IPv4 address is in the router's list of leases; then: sparktop bringup USER@ADDRESS",
            )
        case "several":
            yield by_hand(
                "Name the Spark by the address that is its own, and give each machine a name of its own",
                f"here: sparktop bringup {address}",
                f"on {node}: sudo hostnamectl set-hostname NAME && sudo systemctl restart avahi-daemon",
            )
        case "other-name":
            name = judgement.figures.get("name")
            yield by_hand(
                "Use the name that the machine has itself",
                f"here: sparktop bringup {name}.local",
                f"on {node}: systemctl status avahi-daemon   # a name that is taken gets -2 by avahi",
            )


def _login_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    view = seen.view(nodes[0])
    if view is not None and view.link.contact.login is LoginMethod.PASSWORD:
        yield OperatorKeys(node=nodes[0])


def _login(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, view, ask = nodes[0], seen.view(nodes[0]), OperatorKeys(node=nodes[0])
    contact = view.link.contact if view is not None else Contact()
    if view is not None and view.link.state is LinkState.LIVE and not contact.host:
        return skipped("this machine itself")
    judgement = judge_login(contact.login)
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown)
    if judgement.state is State.PASSED:
        return passed("by a key")
    keys = seen.value(ask) or ()
    if not keys:
        why = seen.survey.problem(ask)
        lacks = f"your keys can't be listed: {why}" if why else "there is no key on this machine yet"
        return judged(
            judgement,
            f"by a password, at every connection; {lacks}",
            by_hand(
                "Make a key, then install it",
                f"here: {MAKE_KEY}",
                f"here: sparktop act install-key {node}",
            ),
        )
    return judged(
        judgement,
        "by a password, at every connection",
        *(
            by_action("install-key", f"Install the key {shown_key(key)}", key=key.fingerprint)
            for key in keys[:_KEYS_AT_MOST]
        ),
    )


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
    judgement = judge_clock(ahead_s)
    if ahead_s is None:
        return unknown(judgement.unknown)
    side = "ahead of" if ahead_s > 0 else "behind"
    found = f"{duration(abs(ahead_s))} {side} this machine" if judgement.is_problem else "as on this machine"
    return judged(judgement, found, by_hand("Set the clock", f"on {nodes[0]}: sudo timedatectl set-ntp true"))


CARDS = (
    card_of(
        judge_lookup,
        title="Name",
        looks_at="the name's addresses, which of them answered, the host name",
        why="A name may lead nowhere, over IPv6 alone, or to another machine that answers to it.",
        look=_name,
        root="to rename the machine",
    ),
    Card(
        id="reach.ssh",
        title="SSH",
        looks_at="the connection",
        why="Everything else is asked over it.",
        sources=("NVIDIA/dgx-spark-playbooks connect-to-your-spark",),
        look=_connection,
    ),
    card_of(
        judge_login,
        title="Login",
        looks_at="what the login was accepted by; your public keys",
        why="A password is asked again at each reconnection, and nobody is there at 3 a.m.",
        look=_login,
        asks=_login_asks,
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
    card_of(
        judge_clock,
        title="Clock",
        looks_at="the samples' time",
        why="A wrong clock shows as TLS errors: downloads and registries fail.",
        look=_clock,
        root="to set it",
    ),
)
