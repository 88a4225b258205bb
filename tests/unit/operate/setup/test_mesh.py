"""ssh between the nodes: keys that are made or found, what each records of the others, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.bringup_support import HOST_KEYS, contact, view
from tests.pictures_support import link, picture
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.operate.machine.machine_support import ids, operations, planned, refused, step

from sparktop.model.fleet import NodeView
from sparktop.model.operation import Command
from sparktop.model.request import Request
from sparktop.operate.acts.remote import Remote
from sparktop.operate.setup import mesh
from sparktop.operate.step.plan import Plan, Refusal

BOTH = ("spark1", "spark2")
SSH = "/home/spark/.ssh"
EMPTY = "d 750 1000 \nd 700 1000 .ssh\n"
WITH_KEY = f"{EMPTY}f 600 1000 .ssh/id_ed25519\n"
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDKmcx4QSFUIrJxsLkIX5RrKZ0n7vAFlm2l3UWAxBBIr owner@spark\n"


def request(*nodes: str, **options: str) -> Request:
    return Request(action="ssh-mesh", nodes=nodes or BOTH, options=options)


def plan(
    asked: Request,
    *,
    entries: str = EMPTY,
    key: str | None = None,
    files: dict[str, str] | None = None,
    port: int = 22,
    views: tuple[NodeView, ...] = (),
    login: str | None = None,
) -> Plan | Refusal:
    outputs = {
        "getent passwd": "spark:x:1000:1000::/home/spark:/bin/bash\n",
        "find /home/spark": entries,
        "test -w": "",
        "printenv SSH_CONNECTION": f"192.168.20.5 51022 192.168.20.21 {port}\n",
        "ssh-keygen -y": key,
        "ssh -o": login,
    }
    nodes = views or tuple(view(name) for name in asked.nodes)
    texts = {f"{SSH}/{name}": text for name, text in (files or {}).items()}
    return planned(mesh, asked, picture(*nodes), files=texts, outputs=outputs)


def contents(made: Plan | Refusal, step_id: str) -> list[str]:
    return [one.content for one in operations(made, step_id) if isinstance(one, Command) and one.content]


def test_keys_are_made_where_there_is_none_and_host_keys_are_our_connections_own() -> None:
    made = plan(request())
    compare_plan("ssh-mesh", made)
    steps = ("make-key", "know", "log-in")
    assert ids(made) == [f"{name}@{node}" for name in steps for node in BOTH]
    (let_in, *known) = contents(made, "know@spark1")
    assert let_in == "{KEY1} sparktop-spark2\n"
    assert known == [f"10.0.0.2 {HOST_KEYS['spark2']}\n", f"10.0.1.2 {HOST_KEYS['spark2']}\n"]  # both halves
    make, read = operations(made, "make-key@spark2")[-2:]
    assert (make.argv[0], read.saves) == ("ssh-keygen", "KEY1")


def test_a_key_that_is_there_is_used() -> None:
    made = plan(request(), entries=WITH_KEY, key=PUBLIC)
    assert ids(made) == [f"{name}@{node}" for name in ("know", "log-in") for node in BOTH]
    assert contents(made, "know@spark1")[0] == f"{PUBLIC.rpartition(' ')[0]} sparktop-spark2\n"


def test_beside_a_locked_key_another_is_made_and_named_in_a_block() -> None:
    made = plan(request(), entries=WITH_KEY, port=2222)
    assert operations(made, "make-key@spark1")[-2].argv[-1] == f"{SSH}/id_ed25519_sparktop"
    block = contents(made, "know@spark1")[-1]
    assert block.splitlines()[1:-1] == [
        "Host 10.0.0.2 10.0.1.2",
        "    Port 2222",
        f"    IdentityFile {SSH}/id_ed25519_sparktop",
    ]
    assert contents(made, "know@spark1")[1].startswith("[10.0.0.2]:2222 ssh-ed25519 ")


def test_another_block_is_replaced_and_comes_back_with_the_undo() -> None:
    old = f"{mesh.BEGIN}\nHost 10.9.9.9\n    Port 7\n{mesh.END}"
    entries = f"{WITH_KEY}f 600 1000 .ssh/config\n"
    made = plan(request(), entries=entries, key=PUBLIC, port=2222, files={"config": f"Host *\n{old}\nHost x\n"})
    drop = [one.argv for one in operations(made, "know@spark1") if one.argv[0] == "sed"]
    assert drop == [("sed", "-i", rf"\|^{mesh.BEGIN}$|,\|^{mesh.END}$|d", f"{SSH}/config")]
    act = step(made, "know@spark1").act
    assert isinstance(act, Remote)
    assert [one.content for one in act.undo if isinstance(one, Command) and one.content] == [f"{old}\n"]


def test_lines_that_are_there_are_not_added_again_and_the_logins_are_tried() -> None:
    known = "".join(f"10.0.{half}.{number} {HOST_KEYS[name]}\n" for half in (0, 1)
                    for number, name in ((1, "spark1"), (2, "spark2")))  # fmt: skip
    entries = f"{WITH_KEY}f 600 1000 .ssh/authorized_keys\nf 600 1000 .ssh/known_hosts\n"
    files = {"authorized_keys": PUBLIC, "known_hosts": known}
    made = plan(request(), entries=entries, key=PUBLIC, files=files)
    assert ids(made) == ["log-in@spark1", "log-in@spark2"]
    assert "already" in refused(plan(request(), entries=entries, key=PUBLIC, files=files, login=""))


def test_three_nodes_know_one_another() -> None:
    three = ("spark1", "spark2", "spark3")
    views = tuple(view(name, link=link(contact=contact(name, host_key=HOST_KEYS["spark1"]))) for name in three)
    made = plan(request(*three), entries=WITH_KEY, key=PUBLIC, views=views)
    assert len(operations(made, "log-in@spark3")) == 2
    assert [text.split()[0] for text in contents(made, "know@spark3") if text.startswith("10.")] == [
        "10.0.0.1", "10.0.1.1", "10.0.0.2", "10.0.1.2",
    ]  # fmt: skip


def test_what_was_added_is_taken_away() -> None:
    entries = f"{WITH_KEY}f 600 1000 .ssh/authorized_keys\n"
    line = f"{PUBLIC.rpartition(' ')[0]} sparktop-spark2"
    made = plan(request(remove="yes"), entries=entries, key=PUBLIC, files={"authorized_keys": f"{PUBLIC}{line}\n"})
    assert [one.argv[2] for one in operations(made, "forget@spark1")] == [rf"\|^{line}$|d"]


@over(
    "given, reason",
    [
        ({"asked": request("spark1")}, "needs two of them"),
        (
            {"views": (view(), view("spark2", link=link(contact=contact("spark2", host_key=""))))},
            "no host key of spark2",
        ),
        ({"views": (view(), view("spark2", network=replace(view("spark2").network, interfaces=())))}, "no addresses"),
        (
            {"entries": f"{WITH_KEY}f 600 1000 .ssh/id_ed25519_sparktop\n"},
            "id_ed25519_sparktop on spark1 is no key that can be used without a passphrase",
        ),
        ({"entries": f"{EMPTY}l 777 1000 .ssh/known_hosts\n"}, "known_hosts on spark1 is a link"),
        ({"asked": request(remove="yes")}, "nothing of ssh-mesh"),
    ],
)
def test_it_is_refused(given: dict[str, Any], reason: str) -> None:
    assert reason in refused(plan(given.pop("asked", request()), **given))
