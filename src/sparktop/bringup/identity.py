"""Identity: Sparks, each with ids, host keys, a name and the same user."""

from __future__ import annotations

import shlex

from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    card,
    each,
    told,
)
from sparktop.checks.fabric import half_of
from sparktop.checks.identity import Identity, identity_of, judge_clones, judge_name, judge_product, judge_users
from sparktop.model.fleet import Contact
from sparktop.model.survey import FileText, Output
from sparktop.model.telemetry import HostFacts

_VENDOR = "/sys/class/dmi/id/board_vendor"


def _facts(seen: CheckInputs, node: str) -> HostFacts | None:
    view = seen.view(node)
    return view.facts if view is not None else None


def vendor_ask(node: str) -> FileText:
    return FileText(node=node, path=_VENDOR, limit_bytes=4096)


def _product(seen: CheckInputs, nodes: Nodes) -> Outcome:
    facts = _facts(seen, nodes[0])
    vendor = (seen.text(vendor_ask(nodes[0])) or "").strip()
    product = facts.product if facts else None
    return told(judge_product, judge_product(product), product=product, vendor=vendor, node=nodes[0], path=_VENDOR)


def published_ask(node: str) -> Output:
    argv = ("busctl", "call", "org.freedesktop.Avahi", "/", "org.freedesktop.Avahi.Server", "GetHostName")
    return Output(node=node, argv=argv)


def _name(seen: CheckInputs, nodes: Nodes) -> Outcome:
    facts = _facts(seen, nodes[0])
    published = (seen.text(published_ask(nodes[0])) or "").removeprefix("s ").strip().strip('"')
    own = facts.hostname.partition(".")[0] if facts else ""
    view = seen.view(nodes[0])
    addressed = [one.name for one in view.interfaces if one.addresses and half_of(one.name) is None] if view else []
    lan = next((name for name in addressed if shlex.quote(name) == name), "INTERFACE")  # it stands within quotes
    judgement = judge_name((published, own))
    return told(judge_name, judgement, published=published, own=own, node=nodes[0], lan=lan)


def _clones(seen: CheckInputs, nodes: Nodes) -> Outcome:
    views = [view for node in nodes if (view := seen.view(node)) is not None]
    identities: list[Identity] = [identity_of(view) for view in views]
    judgement = judge_clones(identities)
    second = str(judgement.figures.get("second"))
    ids = [identity.machine_id for identity in identities if identity.machine_id]
    contact = next((view.link.contact for view in views if view.name == second), Contact())
    host = contact.host if contact.port == 22 else f"[{contact.host}]:{contact.port}"
    return told(
        judge_clones,
        judgement,
        count=len(views),
        first_asked=nodes[0],
        one_machine_id=len(set(ids)) < len(ids),
        host=host or second,
    )


def _users(seen: CheckInputs, nodes: Nodes) -> Outcome:
    all_facts = [(node, _facts(seen, node)) for node in nodes]
    judgement = judge_users([(facts.user, facts.user_id) if facts else ("", None) for _, facts in all_facts])
    users = [f"{facts.user} ({facts.user_id}) on {node}" for node, facts in all_facts if facts]
    name = next((facts.user for _, facts in all_facts if facts), "")
    return told(judge_users, judgement, name=name, users=", ".join(users))


CARDS = (
    card("identity.product", look=_product, asks=each(vendor_ask), basis=(Basis.BOOT,)),
    card(judge_name, look=_name, asks=each(published_ask)),
    card(judge_clones, look=_clones, scope=Scope.FLEET),
    card(judge_users, look=_users, scope=Scope.FLEET),
)
