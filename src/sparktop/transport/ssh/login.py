"""Log in by keys, agent, password or keyboard-interactive; answers are used once and never stored.

Nothing is remembered between connections, passwords included: a reconnection that needs one asks again. A wrong
password is never sent twice (each counts towards a lock-out, docs/facts/reliability.md section 1.6).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import asyncssh

from sparktop import sanitise
from sparktop.transport.base import Prompter, SecretQuestion
from sparktop.transport.ssh.config import SshOptions

MAX_PASSWORDS = 3
MAX_PASSPHRASES = 3
"""For each key: unlocking it is tried here, so a wrong passphrase counts towards no lock-out."""
AGENT_LIMIT_S = 5.0


class Patience:
    """A time limit that is suspended while the operator answers a question."""

    def __init__(self) -> None:
        self._limit: asyncio.Timeout | None = None

    def bind(self, limit: asyncio.Timeout) -> None:
        """Control this limit from now on."""
        self._limit = limit

    def give(self, seconds: float | None) -> None:
        """Restart the limit with so many seconds; None: no limit."""
        if self._limit is not None:
            with contextlib.suppress(RuntimeError):  # it has struck, or its block is left
                now_s = asyncio.get_running_loop().time()
                self._limit.reschedule(None if seconds is None else now_s + seconds)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        when = self._limit.when() if self._limit is not None else None
        remaining_s = None if when is None else max(0.0, when - asyncio.get_running_loop().time())
        self.give(None)
        try:
            yield
        finally:
            if remaining_s is not None:
                self.give(remaining_s)


class Asker:
    """Passes the server's questions to the operator, for one connection, and notes the methods tried."""

    def __init__(self, *, host: str, user: str, prompter: Prompter | None, patience: Patience) -> None:
        self.tried: list[str] = []
        self.gave_up = False
        self._host = host
        self._user = user
        self._prompter = prompter
        self._patience = patience
        self._passwords = 0

    @property
    def asks(self) -> bool:
        return self._prompter is not None

    @property
    def has_typed_password(self) -> bool:
        """Whether the operator was asked for a password, or for what stands for one: keys are tried before."""
        return self._passwords > 0

    def note(self, method: str) -> None:
        if method not in self.tried:
            self.tried.append(method)

    def may_try_password(self) -> bool:
        return self.asks and not self.gave_up and self._passwords < MAX_PASSWORDS

    def count_password(self) -> None:
        self._passwords += 1

    async def secret(self, prompt: str, *, echo: bool = False) -> str | None:
        """One answer from the operator; None when they cancelled or nobody can be asked."""
        if self._prompter is None or self.gave_up:
            return None
        with self._patience.standing_still():
            answer = await self._prompter.secret(SecretQuestion(host=self._host, prompt=prompt, echo=echo))
        if answer is None:
            self.gave_up = True
        return answer

    async def password(self) -> str | None:
        if not self.may_try_password():
            return None
        again = "that password was refused; " if self._passwords else ""
        self.count_password()
        answer = await self.secret(f"{again}password of {sanitise.name(self._user)}")
        if answer is not None:
            self.note("password")
        return answer

    async def passphrase(self, path: Path, *, was_wrong: bool) -> str | None:
        again = "that passphrase was wrong; " if was_wrong else ""
        return await self.secret(f"{again}passphrase of {sanitise.line(str(path), limit=200)}")

    async def challenge(
        self, instructions: str, prompts: Sequence[tuple[str, bool]], *, again: bool
    ) -> list[str] | None:
        answers = []
        instruction_text = sanitise.line(instructions.replace("\n", " "), limit=300).strip()
        for text, echo in prompts:
            prompt = sanitise.line(text.replace("\n", " "), limit=300).strip().rstrip(":") or "answer"
            lead = "that was refused; " if again else ""
            answer = await self.secret(f"{lead}{instruction_text + ' ' if instruction_text else ''}{prompt}", echo=echo)
            if answer is None:
                return None
            self.note("keyboard-interactive")
            answers.append(answer)
        return answers


class LockedKey(asyncssh.SSHKeyPair):
    """A private key with a passphrase, which is asked for only once the server would accept the key."""

    _key_type = "local"

    def __init__(self, public: asyncssh.SSHKey, data: bytes, path: Path, asker: Asker) -> None:
        super().__init__(
            public.algorithm,
            public.algorithm,
            public.sig_algorithms,
            public.sig_algorithms,
            public.public_data,
            None,
        )
        self._data = data
        self._path = path
        self._asker = asker

    async def sign_async(self, data: bytes) -> bytes:
        """Ask for the passphrase, again if it is wrong; unlock the key, sign.

        Raises:
            ValueError: no passphrase, or only wrong ones; asyncssh then tries the next login method.
        """
        for tries in range(MAX_PASSPHRASES):
            passphrase = await self._asker.passphrase(self._path, was_wrong=tries > 0)
            if not passphrase:  # an empty one leads to the next key, as with ssh
                raise ValueError("no passphrase")
            try:
                # its key derivation is slow on purpose
                key = await asyncio.to_thread(asyncssh.import_private_key, self._data, passphrase)
            except ValueError:
                continue
            return key.sign(data, self.sig_algorithm)
        self._asker.note(f"key {self._path} (its passphrase was wrong {MAX_PASSPHRASES} times)")
        raise ValueError("wrong passphrases")


class Agent:
    """The keys of an ssh agent, for the duration of one login."""

    def __init__(self) -> None:
        self._client: asyncssh.SSHAgentClient | None = None

    async def keys(self, socket_path: str | None, asker: Asker) -> list[asyncssh.SSHKeyPair]:
        if not socket_path:
            return []
        try:
            async with asyncio.timeout(AGENT_LIMIT_S):
                self._client = await asyncssh.connect_agent(socket_path)
                agent_keys = list(await self._client.get_keys())
        except TimeoutError:
            asker.note(f"agent at {socket_path} (it gave no answer)")
            return []
        except (OSError, ValueError, asyncssh.Error) as error:
            asker.note(f"agent at {socket_path} (it can't be used: {sanitise.line(str(error), limit=100)})")
            return []
        asker.note(f"agent ({len(agent_keys)} key{'' if len(agent_keys) == 1 else 's'})")
        return list(agent_keys)

    async def close(self) -> None:
        if self._client is not None:
            self._client.close()
            with contextlib.suppress(OSError):
                await self._client.wait_closed()
            self._client = None


async def key_pairs(options: SshOptions, agent: Agent, asker: Asker) -> list[asyncssh.SSHKeyPair]:
    """Keys in OpenSSH's order: the agent's that are named in the configuration, its others, then the files."""
    if not options.public_key:
        return []
    agent_pairs = await agent.keys(options.agent_socket, asker)
    from_files: list[asyncssh.SSHKeyPair] = []
    named: set[bytes] = set()
    in_agent = {pair.key_public_data for pair in agent_pairs}
    for path in options.identity_files:
        public = _public_part(path)
        if public is not None:
            named.add(public.public_data)
            if public.public_data in in_agent:
                continue
        from_files += _from_file(path, public, options.certificate_files, asker)
    first = [pair for pair in agent_pairs if pair.key_public_data in named]
    other_pairs = [] if options.identities_only else [pair for pair in agent_pairs if pair.key_public_data not in named]
    return [*first, *other_pairs, *from_files]


def _public_part(path: Path) -> asyncssh.SSHKey | None:
    for candidate in (Path(f"{path}.pub"), path):  # an OpenSSH private key holds its public part in the clear
        with contextlib.suppress(OSError, ValueError):
            return asyncssh.read_public_key(candidate)
    return None


def _from_file(
    path: Path, public: asyncssh.SSHKey | None, certificates: Sequence[Path], asker: Asker
) -> list[asyncssh.SSHKeyPair]:
    try:
        data = path.read_bytes()
    except OSError as error:
        asker.note(f"key {path} ({error.strerror})")
        return []
    if b"PRIVATE KEY" not in data:
        return []  # IdentityFile may name a public key, to choose one of the agent's
    try:
        pairs = list(asyncssh.load_keypairs(path, None, [str(file) for file in certificates]))
    except (OSError, ValueError, asyncssh.Error):
        if public is not None and _is_locked(data):
            if b"BEGIN OPENSSH" in data and find_spec("bcrypt") is None:
                asker.note(f"key {path} (unlocking it needs Python's bcrypt module; or: ssh-add {path})")
                return []
            if not asker.asks:
                asker.note(f"key {path} (it has a passphrase and nobody can be asked; ssh-add it)")
                return []
            asker.note(f"key {path}")
            return [LockedKey(public, data, path, asker)]
        asker.note(f"key {path} (it can't be read as one)")
        return []
    asker.note(f"key {path}")
    return pairs


def _is_locked(data: bytes) -> bool:
    try:
        asyncssh.import_private_key(data)
    except ValueError as error:
        return "assphrase" in str(error)
    return False


class Login(asyncssh.SSHClient):
    """asyncssh's callbacks during one handshake: host key checks and login methods."""

    def __init__(
        self,
        *,
        asker: Asker,
        trusts: Callable[[asyncssh.SSHKey], bool],
        opened: Callable[[], None],
        lost: Callable[[Exception | None], None],
    ) -> None:
        self.connection: asyncssh.SSHClientConnection | None = None
        self.presented: asyncssh.SSHKey | None = None
        self._asker = asker
        self._trusts = trusts
        self._opened = opened
        self._lost = lost
        self._rounds = 0
        self._asked = False
        self._refused = False

    @property
    def heard_banner(self) -> bool:
        return bool(self.connection and self.connection.get_extra_info("server_version"))

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connection = conn
        self._opened()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.presented = key
        return self._trusts(key)

    async def password_auth_requested(self) -> str | None:
        return await self._asker.password()

    def kbdint_auth_requested(self) -> str | None:
        if not self._asker.may_try_password() or (self._rounds and not self._asked):
            return None  # a server that offers it and asks nothing is not tried again
        self._rounds += 1
        self._refused = self._asked
        self._asked = False
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        if not prompts:
            return []  # PAM sends an empty list after the last answer
        if not self._asked:
            self._asked = True
            self._asker.count_password()
        return await self._asker.challenge(instructions, prompts, again=self._refused)
