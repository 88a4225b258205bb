"""The operator's own public keys: what the ssh agent holds and what stands in .pub files. No private key is read."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import asyncssh

from sparktop import sanitise
from sparktop.model.survey import PublicKey
from sparktop.transport.ssh.config import SshOptions, home
from sparktop.transport.ssh.login import Agent, Asker, Patience
from sparktop.transport.threads import in_thread

AGENT = "the ssh agent"
_COMMENT_CHARS = 100
_FILE_BYTES = 64 * 1024
_FILES_AT_MOST = 50


async def own_public_keys(options: SshOptions) -> tuple[PublicKey, ...]:
    """Those that a login could use, each once: first the files that ssh would offer, then the others, then the agent's.

    A .pub file counts where its private half lies beside it, or is in the agent. Certificates and security keys
    (sk-*), which need their device at each login, are left out.
    """
    asker = Asker(host=options.host, user=options.user, prompter=None, patience=Patience())
    agent = Agent()
    try:
        held = [as_public_key(pair, place=AGENT) for pair in await agent.keys(options.agent_socket, asker)]
    finally:
        await agent.close()
    files = await in_thread(lambda: tuple(_from_files(options, {key.blob for key in held})))
    keys: dict[str, PublicKey] = {}
    for key in (*files, *held):
        if "-cert-v01@" not in key.algorithm and not key.algorithm.startswith("sk-"):
            keys.setdefault(key.blob, key)
    return tuple(keys.values())


def as_public_key(pair: asyncssh.SSHKeyPair, *, place: str) -> PublicKey:
    """The public half of a key pair."""
    blob = pair.key_public_data
    length = int.from_bytes(blob[:4], "big")
    return PublicKey(
        algorithm=blob[4 : 4 + length].decode("ascii", "replace"),
        blob=b64encode(blob).decode(),
        comment=_comment(pair.get_comment()),
        place=place,
    )


def with_key_alone(options: SshOptions, key: PublicKey) -> SshOptions:
    """The options of a login that may use nothing but this key: no password, no question but for its passphrase."""
    own = Path(key.place.removesuffix(".pub")) if key.place.endswith(".pub") else None
    files = (own, *options.identity_files) if own is not None else options.identity_files
    return replace(
        options,
        identity_files=tuple(dict.fromkeys(files)),
        certificate_files=(),
        identities_only=False,
        public_key=True,
        password=False,
        keyboard_interactive=False,
    )


def _from_files(options: SshOptions, in_agent: set[str]) -> Iterator[PublicKey]:
    named = [Path(f"{path}.pub") for path in options.identity_files]
    folder = home() / ".ssh"
    others: list[Path] = []
    with contextlib.suppress(OSError):
        others = sorted(folder.glob("*.pub"))[:_FILES_AT_MOST]
    for path in dict.fromkeys((*named, *others)):
        key = _read(path)
        if key is not None and (key.blob in in_agent or path.with_suffix("").exists()):
            yield key


def _read(path: Path) -> PublicKey | None:
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES)
        key = asyncssh.import_public_key(text)
    except (OSError, ValueError):
        return None
    blob = b64encode(key.public_data).decode()
    return PublicKey(algorithm=key.get_algorithm(), blob=blob, comment=_comment(key.get_comment()), place=str(path))


def _comment(text: str | None) -> str:
    """One plain line: it becomes a part of authorized_keys."""
    return sanitise.line(text or "", limit=_COMMENT_CHARS).strip()
