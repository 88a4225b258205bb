"""Connect to nodes over SSH, stage by stage.

Known limits: a connection that needed a password or passphrase asks for it again on every reconnection, because
answers are kept nowhere; security keys (sk-*), PKCS#11 and Kerberos work only through a ProxyCommand that uses ssh.
"""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh

from sparktop import sanitise
from sparktop.errors import TransportError, UnknownName, UsageError
from sparktop.model.fleet import Contact, LoginMethod, Reach
from sparktop.transport.base import Prompter
from sparktop.transport.ssh import host_keys, stages
from sparktop.transport.ssh.channel import Proxy
from sparktop.transport.ssh.config import SshOptions, resolve
from sparktop.transport.ssh.connection import Line, SshTransport
from sparktop.transport.ssh.failures import failure
from sparktop.transport.ssh.host_identity import HostContact, UnknownHost
from sparktop.transport.ssh.host_keys import SeenHosts
from sparktop.transport.ssh.login import Agent, Asker, Login, Patience, key_pairs
from sparktop.transport.targets import Target, parse_target

if TYPE_CHECKING:
    from sparktop.model.survey import PublicKey

KEEPALIVE_S = 2
KEEPALIVE_MISSES = 2
"""A dead connection is detected after (2 + 1) x 2 = 6 s, without false alarms at 30 % loss
(docs/facts/reliability.md 1.2)."""
LOGIN_LIMIT_S = 20.0
_JUMPS_LIMIT = 8
_JUMP_HOST = "jump host "


class SshConnector:
    """Connects to one node by its ssh configuration, which is read again for each attempt."""

    def __init__(
        self, target: Target, *, prompter: Prompter | None, seen: SeenHosts, config: Path | None = None
    ) -> None:
        """`config` replaces ~/.ssh/config, as `ssh -F` does; without a `prompter` every question is refused."""
        self._target = target
        self._prompter = prompter
        self._seen = seen
        self._config = config
        self._fixed: SshOptions | None = None
        self._pinned: bytes | None = None
        self._client_keys: list[asyncssh.SSHKeyPair] | None = None
        self._resolved: SshOptions | None = None
        self._contact = Contact()
        self._only_key: PublicKey | None = None

    @classmethod
    def direct(
        cls,
        name: str,
        host: str,
        port: int,
        username: str,
        client_key: asyncssh.SSHKey | str | Path,
        pinned_host_key: asyncssh.SSHKey | str,
        prompter: Prompter | None = None,
    ) -> SshConnector:
        """A connector with all values given: it reads no configuration, agent or known_hosts.

        `client_key` is a key or its file, `pinned_host_key` a public key or its OpenSSH line; without a `prompter` it
        asks nothing and tries no password.
        """
        if isinstance(pinned_host_key, str):
            pinned_host_key = asyncssh.import_public_key(pinned_host_key)
        connector = cls(Target(name=name, host=host, port=port, user=username), prompter=prompter, seen=SeenHosts())
        connector._fixed = SshOptions(
            host=host, port=port, user=username, password=prompter is not None, keyboard_interactive=False
        )
        connector._pinned = pinned_host_key.public_data
        connector._client_keys = list(asyncssh.load_keypairs(client_key))
        return connector

    @property
    def name(self) -> str:
        return self._target.name

    @property
    def contact(self) -> Contact:
        return self._contact

    async def connect(self, *, patience_s: float) -> SshTransport:
        """See Connector; time spent waiting for the operator's answer is not counted."""
        self._contact = Contact(host=self._target.host)
        options = self._resolved = self._fixed or await resolve(self._target, config=self._config)
        if self._only_key is not None:
            from sparktop.transport.ssh.own_keys import with_key_alone

            options = with_key_alone(options, self._only_key)
        warnings: list[str] = []
        line, key = await self._open(self.name, options, patience_s, warnings, (self._target.host,))
        shown = host_keys.fingerprint(key) if key else None
        if shown:
            twins = self._seen.others_with(self.name, shown)
            self._seen.record(self.name, shown)
            if twins:
                warnings.append(f"shows the same host key as {', '.join(twins)}: one machine twice, or cloned units")
        return SshTransport(line, shown, warnings)

    async def reach(self) -> tuple[Reach, str]:
        """See Connector; behind a jump host only the jump host can be tested, and the sentence says so."""
        try:
            options = self._resolved or self._fixed or await resolve(self._target, config=self._config)
            jumps = _without(options, (self._target.host,)).proxy_jump
            if jumps:
                hop = await self._hop(jumps[0])
                reach_value, sentence = await stages.reach_tcp(hop.host, hop.port, family=hop.family)
                if reach_value is Reach.ANSWERS:
                    return Reach.UNTESTED, f"jump host {sentence}; what lies behind it shows only with a login"
                return reach_value, f"jump host {sentence}"
            if options.proxy_command:
                return await _reach_by_proxy(options.proxy_command)
            return await stages.reach_tcp(options.host, options.port, family=options.family)
        except TransportError as error:
            return Reach.UNTESTED, error.message

    async def own_keys(self) -> tuple[PublicKey, ...]:
        """See Connector."""
        from sparktop.transport.ssh.own_keys import as_public_key, own_public_keys

        if self._client_keys is not None:
            return tuple(as_public_key(pair, place="this session") for pair in self._client_keys)
        return await own_public_keys(await resolve(self._target, config=self._config))

    async def log_in_with(self, key: PublicKey) -> None:
        """See Connector; a key with a passphrase is unlocked by the agent, or by asking."""
        fresh = SshConnector(self._target, prompter=self._prompter, seen=self._seen, config=self._config)
        fresh._fixed, fresh._pinned, fresh._client_keys = self._fixed, self._pinned, self._client_keys
        fresh._only_key = key
        transport = await fresh.connect(patience_s=LOGIN_LIMIT_S)
        await transport.close()
        self._contact = replace(self._contact, login=LoginMethod.KEY)

    async def _open(
        self, name: str, options: SshOptions, patience_s: float, warnings: list[str], chain: tuple[str, ...]
    ) -> tuple[Line, bytes | None]:
        """A connection, through all jump hosts, and the host key it presented."""
        under = await self._jump(name, _without(options, chain), patience_s, warnings, chain)
        line = Line(name, under)
        prompter = self._prompter if options.questions else None
        try:
            contact = HostContact(name, options, self._seen, pinned=self._pinned)
            try:
                key = await self._attempt(line, options, contact, prompter, patience_s)
            except UnknownHost as unknown:
                await contact.accept(unknown.key, prompter)
                key = await self._attempt(line, options, contact, prompter, patience_s)
        except BaseException:
            await line.close()
            raise
        warnings += contact.warnings
        return line, key

    async def _jump(
        self, name: str, options: SshOptions, patience_s: float, warnings: list[str], chain: tuple[str, ...]
    ) -> Line | None:
        """The connection to the last jump host; each jump host is opened and checked as a host of its own.

        Never with asyncssh's own ProxyJump, which skips our checks and leaks the connection when the target is
        silent (docs/facts/reliability.md section 0, 7).
        """
        if not options.proxy_jump:
            return None
        if len(chain) > _JUMPS_LIMIT:
            raise TransportError(f"{name}: more than {_JUMPS_LIMIT} jump hosts", hint="ProxyJump goes in a circle.")
        *before, last = options.proxy_jump
        hop = await self._hop(last)
        if before:
            hop = replace(hop, proxy_jump=tuple(before), proxy_command=None)
        try:
            line, _ = await self._open(last, hop, patience_s, warnings, (*chain, last))
        except TransportError as error:
            if not error.message.startswith(_JUMP_HOST):
                error.message = f"{_JUMP_HOST}{error.message}"
            raise
        return line

    async def _hop(self, jump: str) -> SshOptions:
        try:
            target = parse_target(jump)
        except UsageError as error:
            raise TransportError(f"ProxyJump of {self.name}: {error.message}", hint=error.hint) from None
        return await resolve(target, config=self._config)

    async def _attempt(
        self, line: Line, options: SshOptions, contact: HostContact, prompter: Prompter | None, patience_s: float
    ) -> bytes | None:
        """One attempt: TCP, banner, host key, login; each stage restarts the time limit.

        Raises:
            UnknownHost: the key is in no known_hosts file.
            TransportError: by stage.
        """
        patience = Patience()
        asker = Asker(host=line.name, user=options.user, prompter=prompter, patience=patience)
        login = Login(asker=asker, trusts=contact.trusts, opened=lambda: patience.give(patience_s), lost=line.lost)
        agent = Agent()
        sock: socket.socket | None = None
        line.proxy = None
        via = line.under.name if line.under else f"`{options.proxy_command}`" if options.proxy_command else ""
        self._meet(line, host=options.host, port=options.port, via=via)
        try:
            keys = self._client_keys if self._client_keys is not None else await key_pairs(options, agent, asker)
            if self._only_key is not None and line.name == self.name:
                keys = [pair for pair in keys if b64encode(pair.key_public_data).decode() == self._only_key.blob]
            async with asyncio.timeout(None) as limit:
                patience.bind(limit)
                route: dict[str, Any] = {}
                if line.under:
                    patience.give(stages.TCP_LIMIT_S)
                    route["tunnel"] = line.under.connection
                else:
                    if options.proxy_command:
                        line.proxy = Proxy(options.proxy_command)
                        sock = await line.proxy.open()
                    else:
                        sock = await stages.open_tcp(
                            options.host,
                            options.port,
                            family=options.family,
                            looked_up=lambda addresses: self._meet(line, addresses=addresses),
                        )
                        self._meet(line, answered=str(sock.getpeername()[0]))
                    route["sock"] = sock
                settings = _settings(options, keys, login) | contact.settings()
                line.connection = await asyncssh.connect(options.host, options.port, **route, **settings)
            if line.connection.is_closed():
                raise asyncssh.ConnectionLost("Connection lost")
        except asyncssh.HostKeyNotVerifiable:
            # This attempt is dropped, so that the next one can use the connection below.
            line.connection = None
            if line.proxy:
                await line.proxy.close()
            raise contact.problem(login.presented) from None
        except (OSError, asyncssh.Error, ValueError, TransportError) as error:
            opened = login.connection is not None
            self._meet(line, is_unknown_name=isinstance(error, UnknownName))
            broken = f"{_JUMP_HOST}{line.under.name}: {line.under.reason}" if line.under and line.under.reason else ""
            if line.proxy:
                broken = "" if isinstance(error, TimeoutError) else await line.proxy.failed()
                await line.proxy.close()
            error_found = failure(
                error,
                name=line.name,
                options=options,
                asker=asker,
                heard_banner=login.heard_banner,
                via=None if opened and line.under else via or None,
                broken=broken,
                waited_s=patience_s if opened else stages.TCP_LIMIT_S,
            )
            if line.proxy and not broken and (words := line.proxy.said()):
                error_found.message += f"; it said: {words}"
            raise error_found from error
        finally:
            await agent.close()
            if sock is not None and login.connection is None:
                sock.close()
        key = line.connection.get_server_host_key()
        login_method = LoginMethod.PASSWORD if asker.has_typed_password else LoginMethod.KEY
        self._meet(
            line, login=login_method, host_key=host_keys.as_line(key.get_algorithm(), key.public_data) if key else ""
        )
        return key.public_data if key else None

    def _meet(self, line: Line, **found: Any) -> None:
        """Note what an attempt met: at the node itself, not at a jump host before it."""
        if line.name == self.name:
            self._contact = replace(self._contact, **found)


def _without(options: SshOptions, chain: tuple[str, ...]) -> SshOptions:
    """The options without jumps through hosts already on the path: `Host *` with a ProxyJump applies to the jump
    host too."""
    return replace(options, proxy_jump=()) if set(options.proxy_jump) & set(chain) else options


def _settings(options: SshOptions, keys: Sequence[asyncssh.SSHKeyPair], login: Login) -> dict[str, Any]:
    """Explicit values for everything asyncssh would otherwise look up or default to."""
    return {
        "config": None,
        "username": options.user,
        "client_factory": lambda: login,
        "client_keys": list(keys) or None,
        "agent_path": None,
        "public_key_auth": bool(keys),
        "password_auth": options.password,
        "kbdint_auth": options.keyboard_interactive,
        "host_based_auth": False,
        "gss_host": None,
        "gss_auth": False,
        "gss_kex": False,
        "preferred_auth": ["publickey", "keyboard-interactive", "password"],
        "login_timeout": 0,  # ours stands still while the operator types
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_MISSES,
        "utf8_decode_errors": "replace",
        "agent_forwarding": False,
        "x11_forwarding": False,
        "request_pty": False,
        "env": None,
        "send_env": None,
        "encoding": None,
        "canonicalize_hostname": False,
    }


async def _reach_by_proxy(command: str) -> tuple[Reach, str]:
    proxy = Proxy(command)
    try:
        with await proxy.open() as line:
            reach_value, sentence = await stages.reach_banner(line, f"`{command}`")
    except OSError as error:
        return Reach.UNTESTED, f"`{command}` can't be started: {error.strerror}"
    finally:
        await proxy.close()
    if reach_value is Reach.ANSWERS:
        return reach_value, sentence
    words = sanitise.line(proxy.said().replace("\n", "; "), limit=200)
    return Reach.UNTESTED, f"no SSH through `{command}`" + (f": {words}" if words else "")
