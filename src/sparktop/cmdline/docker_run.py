"""`docker run` and `docker exec` lines: parsed word by word (for lints), and edited (for a relaunch)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from sparktop.cmdline.container_body import host_options, with_options
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.engine_flags import Arity, spec_of
from sparktop.cmdline.launch_command import changed
from sparktop.cmdline.source import Item, Word, hull, item_of
from sparktop.dataclass import dataclass

_SHORT_VALUED = {
    "a": "attach", "c": "cpu-shares", "e": "env", "h": "hostname", "l": "label", "m": "memory",
    "p": "publish", "u": "user", "v": "volume", "w": "workdir",
}  # fmt: skip
_SHORT_SWITCHES = {"d": "detach", "i": "interactive", "t": "tty", "P": "publish-all", "q": "quiet"}
_SWITCHES = frozenset({
    "detach", "disable-content-trust", "help", "init", "interactive", "no-healthcheck", "oom-kill-disable",
    "privileged", "publish-all", "quiet", "read-only", "rm", "sig-proxy", "tty", "use-api-socket", "replace",
})  # fmt: skip
_VALUED = frozenset({
    "add-host", "annotation", "attach", "blkio-weight", "blkio-weight-device", "cap-add", "cap-drop",
    "cgroup-parent", "cgroupns", "cidfile", "cpu-count", "cpu-percent", "cpu-period", "cpu-quota",
    "cpu-rt-period", "cpu-rt-runtime", "cpu-shares", "cpus", "cpuset-cpus", "cpuset-mems", "detach-keys",
    "device", "device-cgroup-rule", "device-read-bps", "device-read-iops", "device-write-bps",
    "device-write-iops", "dns", "dns-opt", "dns-option", "dns-search", "domainname", "entrypoint", "env",
    "env-file", "expose", "gpus", "group-add", "health-cmd", "health-interval", "health-retries",
    "health-start-interval", "health-start-period", "health-timeout", "hostname", "ip", "ip6", "ipc", "isolation",
    "kernel-memory", "label", "label-file", "link", "link-local-ip", "log-driver", "log-opt", "mac-address",
    "memory", "memory-reservation", "memory-swap", "memory-swappiness", "mount", "name", "net", "net-alias",
    "network", "network-alias", "oom-score-adj", "pid", "pids-limit", "platform", "publish", "pull", "restart",
    "runtime", "security-opt", "shm-size", "stop-signal", "stop-timeout", "storage-opt", "sysctl", "tmpfs",
    "ulimit", "user", "userns", "uts", "volume", "volume-driver", "volumes-from", "workdir",
})  # fmt: skip
_ALIASES, MORE = {"net": "network", "volume": "mount"}, "more"  # what stands for further options, as "${mounts[@]}"


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
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.text.startswith("-") or word.text == "-":
            next_text = words[index].text if index < len(words) else ""
            if not is_exec and _stands_for_options(word.text, next_text):
                run.options.append(item_of(MORE, word))
                continue
            run.image, run.command = word, list(words[index:])
            break
        if word.text == "--":
            continue
        options = _options_in(word.text)
        for option, at in options or ():
            value = word.part(at) if at is not None else None
            if option in _SWITCHES:
                if value is None or value.text.lower() not in ("false", "0"):
                    _keep(run, option, None, word)
                continue
            if value is None and index < len(words):
                value = words[index]
                index += 1
            _keep(run, option, value, word)
        if options is None and word.text.startswith("--"):
            name, equals, _ = word.text.partition("=")
            value = word.part(len(name) + 1) if equals else None
            engine_name = name[2:].replace("_", "-")
            following = words[index] if index < len(words) else None
            is_switch = spec_of(engine_name).arity is Arity.SWITCH
            takes_value = following is not None and not following.text.startswith("-") and not is_switch
            # The last word is the image's name.
            if value is None and takes_value and index + 1 < len(words):
                value = following
                index += 1
            run.misplaced.append(item_of(engine_name, value, word))
    return run


def _options_in(text: str) -> list[tuple[str, int | None]] | None:
    """(long name, where its joined value begins; None: nowhere) of each option in a word, `-it` or `-p8000:8000`; None
    where Docker has no such option."""
    name, equals, _ = text.partition("=")
    if text.startswith("--"):
        return [(name[2:], len(name) + 1 if equals else None)] if name[2:] in _SWITCHES | _VALUED else None
    options: list[tuple[str, int | None]] = []
    for index, letter in enumerate(text[1:], 1):
        if letter in _SHORT_VALUED:
            start = index + 1 + text.startswith("=", index + 1)
            return [*options, (_SHORT_VALUED[letter], start if index + 1 < len(text) else None)]
        if letter not in _SHORT_SWITCHES:
            return None
        options.append((_SHORT_SWITCHES[letter], None))
    return options or None


def _stands_for_options(text: str, following: str) -> bool:
    """Whether a word is an ellipsis, or a variable with options, and so not the image's name."""
    if not text.startswith("$") or (":+-" not in text and re.search(r"[/:]|image|img", text, re.IGNORECASE)):
        return text in ("...", "…")
    if following.startswith("--"):
        return following[2:].partition("=")[0] in _SWITCHES | _VALUED
    return following.startswith("-") or bool(re.search(r"[^/.]/|:", following))


def _keep(run: DockerRun, name: str, value: Word | None, word: Word) -> None:
    name = _ALIASES.get(name, name)
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


PROGRAMS = ("docker", "podman", "nerdctl")
_SAME = {"net": "network"}


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
    line = RunLine(head=list(words[:verb_count]))
    at = verb_count
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            line.image, line.command = word, list(words[at + 1 :])
            return line
        if word == "--":
            line.options.append(("", None, (word,)))
            at += 1
            continue
        options = _options_in(word)
        if options is None:
            raise CannotEdit(f"{word[:40]!r} before the image is no option of Docker's")
        name, value_at = options[-1]
        takes_next = name in _VALUED and value_at is None
        option_words = tuple(words[at : at + 2]) if takes_next else (word,)
        value = word[value_at:] if value_at is not None else option_words[1] if len(option_words) > 1 else None
        line.options.append((_SAME.get(name, name), value, option_words))
        at += len(option_words)
    raise CannotEdit("no image is named in it")


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
