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


def test_nobody_is_logged_in_by_his_host_or_kerberos(settings: dict[str, Any]) -> None:
    assert [settings[name] for name in ("host_based_auth", "gss_auth", "gss_kex", "gss_host")] == [False] * 3 + [None]


def test_a_dead_connection_is_noticed_after_six_seconds(settings: dict[str, Any]) -> None:
    """(2 + 1) x 2: one miss less, and a link with 30 % loss breaks by itself (docs/facts/reliability.md 1.2)."""
    assert (settings["keepalive_interval"], settings["keepalive_count_max"]) == (2, 2)


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
