"""What root commands and Docker calls need on a node, and what would permit them: shown, never installed.

sudo rules are compared as sudo compares them: the program by its path, the arguments as one text with wildcards
(sudoers(5), "Wildcards"). A rule that can't be judged counts as none: then a password is asked for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

from sparktop.checks.docker import judge_docker_access
from sparktop.model.operation import Command, Privilege, Signal
from sparktop.model.state import State
from sparktop.model.survey import Privileges, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Plan, Step

SUDOERS_FILE = "/etc/sudoers.d/sparktop"
PROGRAMS = {
    name: f"/usr/{folder}/{name}"
    for folder, names in (
        (
            "bin",
            "cat dmesg docker gpasswd install journalctl kill loginctl nvidia-smi rm sync systemctl systemd-run tee",
        ),
        ("bin", "ip test true who"),
        ("sbin", "dmidecode netplan sysctl usermod visudo"),
    )
    for name in names.split()
}
"""Ubuntu's paths: a sudoers line names a path, and a root command is not looked up in anybody's PATH."""
_PLAIN_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_ESCAPED = re.compile(r"[\\:,=#]")
_WILD = re.compile(r"[*?\[\]!^]")


class RootAccess(StrEnum):
    """How a root command can be run."""

    FREE = "free"
    ASKS = "asks"
    IMPOSSIBLE = "impossible"


def program(name: str) -> str:
    """The path of a program that is run as root."""
    return PROGRAMS[name]


def root_access(privileges: Privileges | None, argvs: Iterable[Sequence[str]]) -> RootAccess:
    """What sudo would say to all of these: nothing, a password prompt, or no."""
    if privileges is None:
        return RootAccess.IMPOSSIBLE
    if privileges.is_root or privileges.sudo == "free":
        return RootAccess.FREE
    if privileges.sudo == "listed":
        return RootAccess.FREE if all(is_permitted(privileges, argv) for argv in argvs) else RootAccess.ASKS
    return RootAccess.ASKS if privileges.sudo == "password" else RootAccess.IMPOSSIBLE


def root_refusal(privileges: Privileges | None, argvs: Sequence[Sequence[str]], node: str) -> Refused | None:
    """Why these commands can't be run as root on the node; None where they can (perhaps with a password)."""
    if not argvs or root_access(privileges, argvs) is not RootAccess.IMPOSSIBLE:
        return None
    if privileges is None:
        return _not_asked(node)
    user = _shown_user(privileges)
    by_hand = f"or log in to {node} as a user who may use sudo: sparktop USER@{node}"
    if privileges.sudo == "missing":
        return Refused(
            f"this needs root on {node}: {user} is not root there, and there is no sudo",
            (f"log in as root: sparktop root@{node}", by_hand),
        )
    if privileges.sudo == "tty":
        return Refused(
            f"sudo on {node} needs a terminal (requiretty), and a runner has none",
            (
                f"on {node}: sudo visudo -f {SUDOERS_FILE}   # with the line: Defaults:{user} !requiretty",
                f"or in a terminal on {node}: {_by_hand(argvs)}",
            ),
        )
    return Refused(
        f"sudo on {node} doesn't allow this for {user}",
        (
            f"by an administrator, on {node}: sudo visudo -f {SUDOERS_FILE}",
            *(f"with the line: {line}" for line in sudoers_lines(privileges.user, argvs)),
            by_hand,
        ),
    )


def _not_asked(node: str) -> Refused:
    return Refused(f"{node} could not be asked what its user may do", ("wait until the node is live, and try again",))


def docker_refusal(privileges: Privileges | None, node: str) -> Refused | None:
    """Why the node's Docker Engine can't be used; None where it can."""
    judgement = judge_docker_access(privileges.docker if privileges is not None else "")
    if judgement.state is State.PASSED:
        return None
    if privileges is None:
        return _not_asked(node)
    if judgement.case == "denied":
        user = _shown_user(privileges)
        return Refused(
            f"{user} may not use Docker on {node}",
            (
                f"on {node}: sudo usermod -aG docker {shlex.quote(user)}",
                "then reconnect: groups are read at login. Who may use Docker can become root there.",
            ),
        )
    return Refused(
        f"no Docker Engine answers on {node}",
        (f"on {node}: systemctl status docker", f"on {node}: sudo systemctl start docker"),
    )


def require_root(privileges: Privileges | None, argvs: Sequence[Sequence[str]], node: str) -> None:
    """Refuse the request where these commands can't be run as root on the node."""
    if (refused := root_refusal(privileges, argvs, node)) is not None:
        raise refused


def require_docker(privileges: Privileges | None, node: str) -> None:
    """Refuse the request where the node's Docker Engine can't be used."""
    if (refused := docker_refusal(privileges, node)) is not None:
        raise refused


def sudo_note(
    privileges: Privileges | None, argvs: Sequence[Sequence[str]], node: str, *, with_lines: bool = True
) -> str:
    """For the review: that sudo will ask for a password, and the sudoers lines that would avoid it; empty where it
    won't.

    `with_lines` is False where the lines would not apply again: they name a pid.
    """
    if privileges is None or not argvs or root_access(privileges, argvs) is not RootAccess.ASKS:
        return ""
    asks = f"sudo on {node} will ask for {_shown_user(privileges)}'s password."
    if not with_lines:
        return asks
    unlisted_argvs = [argv for argv in argvs if not (privileges.sudo == "listed" and is_permitted(privileges, argv))]
    lines = "; ".join(sudoers_lines(privileges.user, unlisted_argvs))
    return f"{asks} To do without, {node}: {SUDOERS_FILE}: {lines}" if lines else asks


def root_argvs(steps: Plan | Iterable[Step], node: str) -> tuple[tuple[str, ...], ...]:
    """The root commands of a plan, or of some steps, on the node, each once; with the checks before a command."""
    argvs: dict[tuple[str, ...], None] = {}
    for step in steps.steps if isinstance(steps, Plan) else steps:
        if step.node != node or not isinstance(step.act, Remote):
            continue
        for operation in (*step.act.operations, *step.act.undo):
            if isinstance(operation, Signal) and operation.privilege is Privilege.ROOT:
                argvs[operation.argv] = None
            command = operation if isinstance(operation, Command) else None
            while command is not None:
                if command.privilege is Privilege.ROOT:
                    argvs[command.argv] = None
                command = command.done_when
    return tuple(argvs)


# --- sudoers ---------------------------------------------------------------------------------------------------------


def require_root_for(steps: Sequence[Step], survey: Survey) -> None:
    """Refuse the request where a node doesn't permit what the steps run as root there."""
    for node in dict.fromkeys(step.node for step in steps):
        require_root(survey.privileges(node), root_argvs(steps, node), node)


def sudo_notes(
    steps: Iterable[Step], privileges: Privileges | None, node: str, *, with_lines: bool = True
) -> Iterator[str]:
    """The note for what the steps run as root on the node, where sudo will ask for a password."""
    if note := sudo_note(privileges, root_argvs(steps, node), node, with_lines=with_lines):
        yield note


def sudoers_lines(user: str, argvs: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """A sudoers line for each command, which permits exactly it. None for a command that can't be written there, and
    none for a program that runs a file of the user's: that would permit anything."""
    who = user if _PLAIN_USER.fullmatch(user) else "USER"
    lines: dict[str, None] = {}
    for argv in argvs:
        if not argv or any(not part.isprintable() or "{content}" in part for part in argv):
            continue
        path = argv[0] if argv[0].startswith("/") else PROGRAMS.get(argv[0], "")
        if path:
            arguments = " ".join(_escaped(part) for part in argv[1:]) or '""'
            lines[f"{who} ALL=(root) NOPASSWD: {_escaped(path)} {arguments}"] = None
    return tuple(lines)


def is_permitted(privileges: Privileges, argv: Sequence[str]) -> bool:
    """Whether a NOPASSWD rule permits this; the last matching rule decides, as in sudo."""
    permitted = False
    for rule in privileges.sudo_rules:
        denies = rule.startswith("!")
        if _matches(rule.lstrip("! "), argv):
            permitted = not denies
    return permitted


def _matches(rule: str, argv: Sequence[str]) -> bool:
    """Whether a sudoers rule covers the command."""
    rule = rule.strip()
    if rule == "ALL":
        return True
    # A space within the path would be escaped.
    head = re.match(r"(?:\\.|[^\s\\])+", rule)
    if head is None or not argv:
        return False
    path_pattern, argument_pattern = head.group(), rule[head.end() :].strip()
    program_path = argv[0] if argv[0].startswith("/") else PROGRAMS.get(argv[0], "")
    if (
        not program_path or path_pattern.startswith("^") or argument_pattern.startswith("^")
    ):  # regular expressions are not judged here
        return False
    folder, _, _ = program_path.rpartition("/")
    is_in_folder = path_pattern.endswith("/") and folder + "/" == path_pattern
    if not is_in_folder and not fnmatchcase(program_path, _pattern(path_pattern)):
        return False
    if not argument_pattern:
        return True
    arguments = " ".join(argv[1:])
    return arguments == "" if argument_pattern == '""' else fnmatchcase(arguments, _pattern(argument_pattern))


def _pattern(text: str) -> str:
    """A sudoers pattern as one of fnmatch: an escaped wildcard stands for itself."""
    return re.sub(r"\\(.)", lambda match: f"[{match.group(1)}]" if match.group(1) in "*?[" else match.group(1), text)


def _escaped(text: str) -> str:
    escaped = _WILD.sub(lambda match: "\\" + match.group(), _ESCAPED.sub(lambda match: "\\" + match.group(), text))
    return escaped.replace(" ", "\\ ")


def _by_hand(argvs: Sequence[Sequence[str]]) -> str:
    return "; ".join("sudo " + shlex.join(argv) for argv in argvs)


def _shown_user(privileges: Privileges) -> str:
    return privileges.user if _PLAIN_USER.fullmatch(privileges.user) else "the user"
