"""Ids saved by one step, in the acts of later ones."""

from __future__ import annotations

from tests.table import over

from sparktop.model.operation import Command, DockerCall, Expect
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.placeholders import saved_for

NEW = "a" * 64
CALL = DockerCall(
    method="POST",
    path="/containers/{NEW}/update",
    body={"Container": "{NEW}", "Env": ["{NEW}"], "Cmd": "x {NEW}"},
    done_when=Expect(path="/containers/{NEW}/json", equals={"Id": "{NEW}"}),
)


def test_what_was_saved_is_put_in_where_it_stands_alone() -> None:
    made = Remote(operations=(CALL, Expect(path="/containers/{NEW}/json", equals={"Id": "{NEW}"}))).filled({"NEW": NEW})
    assert isinstance(made, Remote)
    call, expect = made.operations
    assert isinstance(call, DockerCall)
    assert call.path == f"/containers/{NEW}/update"
    assert call.body == {"Container": NEW, "Env": ["{NEW}"], "Cmd": "x {NEW}"}
    assert call.done_when == Expect(path=f"/containers/{NEW}/json", equals={"Id": "{NEW}"})
    assert expect == Expect(path=f"/containers/{NEW}/json", equals={"Id": NEW})


def test_what_was_not_saved_leaves_nothing_to_act_on() -> None:
    assert Remote(operations=(CALL,)).filled({}) is None
    assert GuardOrder(container_id="{NEW}").filled({}) is None


def test_a_step_that_saves_it_itself_is_left_to_the_node() -> None:
    act = Remote(operations=(DockerCall(method="POST", path="/containers/create", saves="NEW"), CALL), undo=(CALL,))
    assert act.filled({}) == act
    assert act.filled({"NEW": "of an earlier try"}) == act


def test_guard_and_others() -> None:
    assert GuardOrder(container_id="{NEW}", floor_bytes=1).filled({"NEW": NEW}) == GuardOrder(
        container_id=NEW, floor_bytes=1
    )
    assert GuardOrder(container_id="").filled({}) == GuardOrder(container_id="")
    assert AwaitReady(name="{NEW}").filled({}) == AwaitReady(name="{NEW}")


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDKmcx4QSFUIrJxsLkIX5RrKZ0n7vAFlm2l3UWAxBBIr"


def test_a_public_key_of_another_node_is_filled_into_commands() -> None:
    command = Command(
        argv=("grep", "{KEY0} x"), content="{KEY0} x\n", done_when=Command(argv=("grep", "{KEY0}")), saves="KEY1"
    )
    filled = Remote(operations=(command,), undo=(command,)).filled(saved_for("b", {"a": {"KEY0": KEY}}))
    assert isinstance(filled, Remote)
    for one in (*filled.operations, *filled.undo):
        assert isinstance(one, Command)
        assert (one.argv[1], one.content) == (f"{KEY} x", f"{KEY} x\n")
        assert one.done_when is not None
        assert one.done_when.argv[1] == KEY


@over("lie", [f"{KEY}\nssh-rsa AAAA", 'command="rm" ssh-ed25519 AAAA', "", "$(reboot)"])
def test_what_is_no_public_key_is_never_carried_to_another_node(lie: str) -> None:
    saved = saved_for("b", {"a": {"KEY0": lie, "NEW": "0123"}})
    assert saved == {}
    assert Remote(operations=(Command(argv=("x",), content="{KEY0}"),)).filled(saved) is None


def test_a_shell_s_own_variable_is_none() -> None:
    act = Remote(operations=(Command(argv=("bash", "-c", "echo ${KEY0}")),))
    assert act.filled(saved_for("b", {"a": {"KEY0": KEY}})) == act
