"""What a command as root, or a call of Docker's, needs on a node, and what would permit it: shown, never installed.

Rules of sudo are compared as sudo compares them: the program by its path, the arguments as one text with wildcards
(sudoers(5), "Wildcards"). A rule that can't be judged counts as none: then a password is asked for, not assumed away.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from sparktop.model.operation import Command, Privilege, Signal
from sparktop.model.plan import Plan, Refusal, Remote, Request, Step
from sparktop.operate.survey import Privileges

SUDOERS_FILE = "/etc/sudoers.d/sparktop"
PROGRAMS = {
    name: f"/usr/{folder}/{name}"
    for folder, names in (
        ("bin", "cat dmesg docker journalctl kill loginctl nvidia-smi sync systemctl tee test true who"),
        ("sbin", "dmidecode sysctl"),
    )
    for name in names.split()
}
"""Where Ubuntu has them: a sudoers line names a path, and a command as root is not looked up in anybody's PATH."""
_PLAIN_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_ESCAPED = re.compile(r"[\\:,=#]")
_WILD = re.compile(r"[*?\[\]!^]")


class Way(StrEnum):
    """How a command as root can be run."""

    FREE = "free"
    ASKS = "asks"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a node would not let it be done, and what would make it possible."""

    reason: str
    remedies: tuple[str, ...] = ()

    def refusal(self, request: Request) -> Refusal:
        return Refusal(request=request, reason=self.reason, remedies=self.remedies)


def program(name: str) -> str:
    """The path of a program that is run as root."""
    return PROGRAMS[name]


def root_way(privileges: Privileges | None, argvs: Iterable[Sequence[str]]) -> Way:
    """What sudo would say to all of these: nothing, a question for the password, or no."""
    if privileges is None:
        return Way.IMPOSSIBLE
    if privileges.is_root or privileges.sudo == "free":
        return Way.FREE
    if privileges.sudo == "listed":
        return Way.FREE if all(is_listed(privileges, argv) for argv in argvs) else Way.ASKS
    return Way.ASKS if privileges.sudo == "password" else Way.IMPOSSIBLE


def root_refusal(privileges: Privileges | None, argvs: Sequence[Sequence[str]], node: str) -> Obstacle | None:
    """Why these commands can't be run as root on the node, or None where they can (with a password, maybe)."""
    if not argvs or root_way(privileges, argvs) is not Way.IMPOSSIBLE:
        return None
    if privileges is None:
        return Obstacle(
            reason=f"{node} could not be asked what its user may do",
            remedies=("wait until the node is live, and try again",),
        )
    user = _shown_user(privileges)
    by_hand = f"or log in to {node} as a user who may use sudo: sparktop USER@{node}"
    if privileges.sudo == "missing":
        return Obstacle(
            reason=f"this needs root on {node}: {user} is not root there, and there is no sudo",
            remedies=(f"log in as root: sparktop root@{node}", by_hand),
        )
    if privileges.sudo == "tty":
        return Obstacle(
            reason=f"sudo on {node} wants a terminal (requiretty), and there is none here",
            remedies=(
                f"on {node}: sudo visudo -f {SUDOERS_FILE}   # with the line: Defaults:{user} !requiretty",
                f"or in a terminal on {node}: {_by_hand(argvs)}",
            ),
        )
    return Obstacle(
        reason=f"sudo on {node} does not permit this to {user}",
        remedies=(
            f"by an administrator, on {node}: sudo visudo -f {SUDOERS_FILE}",
            *(f"with the line: {line}" for line in sudoers_lines(privileges.user, argvs)),
            by_hand,
        ),
    )


def docker_refusal(privileges: Privileges | None, node: str) -> Obstacle | None:
    """Why the node's Docker Engine can't be told to do anything, or None where it can."""
    if privileges is None:
        return Obstacle(
            reason=f"{node} could not be asked what its user may do",
            remedies=("wait until the node is live, and try again",),
        )
    if privileges.docker == "open":
        return None
    if privileges.docker == "denied":
        user = _shown_user(privileges)
        return Obstacle(
            reason=f"{user} may not use Docker on {node}",
            remedies=(
                f"on {node}: sudo usermod -aG docker {shlex.quote(user)}",
                "then connect anew: groups are read at login. Who may use Docker can become root there.",
            ),
        )
    return Obstacle(
        reason=f"no Docker Engine answers on {node}",
        remedies=(f"on {node}: systemctl status docker", f"on {node}: sudo systemctl start docker"),
    )


def sudo_note(
    privileges: Privileges | None, argvs: Sequence[Sequence[str]], node: str, *, with_lines: bool = True
) -> str:
    """For the review: that sudo will ask for a password, and the lines that would spare it; empty where it won't.

    `with_lines` is False where they would not serve again: they name a pid.
    """
    if privileges is None or not argvs or root_way(privileges, argvs) is not Way.ASKS:
        return ""
    asks = f"sudo on {node} will ask for {_shown_user(privileges)}'s password."
    if not with_lines:
        return asks
    wanted = [argv for argv in argvs if not (privileges.sudo == "listed" and is_listed(privileges, argv))]
    lines = "; ".join(sudoers_lines(privileges.user, wanted))
    return f"{asks} To do without, {node}: {SUDOERS_FILE}: {lines}" if lines else asks


def root_argvs(steps: Plan | Iterable[Step], node: str) -> tuple[tuple[str, ...], ...]:
    """What a plan, or some steps, would run as root on the node, each once; questions before a command too."""
    found: dict[tuple[str, ...], None] = {}
    for step in steps.steps if isinstance(steps, Plan) else steps:
        if step.node != node or not isinstance(step.act, Remote):
            continue
        for operation in (*step.act.operations, *step.act.undo):
            if isinstance(operation, Signal) and operation.privilege is Privilege.ROOT:
                found[operation.argv] = None
            command = operation if isinstance(operation, Command) else None
            while command is not None:
                if command.privilege is Privilege.ROOT:
                    found[command.argv] = None
                command = command.done_when
    return tuple(found)


# --- sudoers ---------------------------------------------------------------------------------------------------------


def sudoers_lines(user: str, argvs: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """One line for each command, which permits exactly it; none for what can't be written there, and none for a program
    that runs a file of the user's: that would permit anything."""
    who = user if _PLAIN_USER.fullmatch(user) else "USER"
    found: dict[str, None] = {}
    for argv in argvs:
        if not argv or any(not part.isprintable() or "{content}" in part for part in argv):
            continue
        path = argv[0] if argv[0].startswith("/") else PROGRAMS.get(argv[0], "")
        if path:
            said = " ".join(_escaped(part) for part in argv[1:]) or '""'
            found[f"{who} ALL=(root) NOPASSWD: {_escaped(path)} {said}"] = None
    return tuple(found)


def is_listed(privileges: Privileges, argv: Sequence[str]) -> bool:
    """Whether a NOPASSWD rule permits this; the last rule that matches decides, as in sudo."""
    permitted = False
    for rule in privileges.sudo_rules:
        denies = rule.startswith("!")
        if _matches(rule.lstrip("! "), argv):
            permitted = not denies
    return permitted


def _matches(rule: str, argv: Sequence[str]) -> bool:
    rule = rule.strip()
    if rule == "ALL":
        return True
    # a space that is part of the path would be escaped
    head = re.match(r"(?:\\.|[^\s\\])+", rule)
    if head is None or not argv:
        return False
    path, rest = head.group(), rule[head.end() :].strip()
    wanted = argv[0] if argv[0].startswith("/") else PROGRAMS.get(argv[0], "")
    if not wanted or path.startswith("^") or rest.startswith("^"):  # a regular expression is not judged here
        return False
    folder, _, _ = wanted.rpartition("/")
    named = path.endswith("/") and folder + "/" == path
    if not named and not fnmatchcase(wanted, _pattern(path)):
        return False
    if not rest:
        return True
    said = " ".join(argv[1:])
    return said == "" if rest == '""' else fnmatchcase(said, _pattern(rest))


def _pattern(text: str) -> str:
    """A sudoers pattern for fnmatch: a wildcard that was escaped there stands for itself."""
    return re.sub(r"\\(.)", lambda found: f"[{found.group(1)}]" if found.group(1) in "*?[" else found.group(1), text)


def _escaped(text: str) -> str:
    escaped = _WILD.sub(lambda found: "\\" + found.group(), _ESCAPED.sub(lambda found: "\\" + found.group(), text))
    return escaped.replace(" ", "\\ ")


def _by_hand(argvs: Sequence[Sequence[str]]) -> str:
    return "; ".join("sudo " + shlex.join(argv) for argv in argvs)


def _shown_user(privileges: Privileges) -> str:
    return privileges.user if _PLAIN_USER.fullmatch(privileges.user) else "the user"
