"""Installing the operator's public key: one line, appended once, and where it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.bringup_support import OWN_KEY, contact, view
from tests.pictures_support import link, picture
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.operate.machine.machine_support import ids, operations, planned, refused, step

from sparktop.model.fleet import LoginMethod, NodeView
from sparktop.model.operation import Command
from sparktop.model.request import Request
from sparktop.model.survey import PublicKey
from sparktop.operate.acts.checks import CheckLogin
from sparktop.operate.setup import login_key
from sparktop.operate.step.plan import Plan, Refusal

HOME = {"getent passwd spark": "spark:x:1000:1000::/home/spark:/bin/bash\n"}
FRESH = "d 750 1000 \n"
USED = f"{FRESH}d 700 1000 .ssh\nf 600 1000 .ssh/authorized_keys\n"
FILE = "/home/spark/.ssh/authorized_keys"
OTHER = PublicKey(algorithm="ssh-rsa", blob="AAAAB3NzaC1yc2E=", comment="work", place="the ssh agent")
TYPED = link(contact=contact(login=LoginMethod.PASSWORD))


def request(**options: str) -> Request:
    return Request(action="install-key", nodes=("spark1",), options=options)


def plan(
    asked: Request,
    *,
    entries: str = FRESH,
    text: str | None = None,
    writable: Mapping[str, int] | None = None,
    keys: tuple[PublicKey, ...] = (OWN_KEY,),
    node: NodeView | None = None,
    home: Mapping[str, str] = HOME,
) -> Plan | Refusal:
    outputs: dict[str, Any] = {**home, "find /home/spark": entries, "test -w": "", **(writable or {})}
    files = {FILE: text} if text is not None else {}
    seen = picture(node or view(link=TYPED))
    return planned(login_key, asked, seen, files=files, outputs=outputs, keys=keys)


def argvs(made: Plan | Refusal, step_id: str) -> list[tuple[str, ...]]:
    return [command.argv for command in operations(made, step_id) if isinstance(command, Command)]


def test_a_first_key_makes_folder_and_file_and_is_proven_by_a_login() -> None:
    made = plan(request())
    compare_plan("install-key", made)
    assert ids(made) == ["install-key", "log-in"]
    assert argvs(made, "install-key")[0] == ("mkdir", "-p", "-m", "0700", "--", "/home/spark/.ssh")
    act = step(made, "log-in").act
    assert act == CheckLogin(key=OWN_KEY)


def test_a_line_is_appended_behind_what_is_there() -> None:
    made = plan(request(), entries=USED, text="ssh-ed25519 AAAAold other")
    append, holds = operations(made, "install-key")
    assert append.content == f"\n{OWN_KEY.line}\n"  # the last line had no end
    assert append.done_when == holds
    assert not [argv for argv in argvs(made, "install-key") if argv[0] in ("mkdir", "chmod")]


def test_what_others_may_write_is_closed_and_opened_again_by_the_undo() -> None:
    entries = "d 770 1000 \nd 700 1000 .ssh\nf 664 1000 .ssh/authorized_keys\n"
    made = plan(request(), entries=entries, text="")
    assert ("chmod", "go-w", "--", "/home/spark") in argvs(made, "install-key")
    assert isinstance(made, Plan)
    undo = [command.argv for command in step(made, "install-key").act.undo]  # type: ignore[union-attr]
    assert ("chmod", "0770", "--", "/home/spark") in undo
    assert [(one.what, one.before, one.after) for one in made.differences][1:] == [
        ("mode", "0770", "0750"),
        ("mode", "0664", "0644"),
    ]


def test_after_a_run_that_was_cut_off_the_login_alone_is_left() -> None:
    assert ids(plan(request(), entries=USED, text=f"{OWN_KEY.line}\n")) == ["log-in"]


def test_removing_takes_out_every_line_that_holds_the_key() -> None:
    text = f'from="10.0.0.0/8" {OWN_KEY.line}\nssh-ed25519 AAAAold a.b[c]*\n{OWN_KEY.line}\n'
    made = plan(request(remove="yes"), entries=USED, text=text)
    compare_plan("install-key-remove", made)
    first, second = argvs(made, "remove-key")
    assert first[2].startswith(r'\|^from="10\.0\.0\.0/8" ssh-ed25519 ')
    assert second == ("sed", "-i", rf"\|^{OWN_KEY.line}$|d", FILE)


def test_the_key_is_chosen_by_any_of_its_names() -> None:
    for name in (OTHER.fingerprint, "work", "the ssh agent"):
        made = plan(request(key=name), keys=(OWN_KEY, OTHER))
        assert step(made, "log-in").act == CheckLogin(key=OTHER)


@over(
    "given, reason, remedy",
    [
        ({"keys": ()}, "no public key on this machine", "here: ssh-keygen -t ed25519"),
        ({"keys": (OWN_KEY, OTHER)}, "you have 2 keys", f"--set key={OWN_KEY.fingerprint}"),
        ({"asked": request(key="nobody's")}, "no one key of yours is nobody's", "--set key="),
        ({"entries": f"{FRESH}l 777 1000 .ssh\n"}, ".ssh on spark1 is a link", "ls -ld"),
        ({"entries": f"{FRESH}d 700 1000 .ssh\nl 777 1000 .ssh/authorized_keys\n"}, "is a link", "ls -ld"),
        ({"entries": f"{FRESH}d 700 0 .ssh\n"}, "is not spark's (user id 0)", "sudo chown spark"),
        ({"writable": {"test -w /home/spark": None}}, "can't write to /home/spark", "findmnt"),
        ({"home": {}}, "the home of spark on spark1 is not known", ""),
        ({"home": {"getent passwd spark": "spark:x:1000:1000::/home/*:/bin/sh\n"}}, "is not known", ""),
        ({"node": view(host={"user": "-o evil"})}, "which user", "USER@HOST"),
        (
            {"node": view(), "entries": USED, "text": f"{OWN_KEY.line}\n"},
            "already on spark1, and sparktop logs in by a key",
            "ssh -v spark1",
        ),
        ({"asked": request(remove="yes"), "entries": USED, "text": ""}, "is not in", ""),
    ],
)
def test_it_is_refused_with_the_next_step(given: dict[str, Any], reason: str, remedy: str) -> None:
    made = plan(given.pop("asked", request()), **given)
    assert reason in refused(made)
    assert isinstance(made, Refusal)
    assert remedy in " ".join(made.remedies)
