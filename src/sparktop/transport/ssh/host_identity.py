"""Check a host's key: trust a known one, ask about a new one, refuse a changed one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh

from sparktop.errors import HostKeyRefused
from sparktop.transport.base import HostKeyQuestion, Prompter
from sparktop.transport.ssh import host_keys
from sparktop.transport.ssh.config import SshOptions
from sparktop.transport.ssh.host_keys import Entry, KeyVerdict, KnownKeys, SeenHosts

_ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
"""Ed25519 first, as in OpenSSH: the fingerprint shown is then the one that `ssh` and the host's owner see."""


class UnknownHost(Exception):
    """The host is in no known_hosts file; not an error yet."""

    def __init__(self, key: asyncssh.SSHKey) -> None:
        super().__init__("unknown host key")
        self.key = key


class HostContact:
    """One host's known keys, and the decision about the key it presents."""

    def __init__(self, name: str, options: SshOptions, seen: SeenHosts, *, pinned: bytes | None = None) -> None:
        self._name = name
        self._options = options
        self._seen = seen
        self._stored_as = host_keys.known_name(options.host, options.port, options.host_key_alias)
        if pinned is not None:
            self._known = KnownKeys(session=frozenset({pinned}))
        else:
            files = (*options.user_known_hosts, *options.global_known_hosts)
            known_keys = host_keys.look_up(files, options.host, options.port, options.host_key_alias)
            self._known = replace(known_keys, session=seen.accepted(self._stored_as))
        self.warnings = list(self._known.warnings)

    def trusts(self, key: asyncssh.SSHKey) -> bool:
        return host_keys.judge(self._known, key.public_data)[0] is KeyVerdict.TRUSTED

    def settings(self) -> dict[str, Any]:
        """asyncssh's settings: authorities and revocations from the files, and no key that it may trust by itself."""
        on_file: list[str] = []
        for name in self._known.algorithms:
            on_file += ["rsa-sha2-512", "rsa-sha2-256"] if name == "ssh-rsa" else [name]
        algorithms = [name for name in dict.fromkeys((*on_file, *_ALGORITHMS)) if name in _ALGORITHMS]
        authorities = _loaded(self._known.authorities)
        if authorities:
            algorithms = [f"{name}-cert-v01@openssh.com" for name in algorithms] + algorithms
        return {
            "known_hosts": ([], authorities, _loaded(self._known.revoked)),
            "host_key_alias": self._options.host_key_alias,
            "server_host_key_algs": algorithms,
            "x509_trusted_certs": None,
            "x509_trusted_cert_paths": [],
        }

    def problem(self, key: asyncssh.SSHKey | None) -> Exception:
        """The error for an untrusted key: ask (UnknownHost), or refuse with the line of known_hosts."""
        if key is None:
            file_lines = [entry.place for entry in (*self._known.revoked, *self._known.authorities)]
            return HostKeyRefused(
                f"{self._name} shows a host key that is revoked, or a certificate that does not hold"
                + (f"; see {', '.join(file_lines)}" if file_lines else ""),
                hint="Nothing was sent. Its owner knows the right key.",
            )
        verdict, entry = host_keys.judge(self._known, key.public_data)
        shown = _describe(key)
        if verdict is KeyVerdict.REVOKED and entry:
            return HostKeyRefused(
                f"{self._name} shows a host key that {entry.place} marks as revoked: {shown}",
                hint="Nothing was sent. Its owner has revoked that key; ask for the new one.",
            )
        if verdict is KeyVerdict.CHANGED:
            return self._changed(shown, key, entry)
        return UnknownHost(key)

    def _changed(self, shown: str, key: asyncssh.SSHKey, entry: Entry | None) -> HostKeyRefused:
        look = f"look at {entry.place}" if entry else "another one was accepted before"
        before = f", there stands {host_keys.fingerprint(entry.blob)}" if entry else ""
        kind = key.get_algorithm().removeprefix("ssh-").split("-")[0]
        hint = (
            "Nothing was sent. A reinstalled host or another machine at that address changes the key, and so does an "
            f"attacker. Compare on the host itself: ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"
        )
        if entry:
            hint += (
                f"   Once you are sure: ssh-keygen -f {shlex.quote(str(entry.path))} -R {shlex.quote(self._stored_as)}"
            )
        return HostKeyRefused(f"the host key of {self._name} has CHANGED, {look}: it shows {shown}{before}", hint=hint)

    async def accept(self, key: asyncssh.SSHKey, prompter: Prompter | None) -> None:
        """Accept an unknown key, by the configuration or the operator, and write it to known_hosts.

        Raises:
            HostKeyRefused: not accepted.
        """
        options = self._options
        blob, shown = key.public_data, _describe(key)
        by_hand = f"Connect once with: ssh -p {options.port} {options.host}"
        file = options.user_known_hosts[0] if options.user_known_hosts else Path(os.devnull)
        if options.strict == "yes":
            raise HostKeyRefused(
                f"{self._name} is not in known_hosts, and StrictHostKeyChecking yes allows no asking; it shows {shown}",
                hint=f"Add it there, or: {by_hand} -o StrictHostKeyChecking=ask",
            )
        if options.strict != "ask":
            self.warnings.append(f"new host key accepted unseen (StrictHostKeyChecking {options.strict}): {shown}")
        elif prompter is None:
            raise HostKeyRefused(
                f"{self._name} is not in known_hosts, and nobody can be asked; it shows {shown}", hint=by_hand
            )
        else:
            fingerprint = host_keys.fingerprint(blob)
            question = HostKeyQuestion(
                host=self._stored_as,
                algorithm=key.get_algorithm(),
                fingerprint=fingerprint,
                known_hosts_path=file,
                same_key_hosts=self._seen.others_with(self._name, fingerprint),
            )
            if not await prompter.host_key(question):
                raise HostKeyRefused(
                    f"the host key of {self._name} was not accepted; it shows {shown}", hint="Retry to be asked again."
                )
        self._seen.accept(self._stored_as, blob)
        self._known = replace(self._known, session=self._known.session | {blob})
        try:
            await asyncio.to_thread(
                host_keys.remember,
                file,
                self._stored_as,
                key.get_algorithm(),
                blob,
                hashed=options.hash_known_hosts,
            )
        except OSError as error:
            self.warnings.append(f"host key trusted for this session only: {file} can't be written ({error.strerror})")


def _describe(key: asyncssh.SSHKey) -> str:
    return f"{key.get_algorithm()} {host_keys.fingerprint(key.public_data)}"


def _loaded(entries: tuple[Entry, ...]) -> list[asyncssh.SSHKey]:
    keys = []
    for entry in entries:
        with contextlib.suppress(ValueError):  # a type this asyncssh doesn't know can't be presented to us either
            keys.append(asyncssh.import_public_key(f"{entry.algorithm} {base64.b64encode(entry.blob).decode()}"))
    return keys
