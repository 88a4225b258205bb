"""The ~/.ssh of a node's login user: what is there, and steps that add lines to its files and take them out again.

sshd takes the home from the user database, not from $HOME, and ignores authorized_keys where the home, ~/.ssh or the
file can be written by others (sshd_config(5), StrictModes). A link, or what another user owns, is never written to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command
from sparktop.model.survey import FileText, Output, Question, Survey
from sparktop.operate.plan.common_steps import login_user
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Difference

LIMIT_S = 30.0
FOLDER = ".ssh"
_OTHERS_WRITE = 0o022
_SPECIAL = re.compile(r"[][\\.*^$|]")
"""In sed's basic regular expressions, with | as their end."""


def home_question(node: str, user: str) -> Output:
    return Output(node=node, argv=("getent", "passwd", user))


def entries_question(node: str, home: str) -> Output:
    """Asks for type, mode, owner and path of the home, ~/.ssh and what is in it; a link is not followed."""
    mine = ("-path", home, "-o", "-path", f"{home}/{FOLDER}", "-o", "-path", f"{home}/{FOLDER}/*")
    argv = ("find", home, "-maxdepth", "2", "(", *mine, ")", "-printf", r"%y %m %U %P\n", "-o", "-prune")
    return Output(node=node, argv=argv)


def writable_question(node: str, path: str) -> Output:
    """Asks whether the user can write there: exit code 1 also where the file system is read-only."""
    return Output(node=node, argv=("test", "-w", path))


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its kind as find has it (f, d, l ...), mode bits, and owner."""

    kind: str
    mode: int
    user_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SshFolder:
    """The folder, as far as it has been read."""

    node: str
    user: str
    home: str
    entries: Mapping[str, Entry]
    """By path below the home: "", ".ssh", ".ssh/authorized_keys"."""
    texts: Mapping[str, str]
    """Of the files that were asked for, by name; "" where there is none."""

    def path(self, name: str) -> str:
        return f"{self.home}/{FOLDER}/{name}"

    def has(self, name: str) -> bool:
        return f"{FOLDER}/{name}" in self.entries

    def lines(self, name: str) -> tuple[str, ...]:
        return tuple(self.texts.get(name, "").splitlines())

    # -- steps

    def make(self) -> tuple[Command, ...]:
        """Make the folder where there is none."""
        if FOLDER in self.entries:
            return ()
        return (Command(argv=("mkdir", "-p", "-m", "0700", "--", f"{self.home}/{FOLDER}"), limit_s=LIMIT_S),)

    def add_block(self, name: str, block: str) -> tuple[Command, ...]:
        """Append several lines at once, told by the first of them."""
        path, text = self.path(name), self.texts.get(name, "")
        lead = "\n" if text and not text.endswith("\n") else ""
        append = Command(
            argv=("dd", "if={content}", f"of={path}", "oflag=append", "conv=notrunc", "status=none"),
            content=f"{lead}{block}\n",
            limit_s=LIMIT_S,
            done_when=self.holds(name, block.partition("\n")[0]),
        )
        return (*(() if self.has(name) else (_make_file(path),)), append)

    def add(self, name: str, line: str) -> tuple[Command, ...]:
        """Append the line once, after a line break where the last one lacks it; a new file is the user's alone."""
        return (*self.add_block(name, line), self.holds(name, line))

    def take_out(self, name: str, line: str) -> Command:
        """Remove every line that equals this one; where there is none, or no file, it is done."""
        argv = ("sed", "-i", rf"\|^{_escaped(line)}$|d", self.path(name))
        return Command(argv=argv, limit_s=LIMIT_S, done_when=self._lacks(name, line))

    def take_block(self, name: str, first: str, last: str) -> tuple[Command, ...]:
        """Remove the lines from the first to the last; where the first isn't there, it is done.

        Without the last line, which somebody may have taken out, sed would go on to the file's end: that is refused.
        """
        argv = ("sed", "-i", f"\\|^{_escaped(first)}$|,\\|^{_escaped(last)}$|d", self.path(name))
        done = self._lacks(name, first)
        return (
            replace(self.holds(name, last), done_when=done),
            Command(argv=argv, limit_s=LIMIT_S, done_when=done),
        )

    def _lacks(self, name: str, line: str) -> Command:
        return replace(self.holds(name, line), accepts=(1, 2))

    def holds(self, name: str, line: str) -> Command:
        return Command(argv=("grep", "-qxF", "-e", line, "--", self.path(name)), limit_s=LIMIT_S)

    def close(self, name: str) -> tuple[Command, ...]:
        """Take the others' right to write away, where there is one: sshd would ignore the file."""
        return tuple(_mode("go-w", path) for path, _ in self._open_to_others(name))

    def open_again(self, name: str) -> tuple[Command, ...]:
        """What undoes `close`."""
        return tuple(_mode(f"{entry.mode:04o}", path) for path, entry in self._open_to_others(name))

    def mode_differences(self, name: str) -> Iterator[Difference]:
        for path, entry in self._open_to_others(name):
            after = f"{entry.mode & ~_OTHERS_WRITE:04o}"
            yield Difference(what="mode", name=f"{path} of {self.node}", before=f"{entry.mode:04o}", after=after)

    def _open_to_others(self, name: str) -> Iterator[tuple[str, Entry]]:
        for below in ("", FOLDER, f"{FOLDER}/{name}"):
            entry = self.entries.get(below)
            if entry is not None and entry.mode & _OTHERS_WRITE:
                yield f"{self.home}/{below}".rstrip("/"), entry


def _escaped(line: str) -> str:
    return _SPECIAL.sub(lambda match: "\\" + match.group(), line)


def _make_file(path: str) -> Command:
    """Make an empty file that is the user's alone: one that others can write to, were it cut off, sshd would ignore."""
    there = Command(argv=("test", "-e", path), limit_s=LIMIT_S)
    argv = ("install", "-m", "0600", "-T", "--", "/dev/null", path)
    return Command(argv=argv, limit_s=LIMIT_S, done_when=there)


def _mode(mode: str, path: str) -> Command:
    return Command(argv=("chmod", mode, "--", path), limit_s=LIMIT_S)


# --- reading it


def folder_questions(node: str, picture: FleetState, survey: Survey, names: Sequence[str]) -> Iterator[Question]:
    """What has to be asked, round by round, to read the folder with these files."""
    question = home_question(node, login_user(node, picture))
    yield question
    home = home_in(survey.text(question))
    if home:
        yield entries_question(node, home)
        yield writable_question(node, home)
        yield writable_question(node, f"{home}/{FOLDER}")
        yield from (FileText(node=node, path=f"{home}/{FOLDER}/{name}") for name in names)


def home_in(text: str | None) -> str:
    """The home of a line of the user database; empty where there is none that can be used."""
    fields = (text or "").strip().split(":")
    home = fields[5] if len(fields) == 7 else ""
    is_plain = home.startswith("/") and home.isprintable() and not set(home) & set("*?[]\\ ")
    return home.rstrip("/") if is_plain else ""


def ssh_folder(node: str, picture: FleetState, survey: Survey, names: Sequence[str]) -> SshFolder:
    """The folder, as it may be written to.

    Raises:
        Refused: it can't be read, is another user's, a link, or on a read-only file system.
    """
    user = login_user(node, picture)
    question = home_question(node, user)
    home = home_in(survey.text(question))
    if not home:
        raise Refused(
            f"the home of {user} on {node} is not known: {survey.problem(question) or 'the user database has none'}"
        )
    found = survey.text(entries_question(node, home))
    if found is None:
        raise Refused(f"{home} on {node} can't be read: {survey.problem(entries_question(node, home)) or 'not read'}")
    entries = dict(_entries(found))
    _require_own(node, user, home, entries, names, picture)
    deepest = f"{home}/{FOLDER}" if FOLDER in entries else home
    answer = survey.answers.get(writable_question(node, deepest))
    if answer is None or answer.code != 0:
        raise Refused(
            f"{user} can't write to {deepest} on {node}: read-only, or another user's",
            (f"on {node}: findmnt -T {shlex.quote(deepest)}; ls -ld {shlex.quote(deepest)}",),
        )
    texts: dict[str, str] = {}
    for name in names:
        text_question = FileText(node=node, path=f"{home}/{FOLDER}/{name}")
        text = survey.text(text_question)
        if text is None and (problem := survey.problem(text_question)):
            raise Refused(f"{text_question.path} on {node} can't be read: {problem}")
        texts[name] = text or ""
    return SshFolder(node=node, user=user, home=home, entries=entries, texts=texts)


def _entries(text: str) -> Iterator[tuple[str, Entry]]:
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        mode, _, rest = rest.partition(" ")
        owner, _, path = rest.partition(" ")
        if owner.isdecimal() and re.fullmatch(r"[0-7]{1,5}", mode):
            yield path, Entry(kind, int(mode, 8), int(owner))


def _require_own(
    node: str, user: str, home: str, entries: Mapping[str, Entry], names: Sequence[str], picture: FleetState
) -> None:
    view = picture.node(node)
    own_id = view.facts.user_id if view is not None and view.facts is not None else None
    kinds = {FOLDER: "d", **{f"{FOLDER}/{name}": "f" for name in names}}
    for below, kind in kinds.items():
        entry = entries.get(below)
        path = f"{home}/{below}"
        if entry is None:
            continue
        if entry.kind != kind:
            what = {"l": "a link", "d": "a folder"}.get(entry.kind, "no plain file")
            raise Refused(
                f"{path} on {node} is {what}: sparktop writes to the user's own files alone",
                (f"see where it leads: on {node}: ls -ld {shlex.quote(path)}",),
            )
        if own_id is not None and entry.user_id != own_id:
            raise Refused(
                f"{path} on {node} is not {user}'s (user id {entry.user_id})",
                (f"on {node}: sudo chown {user} {shlex.quote(path)}",),
            )
