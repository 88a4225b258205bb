"""Checks of who the machines are: DGX Sparks, each with ids, host keys and a name of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.checks.judgement import Judgement, check, failed, note, passed, unknown, warning
from sparktop.model.fleet import NodeView

PRODUCT_FAMILY = "DGX Spark"
"""DMI product family of every maker's unit (docs/facts/gb10.md)."""
_RENAMED = re.compile(r".+-[2-9]\d?$")


@check(
    "identity.not-a-spark",
    "The machine is no DGX Spark",
    scope="every node",
    sources=("/sys/class/dmi/id/product_family",),
    is_rule=False,
    bring_up="identity.product",
)
def judge_product(family: str | None) -> Judgement:
    """Whether DMI calls the machine a DGX Spark; None: it was not read."""
    if family is None:
        return unknown("its product family was not read")
    return passed() if family == PRODUCT_FAMILY else warning()


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


@check(
    "identity.cloned",
    "Two machines share an identity",
    scope="two nodes or more",
    sources=("CVE-2026-24218", "sparkrun setup_checks"),
    is_rule=False,
    bring_up="identity.clones",
)
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


@check(
    "identity.renamed",
    "avahi has renamed the machine",
    scope="every node",
    sources=("DoctorMasterNewb/sparkbase wiki",),
    is_rule=False,
    bring_up="identity.name",
)
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


@check(
    "identity.users-differ",
    "The user differs between the nodes",
    scope="two nodes or more",
    sources=("NVIDIA/dgx-spark-playbooks connect-two-sparks",),
    is_rule=False,
    bring_up="identity.user",
)
def judge_users(users: Sequence[tuple[str, int | None]]) -> Judgement:
    """Whether the login user has one name, and one id, on all nodes."""
    if any(not name for name, _ in users):
        return unknown("a user was not read")
    if len({name for name, _ in users}) > 1:
        return warning("names")
    ids = {user_id for _, user_id in users if user_id is not None}
    return note("ids") if len(ids) > 1 else passed()
