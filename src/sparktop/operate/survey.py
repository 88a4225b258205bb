"""What a planner wants to know beyond the picture, and the nodes' answers: all of it only looks.

A planner is asked for its questions again and again with the answers so far, until it has none left; then it plans.
An answer of Docker's holds what the picture has masked, so a Survey never shows itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROUNDS_AT_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerGet:
    """GET of the node's Docker Engine; the answer is parsed JSON, None where it isn't there (404)."""

    node: str
    path: str
    """ "/containers/<id>/json", "/containers/<id>/changes", "/images/<id>/json"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Standard output of a harmless command, as the user who logged in."""

    node: str
    argv: tuple[str, ...]
    limit_s: float = 5.0
    limit_bytes: int = 256 * 1024
    """What is over is left out: the end of it, or with `is_tail` the beginning."""
    is_tail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """A file's text; None where it isn't there."""

    node: str
    path: str
    limit_bytes: int = 256 * 1024
    """What is over is left out: the end of it, or with `is_tail` the beginning."""
    is_tail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerLog:
    """The end of a container's log, both streams as they came, each line with Docker's time stamp: a text.

    GET /containers/<id>/logs?stdout=1&stderr=1&timestamps=1&tail=<lines>, its frames taken apart by the runner;
    None where there is no such container.
    """

    node: str
    container_id: str
    lines: int = 2000
    limit_s: float = 10.0
    limit_bytes: int = 1 << 20
    """What is over is left out at the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsOnDisk:
    """The models that a node has: in its Hugging Face cache (HF_HOME, HF_HUB_CACHE, ~/.cache/huggingface) and in
    folders of models (~/models, /models, /data/models and `roots`); nothing is read but names, sizes and headers.

    The answer: {"cache": "/home/x/.cache/huggingface", "home": "/home/x", "token": true (a token lies in the cache; its
    text never leaves the node), "models": [{"name", "path", "where": "cache" or "folder", "revision", "size_bytes",
    "is_complete", "missing": [...], "config": {config.json}, "weights_bytes", "dtypes": {"F8_E4M3": bytes}}],
    "problems": [...]}.
    """

    node: str
    roots: tuple[str, ...] = ()
    limit_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """What the hub says of a model, asked from the node: GET <hub>/api/models/<repo>/revision/<revision>?blobs=true and
    its config.json.

    The answer: {"status": HTTP status or 0, "problem", "gated", "revision", "files": [{"path", "size_bytes"}],
    "config": {...}}.
    """

    node: str
    repo: str
    revision: str = "main"
    hub: str = "https://huggingface.co"
    token: str = field(default="", repr=False)
    limit_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPrivileges:
    """What the user may do there; the answer is a `Privileges`."""

    node: str


Ask = DockerGet | DockerLog | Output | FileText | AskPrivileges | ModelsOnDisk | HubModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Privileges:
    """Probed once a connection, never assumed."""

    is_root: bool = False
    user: str = ""
    docker: str = "missing"
    """open, denied or missing (the socket)."""
    sudo: str = "missing"
    """free (any command without a password), listed (some without, see `sudo_rules`), password, missing, denied (not
    in sudoers), tty (requiretty: not without a terminal)."""
    sudo_rules: tuple[str, ...] = ()
    """The commands that `sudo -n -l` gives as NOPASSWD."""
    has_compose: bool | None = None
    """`docker compose version` works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, or why there is none."""

    value: Any = field(default=None, repr=False)
    problem: str = ""
    """Why it couldn't be had: a sentence for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All answers so far."""

    answers: Mapping[Ask, Answer] = field(default_factory=dict, repr=False)

    def value(self, ask: Ask) -> Any:
        """What was answered, or None."""
        return self.answers[ask].value if ask in self.answers else None

    def problem(self, ask: Ask) -> str:
        return self.answers[ask].problem if ask in self.answers else ""

    def privileges(self, node: str) -> Privileges | None:
        """None where the node couldn't be asked."""
        found = self.value(AskPrivileges(node=node))
        return found if isinstance(found, Privileges) else None
