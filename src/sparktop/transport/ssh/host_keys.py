"""Strict host key checking: read known_hosts for a name, judge a presented key, write a new one.

asyncssh asks one callback for unknown and changed keys alike and gives up on a malformed line
(docs/facts/reliability.md section 1.6), so the files are read here and the verdict is ours.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import enum
import fcntl
import fnmatch
import hashlib
import hmac
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

from sparktop.dataclass import dataclass

DEFAULT_PORT = 22


def fingerprint(blob: bytes) -> str:
    """SHA256:... of a public key's wire form, exactly as `ssh` and `ssh-keygen -lf` print it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def as_line(algorithm: str, blob: bytes) -> str:
    """A public key as known_hosts and authorized_keys have it: algorithm and base64."""
    return f"{algorithm} {base64.b64encode(blob).decode()}"


def known_name(host: str, port: int, alias: str | None = None) -> str:
    """The name as known_hosts has it: an alias alone, else the host, with its port where that isn't 22."""
    if alias:
        return alias.lower()
    return host.lower() if port == DEFAULT_PORT else f"[{host.lower()}]:{port}"


class SeenHosts:
    """The host keys presented in this session: finds two hosts that share a key, and keeps keys that could not be
    written."""

    def __init__(self) -> None:
        self._fingerprints: dict[str, str] = {}
        self._accepted: dict[str, set[bytes]] = {}

    def record(self, name: str, key_fingerprint: str) -> None:
        """Record the key a node presented."""
        self._fingerprints[name] = key_fingerprint

    def others_with(self, name: str, key_fingerprint: str) -> tuple[str, ...]:
        """Other nodes of this session with the same key: one machine twice, or a cloned image."""
        return tuple(other for other, seen in self._fingerprints.items() if seen == key_fingerprint and other != name)

    def accept(self, name_in_file: str, blob: bytes) -> None:
        """Trust a key for this session: the operator said yes, and the file may not be writable."""
        self._accepted.setdefault(name_in_file, set()).add(blob)

    def accepted(self, name_in_file: str) -> frozenset[bytes]:
        return frozenset(self._accepted.get(name_in_file, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a known_hosts file that matches the host."""

    path: Path
    line_number: int
    marker: str
    """"", "revoked" or "cert-authority"."""
    algorithm: str
    blob: bytes

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line_number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """Everything the known_hosts files have for one name."""

    entries: tuple[Entry, ...] = ()
    portless: tuple[Entry, ...] = ()
    """Under the bare name of a host on another port: trusted when equal, no reason to refuse otherwise (as OpenSSH)."""
    session: frozenset[bytes] = field(default_factory=frozenset)
    warnings: tuple[str, ...] = ()

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Types of the known keys: requested first, so that the host presents the one on file."""
        by_algorithm = dict.fromkeys(e.algorithm for e in (*self.entries, *self.portless) if not e.marker)
        return tuple(by_algorithm)

    @property
    def authorities(self) -> tuple[Entry, ...]:
        return tuple(e for e in (*self.entries, *self.portless) if e.marker == "cert-authority")

    @property
    def revoked(self) -> tuple[Entry, ...]:
        return tuple(e for e in (*self.entries, *self.portless) if e.marker == "revoked")


class KeyVerdict(enum.Enum):
    TRUSTED = "trusted"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


def judge(known_keys: KnownKeys, blob: bytes) -> tuple[KeyVerdict, Entry | None]:
    """The verdict on a presented key, and the line of known_hosts behind it."""
    for entry in known_keys.revoked:
        if entry.blob == blob:
            return KeyVerdict.REVOKED, entry
    plain = [entry for entry in known_keys.entries if not entry.marker]
    for entry in (*plain, *(entry for entry in known_keys.portless if not entry.marker)):
        if entry.blob == blob:
            return KeyVerdict.TRUSTED, entry
    if blob in known_keys.session:
        return KeyVerdict.TRUSTED, None
    if plain:
        return KeyVerdict.CHANGED, plain[0]
    return (KeyVerdict.CHANGED if known_keys.session else KeyVerdict.UNKNOWN), None


def look_up(files: Iterable[Path], host: str, port: int, alias: str | None = None) -> KnownKeys:
    """Read the files' lines for a host; a missing file is empty, a malformed line is skipped and reported."""
    name = known_name(host, port, alias)
    bare = host.lower() if not alias and port != DEFAULT_PORT else None
    entries: list[Entry] = []
    portless: list[Entry] = []
    warnings: list[str] = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            warnings.append(f"{path} can't be read ({error.strerror}); hosts known there will be asked about")
            continue
        for number, marker, patterns, key in _lines(text):
            if _matches(patterns, name):
                into = entries
            elif bare and _matches(patterns, bare):
                into = portless
            else:
                continue
            entry = _entry(path, number, marker, key)
            if entry:
                into.append(entry)
            else:
                warnings.append(f"{path}:{number} is not a host key line and was skipped")
    return KnownKeys(entries=tuple(entries), portless=tuple(portless), warnings=tuple(warnings))


def _lines(text: str) -> Iterator[tuple[int, str, str, Sequence[str]]]:
    """(line number, marker, host patterns, rest); a malformed line has an empty rest."""
    for number, raw in enumerate(text.split("\n"), start=1):
        words = raw.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0)[1:] if words[0].startswith("@") else ""
        if words:
            yield number, marker, words[0], words[1:]


def _entry(path: Path, number: int, marker: str, key: Sequence[str]) -> Entry | None:
    if len(key) < 2 or marker not in ("", "revoked", "cert-authority"):
        return None
    try:
        blob = base64.b64decode(key[1], validate=True)
    except (binascii.Error, ValueError):
        return None
    length = int.from_bytes(blob[:4], "big")
    if blob[4 : 4 + length] != key[0].encode():  # the algorithm stands in the blob too
        return None
    return Entry(path=path, line_number=number, marker=marker, algorithm=key[0], blob=blob)


def _matches(patterns: str, name: str) -> bool:
    """Whether a line's first field matches the name: hashed, or a comma list with wildcards and negations."""
    if patterns.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(digest_part, validate=True) for digest_part in patterns[3:].split("|"))
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
    is_match = False
    for pattern in patterns.lower().split(","):
        host_pattern = pattern.removeprefix("!")
        # [host]:port holds brackets, which fnmatch would read as a set of characters
        if fnmatch.fnmatchcase(name, host_pattern.replace("[", "[[]")):
            if host_pattern != pattern:
                return False
            is_match = True
    return is_match


def remember(path: Path, name_in_file: str, algorithm: str, blob: bytes, *, hashed: bool = False) -> None:
    """Append a key to known_hosts under the file's lock: directory 0700, file 0600, never twice.

    Raises:
        OSError: it can't be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(descriptor, "r+b", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return  # UserKnownHostsFile /dev/null: the operator wants nothing kept
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        before = file.readall()
        for _, marker, patterns, key in _lines(before.decode("utf-8", "replace")):
            if not marker and _matches(patterns, name_in_file) and list(key[:1]) == [algorithm]:
                with contextlib.suppress(binascii.Error, ValueError, IndexError):
                    if base64.b64decode(key[1], validate=True) == blob:
                        return
        line = f"{_hashed(name_in_file) if hashed else name_in_file} {as_line(algorithm, blob)}\n"
        gap = b"\n" if before and not before.endswith(b"\n") else b""
        file.write(gap + line.encode())


def _hashed(name: str) -> str:
    salt = os.urandom(20)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
