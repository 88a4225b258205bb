"""The steps on a service's drop-in: written while the service is down, read by systemd, and taken back. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparktop.model.operation import Command, Operation, Privilege
from sparktop.model.plan import OnFailure, Remote, Step
from sparktop.operate.part import Part
from sparktop.operate.privilege import program

if TYPE_CHECKING:
    from sparktop.operate.unit import Dropped

_INSTALL, _REMOVE, _SAME = "/usr/bin/install", "/usr/bin/rm", "/usr/bin/cmp"
RELOAD_LIMIT_S = 60.0


def manager(part: Part) -> tuple[str, ...]:
    """systemctl, of the system or of the user's own."""
    if not part.origin.is_own:
        return (program("systemctl"),)
    uid = part.view.facts.user_id if part.view.facts else None
    return ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", program("systemctl"), "--user")


def reload_argv(part: Part) -> tuple[str, ...]:
    return (*manager(part), "daemon-reload")


def reload_typed(part: Part) -> str:
    return "systemctl --user daemon-reload" if part.origin.is_own else "sudo systemctl daemon-reload"


def check(one: Dropped) -> Step:
    """Before anything stops: the drop-in is as it was read."""
    return Step(
        id=f"check{one.mark}",
        title=f"See that {one.place.path} is as it was read",
        node=one.node,
        act=Remote(operations=(_unchanged(one),)),
        limit_s=30.0,
        verifies="nobody has changed it since",
        undone_by="nothing was changed",
    )


def write(one: Dropped) -> Step:
    """The drop-in, and systemd reads it; or as it was."""
    return Step(
        id=f"write{one.mark}",
        title=f"Write {one.place.path} and have systemd read it",
        node=one.node,
        act=Remote(operations=(_unchanged(one), _write(one, one.text), _reload(one)), undo=tuple(_back(one))),
        limit_s=2 * RELOAD_LIMIT_S + 60.0,
        verifies="systemd has read its files",
        undone_by=f"{_remove_typed(one)}; {reload_typed(one.changing.part)}",
        on_failure=OnFailure.ROLL_BACK,
    )


def as_before(one: Dropped) -> Step:
    """The drop-in taken away, or as it was; what systemd counted of failures forgotten."""
    forget = Command(
        argv=(*manager(one.changing.part), "reset-failed", "--", one.unit),
        privilege=_privilege(one),
        accepts=(0, 1),
        limit_s=30.0,
    )
    what = "as it was" if one.place.before is not None else "removed"
    return Step(
        id=f"back-file{one.mark}",
        title=f"{one.place.path} {what}, and systemd reads it",
        node=one.node,
        act=Remote(operations=(*_back(one), forget)),
        limit_s=2 * RELOAD_LIMIT_S + 60.0,
        verifies="systemd has read its files",
    )


def _privilege(one: Dropped) -> Privilege:
    return Privilege.USER if one.changing.part.origin.is_own else Privilege.ROOT


def _unchanged(one: Dropped) -> Command:
    if one.place.before is None:
        return Command(argv=("test", "!", "-e", one.place.path), limit_s=10.0)
    return Command(argv=(_SAME, "--", "{content}", one.place.path), content=one.place.before, limit_s=10.0)


def _write(one: Dropped, text: str) -> Command:
    return Command(
        argv=(_INSTALL, "-m", "0644", "-D", "-T", "--", "{content}", one.place.path),
        privilege=_privilege(one),
        content=text,
        limit_s=30.0,
    )


def _reload(one: Dropped) -> Command:
    return Command(argv=reload_argv(one.changing.part), privilege=_privilege(one), limit_s=RELOAD_LIMIT_S)


def _back(one: Dropped) -> Iterator[Operation]:
    if one.place.before is None:
        yield Command(argv=(_REMOVE, "-f", "--", one.place.path), privilege=_privilege(one), limit_s=30.0)
    else:
        yield _write(one, one.place.before)
    yield _reload(one)


def _remove_typed(one: Dropped) -> str:
    sudo = "" if one.changing.part.origin.is_own else "sudo "
    return f"{sudo}rm -f -- {shlex.quote(one.place.path)}"
