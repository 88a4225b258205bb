"""What root and Docker would need on a node, by what its user may do."""

from __future__ import annotations

from tests.table import over

from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Privileges
from sparktop.operate.acts.remote import Remote
from sparktop.operate.secrets.sudo import (
    RootAccess,
    docker_refusal,
    is_permitted,
    root_access,
    root_argvs,
    root_refusal,
    sudo_note,
    sudo_notes,
    sudoers_lines,
)
from sparktop.operate.step.plan import Plan, Step

SYSCTL = ("/usr/sbin/sysctl", "-w", "vm.drop_caches=3")
TEE = ("/usr/bin/tee", "/proc/sys/vm/drop_caches")


def user(sudo: str, *rules: str, docker: str = "open") -> Privileges:
    return Privileges(user="spark", sudo=sudo, sudo_rules=rules, docker=docker)


@over(
    "privileges, way",
    [
        (Privileges(is_root=True, user="root"), RootAccess.FREE),
        (user("free"), RootAccess.FREE),
        (user("password"), RootAccess.ASKS),
        (user("listed", "/usr/sbin/sysctl -w vm.drop_caches\\=3"), RootAccess.FREE),
        (user("listed", "/usr/bin/tee /proc/sys/vm/drop_caches"), RootAccess.ASKS),
        (user("missing"), RootAccess.IMPOSSIBLE),
        (user("denied"), RootAccess.IMPOSSIBLE),
        (user("tty"), RootAccess.IMPOSSIBLE),
        (None, RootAccess.IMPOSSIBLE),
    ],
)
def test_how_root_is_had(privileges: Privileges | None, way: RootAccess) -> None:
    assert root_access(privileges, [SYSCTL]) is way
    assert (root_refusal(privileges, [SYSCTL], "spark1") is None) is (way is not RootAccess.IMPOSSIBLE)
    assert bool(sudo_note(privileges, [SYSCTL], "spark1")) is (way is RootAccess.ASKS)


@over(
    "rule, argv, listed",
    [
        ("/usr/bin/tee /proc/sys/vm/drop_caches", TEE, True),
        ("/usr/bin/tee /proc/sys/vm/*", TEE, True),
        ("/usr/bin/tee /proc/sys/vm/\\*", TEE, False),
        ("/usr/bin/tee /proc/sys/vm/drop_caches ", TEE, True),
        ("/usr/bin/tee", TEE, True),
        ("/usr/bin/tee a\\*b", ("/usr/bin/tee", "a*b"), True),
        ("/usr/bin/tee a\\*b", ("/usr/bin/tee", "a\\b"), False),
        ("/usr/bin/tee ^a*", ("/usr/bin/tee", "^ab"), False),
        ("/", ("no-program-of-ours",), False),
        ('/usr/bin/tee ""', TEE, False),
        ('/usr/bin/tee ""', TEE[:1], True),
        ("/usr/bin/", TEE, True),
        ("/usr/bin/", ("/usr/bin/deep/tee",), False),
        ("/usr/bin/*", TEE, True),
        ("/usr/bin/tee /proc/sys/vm/drop_caches.old", TEE, False),
        ("/bin/tee /proc/sys/vm/drop_caches", TEE, False),
        ("ALL", SYSCTL, True),
        ("/usr/sbin/sysctl -w vm.drop_caches=3", ("sysctl", "-w", "vm.drop_caches=3"), True),
        ("/usr/sbin/sysctl -w vm.drop_caches=[123]", SYSCTL, True),
        ("^/usr/sbin/sysctl$ ^-w .*$", SYSCTL, False),
        ("sha224:abcdef /usr/sbin/sysctl", SYSCTL, False),
        ("", SYSCTL, False),
        ("\\", SYSCTL, False),
    ],
)
def test_a_rule_is_read_as_sudo_reads_it(rule: str, argv: tuple[str, ...], listed: bool) -> None:
    assert is_permitted(user("listed", rule), argv) is listed


def test_the_last_rule_decides() -> None:
    assert not is_permitted(user("listed", "ALL", "!/usr/sbin/sysctl"), SYSCTL)
    assert is_permitted(user("listed", "!/usr/sbin/sysctl", "ALL"), SYSCTL)


@over(
    "argv, line",
    [
        (SYSCTL, "spark ALL=(root) NOPASSWD: /usr/sbin/sysctl -w vm.drop_caches\\=3"),
        (("sysctl", "-w", "vm.drop_caches=3"), "spark ALL=(root) NOPASSWD: /usr/sbin/sysctl -w vm.drop_caches\\=3"),
        (("/usr/bin/true",), 'spark ALL=(root) NOPASSWD: /usr/bin/true ""'),
        (("/usr/bin/kill", "-s", "TERM", "--", "*"), "spark ALL=(root) NOPASSWD: /usr/bin/kill -s TERM -- \\*"),
        (
            ("/opt/a b", "c d", "e:f,g#h", "i\\j?"),
            "spark ALL=(root) NOPASSWD: /opt/a\\ b c\\ d e\\:f\\,g\\#h i\\\\j\\?",
        ),
    ],
)
def test_a_line_permits_exactly_one_command(argv: tuple[str, ...], line: str) -> None:
    assert sudoers_lines("spark", [argv, argv]) == (line,)
    rule = line.partition("NOPASSWD: ")[2]
    assert is_permitted(user("listed", rule), argv)
    assert not is_permitted(user("listed", rule), (*argv, "more"))


@over(
    "argv",
    [("unknown",), ("/usr/bin/tee", "a\nroot ALL=(ALL) ALL"), ("/usr/bin/python3", "-I", "{content}", "1:psm_a"), ()],
)
def test_what_cannot_be_written_there_gives_no_line(argv: tuple[str, ...]) -> None:
    assert sudoers_lines("spark", [argv]) == ()
    assert len(sudoers_lines("spark", [argv, SYSCTL])) == 1  # the next one gets its line


@over("name", ["spark ALL=(ALL) ALL #", "a\nb", "%sudo", "ALL=", ""])
def test_a_strange_user_is_not_written_out(name: str) -> None:
    assert sudoers_lines(name, [SYSCTL]) == ("USER ALL=(root) NOPASSWD: /usr/sbin/sysctl -w vm.drop_caches\\=3",)
    refused = root_refusal(Privileges(user=name, sudo="denied"), [SYSCTL], "spark1")
    assert refused is not None
    assert "\n" not in refused.reason


def test_docker() -> None:
    assert docker_refusal(user("password"), "spark1") is None
    denied = docker_refusal(user("password", docker="denied"), "spark1")
    assert denied is not None
    assert denied.remedies[0] == "on spark1: sudo usermod -aG docker spark"
    missing = docker_refusal(user("password", docker="missing"), "spark1")
    assert missing is not None
    assert "no Docker Engine" in missing.reason


def test_the_note_names_only_what_is_not_permitted_yet() -> None:
    note = sudo_note(user("listed", "/usr/bin/tee /proc/sys/vm/drop_caches"), [SYSCTL, TEE], "spark1")
    assert "/usr/sbin/sysctl" in note
    assert "/usr/bin/tee" not in note


def test_what_a_plan_runs_as_root() -> None:
    asked = Command(argv=("/usr/bin/test", "-e", "/x"), privilege=Privilege.ROOT)
    step = Step(
        id="a",
        title="a",
        node="spark1",
        act=Remote(
            operations=(Command(argv=("sync",)), Command(argv=SYSCTL, privilege=Privilege.ROOT, done_when=asked)),
            undo=(Command(argv=TEE, privilege=Privilege.ROOT),),
        ),
    )
    plan = Plan(request=Request(action="drop-caches", nodes=("spark1",)), title="", risk=Risk.SAFE, steps=(step, step))
    assert root_argvs(plan, "spark1") == (SYSCTL, asked.argv, TEE)
    asking = user("password")
    (note,) = sudo_notes(plan.steps, asking, "spark1")
    assert "NOPASSWD: /usr/sbin/sysctl" in note
    (short,) = sudo_notes(plan.steps, asking, "spark1", with_lines=False)
    assert "NOPASSWD" not in short
    assert root_argvs(plan.steps, "spark2") == ()
