"""A planner's questions to the nodes beyond the picture, and their answers; all questions are read-only.

A planner is asked for its questions repeatedly, with the answers so far, until it has none left; then it plans. Where
missing answers don't stop it, they are simply what it looks up in planning (`looked_up`).
Docker's answers hold values that the picture has masked, so a Survey has no readable repr.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import field
from hashlib import sha256
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.model.guard import GuardState

ROUNDS_AT_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerGet:
    """A GET request to the node's Docker Engine; the answer is parsed JSON, None for 404."""

    node: str
    path: str
    """ "/containers/<id>/json", "/containers/<id>/json?size=1", "/images/<id>/json"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Standard output of a read-only command, run as the logged-in user."""

    node: str
    argv: tuple[str, ...]
    limit_s: float = 5.0
    limit_bytes: int = 256 * 1024
    """Longer output is cut at its end, or with `is_tail` at its beginning."""
    is_tail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """A file's text; None where it doesn't exist."""

    node: str
    path: str
    limit_bytes: int = 256 * 1024
    """A longer text is cut at its end, or with `is_tail` at its beginning."""
    is_tail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerLog:
    """The end of a container's log as text: both streams in order, each line with Docker's timestamp.

    GET /containers/<id>/logs?stdout=1&stderr=1&timestamps=1&tail=<lines>, its frames taken apart by the runner;
    None where there is no such container.
    """

    node: str
    container_id: str
    lines: int = 2000
    limit_s: float = 10.0
    limit_bytes: int = 1 << 20
    """A longer log is cut at its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsOnDisk:
    """The models on a node: in its Hugging Face cache (HF_HOME, HF_HUB_CACHE, ~/.cache/huggingface) and in folders of
    models (~/models, /models, /data/models and `roots`); only names, sizes and headers are read.

    The answer: {"cache": "/home/x/.cache/huggingface", "home": "/home/x", "token": true (the cache has a token; its
    text never leaves the node), "models": [{"name", "path", "where": "cache" or "folder", "revision", "size_bytes",
    "is_complete", "missing": [...], "ggufs": {name: bytes}, "config": {config.json}, "weights_bytes",
    "dtypes": {"F8_E4M3": bytes}}],
    "problems": [...]}.
    """

    node: str
    roots: tuple[str, ...] = ()
    cache: str = ""
    """The Hugging Face cache, where the engine has another than the user."""
    limit_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """The hub's answer about a model, requested from the node: GET
    <hub>/api/models/<repo>/revision/<revision>?blobs=true and its config.json.

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
class PrivilegesQuestion:
    """The user's privileges on the node; the answer is a `Privileges`."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKeys:
    """The operator's own public keys that a login at this node could use: a tuple of `PublicKey`.

    Answered on the operator's machine, from the ssh agent and the .pub files; no private key is read.
    """

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNotes:
    """What consoles have noted on the node of their runs there: [{"run", "held": it is under way, "entries": [text]}],
    newest first."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRun:
    """Note an entry of a run on the node, for `RunNotes`; of a node it changes nothing else."""

    node: str
    run_id: str
    entry: str
    """A line of the audit, masked."""


Question = (
    DockerGet
    | DockerLog
    | Output
    | FileText
    | PrivilegesQuestion
    | ModelsOnDisk
    | HubModel
    | OperatorKeys
    | RunNotes
    | NoteRun
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A public key of ssh."""

    algorithm: str
    """"ssh-ed25519"."""
    blob: str
    """Base64, as authorized_keys has it."""
    comment: str = ""
    """Sanitised; whoever made the key has chosen it."""
    place: str = ""
    """Where it was found: "the ssh agent", or the path of its .pub file."""

    @property
    def line(self) -> str:
        """Its line of authorized_keys."""
        return f"{self.algorithm} {self.blob} {self.comment}".rstrip()

    @property
    def fingerprint(self) -> str:
        """SHA256:... as `ssh-keygen -lf` prints it."""
        return "SHA256:" + b64encode(sha256(b64decode(self.blob)).digest()).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Privileges:
    """The user's privileges on a node: tested once per connection, never assumed."""

    is_root: bool = False
    user: str = ""
    docker: str = "missing"
    """open, denied or missing (the socket)."""
    sudo: str = "missing"
    """free (any command without a password), listed (some without, see `sudo_rules`), password, missing, denied (not
    in sudoers), tty (requiretty: not without a terminal)."""
    sudo_rules: tuple[str, ...] = ()
    """The commands that `sudo -n -l` lists as NOPASSWD."""
    has_compose: bool | None = None
    """`docker compose version` works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, or why there is none."""

    value: Any = field(default=None, repr=False)
    problem: str = ""
    """Why there is no answer: a sentence for the operator."""
    code: int | None = None
    """The command's exit code (127: there is no such program), or the HTTP status; None: neither."""

    @property
    def text(self) -> str | None:
        """What a command printed, what a file holds; None where it is no text."""
        return self.value if isinstance(self.value, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrestored:
    """What an earlier run took from a container and has not given back."""

    title: str
    """Of that run."""
    policy: str = ""
    """Its restart policy before that run; empty: not touched, or given back."""
    retries: int = 0
    was_running: bool = False
    """That run stopped it, to start it again."""
    evidence_path: str = ""
    """The archive in which that run kept its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All answers so far, and what earlier runs owe."""

    answers: Mapping[Question, Answer] = field(default_factory=dict, repr=False)
    owed: Mapping[str, Unrestored] = field(default_factory=dict)
    """By container id."""
    guards_to_restore: Mapping[str, GuardState] = field(default_factory=dict)
    """By node: the guard that an earlier run replaced by its own, where none is armed now."""

    def answer(self, question: Question) -> Answer | None:
        """None where it wasn't asked."""
        return self.answers.get(question)

    def value(self, question: Question) -> Any:
        """The answer, or None."""
        answer = self.answer(question)
        return answer.value if answer is not None else None

    def text(self, question: Question) -> str | None:
        """The answer as a text, or None."""
        answer = self.answer(question)
        return answer.text if answer is not None else None

    def problem(self, question: Question) -> str:
        answer = self.answer(question)
        return answer.problem if answer is not None else ""

    def privileges(self, node: str) -> Privileges | None:
        """None where the node couldn't be asked."""
        found = self.value(PrivilegesQuestion(node=node))
        return found if isinstance(found, Privileges) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LookUps(Survey):
    """A survey that keeps what is looked up in it without an answer."""

    missing: dict[Question, None] = field(default_factory=dict)

    def answer(self, question: Question) -> Answer | None:
        found = self.answers.get(question)
        if found is None:
            self.missing[question] = None
        return found


def looked_up(survey: Survey, look: Callable[[Survey], object]) -> tuple[Question, ...]:
    """The questions that `look` looks up and the survey has no answer to; what follows from these comes next time."""
    look_ups = _LookUps(answers=survey.answers, owed=survey.owed, guards_to_restore=survey.guards_to_restore)
    look(look_ups)
    return tuple(look_ups.missing)
