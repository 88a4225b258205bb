"""Where a service's drop-in belongs, and what its files say now. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sparktop.operate.changing import Changing
from sparktop.operate.dropin import NAME, Service, later, read
from sparktop.operate.machine import said
from sparktop.operate.survey import Ask, FileText, Output, Survey

SYSTEM = "/etc/systemd/system"
_HOME = re.compile(r"/[^\0\n:]+")


class NotHere(ValueError):
    """Why a drop-in is not the way; `remedies` say what is."""

    def __init__(self, reason: str, *remedies: str) -> None:
        super().__init__(reason)
        self.remedies = remedies


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One service's drop-in."""

    path: str
    before: str | None = field(default=None, repr=False)
    service: Service
    is_stale: bool = False
    """systemd has not read its files since they were changed: it will now."""


def asks(one: Changing, survey: Survey) -> Iterator[Ask]:
    """The service's files, and where they are."""
    part = one.part
    if not part.origin.unit:
        return
    yield _cat(one)
    yield _show(one)
    if part.origin.is_own:
        yield from _passwd(one, survey)
    path = _path(one, survey)
    if path:
        yield FileText(node=part.node, path=path)


def place(one: Changing, survey: Survey) -> Place:
    """What its files say.

    Raises:
        NotHere: a drop-in would not do; says why.
        Unreadable: its command can't be read.
    """
    unit, node = one.part.origin.unit, one.part.node
    text, shown = survey.value(_cat(one)), said(survey.value(_show(one)))
    if not isinstance(text, str) or not text.strip():
        why = survey.problem(_cat(one)) or "systemd shows none of its files"
        raise NotHere(f"its files can't be read as this user: {why}")
    fragment = shown.get("FragmentPath", "")
    drop_ins = shown.get("DropInPaths", "").split()
    if "/nix/store/" in text or fragment.startswith("/nix/"):
        raise NotHere(
            "NixOS writes its units anew from its configuration",
            "change virtualisation.oci-containers.containers or systemd.services in configuration.nix, then: "
            "sudo nixos-rebuild switch",
        )
    if fragment.startswith(("/run/systemd/generator", "/run/user/")) and "generator" in fragment:
        raise NotHere(
            "its file is generated, by Podman's Quadlet as a rule",
            f"on {node}: edit the .container file of {unit} (/etc/containers/systemd, ~/.config/containers/systemd), "
            "then systemctl daemon-reload and restart it",
        )
    path = _path(one, survey)
    if not path:
        raise NotHere("the user's home folder isn't known")
    ask = FileText(node=node, path=path)
    if survey.problem(ask):
        raise NotHere(f"{path} can't be read: {survey.problem(ask)}")
    before = survey.value(ask)
    service = read(text, {fragment, *drop_ins})
    if winner := later(service, path):
        raise NotHere(f"{winner} sets its command too, and comes after {NAME}", f"change it in {winner}")
    return Place(
        path=path,
        before=before if isinstance(before, str) else None,
        service=service,
        is_stale=shown.get("NeedDaemonReload") == "yes",
    )


def _path(one: Changing, survey: Survey) -> str:
    unit = one.part.origin.unit
    if not one.part.origin.is_own:
        return f"{SYSTEM}/{unit}.d/{NAME}"
    for ask in _passwd(one, survey):
        row = survey.value(ask)
        fields = row.strip().split(":") if isinstance(row, str) else []
        if len(fields) >= 6 and _HOME.fullmatch(fields[5]):
            return f"{fields[5]}/.config/systemd/user/{unit}.d/{NAME}"
    return ""


def _passwd(one: Changing, survey: Survey) -> Iterator[Output]:
    facts = one.part.view.facts
    if facts is not None and facts.user_id is not None:
        yield Output(node=one.part.node, argv=("getent", "passwd", str(facts.user_id)))


def _manager(one: Changing) -> tuple[str, ...]:
    if not one.part.origin.is_own:
        return ("systemctl",)
    uid = one.part.view.facts.user_id if one.part.view.facts else None
    return ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", "systemctl", "--user")


def _cat(one: Changing) -> Output:
    return Output(node=one.part.node, argv=(*_manager(one), "cat", "--no-pager", "--", one.part.origin.unit))


def _show(one: Changing) -> Output:
    names = "FragmentPath,DropInPaths,NeedDaemonReload,Type"
    argv = (*_manager(one), "show", "--no-pager", "-p", names, "--", one.part.origin.unit)
    return Output(node=one.part.node, argv=argv)
