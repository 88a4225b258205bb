"""Install the operator's public key, so that a login needs no password: one line of authorized_keys. Pure.

The private key is neither read nor moved. The line is proven by a fresh connection that may use this key alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState, LoginMethod
from sparktop.model.operation import Command
from sparktop.model.request import Request, Risk
from sparktop.model.survey import OperatorKeys, PublicKey, Question, Survey
from sparktop.operate.acts.checks import CheckLogin
from sparktop.operate.acts.remote import Remote
from sparktop.operate.plan.common_steps import step_id
from sparktop.operate.refused import Refused
from sparktop.operate.setup.ssh_folder import SshFolder, folder_questions, ssh_folder
from sparktop.operate.step.plan import Difference, Plan, Step

FILE = "authorized_keys"
MAKE_KEY = "ssh-keygen -t ed25519"
LIMIT_S = 60.0


def shown_key(key: PublicKey) -> str:
    """The key in a few words: its file's name or comment, and its fingerprint."""
    if "/" in key.place:
        name = f"{key.place.rpartition('/')[2]}{f' ({key.comment})' if key.comment else ''}"
    else:
        name = f"{key.comment or key.algorithm} ({key.place})"
    return f"{name}, {key.fingerprint}"


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return tuple(
        question
        for node in request.nodes
        for question in (OperatorKeys(node=node), *folder_questions(node, picture, survey, (FILE,)))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Install:
    """One key, and the file that it goes into."""

    key: PublicKey
    folder: SshFolder

    @property
    def path(self) -> str:
        return self.folder.path(FILE)

    @property
    def changes(self) -> bool:
        """Whether the line is missing, or sshd would ignore it."""
        return not self.lines or any(self.folder.close(FILE))

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines of the file that hold the key already, whatever options stand before it."""
        return tuple(line for line in self.folder.lines(FILE) if self.key.blob in line.split())


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """One line for each node that lacks it, then a login with it; with remove=yes, those lines are taken out.

    Where the line is there and a password was typed all the same, an earlier run was cut off: the login alone is left.
    """
    installs = [
        _Install(folder=ssh_folder(node, picture, survey, (FILE,)), key=_chosen(request, node, survey))
        for node in request.nodes
    ]
    return _removal(request, installs, picture) if request.options.get("remove") == "yes" else _addition(
        request, installs, picture
    )  # fmt: skip


def _chosen(request: Request, node: str, survey: Survey) -> PublicKey:
    """The operator's key that is named, or the only one."""
    question = OperatorKeys(node=node)
    keys: Sequence[PublicKey] = survey.value(question) or ()
    if not keys:
        why = survey.problem(question)
        raise Refused(
            f"your public keys can't be listed: {why}" if why else "there is no public key on this machine yet",
            (f"here: {MAKE_KEY}", "then again; the private half stays in ~/.ssh of this machine"),
        )
    name = request.options.get("key", "")
    named = [key for key in keys if name in (key.fingerprint, key.place, key.comment)] if name else list(keys)
    if len(named) == 1:
        return named[0]
    what = f"no one key of yours is {name[:80]}" if name else f"you have {len(keys)} keys: say which"
    raise Refused(what, tuple(f"--set key={key.fingerprint}   # {shown_key(key)}" for key in keys[:8]))


def _addition(request: Request, installs: Sequence[_Install], picture: FleetState) -> Plan:
    due = [one for one in installs if one.changes or _typed_password(one.folder.node, picture)]
    if not due:
        there = " and ".join(one.folder.node for one in installs)
        raise Refused(
            f"the key is in {installs[0].path} already on {there}, and sparktop logs in by a key",
            tuple(f"to see which: ssh -v {node}" for node in request.nodes),
        )
    keys = dict.fromkeys(shown_key(one.key) for one in due)
    return Plan(
        request=request,
        title=f"Install your public key for {' and '.join(f'{one.folder.user} on {one.folder.node}' for one in due)}",
        risk=Risk.SAFE,
        steps=tuple(step for one in due for step in _steps(one, request.nodes)),
        rollback=tuple(_remove_step(one, request.nodes) for one in due if not one.lines),
        effect=f"Whoever has the private half of {' and '.join(keys)} can log in there. The password still works.",
        differences=tuple(difference for one in due for difference in _differences(one)),
        equivalent=tuple(_by_hand(one) for one in due),
    )


def _typed_password(node: str, picture: FleetState) -> bool:
    view = picture.node(node)
    return view is not None and view.link.contact.login is LoginMethod.PASSWORD


def _differences(install: _Install) -> Iterator[Difference]:
    if not install.lines:
        name = f"{install.path} of {install.folder.node}"
        yield Difference(what="line", name=name, before=None, after=install.key.line)
    yield from install.folder.mode_differences(FILE)


def _by_hand(install: _Install) -> str:
    own = f"-i {shlex.quote(install.key.place)} " if install.key.place.endswith(".pub") else ""
    return f"ssh-copy-id {own}{install.folder.node}"


def _steps(install: _Install, nodes: Sequence[str]) -> Iterator[Step]:
    folder, node, line = install.folder, install.folder.node, install.key.line
    added: tuple[Command, ...] = () if install.lines else (*folder.make(), *folder.add(FILE, line))
    undo = () if install.lines else (folder.take_out(FILE, line),)
    if install.changes:
        yield Step(
            id=step_id("install-key", node, nodes),
            title=f"Add your key to {install.path} on {node}"
            if added
            else f"Let {folder.user} alone write {install.path} on {node}",
            node=node,
            act=Remote(operations=(*added, *folder.close(FILE)), undo=(*undo, *folder.open_again(FILE))),
            limit_s=LIMIT_S,
            verifies="the line is there, once",
        )
    yield Step(
        id=step_id("log-in", node, nodes),
        title=f"Log in to {node} with the key alone",
        node=node,
        act=CheckLogin(key=install.key),
        limit_s=LIMIT_S,
        verifies="a new connection is accepted without a password",
    )


def _remove_step(install: _Install, nodes: Sequence[str], lines: Sequence[str] = ()) -> Step:
    folder, node = install.folder, install.folder.node
    taken = lines or (install.key.line,)
    return Step(
        id=step_id("remove-key", node, nodes),
        title=f"Take your key out of {install.path} on {node}",
        node=node,
        act=Remote(
            operations=tuple(folder.take_out(FILE, line) for line in taken),
            reverse=f"sparktop act install-key {shlex.quote(node)}",
        ),
        limit_s=LIMIT_S,
        verifies="the line is gone",
        undoes=(step_id("install-key", node, nodes),),
    )


def _removal(request: Request, installs: Sequence[_Install], picture: FleetState) -> Plan:
    due = [one for one in installs if one.lines]
    if not due:
        raise Refused(f"the key is not in {installs[0].path} of {' and '.join(request.nodes)}")
    return Plan(
        request=request,
        title=f"Take your public key off {' and '.join(one.folder.node for one in due)}",
        risk=Risk.SAFE,
        steps=tuple(_remove_step(one, request.nodes, one.lines) for one in due),
        effect="The next login with it is refused; connections that are open stay.",
        warnings=("Without another key or a password that sshd accepts, you can't log in again.",),
        differences=tuple(
            Difference(what="line", name=f"{one.path} of {one.folder.node}", before=line, after=None)
            for one in due
            for line in one.lines
        ),
    )
