"""What an act does, and what reverts it once it is done, as a person types it."""

from __future__ import annotations

from tests.table import over

from sparktop.model.operation import Command, DockerCall, Expect, Operation, Privilege
from sparktop.operate.acts.remote import Remote

ID = "a" * 64
NEW = "/containers/{NEW}"


def call(what: str, **query: str) -> DockerCall:
    return DockerCall(method="POST", path=what, query=query)


STOP, KILL, START = (call(f"{NEW}/{verb}") for verb in ("stop", "kill", "start"))
NAMED = Expect(path=f"{NEW}/json", equals={"Name": "/tiny"})
GONE = DockerCall(method="DELETE", path=NEW, only_where=Expect(path=f"{NEW}/json", equals={"State.Status": "created"}))
OWN = ("env", "XDG_RUNTIME_DIR=/run/user/1000", "/usr/bin/systemctl", "--user", "stop", "--", "x.service")
RELOAD = Command(argv=("/usr/sbin/nginx", "-s", "reload"), privilege=Privilege.ROOT)


@over(
    "operations, typed",
    [
        ((STOP, KILL, GONE), ("docker stop {NEW}",)),  # a stop kills by itself, and what has a log is not removed
        ((KILL,), ("docker kill {NEW}",)),
        ((NAMED, START), ("docker start tiny",)),
        ((call("/containers/create", name="tiny"), START), ()),  # its settings are too many for a line
        ((Command(argv=OWN), RELOAD), ("systemctl --user stop -- x.service", "sudo nginx -s reload")),
        ((Command(argv=("/opt/nginx", "-t")), Command(argv=("awk", "1", "/x"))), ("/opt/nginx -t",)),
    ],
)
def test_what_it_does(operations: tuple[Operation, ...], typed: tuple[str, ...]) -> None:
    assert Remote(operations=operations).commands() == typed


def test_what_reverts_it_is_its_undo_unless_it_says_another_thing() -> None:
    done = (NAMED, call(f"{NEW}/rename", name="old"))
    assert Remote(operations=done, undo=(STOP,)).undoing() == ("docker stop old",), "the name that it has by then"
    assert Remote(operations=done, undo=(STOP,), reverse=(START,)).undoing() == ("docker start old",)
    assert Remote(operations=done, undo=(STOP,), reverse=()).undoing() == ()
    assert Remote(operations=done, undo=(STOP,), reverse="launch it again").undoing() == ("launch it again",)


def test_what_a_run_has_saved_is_filled_in() -> None:
    act = Remote(operations=(START,), reverse=(STOP,)).filled({"NEW": ID})
    assert act is not None
    assert (act.commands(), act.undoing()) == (("docker start aaaaaaaaaaaa",), ("docker stop aaaaaaaaaaaa",))
