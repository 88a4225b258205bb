"""What a connection never asks a Spark for: the agent, X11, a terminal, the environment."""

from __future__ import annotations

from typing import Any

import asyncssh
import pytest

from sparktop.transport.ssh.config import SshOptions
from sparktop.transport.ssh.connection import Line, SshTransport
from sparktop.transport.ssh.connector import _settings
from sparktop.transport.ssh.login import Asker, Login, Patience


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    monkeypatch.setenv("DISPLAY", ":0")
    asker = Asker(host="spark1", user="u", prompter=None, patience=Patience())
    login = Login(asker=asker, trusts=lambda _: True, opened=lambda: None, lost=lambda _: None)
    return _settings(SshOptions(host="spark1", user="u"), [], login)


def test_no_agent_no_x11_and_nothing_of_the_environment_is_forwarded(settings: dict[str, Any]) -> None:
    options = asyncssh.SSHClientConnectionOptions(host="spark1", **settings)
    assert options.agent_forward_path is None
    assert options.agent_path is None
    assert options.x11_forwarding is False
    assert options.request_pty is False
    assert not options.env
    assert not options.send_env
    assert (settings["agent_forwarding"], settings["agent_path"]) == (False, None)


async def test_a_command_gets_no_terminal_no_display_and_no_variables() -> None:
    asked: list[dict[str, Any]] = []

    class Connection:
        def is_closed(self) -> bool:
            return False

        async def create_session(self, factory: Any, command: str, **options: Any) -> None:
            asked.append({"command": command, **options})

    line = Line("spark1", None)
    line.connection = Connection()  # type: ignore[assignment]
    await SshTransport(line, None, ()).run(["echo", "$(id)"])
    (options,) = asked
    assert options["command"] == "echo '$(id)'"
    assert options["x11_forwarding"] is False
    assert options["request_pty"] is False
    assert (options["env"], options["send_env"], options["encoding"]) == ({}, [], None)
