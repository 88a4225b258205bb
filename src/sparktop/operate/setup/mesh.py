"""Let each node log in to the others over the cable, as copies of models and mpirun do. Pure.

Each node has a key of its own, made there and never moved: a shared private key could not be revoked for one node. What
the others' host keys are is known from our own connections, not from whoever answers on the cable.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, permutations

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Output, Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.launch.inputs import link
from sparktop.operate.plan.common_steps import login_user, step_id
from sparktop.operate.refused import Refused
from sparktop.operate.setup.ssh_folder import SshFolder, folder_questions, home_in, home_question, ssh_folder
from sparktop.operate.step.plan import Difference, Plan, Step

AUTHORIZED, KNOWN, CONFIG = "authorized_keys", "known_hosts", "config"
FILES = (AUTHORIZED, KNOWN, CONFIG)
USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
"""Those that ssh tries by itself, the best first."""
OWN_KEY = "id_ed25519_sparktop"
BEGIN, END = "# sparktop: ssh to the other Sparks, begin", "# sparktop: ssh to the other Sparks, end"
LIMIT_S = 60.0
_HOST_KEY = re.compile(r"(ssh|ecdsa)-[\w.@-]+ [A-Za-z0-9+/]+={0,2}")


def login_question(near: str, address: str) -> Output:
    """Asks one node to log in to another; nothing is accepted or saved, not even the host's other keys."""
    return Output(node=near, argv=_login(address), limit_s=10.0)


def _login(address: str) -> tuple[str, ...]:
    settings = ("BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ConnectTimeout=5")
    return ("ssh", *(word for setting in settings for word in ("-o", setting)), "--", address, "true")


def key_question(node: str, path: str) -> Output:
    """Asks for the public half of a private key that has no passphrase; exit code 255 for another, 1 for none."""
    return Output(node=node, argv=("ssh-keygen", "-y", "-P", "", "-f", path))


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return tuple(
        chain(
            *(link.questions(pair, picture) for pair in combinations(request.nodes, 2)),
            *(_node_questions(node, picture, survey) for node in request.nodes),
            *(
                (login_question(near, address),)
                for near, far in permutations(request.nodes, 2)
                if (address := _address(near, far, picture, survey))
            ),
        )
    )


def _node_questions(node: str, picture: FleetState, survey: Survey) -> Iterator[Question]:
    yield link.reached_question(node)
    yield from folder_questions(node, picture, survey, FILES)
    if home := home_in(survey.text(home_question(node, login_user(node, picture)))):
        yield from (key_question(node, f"{home}/.ssh/{name}") for name in (*USUAL_KEYS, OWN_KEY))


def _address(near: str, far: str, picture: FleetState, survey: Survey) -> str:
    """Where `near` reaches `far`: what a launch uses; empty where there is none."""
    end = link.fabrics((near, far), picture, survey).get(far)
    return (end.ip or "") if end is not None else ""


# --- the nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One of them, as the others log in to it, and with what it logs in to them."""

    folder: SshFolder
    port: int
    host_key: str
    key_name: str
    """The file of its private key."""
    public_key: str
    """Algorithm and base64; a placeholder while there is none yet."""
    is_new: bool
    """Its key is still to be made."""
    addresses: Mapping[str, tuple[str, ...]]
    """Its own addresses on the cable, by the node that reaches it there; the one that a launch uses comes first."""

    @property
    def name(self) -> str:
        return self.folder.node

    @property
    def line(self) -> str:
        """Its line of the others' authorized_keys."""
        return f"{self.public_key} {_comment(self.name)}"


def _comment(node: str) -> str:
    return "sparktop-" + re.sub(r"[^A-Za-z0-9-]", "-", node)[:40]


def _node(node: str, nodes: Sequence[str], picture: FleetState, survey: Survey) -> _Node:
    folder = ssh_folder(node, picture, survey, FILES)
    view = picture.node(node)
    host_key = view.link.contact.host_key if view is not None else ""
    if not _HOST_KEY.fullmatch(host_key):
        raise Refused(
            f"sparktop knows no host key of {node}: it is not connected to it over ssh",
            (f"name it as the others reach it: sparktop USER@{node}",),
        )
    name, public_key = _own_key(folder, survey)
    is_new = not public_key
    if is_new:
        name = USUAL_KEYS[0] if not any(folder.has(usual) for usual in USUAL_KEYS) else OWN_KEY
        public_key = "{" + _saved_as(node, nodes) + "}"
        if folder.has(name):
            raise Refused(
                f"{folder.path(name)} on {node} is no key that can be used without a passphrase",
                (f"on {node}: mv {folder.path(name)} {folder.path(name)}.old", "then again: a new one is made"),
            )
    return _Node(
        folder=folder,
        port=_port(survey.text(link.reached_question(node))),
        host_key=host_key,
        key_name=name,
        public_key=public_key,
        is_new=is_new,
        addresses={near: _addresses(near, node, picture, survey) for near in nodes if near != node},
    )


def _saved_as(node: str, nodes: Sequence[str]) -> str:
    """Under which name the node's new public key is saved for the steps on the others."""
    return f"KEY{nodes.index(node)}"


def _own_key(folder: SshFolder, survey: Survey) -> tuple[str, str]:
    """(file, public half) of the first key that needs no passphrase; empty where there is none."""
    for name in (*USUAL_KEYS, OWN_KEY):
        text = survey.text(key_question(folder.node, folder.path(name))) or ""
        words = text.split() if folder.has(name) else []
        if len(words) >= 2 and _HOST_KEY.fullmatch(f"{words[0]} {words[1]}"):
            return name, f"{words[0]} {words[1]}"
    return "", ""


def _port(text: str | None) -> int:
    """sshd's own port, of SSH_CONNECTION: a forwarded one would be ours alone."""
    words = (text or "").split()
    return int(words[3]) if len(words) == 4 and words[3].isdecimal() else 22


def _addresses(near: str, far: str, picture: FleetState, survey: Survey) -> tuple[str, ...]:
    """All that `far` has in a cable's network that `near` is in, too."""
    first = _address(near, far, picture, survey)
    if not first:
        raise Refused(
            f"{near} and {far} have no addresses in one network",
            (f"give the cable addresses first: sparktop act set-addresses {near} {far}",),
        )
    return tuple(dict.fromkeys((first, *_common(near, far, picture))))


def _common(near: str, far: str, picture: FleetState) -> Iterator[str]:
    views = [picture.node(name) for name in (near, far)]
    if None in views:
        return
    own, other = views
    cable = {port.interface for port in other.rdma_ports} if other is not None else set()
    networks = {network for one in (own.interfaces if own is not None else ()) for network in one.networks}
    for interface in other.interfaces if other is not None else ():
        if interface.name in cable and interface.networks & networks:
            yield from sorted(interface.plain_addresses)


# --- the plan


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Keys where there is none, the others' keys and host keys on each node, and a login from each at each other.

    With remove=yes, those lines are taken out again; the keys stay. Where all lines are there and a login still fails,
    an earlier run was cut off: the logins alone are left.
    """
    if len(request.nodes) < 2:
        raise Refused("ssh between nodes needs two of them", ("sparktop act ssh-mesh spark1 spark2",))
    nodes = [_node(node, request.nodes, picture, survey) for node in request.nodes]
    changes = [_Change(node=node, others=tuple(one for one in nodes if one is not node)) for node in nodes]
    return _removal(request, changes, picture) if request.options.get("remove") == "yes" else _addition(
        request, changes, picture, survey
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What one node gets to know of the others."""

    node: _Node
    others: Sequence[_Node]

    @property
    def folder(self) -> SshFolder:
        return self.node.folder

    def lines(self) -> Iterator[tuple[str, str]]:
        """(file, line) of each."""
        for other in self.others:
            yield AUTHORIZED, other.line
        for other in self.others:
            for address in other.addresses[self.node.name]:
                name = address if other.port == 22 else f"[{address}]:{other.port}"
                yield KNOWN, f"{name} {other.host_key}"

    def missing(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (file, line)
            for file, line in self.lines()
            if not any(set(_essence(file, line)) <= set(there.split()) for there in self.folder.lines(file))
        )

    def block(self) -> str:
        """The managed block of ~/.ssh/config; empty where ssh needs none."""
        wants = [
            line
            for other in self.others
            if (settings := tuple(_settings(self.node, other)))
            for line in (f"Host {' '.join(other.addresses[self.node.name])}", *(f"    {one}" for one in settings))
        ]
        return "\n".join((BEGIN, *wants, END)) if wants else ""

    @property
    def old_block(self) -> str:
        lines = self.folder.lines(CONFIG)
        if BEGIN not in lines or END not in lines[lines.index(BEGIN) :]:
            return ""
        start = lines.index(BEGIN)
        return "\n".join(lines[start : lines.index(END, start) + 1])

    def operations(self) -> tuple[Command, ...]:
        missing = self.missing()
        added = chain.from_iterable(self.folder.add(file, line) for file, line in missing)
        files = dict.fromkeys((AUTHORIZED, *((CONFIG,) if self.block() else ())))
        closed = chain.from_iterable(self.folder.close(file) for file in files)
        return (*self.folder.make(), *_once(added), *self._block_change(self.old_block, self.block()), *_once(closed))

    def undo(self) -> tuple[Command, ...]:
        taken = [self.folder.take_out(file, line) for file, line in self.missing()]
        opened = chain.from_iterable(self.folder.open_again(file) for file in (AUTHORIZED, CONFIG))
        return (*taken, *self._block_change(self.block(), self.old_block), *_once(opened))

    def _block_change(self, before: str, after: str) -> tuple[Command, ...]:
        """Replace one block of ~/.ssh/config by another; either may be empty."""
        if before == after:
            return ()
        drop = self.folder.take_block(CONFIG, BEGIN, END)
        return (*(drop if before else ()), *(self.folder.add_block(CONFIG, after) if after else ()))

    def differences(self) -> Iterator[Difference]:
        where = f"of {self.node.name}"
        for file, line in self.missing():
            yield Difference(what="line", name=f"{self.folder.path(file)} {where}", before=None, after=_shown(line))
        if self.block() != self.old_block:
            name = f"{self.folder.path(CONFIG)} {where}"
            yield Difference(what="lines", name=name, before=self.old_block or None, after=self.block() or None)
        yield from self.folder.mode_differences(AUTHORIZED)


def _essence(file: str, line: str) -> Sequence[str]:
    """The words that make a line: without the comment of a key."""
    return line.split()[: 2 if file == AUTHORIZED else 3]


def _settings(node: _Node, other: _Node) -> Iterator[str]:
    if other.folder.user != node.folder.user:
        yield f"User {other.folder.user}"
    if other.port != 22:
        yield f"Port {other.port}"
    if node.key_name == OWN_KEY:
        yield f"IdentityFile {node.folder.path(OWN_KEY)}"


def _shown(line: str) -> str:
    """A line of the review: a key that is still to be made has no text yet."""
    return re.sub(r"\{KEY\d+\}", "ssh-ed25519 (the new key)", line)


def _once(commands: Iterable[Command]) -> tuple[Command, ...]:
    """Each command once, in order: several lines of one new file set its mode each."""
    unique: list[Command] = []
    for command in commands:
        if command not in unique:
            unique.append(command)
    return tuple(unique)


def _addition(request: Request, changes: Sequence[_Change], picture: FleetState, survey: Survey) -> Plan:
    logins = [login_question(one.node.name, _first(one.node, other)) for one in changes for other in one.others]
    answers = [survey.answers.get(question) for question in logins]
    if all(answer is not None and answer.code == 0 for answer in answers):
        raise Refused(f"{' and '.join(request.nodes)} log in to each other already, without a question")
    new = [one.node for one in changes if one.node.is_new]
    due = [one for one in changes if one.operations()]
    return Plan(
        request=request,
        title=f"Set up SSH between {' and '.join(request.nodes)} over the cable",
        risk=Risk.SAFE,
        steps=(
            *(_make_key_step(node, request.nodes) for node in new),
            *(_know_step(one, request.nodes) for one in due),
            *(_login_step(one, request.nodes) for one in changes),
        ),
        rollback=tuple(_forget_step(one, request.nodes) for one in due),
        effect=(
            "Who is logged in on one of them can log in to the others as the same user. Host keys are those of "
            "sparktop's own connections; private keys stay where they are."
        ),
        differences=tuple(difference for one in due for difference in one.differences()),
        equivalent=tuple(
            f"on {one.node.name}: ssh-copy-id {_first(one.node, other)}" for one in changes for other in one.others
        ),
    )


def _first(near: _Node, far: _Node) -> str:
    return far.addresses[near.name][0]


def _make_key_step(node: _Node, nodes: Sequence[str]) -> Step:
    path = node.folder.path(node.key_name)
    make = Command(argv=("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", _comment(node.name), "-f", path))
    read = Command(argv=("awk", "{print $1, $2}", f"{path}.pub"), saves=_saved_as(node.name, nodes))
    return Step(
        id=step_id("make-key", node.name, nodes),
        title=f"Make a key on {node.name}: {path}",
        node=node.name,
        act=Remote(operations=(*node.folder.make(), make, read)),
        limit_s=LIMIT_S,
        verifies="its public half can be read",
    )


def _know_step(change: _Change, nodes: Sequence[str]) -> Step:
    others = " and ".join(other.name for other in change.others)
    return Step(
        id=step_id("know", change.node.name, nodes),
        title=f"Let {others} in on {change.node.name}, and record the host keys of {others} there",
        node=change.node.name,
        act=Remote(operations=change.operations(), undo=change.undo()),
        limit_s=LIMIT_S,
        verifies="each line is there, once",
    )


def _login_step(change: _Change, nodes: Sequence[str]) -> Step:
    node = change.node
    logins = tuple(Command(argv=_login(_first(node, other)), limit_s=15.0) for other in change.others)
    return Step(
        id=step_id("log-in", node.name, nodes),
        title=f"Log in from {node.name} at {' and '.join(other.name for other in change.others)}",
        node=node.name,
        act=Remote(operations=logins),
        limit_s=LIMIT_S,
        verifies="ssh asks nothing",
    )


def _forget_step(change: _Change, nodes: Sequence[str], operations: tuple[Command, ...] = ()) -> Step:
    others = " and ".join(other.name for other in change.others)
    return Step(
        id=step_id("forget", change.node.name, nodes),
        title=f"Take the keys of {others} out on {change.node.name}",
        node=change.node.name,
        act=Remote(operations=operations or change.undo(), reverse=f"sparktop act ssh-mesh {shlex.join(nodes)}"),
        limit_s=LIMIT_S,
        verifies="the lines are gone",
        undoes=(step_id("know", change.node.name, nodes),),
    )


def _removal(request: Request, changes: Sequence[_Change], picture: FleetState) -> Plan:
    due: list[tuple[_Change, tuple[Command, ...], tuple[Difference, ...]]] = []
    for one in changes:
        there = [(file, line) for file, line in one.lines() if line in one.folder.lines(file)]
        block = one._block_change(one.old_block, "")
        if there or block:
            gone = tuple(
                Difference(what="line", name=f"{one.folder.path(file)} of {one.node.name}", before=line, after=None)
                for file, line in there
            )
            due.append((one, (*(one.folder.take_out(file, line) for file, line in there), *block), gone))
    if not due:
        raise Refused(f"nothing of ssh-mesh is on {' and '.join(request.nodes)}")
    return Plan(
        request=request,
        title=f"Take ssh between {' and '.join(request.nodes)} away",
        risk=Risk.SAFE,
        steps=tuple(_forget_step(one, request.nodes, operations) for one, operations, _ in due),
        effect="Copies from node to node and mpirun ask for a password then. The keys themselves stay on their nodes.",
        differences=tuple(difference for _, _, gone in due for difference in gone),
    )
