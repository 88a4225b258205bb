"""Checks of who the machines are: reached by the name that was meant; Sparks, each with ids and keys of its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, ip_address

from sparktop.checks.judgement import Judgement, check, failed, note, passed, unknown, warning
from sparktop.dataclass import dataclass
from sparktop.model.fleet import Contact, LoginMethod, NodeView

PRODUCT_FAMILY = "DGX Spark"
"""DMI product family of every maker's unit (docs/facts/gb10.md)."""
_RENAMED = re.compile(r".+-[2-9]\d?$")
_DOCKER = IPv4Network("172.16.0.0/12")
"""avahi also publishes the addresses of Docker's bridges, which are none of the interfaces that are read."""


# --- the first contact


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFacts:
    """A name, seen from both sides."""

    contact: Contact
    is_live: bool
    own_addresses: Collection[str] = ()
    """IPv4 addresses of the machine that answered; empty: not read."""
    host_name: str = ""
    """What the machine that answered calls itself, without its domain; empty: not read."""


@check("contact.name", is_rule=False, bring_up="reach.name")
def judge_lookup(facts: NameFacts) -> Judgement:
    """Whether the name resolves, in a family that answers, to one machine which has that name itself."""
    contact = facts.contact
    if not contact.host:
        return unknown("nothing was looked up yet")
    if contact.via:
        return note("via")
    if _address(contact.host) is not None:
        return passed("number")
    is_local = contact.host.lower().rstrip(".").endswith(".local")
    if contact.is_unknown_name:
        return failed("no-mdns" if is_local else "no-name")
    if not contact.addresses:
        return unknown("the name service gave no answer")
    has_ipv4 = any(":" not in address for address in contact.addresses)
    if not facts.is_live:
        return passed() if has_ipv4 else failed("ipv6")
    if stranger := _stranger(facts):
        return warning("several", address=stranger)
    label = contact.host.partition(".")[0].lower()
    if is_local and facts.host_name and label != facts.host_name.lower():
        return warning("other-name", name=facts.host_name)
    return passed() if has_ipv4 else note("ipv6")


def _stranger(facts: NameFacts) -> str:
    """An address of the name that the machine which answered doesn't have; empty: none, or it can't be told."""
    if facts.contact.answered not in facts.own_addresses:
        return ""  # behind a NAT or a tunnel none of them is the machine's own
    for text in facts.contact.addresses:
        address = _address(text)
        if isinstance(address, IPv4Address) and text not in facts.own_addresses and address not in _DOCKER:
            return text
    return ""


def _address(text: str) -> object:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


@check("contact.password", is_rule=False, bring_up="reach.login")
def judge_login(method: LoginMethod) -> Judgement:
    """Whether a key was enough to log in."""
    if method is LoginMethod.NONE:
        return unknown("nobody has logged in yet")
    return passed() if method is LoginMethod.KEY else warning("password")


# --- who they are


@check("identity.not-a-spark", is_rule=False, bring_up="identity.product")
def judge_product(family: str | None) -> Judgement:
    """Whether DMI calls the machine a DGX Spark; None: it was not read."""
    if family is None:
        return unknown("its product family was not read")
    return passed() if family == PRODUCT_FAMILY else warning("other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells one machine from another."""

    node: str
    machine_id: str = ""
    """A digest of it; empty: not known."""
    boot_id: str = ""
    host_key: str = ""
    """Fingerprint."""
    host_name: str = ""


def identity_of(node: NodeView) -> Identity:
    """What the picture has of it."""
    facts = node.facts
    return Identity(
        node=node.name,
        machine_id=(facts.machine_id_digest or "") if facts else "",
        boot_id=facts.boot_id if facts else "",
        host_key=node.link.host_key_fingerprint or "",
        host_name=facts.hostname if facts else "",
    )


@check("identity.cloned", is_rule=False, bring_up="identity.clones")
def judge_clones(identities: Sequence[Identity]) -> Judgement:
    """Whether two of the machines share a boot id (then they are one), a machine id, a host key or a name."""
    for first, second in _pairs(identities):
        if first.boot_id and first.boot_id == second.boot_id:
            return failed("one-machine", first=first.node, second=second.node)
    for case, key in (("host-key", "host_key"), ("machine-id", "machine_id"), ("name", "host_name")):
        for first, second in _pairs(identities):
            value = getattr(first, key)
            if value and value == getattr(second, key):
                judge = warning if case == "name" else failed
                return judge(case, first=first.node, second=second.node)
    if any(not identity.machine_id or not identity.boot_id for identity in identities):
        return unknown("an id was not read")
    return passed()


def _pairs(identities: Sequence[Identity]) -> list[tuple[Identity, Identity]]:
    return [(first, second) for number, first in enumerate(identities) for second in identities[number + 1 :]]


@check("identity.renamed", is_rule=False, bring_up="identity.name")
def judge_name(names: tuple[str, str]) -> Judgement:
    """Whether the name that mDNS publishes is the machine's own: avahi appends -2 where a name is taken.

    Args:
        names: what avahi publishes, without ".local" (empty: it publishes none), and the host name.
    """
    published, own = names
    if not own:
        return unknown("its host name was not read")
    if published and published != own and _RENAMED.fullmatch(published):
        return warning("renamed")
    return passed() if published else note("unpublished")


@check("identity.users-differ", is_rule=False, bring_up="identity.user")
def judge_users(users: Sequence[tuple[str, int | None]]) -> Judgement:
    """Whether the login user has one name, and one id, on all nodes."""
    if any(not name for name, _ in users):
        return unknown("a user was not read")
    if len({name for name, _ in users}) > 1:
        return warning("names")
    ids = {user_id for _, user_id in users if user_id is not None}
    return note("ids") if len(ids) > 1 else passed()
