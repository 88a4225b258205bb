"""What a word on the command line means as a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.cli.composition import connector_for
from sparktop.errors import UsageError
from sparktop.transport.base import Connector
from sparktop.transport.ssh.host_keys import SeenHosts
from sparktop.transport.targets import parse_target


@over(
    "text, kind, host, user, port",
    [
        ("spark1", "ssh", "spark1", None, None),
        ("local", "local", "localhost", None, None),
        ("nvidia@spark1", "ssh", "spark1", "nvidia", None),
        ("nvidia@spark1.local:2222", "ssh", "spark1.local", "nvidia", 2222),
        ("spark1:22", "ssh", "spark1", None, 22),
        ("10.0.0.7", "ssh", "10.0.0.7", None, None),
        ("user@corp@spark1", "ssh", "spark1", "user@corp", None),
        ("fe80::1", "ssh", "fe80::1", None, None),
        ("fe80::1%en0", "ssh", "fe80::1%en0", None, None),
        ("[fe80::1]", "ssh", "fe80::1", None, None),
        ("me@[::1]:2222", "ssh", "::1", "me", 2222),
        ("ssh://me@spark1:2222", "ssh", "spark1", "me", 2222),
        ("ssh://spark1/", "ssh", "spark1", None, None),
        ("local:22", "ssh", "local", None, 22),
        ("spärk", "ssh", "spärk", None, None),
    ],
)
def test_the_forms_of_a_host(text: str, kind: str, host: str, user: str | None, port: int | None) -> None:
    target = parse_target(text)
    assert (target.name, target.kind, target.host, target.user, target.port) == (text, kind, host, user, port)


@over(
    "text, says",
    [
        ("", "empty"), ("spark1 spark2", "space"), (" spark1", "space"), ("spark1\n", "space"),
        ("-oProxyCommand=id", "option"), ("me@-oProxyCommand=id", "characters"), ("-l@spark1", "option"),
        ("@spark1", "user name"), ("me@", "no host"), (":22", "no host"), ("spark1:", "port"), ("spark1:0", "port"),
        ("spark1:65536", "port"), ("spark1:ssh", "port"), ("spark1:-1", "port"), ("spark1:٢٢", "port"),
        ("[spark1]:22", "brackets"), ("[fe80::1]22", "brackets"), ("[fe80::1", "brackets"), ("a:b:c", "colon"),
        ("$(id)", "characters"), ("spark1;id", "characters"), ("me`id`@spark1", "user name"),
        ("spark1/x", "characters"), ("spark\x1b[31m", "characters"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_a_hint(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert says in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


@given(st.text(max_size=40))
def test_any_word_is_a_target_or_a_usage_error(text: str) -> None:
    try:
        target = parse_target(text)
    except UsageError:
        return
    assert target.host
    assert not target.host.startswith("-")
    assert not any(character.isspace() or character in "'\"`$\\;&<>|(){}" for character in target.host)


def test_a_connector_is_chosen_by_the_word() -> None:
    class Nobody:
        async def host_key(self, question: object) -> bool:
            return False

        async def secret(self, question: object) -> None:
            return None

    for text in ("local", "me@spark1:2222"):
        connector: Connector = connector_for(text, Nobody(), SeenHosts())
        assert connector.name == text
