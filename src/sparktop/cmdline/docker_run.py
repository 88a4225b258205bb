"""`docker run` and `docker exec` lines: parsed word by word (for lints), and edited (for a relaunch)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from sparktop.cmdline.container_body import host_options, with_options
from sparktop.cmdline.docker_options import by_name
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.engine_flags import Arity, spec_of
from sparktop.cmdline.launch_command import changed
from sparktop.cmdline.source import Item, Word, hull, item_of
from sparktop.dataclass import dataclass

MORE = "more"
"""What stands for further options, as "${mounts[@]}"."""
PROGRAMS = ("docker", "podman", "nerdctl")


@dataclass(slots=True)
class DockerRun:
    """A `docker run` line, parsed with positions."""

    options: list[Item] = field(default_factory=list)
    environment: list[Item] = field(default_factory=list)
    has_env_file: bool = False
    misplaced: list[Item] = field(default_factory=list)
    image: Word | None = None
    entrypoint: Word | None = None
    command: list[Word] = field(default_factory=list)


def docker_run(words: Sequence[Word], *, is_exec: bool = False) -> DockerRun:
    """Parse the words after `docker run`; an option that Docker doesn't have is taken for the engine's.

    After `docker exec` (`is_exec`) a container's name stands in the image's place.
    """
    run = DockerRun()
    options, image_at = _options([word.text for word in words], is_exec=is_exec)
    for option in options:
        word, (value_at, offset) = words[option.at], option.value_at or (0, 0)
        value = words[value_at].part(offset) if option.value_at else None
        if option.name == MORE:
            run.options.append(item_of(MORE, word))
        elif not option.is_known:
            run.misplaced += [item_of(option.name, value, word)] if word.text.startswith("--") else []
        elif by_name()[option.name].takes_value:
            keep(run, option.name, value, word)
        elif value is None or value.text.lower() not in ("false", "0"):
            keep(run, option.name, None, word)
    if image_at < len(words):
        run.image, run.command = words[image_at], list(words[image_at + 1 :])
    return run


@dataclass(frozen=True, slots=True)
class _Option:
    """One option in a line, by indices of its words."""

    name: str
    at: int
    value_at: tuple[int, int] | None = None
    """(word, the offset in it) where its value begins."""
    is_known: bool = True
    """Whether Docker has it."""


def _options(texts: Sequence[str], *, is_exec: bool = False) -> tuple[list[_Option], int]:
    """The options before the image, and where that stands: at the end where there is none."""
    options: list[_Option] = []
    at = 0
    while at < len(texts):
        text = texts[at]
        if not text.startswith("-") or text == "-":
            if is_exec or not _stands_for_options(text, "".join(texts[at + 1 : at + 2])):
                break
            options.append(_Option(MORE, at))
        elif text != "--":
            options += _options_in(texts, at)
            at = max(at, (options[-1].value_at or (at, 0))[0])
        at += 1
    return options, at


def _options_in(texts: Sequence[str], at: int) -> Iterator[_Option]:
    """Each option in a word, as in `-itp8000:8000`, with its value there or in the word that follows."""
    text = texts[at]
    name, equals, _ = text.partition("=")
    has_next = at + 1 < len(texts)
    if text.startswith("--"):
        own = by_name().get(name[2:]) if len(name) > 3 else None
        plain_name = own.name if own else name[2:].replace("_", "-")
        is_switch = not own.takes_value if own else spec_of(plain_name).arity is Arity.SWITCH
        if not own:  # the last word is the image's name
            has_next = at + 2 < len(texts) and not texts[at + 1].startswith("-")
        value_at = (at, len(name) + 1) if equals else (at + 1, 0) if has_next and not is_switch else None
        yield _Option(plain_name, at, value_at, is_known=own is not None)
        return
    for index, letter in enumerate(text[1:], 1):
        own = by_name().get(letter)
        if own is None:
            yield _Option(text, at, is_known=False)
            return
        if own.takes_value:
            start = index + 1 + text.startswith("=", index + 1)
            yield _Option(own.name, at, (at, start) if index + 1 < len(text) else (at + 1, 0) if has_next else None)
            return
        yield _Option(own.name, at)


def _stands_for_options(text: str, following: str) -> bool:
    """Whether a word is an ellipsis, or a variable with options, and so not the image's name."""
    if not text.startswith("$") or (":+-" not in text and re.search(r"[/:]|image|img", text, re.IGNORECASE)):
        return text in ("...", "…")
    if following.startswith("--"):
        return following[2:].partition("=")[0] in by_name()
    return following.startswith("-") or bool(re.search(r"[^/.]/|:", following))


def keep(run: DockerRun, name: str, value: Word | None, word: Word) -> None:
    """Keep an option of this long name, given by this word."""
    name = "mount" if name == "volume" else name
    if name == "env" and value is not None:
        run.environment.append(variable(value, word))
    elif name == "env-file":
        run.has_env_file = True
        run.options.append(item_of(name, value, word))
    elif name == "entrypoint":
        run.entrypoint = value
    elif name == "mount" and value is not None and "=" in value.text.partition(",")[0]:
        run.options.append(item_of(name, value, word, text=_long_mount(value.text)))
    else:
        run.options.append(item_of(name, value, word))


def variable(assignment: Word, option: Word | None = None) -> Item:
    """NAME=value as an item; without a value it comes from the caller's environment and is unknown."""
    name, equals, _ = assignment.text.partition("=")
    value = assignment.part(len(name) + 1)
    return Item(
        name=name,
        value=value.text if equals else f"${name}",
        span=hull(option or assignment, assignment),
        value_span=value.span,
    )


def _long_mount(text: str) -> str:
    """`type=bind,source=A,target=B` as A:B."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    source = parts.get("source") or parts.get("src") or ""
    target = parts.get("target") or parts.get("destination") or parts.get("dst") or ""
    is_read_only = parts.get("readonly", parts.get("ro")) in ("", "true", "1")
    return f"{source}:{target}" + (":ro" if is_read_only else "")


def split_mount(text: str) -> tuple[str, str, str]:
    """(source, ":", the rest) of a mount, at its first colon outside of `${...}` and `$(...)`."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char in "{(") - (char in "})")
        if char == ":" and depth <= 0:
            return text[:at], ":", text[at + 1 :]
    return text, "", ""


@dataclass(slots=True, kw_only=True)
class RunLine:
    """A `docker run` line in parts; joined again they give the same line."""

    head: list[str]
    """The words up to and including `run`."""
    options: list[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=list)
    """(long name, value, the words)."""
    image: str = ""
    command: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return [*self.head, *(word for *_, words in self.options for word in words), self.image, *self.command]


def starts(words: Sequence[str]) -> bool:
    """Whether the line runs docker, podman or nerdctl."""
    return bool(words) and words[0].rpartition("/")[2] in PROGRAMS


def parse_run_line(words: Sequence[str]) -> RunLine:
    """The parts of a `docker run` line.

    Raises:
        CannotEdit: it is not `docker run`, or has an option that Docker doesn't have.
    """
    verb_count = 2 if list(words[1:2]) == ["run"] else 3 if list(words[1:3]) == ["container", "run"] else 0
    if not verb_count:
        raise CannotEdit(f"it is `{' '.join(words[:3])[:80]}`, not `docker run`: what it starts was made elsewhere")
    head, rest = list(words[:verb_count]), words[verb_count:]
    found, image_at = _options(rest, is_exec=True)
    if unknown := next((option for option in found if not option.is_known), None):
        raise CannotEdit(f"{rest[unknown.at][:40]!r} before the image is no option of Docker's")
    if image_at == len(rest):
        raise CannotEdit("no image is named in it")
    line = RunLine(head=head, image=rest[image_at], command=list(rest[image_at + 1 :]))
    last = {option.at: option for option in found}  # `-it` is one piece of the line, under its last letter's name
    at = 0
    while at < image_at:
        option = last.get(at, _Option("", at))  # `--`
        value_at, offset = option.value_at or (at, 0)
        value = rest[value_at][offset:] if option.value_at else None
        line.options.append((option.name, value, tuple(rest[at : value_at + 1])))
        at = value_at + 1
    return line


def edited(
    words: Sequence[str],
    *,
    environment: Mapping[str, str | None],
    flags: Mapping[str, str | None],
    options: Mapping[str, Any],
    image: str | None,
    inspect: Mapping[str, Any],
) -> tuple[list[str], tuple[FlagChange, ...]]:
    """(the line with the change, the changed flags).

    Args:
        inspect: of the container that the line created: its image's own command, and its options.

    Raises:
        CannotEdit: it can't be changed safely; the text says why.
    """
    line = parse_run_line(words)
    _set_variables(line, environment)
    _set_options(line, options, inspect.get("HostConfig") or {})
    if image:
        line.image = image
    changes = _set_flags(line, flags, environment, inspect.get("Config") or {})
    return line.words, changes


def _set_variables(line: RunLine, environment: Mapping[str, str | None]) -> None:
    for name, value in environment.items():
        count_before = len(line.options)
        line.options = [one for one in line.options if one[0] != "env" or (one[1] or "").partition("=")[0] != name]
        if value is not None:
            line.options.append(("env", f"{name}={value}", (f"--env={name}={value}",)))
        elif len(line.options) == count_before and any(own == "env-file" for own, *_ in line.options):
            raise CannotEdit(f"{name} may come from a file (--env-file): take it out there")


def _set_options(line: RunLine, options: Mapping[str, Any], host: Mapping[str, Any]) -> None:
    """Set the container options: a single value replaces, a list is extended."""
    changed_host = dict(host)
    if problem := with_options(changed_host, options):
        raise CannotEdit(problem)
    for name, value in options.items():
        old_value = host.get(name)
        if value is None:
            removed = {own for own, _ in host_options({name: old_value})} if old_value else set()
            line.options = [one for one in line.options if one[0] not in removed]
            continue
        new_value = changed_host[name]
        if isinstance(value, list):
            new_value = [one for one in new_value if one not in (old_value or ())]
        elif new_value == old_value:
            continue
        new_options = host_options({name: new_value})
        if not isinstance(value, list | Mapping) or name == "RestartPolicy":
            removed = {own for own, _ in (*new_options, *host_options({name: old_value}))}
            line.options = [one for one in line.options if one[0] not in removed]
        line.options += [
            (own, text, (f"--{own}",) if text is None else (f"--{own}={text}",)) for own, text in new_options
        ]


def _set_flags(
    line: RunLine, flags: Mapping[str, str | None], environment: Mapping[str, str | None], config: Mapping[str, Any]
) -> tuple[FlagChange, ...]:
    entrypoint = [str(word) for word in config.get("Entrypoint") or ()]
    command = line.command or ([str(word) for word in config.get("Cmd") or ()] if flags else [])
    if not command and not flags:
        return ()
    edited_command = changed(entrypoint, command, flags, environment)
    if list(edited_command.entrypoint) != entrypoint:
        raise CannotEdit("what would have to be changed is in the image's own entrypoint")
    line.command = list(edited_command.command)
    return edited_command.flags


def bytes_of(text: str) -> float | None:
    """A size as Docker writes it: 512, 64m, 16gb."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip().lower())
    return float(match[1]) * 1024.0 ** " kmgt".index(match[2] or " ") if match else None
