"""Reach and identity: does SSH answer, over which interface, and is each a Spark of its own, with the same user."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Outcome,
    Scope,
    by_action,
    by_hand,
    card,
    command,
    each,
    failed,
    file,
    passed,
    skipped,
    told,
    unknown,
    warning,
)
from sparktop.checks.fabric import half_of
from sparktop.checks.host import judge_clock
from sparktop.checks.identity import (
    NameFacts,
    identity_of,
    judge_clones,
    judge_login,
    judge_lookup,
    judge_name,
    judge_product,
    judge_users,
)
from sparktop.model.fleet import Contact, LinkState, LoginMethod, node_wall_s
from sparktop.model.survey import OperatorKeys, Question
from sparktop.operate.launch.inputs.link import reached_question
from sparktop.operate.setup.login_key import MAKE_KEY, shown_key
from sparktop.text.units import duration

_KEYS_AT_MOST = 5
_WIRELESS = ("wl", "wwan")
_THIS_MACHINE = "this machine itself"


# --- reach


def _connection(seen: CheckInputs) -> Outcome:
    facts, link = seen.own.facts, seen.own.link
    if link.state is LinkState.LIVE:
        who = f"{facts.user} on {facts.hostname}, Python {facts.python_version}" if facts else "no facts yet"
        return passed(who)
    return failed(link.reason or f"{link.state}", by_hand("Make SSH answer", link.hint or f"ssh -v {seen.node}"))


def _lookup(seen: CheckInputs) -> Outcome:
    view, contact = seen.own, seen.own.link.contact
    is_live = view.link.state is LinkState.LIVE
    if not contact.host:
        return skipped(_THIS_MACHINE) if is_live else unknown("not looked up yet")
    facts = NameFacts(
        contact=contact,
        is_live=is_live,
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
        node=seen.node,
    )


def _reached(contact: Contact) -> str:
    """The addresses of the name, with the one that answered."""
    shown = [f"{address} (answered)" if address == contact.answered else address for address in contact.addresses[:6]]
    return ", ".join(shown) or "no address"


def _login_questions(seen: CheckInputs) -> Iterator[Question]:
    if seen.own.link.contact.login is LoginMethod.PASSWORD:
        yield OperatorKeys(node=seen.node)


def _login(seen: CheckInputs) -> Outcome:
    link, question = seen.own.link, OperatorKeys(node=seen.node)
    if link.state is LinkState.LIVE and not link.contact.host:
        return skipped(_THIS_MACHINE)
    keys = seen.survey.value(question) or ()
    why = seen.survey.problem(question)
    lacks = f"your keys can't be listed: {why}" if why else "there is no key on this machine yet"
    installs = (
        by_action("install-key", f"Install the key {shown_key(key)}", key=key.fingerprint)
        for key in keys[:_KEYS_AT_MOST]
    )
    judgement = judge_login(link.contact.login)
    return told(judge_login, judgement, *installs, no_key="" if keys else lacks, make_key=MAKE_KEY, node=seen.node)


def _path(seen: CheckInputs) -> Outcome:
    question = reached_question(seen.node)
    words = seen.words(question).split()
    if len(words) < 3:
        return unknown(f"which address answered: {seen.why_not(question)}")
    address = words[2].removeprefix("::ffff:")
    interface = next((one for one in seen.own.interfaces if address in one.plain_addresses), None)
    if interface is None:
        return passed(f"{address} answers{' (loopback)' if address.startswith('127.') else ''}")
    found, look = f"{address} on {interface.name} answers", f"on {seen.node}: ip -br -4 addr show enP7s7"
    if interface.name.startswith(_WIRELESS):
        return warning(
            f"{found}: Wi-Fi, which drops when it saves power",
            by_hand(
                "Use the 10 GbE port, and name the Spark by its address there",
                look,
                "or: sudo nmcli connection modify NAME wifi.powersave 2",
            ),
        )
    if half_of(interface.name) is not None:
        return warning(
            f"{found}: the cable between the Sparks, whose traffic is the model's",
            by_hand("Connect by the 10 GbE port", look),
        )
    return passed(found)


def _clock(seen: CheckInputs) -> Outcome:
    now = node_wall_s(seen.own, seen.picture)
    ahead_s = now - seen.picture.wall_s if now is not None else None
    difference = f"{duration(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'}" if ahead_s is not None else ""
    return told(judge_clock, judge_clock(ahead_s), node=seen.node, difference=difference)


# --- identity


_VENDOR = "/sys/class/dmi/id/board_vendor"
_vendor_question = file(_VENDOR)


def _product(seen: CheckInputs) -> Outcome:
    product = seen.own.facts.product if seen.own.facts else None
    vendor = seen.words(_vendor_question(seen.node))
    return told(judge_product, judge_product(product), product=product, vendor=vendor, node=seen.node, path=_VENDOR)


_published_question = command(
    "busctl", "call", "org.freedesktop.Avahi", "/", "org.freedesktop.Avahi.Server", "GetHostName"
)


def _name(seen: CheckInputs) -> Outcome:
    view = seen.own
    published = seen.words(_published_question(seen.node)).removeprefix("s ").strip().strip('"')
    own = view.facts.hostname.partition(".")[0] if view.facts else ""
    addressed = [one.name for one in view.interfaces if one.addresses and half_of(one.name) is None]
    lan = next((name for name in addressed if shlex.quote(name) == name), "INTERFACE")  # it stands within quotes
    return told(judge_name, judge_name((published, own)), published=published, own=own, node=seen.node, lan=lan)


def _clones(seen: CheckInputs) -> Outcome:
    views = list(map(seen.view, seen.nodes))
    identities = list(map(identity_of, views))
    judgement = judge_clones(identities)
    second = str(judgement.figures.get("second"))
    ids = [identity.machine_id for identity in identities if identity.machine_id]
    contact = next((view.link.contact for view in views if view.name == second), Contact())
    host = contact.host if contact.port == 22 else f"[{contact.host}]:{contact.port}"
    return told(
        judge_clones,
        judgement,
        count=len(views),
        first_asked=seen.node,
        one_machine_id=len(set(ids)) < len(ids),
        host=host or second,
    )


def _users(seen: CheckInputs) -> Outcome:
    all_facts = [(node, seen.view(node).facts) for node in seen.nodes]
    judgement = judge_users([(facts.user, facts.user_id) if facts else ("", None) for _, facts in all_facts])
    users = [f"{facts.user} ({facts.user_id}) on {node}" for node, facts in all_facts if facts]
    name = next((facts.user for _, facts in all_facts if facts), "")
    return told(judge_users, judgement, name=name, users=", ".join(users))


CARDS = (
    card(judge_lookup, look=_lookup),
    card("reach.ssh", look=_connection),
    card(judge_login, look=_login, questions=_login_questions),
    card("reach.path", look=_path, questions=each(reached_question)),
    card(judge_clock, look=_clock),
    card("identity.product", look=_product, questions=each(_vendor_question), basis=(Basis.BOOT,)),
    card(judge_name, look=_name, questions=each(_published_question)),
    card(judge_clones, look=_clones, scope=Scope.FLEET),
    card(judge_users, look=_users, scope=Scope.FLEET),
)
