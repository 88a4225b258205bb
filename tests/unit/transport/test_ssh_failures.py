"""Whatever asyncssh raises becomes one of our errors, with a hint, and no text of the remote's can style it."""

from __future__ import annotations

import errno

import asyncssh
from tests.table import over

from sparktop.errors import AuthRefused, NoBanner, NoRoute, PortClosed, TransportError, TurnedAway
from sparktop.transport.ssh.config import SshOptions
from sparktop.transport.ssh.failures import failure, why_lost
from sparktop.transport.ssh.login import Asker, Patience

HOSTILE = "\x1b]52;c;eA==\x07[/b]\u202e"


def told(error: Exception, *, heard: bool = True, via: str | None = None) -> TransportError:
    asker = Asker(host="spark1", user="nvidia", prompter=None, patience=Patience())
    asker.note("key /k")
    options = SshOptions(host="10.0.0.7", user="nvidia")
    return failure(error, name="spark1", options=options, asker=asker, heard_banner=heard, via=via, waited_s=90)


@over(
    "error, heard, via, kind, says",
    [
        (TimeoutError(), False, None, NoBanner, "SSH sent nothing within 90 s"),
        (TimeoutError(), True, None, TransportError, "did not finish the login within 90 s"),
        (TimeoutError(), False, "bastion", NoRoute, "through bastion"),
        (ConnectionResetError(104, "x"), False, None, TurnedAway, "closed it before"),
        (ConnectionResetError(104, "x"), False, "bastion", TransportError, "bastion closed the connection before"),
        (OSError(errno.ENOTCONN, "x"), False, None, TurnedAway, "before sending anything (no reason given)"),
        (ConnectionResetError(104, "x"), True, None, TransportError, "during the login"),
        (asyncssh.ConnectionLost("Connection lost"), False, None, TurnedAway, "closed it before"),
        (asyncssh.PermissionDenied("no"), True, None, AuthRefused, "rejected every login method for nvidia: key /k"),
        (
            asyncssh.DisconnectError(2, "Too many authentication failures"),
            True,
            None,
            AuthRefused,
            "rejected every login method",
        ),
        (asyncssh.ChannelOpenError(2, "Connection refused"), False, "bastion", PortClosed, "asked through bastion"),
        (asyncssh.ChannelOpenError(1, "open failed: administratively prohibited"), False, "b", TransportError, "go on"),
        (asyncssh.ChannelOpenError(2, "Name or service not known"), False, "b", NoRoute, "by the name 10.0.0.7"),
        (asyncssh.ChannelOpenError(2, "Connection timed out"), False, "b", NoRoute, "can't be reached through b"),
        (asyncssh.KeyExchangeFailed("No matching key exchange"), True, None, TransportError, "shares no cipher"),
        (asyncssh.ProtocolError("Banner line too long"), False, None, TransportError, "doesn't speak SSH"),
        (ValueError("odd"), False, None, TransportError, "odd"),
    ],
)
def test_each_failure_has_its_name(
    error: Exception, heard: bool, via: str | None, kind: type[TransportError], says: str
) -> None:
    found = told(error, heard=heard, via=via)
    assert type(found) is kind
    assert says in found.message
    assert found.hint
    assert found.exit_code == 3


@over(
    "error",
    [
        asyncssh.DisconnectError(2, HOSTILE),
        asyncssh.ProtocolError(HOSTILE),
        asyncssh.ChannelOpenError(2, HOSTILE),
        asyncssh.KeyExchangeFailed(HOSTILE),
        ValueError(HOSTILE),
    ],
)
def test_the_remotes_words_are_sanitised(error: Exception) -> None:
    for text in (str(told(error)), str(told(error, heard=False, via="b")), why_lost(error)):
        assert text.isprintable() or set(text) - {"\n"} == set(text.replace("\n", ""))
        assert "\x1b" not in text
        assert "\u202e" not in text


@over(
    "error, says",
    [
        (None, "closed"),
        (asyncssh.ConnectionLost("Server not responding to keepalive"), "keepalives"),
        (asyncssh.ConnectionLost("Connection lost"), "other end"),
        (asyncssh.DisconnectError(2, "going down"), "going down"),
        (ConnectionResetError(104, "x"), "connection reset by peer"),
    ],
)
def test_why_a_link_was_lost(error: Exception | None, says: str) -> None:
    assert says in why_lost(error)
