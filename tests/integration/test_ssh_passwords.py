"""Passwords and keyboard-interactive against a server in this process (OpenSSH would need system users and PAM)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncssh
import pytest

from sparktop.errors import AuthRefused
from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.transport.ssh.connector import SshConnector
from sparktop.transport.ssh.host_keys import SeenHosts
from sparktop.transport.targets import parse_target


class Gate(asyncssh.SSHServer):
    """Lets one password in, asked for as the test says, and counts what it was sent."""

    def __init__(self, methods: str, tries: list[str]) -> None:
        self._methods = methods
        self._tries = tries
        self._round = 0

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return "password" in self._methods

    def validate_password(self, username: str, password: str) -> bool:
        self._tries.append(password)
        return password == "right"

    def kbdint_auth_supported(self) -> bool:
        return "challenge" in self._methods or "empty" in self._methods

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> asyncssh.KbdIntChallenge:
        if "empty" in self._methods:
            return "", "", "", []
        self._round = 1
        return "", "Two steps.", "", [("Password: ", False)]

    def validate_kbdint_response(self, username: str, responses: list[str]) -> object:
        self._tries += responses
        if "empty" in self._methods:
            return False
        if self._round == 1:
            self._round = 2
            return ("", "", "", [("Code\x1b]52;c;x\x07:", True)]) if responses == ["right"] else False
        return responses == ["123"]


class Answers:
    def __init__(self, *secrets: str | None) -> None:
        self._secrets = list(secrets)
        self.asked: list[SecretQuestion] = []

    async def host_key(self, question: HostKeyQuestion) -> bool:
        return True

    async def secret(self, question: SecretQuestion) -> str | None:
        self.asked.append(question)
        assert self._secrets, f"not to be asked: {question}"
        return self._secrets.pop(0)


class Server:
    def __init__(self, port: int, tries: list[str]) -> None:
        self.port = port
        self.tries = tries

    async def knock(self, prompter: Answers | None) -> None:
        target = parse_target(f"operator@127.0.0.1:{self.port}")
        transport = await SshConnector(target, prompter=prompter, seen=SeenHosts()).connect(patience_s=10)
        await transport.close()


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    tries: list[str] = []
    key = asyncssh.generate_private_key("ssh-ed25519")
    acceptor = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[key], server_factory=lambda: Gate(request.param, tries)
    )
    yield Server(acceptor.get_port(), tries)
    acceptor.close()
    await acceptor.wait_closed()


@pytest.mark.parametrize("server", ["password"], indirect=True)
async def test_a_password_is_asked_for_and_used_once(server: Server) -> None:
    asked = Answers("right")
    await server.knock(asked)
    assert server.tries == ["right"]
    assert [(q.prompt, q.echo) for q in asked.asked] == [("password of operator", False)]


@pytest.mark.parametrize("server", ["password"], indirect=True)
async def test_a_wrong_password_is_never_sent_twice_and_three_are_the_end(server: Server) -> None:
    asked = Answers("one", "two", "three")
    with pytest.raises(AuthRefused, match=r"rejected every login method for \S+: password"):
        await server.knock(asked)
    assert server.tries == ["one", "two", "three"]
    assert [q.prompt.startswith("that password was refused") for q in asked.asked] == [False, True, True]


@pytest.mark.parametrize("server", ["password"], indirect=True)
async def test_giving_up_ends_it_without_another_question(server: Server) -> None:
    asked = Answers("one", None)
    with pytest.raises(AuthRefused, match="was cancelled"):
        await server.knock(asked)
    assert server.tries == ["one"]


@pytest.mark.parametrize("server", ["password"], indirect=True)
async def test_secrets_stand_in_no_error_message(server: Server) -> None:
    with pytest.raises(AuthRefused) as caught:
        await server.knock(Answers("hunter2", "hunter3", "hunter4"))
    assert "hunter" not in str(caught.value)
    assert "hunter" not in repr(caught.value.__cause__)


@pytest.mark.parametrize("server", ["challenge"], indirect=True)
async def test_a_challenge_of_several_rounds_is_answered_and_shown_sanitised(server: Server) -> None:
    asked = Answers("right", "123")
    await server.knock(asked)
    assert [(q.prompt, q.echo) for q in asked.asked] == [("Two steps. Password", False), ("Code", True)]
    assert server.tries == ["right", "123"]


@pytest.mark.parametrize("server", ["challenge password"], indirect=True)
async def test_three_answers_are_the_limit_over_all_ways_together(server: Server) -> None:
    asked = Answers("a", "b", "c")
    with pytest.raises(AuthRefused):
        await server.knock(asked)
    assert server.tries == ["a", "b", "c"]
    assert [q.prompt.startswith("that was refused") for q in asked.asked] == [False, True, True]


@pytest.mark.parametrize("server", ["empty password"], indirect=True)
async def test_a_server_that_offers_a_challenge_and_asks_nothing_is_still_given_the_password(server: Server) -> None:
    asked = Answers("right")
    await server.knock(asked)
    assert server.tries == ["right"]
    assert len(asked.asked) == 1


@pytest.mark.parametrize("server", ["password"], indirect=True)
async def test_with_nobody_to_ask_it_is_a_refusal_with_directions(server: Server) -> None:
    await server.knock(Answers("right"))  # the host key is known from here on
    with pytest.raises(AuthRefused) as caught:
        await server.knock(None)
    assert "ssh-copy-id" in (caught.value.hint or "")
    assert server.tries == ["right"]
