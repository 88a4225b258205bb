"""Translate exceptions of asyncssh and the system into errors the operator can act on."""

from __future__ import annotations

import errno
import os
import re

import asyncssh

from sparktop import sanitise
from sparktop.errors import AuthRefused, NoBanner, NoRoute, PortClosed, TransportError, TurnedAway
from sparktop.transport.ssh.config import SshOptions
from sparktop.transport.ssh.login import Asker


def failure(
    error: Exception,
    *,
    name: str,
    options: SshOptions,
    asker: Asker,
    heard_banner: bool,
    via: str | None,
    waited_s: float,
    broken: str = "",
) -> TransportError:
    """The error, by stage, for an exception that ended an attempt to connect.

    `via` names the jump host or proxy command in between, `broken` how that has failed itself; `waited_s` is the time
    limit that ran out, if any.
    """
    if isinstance(error, TransportError):
        return error
    address = f"{name} ({options.host}:{options.port})"
    if broken:
        by_hand = f"; by itself: {options.proxy_command}" if options.proxy_command else ""
        return TransportError(
            f"{name}: {broken}", hint=f"The way to {options.host}:{options.port} broke before it{by_hand}"
        )
    if isinstance(error, TimeoutError):  # an OSError too: first
        return _too_late(address, heard_banner=heard_banner, via=via, waited_s=waited_s)
    reason = sanitise.line(str(error), limit=300)
    if isinstance(error, asyncssh.PermissionDenied) or "too many authentication failures" in reason.lower():
        return _refused(address, options, asker, reason)
    if isinstance(error, asyncssh.ChannelOpenError):
        return _behind_jump(address, options, via or "the jump host", reason)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return TransportError(
            f"{address} shares no cipher with this client: {reason}",
            hint=f"Its SSH server is very old or very restricted; see: ssh -v {options.host}",
        )
    if isinstance(error, asyncssh.ProtocolError | asyncssh.ProtocolNotSupported):
        return TransportError(
            f"{address} doesn't speak SSH as it should: {reason}", hint=f"Is port {options.port} the SSH port?"
        )
    if isinstance(error, asyncssh.DisconnectError | OSError):
        if not heard_banner:
            if via:
                return TransportError(
                    f"{name}: {via} closed the connection before {options.host}:{options.port} sent anything "
                    f"({_words(error)})",
                    hint=f"{via} can't reach it, or its sshd turns connections away (journalctl -u ssh -n 20 there).",
                )
            return TurnedAway(
                f"{address} took the connection and closed it before sending anything ({_words(error)})",
                hint="sshd is turning connections away (MaxStartups, a penalty after failed logins), can't fork, or is "
                "going down; on the host: journalctl -u ssh -n 20.",
            )
        return TransportError(
            f"{address} ended the connection during the login ({_words(error)})",
            hint="On the host, journalctl -u ssh -n 20 says why. " + _through(via),
        )
    return TransportError(
        f"{address} can't be connected to: {reason}", hint=f"See what ssh says: ssh -v {options.host}"
    )


def why_lost(error: Exception | None) -> str:
    """Why an established connection ended, as a sentence."""
    if error is None:
        return "the connection was closed"
    text = str(error)
    if "keepalive" in text:
        return "no answer to keepalives for 6 s"  # a test of the host tells whether it hangs or the network is gone
    if isinstance(error, asyncssh.ConnectionLost):
        return "the other end closed the connection: its sshd session ended, or the host is going down"
    if isinstance(error, asyncssh.DisconnectError):
        return f"sshd ended the connection: {sanitise.line(text, limit=200)}"
    if isinstance(error, OSError):
        return f"the connection broke: {_words(error)}"
    return f"the connection ended: {sanitise.line(text, limit=200)}"


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOTCONN:
        return "no reason given"  # found gone when it was to be used
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return sanitise.line(str(error), limit=200).lower() or "no reason given"


def _through(via: str | None) -> str:
    return f"Connected through {via}." if via else ""


def _too_late(address: str, *, heard_banner: bool, via: str | None, waited_s: float) -> TransportError:
    if heard_banner:
        return TransportError(
            f"{address} answered SSH and did not finish the login within {waited_s:.0f} s",
            hint="The host may be out of memory or CPU; sparktop keeps trying, with longer timeouts. " + _through(via),
        )
    if via:
        return NoRoute(
            f"{address} gave no answer within {waited_s:.0f} s through {via}",
            hint=f"{via} hangs, or what lies behind it doesn't answer: host off, or a firewall between the two.",
        )
    return NoBanner(
        f"{address} answers TCP, but SSH sent nothing within {waited_s:.0f} s",
        hint="The kernel is alive, but programs don't run: memory is exhausted or sshd is stopped. It may recover "
        "by itself (field reports: up to 25 min); a screen and keyboard, or the power button, are the other ways in.",
    )


def _refused(address: str, options: SshOptions, asker: Asker, reason: str) -> AuthRefused:
    tried = ", ".join(asker.tried) or "nothing: no key file, no agent, and nobody to ask for a password"
    user = sanitise.name(options.user)
    if asker.gave_up:
        return AuthRefused(
            f"{address}: the login as {user} was cancelled; tried: {tried}", hint="Retry to be asked again."
        )
    if "too many" in reason.lower():
        hint = "It stopped listening after too many keys: name the right one with IdentityFile and IdentitiesOnly yes."
    else:
        hint = (
            f"Try: ssh -p {options.port} {user}@{options.host}   and to install a key: ssh-copy-id with the same words."
        )
    return AuthRefused(f"{address} rejected every login method for {user}: {tried}", hint=hint)


def _behind_jump(address: str, options: SshOptions, via: str, reason: str) -> TransportError:
    text = reason.lower()
    if "refused" in text:
        return PortClosed(
            f"{address} refused the connection, asked through {via}: nothing listens on port {options.port}",
            hint="It may be booting; else start sshd there, or name another port.",
        )
    if "prohibited" in text:
        return TransportError(
            f"{via} does not let this user go on to {address}", hint=f"On {via}, sshd needs AllowTcpForwarding yes."
        )
    if re.search(r"name|resol|known", text):
        return NoRoute(
            f"{via} knows no host by the name {options.host}", hint="The name is looked up on the jump host."
        )
    return NoRoute(f"{address} can't be reached through {via}: {reason}", hint=f"On {via}, try: ssh {options.host}")
