"""Whether a host is the one that was meant: what is asked for, trusted, refused, asked about and written down."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from sparktop.errors import HostKeyRefused
from sparktop.transport.base import HostKeyQuestion
from sparktop.transport.ssh.config import SshOptions
from sparktop.transport.ssh.host_identity import HostContact, UnknownHost
from sparktop.transport.ssh.host_keys import SeenHosts, fingerprint

ED25519, ECDSA, RSA = "ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"
PLAIN = [
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512",
    "rsa-sha2-256",
]  # fmt: skip


@cache
def key(kind: str = ED25519, number: int = 0) -> asyncssh.SSHKey:
    """A key of this kind; each number is another one."""
    return asyncssh.generate_private_key(kind)


def line(shown: asyncssh.SSHKey, marker: str = "", name: str = "spark1") -> str:
    return f"{marker and f'@{marker} '}{name} {shown.export_public_key().decode().strip()}\n"


def shown(of: asyncssh.SSHKey) -> str:
    return f"{of.get_algorithm()} {fingerprint(of.public_data)}"


class Operator:
    """Answers the question about a host's key."""

    def __init__(self, *, yes: bool = True) -> None:
        self.yes = yes
        self.asked: list[HostKeyQuestion] = []

    async def host_key(self, question: HostKeyQuestion) -> bool:
        self.asked.append(question)
        return self.yes

    async def secret(self, question: Any) -> str | None:
        raise AssertionError(question)


class Contacts:
    """A known_hosts file and the contacts with the host that it is about."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "known_hosts"
        self.seen = SeenHosts()
        self.options = SshOptions(host="spark1", user="me", user_known_hosts=(self.file, folder / "second"))

    def contact(self, *lines: str, pinned: bytes | None = None, **options: Any) -> HostContact:
        self.file.write_text("".join(lines))
        self.options = replace(self.options, **options)
        return HostContact("the spark", self.options, self.seen, pinned=pinned)

    def refused(self, contact: HostContact, by: asyncssh.SSHKey | None) -> tuple[str, str]:
        problem = contact.problem(by)
        assert isinstance(problem, HostKeyRefused)
        return problem.message, problem.hint or ""


@pytest.fixture
def contacts(tmp_path: Path) -> Contacts:
    return Contacts(tmp_path)


# --- what it trusts


def test_the_key_on_file_is_trusted_and_no_other(contacts: Contacts) -> None:
    contact = contacts.contact(line(key()))
    assert contact.trusts(key())
    assert not contact.trusts(key(ED25519, 1))
    assert not contacts.contact().trusts(key())
    assert not contacts.contact(line(key()), line(key(), "revoked")).trusts(key())


def test_both_files_count(contacts: Contacts, tmp_path: Path) -> None:
    (tmp_path / "global").write_text(line(key()))
    assert contacts.contact(global_known_hosts=(tmp_path / "global",)).trusts(key())


def test_a_pinned_key_goes_before_every_file(contacts: Contacts) -> None:
    contact = contacts.contact(line(key()), pinned=key(ED25519, 1).public_data)
    assert contact.trusts(key(ED25519, 1))
    assert not contact.trusts(key())
    assert isinstance(contact.problem(key()), HostKeyRefused)


# --- what asyncssh is told


@pytest.mark.parametrize(
    ("lines", "algorithms"),
    [
        ([], PLAIN),
        ([line(key(ECDSA))], ["ecdsa-sha2-nistp256", "ssh-ed25519", *PLAIN[2:]]),
        ([line(key(RSA))], ["rsa-sha2-512", "rsa-sha2-256", *PLAIN[:4]]),
        ([line(key(), "cert-authority")], [*(f"{name}-cert-v01@openssh.com" for name in PLAIN), *PLAIN]),
        ([line(key(), "revoked")], PLAIN),
    ],
    ids=["nothing-known", "ecdsa", "rsa", "authority", "revoked"],
)
def test_the_kind_on_file_is_asked_for_first(contacts: Contacts, lines: list[str], algorithms: list[str]) -> None:
    assert contacts.contact(*lines).settings()["server_host_key_algs"] == algorithms


def test_asyncssh_trusts_authorities_alone_and_refuses_what_is_revoked(contacts: Contacts) -> None:
    authority, revoked = key(ED25519, 1), key(ED25519, 2)
    contact = contacts.contact(
        line(key()), line(authority, "cert-authority"), line(revoked, "revoked"), host_key_alias="spark1"
    )
    settings = contact.settings()
    trusted, authorities, refused = settings.pop("known_hosts")
    assert trusted == []
    assert [one.public_data for one in authorities] == [authority.public_data]
    assert [one.public_data for one in refused] == [revoked.public_data]
    del settings["server_host_key_algs"]
    assert settings == {"host_key_alias": "spark1", "x509_trusted_certs": None, "x509_trusted_cert_paths": []}


# --- what it says of a key that isn't trusted


def test_a_key_that_nobody_knows_is_a_question(contacts: Contacts) -> None:
    problem = contacts.contact().problem(key())
    assert isinstance(problem, UnknownHost)
    assert problem.key is key()


def test_no_key_at_all_is_a_revoked_one_or_a_bad_certificate(contacts: Contacts) -> None:
    message = "the spark shows a host key that is revoked, or a certificate that does not hold"
    assert contacts.refused(contacts.contact(line(key())), None)[0] == message
    lines = line(key(), "cert-authority"), line(key(), "revoked")
    assert contacts.refused(contacts.contact(*lines), None) == (
        f"{message}; see {contacts.file}:2, {contacts.file}:1",
        "Nothing was sent. Its owner knows the right key.",
    )


def test_a_revoked_key_is_refused_with_its_line(contacts: Contacts) -> None:
    message, hint = contacts.refused(contacts.contact(line(key(ECDSA)), line(key(), "revoked")), key())
    assert f"{contacts.file}:2 marks as revoked" in message
    assert shown(key()) in message
    assert "ask for" in hint


@pytest.mark.parametrize(("kind", "name"), [(ED25519, "ed25519"), (ECDSA, "ecdsa"), (RSA, "rsa")])
def test_a_changed_key_is_refused_with_both_and_what_to_compare(contacts: Contacts, kind: str, name: str) -> None:
    before, now = key(ED25519, 1), key(kind, 2)
    message, hint = contacts.refused(contacts.contact(line(before)), now)
    facts = ("CHANGED", f"{contacts.file}:1", shown(now), fingerprint(before.public_data))
    assert [fact for fact in facts if fact not in message] == []
    assert f"ssh-keygen -lf /etc/ssh/ssh_host_{name}_key.pub" in hint
    assert f"ssh-keygen -f {contacts.file} -R spark1" in hint


def test_a_key_that_changed_within_the_session_has_no_line(contacts: Contacts) -> None:
    contacts.seen.accept("spark1", key().public_data)
    message, hint = contacts.refused(contacts.contact(), key(ED25519, 1))
    assert "CHANGED" in message
    assert shown(key(ED25519, 1)) in message
    assert "ssh-keygen -lf" in hint
    assert "ssh-keygen -f" not in hint


# --- a first contact


async def test_a_yes_is_trusted_and_written_to_the_first_file(contacts: Contacts, tmp_path: Path) -> None:
    contacts.seen.record("other spark", fingerprint(key().public_data))
    contact, operator = contacts.contact(), Operator()
    await contact.accept(key(), operator)
    assert operator.asked == [
        HostKeyQuestion(
            host="spark1",
            algorithm="ssh-ed25519",
            fingerprint=fingerprint(key().public_data),
            known_hosts_path=contacts.file,
            same_key_hosts=("other spark",),
        )
    ]
    assert contact.trusts(key())
    assert contact.warnings == []
    assert contacts.file.read_text().split()[:2] == ["spark1", "ssh-ed25519"]
    assert not (tmp_path / "second").exists()
    contacts.file.unlink()
    assert HostContact("the spark", contacts.options, contacts.seen).trusts(key())


async def test_a_no_is_neither_trusted_nor_written(contacts: Contacts) -> None:
    contact = contacts.contact()
    with pytest.raises(HostKeyRefused, match="was not accepted") as caught:
        await contact.accept(key(), Operator(yes=False))
    assert shown(key()) in caught.value.message
    assert not contact.trusts(key())
    assert contacts.file.read_text() == ""


async def test_a_second_key_doesn_t_take_the_first_one_s_place(contacts: Contacts) -> None:
    contact = contacts.contact()
    for shows in (key(), key(ED25519, 1)):
        await contact.accept(shows, Operator())
    assert contact.trusts(key())
    assert contact.trusts(key(ED25519, 1))


async def test_strict_asks_nobody(contacts: Contacts) -> None:
    contact, operator = contacts.contact(strict="yes", port=2222), Operator()
    with pytest.raises(HostKeyRefused, match="StrictHostKeyChecking yes allows no asking") as caught:
        await contact.accept(key(), operator)
    assert caught.value.hint.endswith("ssh -p 2222 spark1 -o StrictHostKeyChecking=ask")
    assert operator.asked == []
    assert not contact.trusts(key())


@pytest.mark.parametrize("strict", ["accept-new", "no"])
async def test_what_is_accepted_unseen_is_named(contacts: Contacts, strict: Any) -> None:
    contact, operator = contacts.contact(strict=strict), Operator()
    await contact.accept(key(), operator)
    assert contact.warnings == [f"new host key accepted unseen (StrictHostKeyChecking {strict}): {shown(key())}"]
    assert operator.asked == []
    assert contact.trusts(key())


async def test_with_nobody_to_ask_it_is_refused(contacts: Contacts) -> None:
    contact = contacts.contact()
    with pytest.raises(HostKeyRefused, match="nobody can be asked") as caught:
        await contact.accept(key(), None)
    assert caught.value.hint.endswith("ssh -p 22 spark1")
    assert not contact.trusts(key())


async def test_a_file_that_can_t_be_written_is_a_warning(contacts: Contacts, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    contact = contacts.contact(user_known_hosts=(tmp_path / "a file" / "known_hosts",))
    contact.warnings.clear()
    await contact.accept(key(), Operator())
    [warning] = contact.warnings
    assert "this session" in warning
    assert "can't be written" in warning
    assert contact.trusts(key())


async def test_without_a_file_it_is_asked_for_dev_null(contacts: Contacts) -> None:
    contact, operator = contacts.contact(user_known_hosts=()), Operator()
    async with asyncio.timeout(10):
        await contact.accept(key(), operator)
    assert operator.asked[0].known_hosts_path == Path("/dev/null")
