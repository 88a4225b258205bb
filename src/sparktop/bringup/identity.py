"""Identity: Sparks, each with ids, host keys, a name and the same user."""

from __future__ import annotations

import shlex

from sparktop.bringup.card import (
    Basis,
    Card,
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    by_hand,
    card_of,
    each,
    judged,
    unknown,
)
from sparktop.checks.fabric import half_of
from sparktop.checks.identity import Identity, identity_of, judge_clones, judge_name, judge_product, judge_users
from sparktop.checks.judgement import State
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
    judgement = judge_product(facts.product if facts else None)
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown)
    vendor = (seen.text(vendor_ask(nodes[0])) or "").strip()
    made = f", board by {vendor}" if vendor else ""
    product = facts.product if facts else ""
    return judged(
        judgement,
        f"{product}{made}",
        by_hand("Check the host: these checks are made for DGX Sparks", f"on {nodes[0]}: cat {_VENDOR}"),
    )


def published_ask(node: str) -> Output:
    argv = ("busctl", "call", "org.freedesktop.Avahi", "/", "org.freedesktop.Avahi.Server", "GetHostName")
    return Output(node=node, argv=argv)


def _name(seen: CheckInputs, nodes: Nodes) -> Outcome:
    facts = _facts(seen, nodes[0])
    published = (seen.text(published_ask(nodes[0])) or "").removeprefix("s ").strip().strip('"')
    own = facts.hostname.partition(".")[0] if facts else ""
    view = seen.view(nodes[0])
    addressed = [one.name for one in view.interfaces if one.addresses and half_of(one.name) is None] if view else []
    lan = addressed[0] if addressed else "INTERFACE"
    judgement = judge_name((published, own))
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown)
    found = {
        "renamed": f"{own} is published as {published}.local: the name is taken, often by the machine itself on a "
        "second interface of one network",
        "unpublished": f"{own}; avahi publishes no name",
    }.get(judgement.case, f"{published}.local")
    return judged(
        judgement,
        found,
        by_hand(
            "Publish the name on one interface",
            f"on {nodes[0]}: sudo sed -i 's/^#\\?allow-interfaces=.*/allow-interfaces={lan}/' "
            "/etc/avahi/avahi-daemon.conf",
            f"on {nodes[0]}: sudo systemctl restart avahi-daemon",
        ),
    )


def _clones(seen: CheckInputs, nodes: Nodes) -> Outcome:
    views = [view for node in nodes if (view := seen.view(node)) is not None]
    identities: list[Identity] = [identity_of(view) for view in views]
    judgement = judge_clones(identities)
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown)
    pair = f"{judgement.figures.get('first')} and {judgement.figures.get('second')}"
    second = str(judgement.figures.get("second"))
    found = {
        "one-machine": f"{pair} are one machine under two names (one boot id)",
        "machine-id": f"{pair} have one machine id: DHCP and mDNS mix them up",
        "host-key": f"{pair} have one SSH host key: each can pose as the other",
        "name": f"{pair} have one host name",
    }.get(judgement.case, f"{len(views)} machines, each with ids and host keys of its own")
    ids = [identity.machine_id for identity in identities if identity.machine_id]
    contact = next((view.link.contact for view in views if view.name == second), Contact())
    host = contact.host if contact.port == 22 else f"[{contact.host}]:{contact.port}"
    new_ids = (
        *((f"on {second}: sudo rm /etc/machine-id /var/lib/dbus/machine-id && sudo systemd-machine-id-setup",)
          if len(set(ids)) < len(ids) else ()),
        f"on {second}: sudo rm /etc/ssh/ssh_host_* && sudo ssh-keygen -A && sudo reboot",
        f"here: ssh-keygen -R {shlex.quote(host or second)}   # compare its new fingerprint at the next login",
    )  # fmt: skip
    steps = {
        "one-machine": (f"name the other Spark: sparktop bringup {nodes[0]} OTHER",),
        "name": (f"on {second}: sudo hostnamectl set-hostname NAME",),
    }.get(judgement.case, new_ids)
    return judged(judgement, found, by_hand("Give each its own", *steps))


def _users(seen: CheckInputs, nodes: Nodes) -> Outcome:
    all_facts = [(node, _facts(seen, node)) for node in nodes]
    judgement = judge_users([(facts.user, facts.user_id) if facts else ("", None) for _, facts in all_facts])
    if judgement.state is State.UNKNOWN:
        return unknown(judgement.unknown)
    users = [f"{facts.user} ({facts.user_id}) on {node}" for node, facts in all_facts if facts]
    name = next((facts.user for _, facts in all_facts if facts), "")
    found = f"{name} on all" if not judgement.case else ", ".join(users)
    return judged(
        judgement,
        found,
        by_hand("Log in as one user everywhere", f"sudo adduser {name}   # where it is missing, on that node"),
    )


CARDS = (
    Card(
        id="identity.product",
        title="Machine",
        looks_at="DMI product family and board vendor",
        why="Every maker's unit says DGX Spark; firmware comes from NVIDIA or from the maker.",
        sources=("docs/facts/gb10.md", "anakronox/spark-fleet-updates"),
        look=_product,
        asks=each(vendor_ask),
        basis=(Basis.BOOT,),
    ),
    card_of(
        judge_name,
        title="Published name",
        looks_at="the host name, avahi's name",
        why="avahi appends -2 where it meets its own name: scripts then reach another machine, or none.",
        look=_name,
        asks=each(published_ask),
        root="to change avahi",
    ),
    card_of(
        judge_clones,
        title="Clones",
        looks_at="machine ids, boot ids, SSH host keys, host names",
        why="Units from one image have shared them: leases, names and trust then lie (CVE-2026-24218).",
        look=_clones,
        scope=Scope.FLEET,
        root="to make new ids",
    ),
    card_of(
        judge_users,
        title="Login user",
        looks_at="id -un, id -u",
        why="Cluster scripts, shared files and ssh between the nodes assume one user.",
        look=_users,
        scope=Scope.FLEET,
        root="to add one",
    ),
)
