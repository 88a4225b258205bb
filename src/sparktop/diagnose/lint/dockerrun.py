"""The words after `docker run`: Docker's options, the variables, the image, and what is started in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparktop.diagnose.lint.arguments import is_switch
from sparktop.diagnose.lint.place import Word, hull
from sparktop.diagnose.lint.spec import Item

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
_ALIASES = {"net": "network", "volume": "mount"}


@dataclass(slots=True)
class DockerRun:
    """A `docker run` line taken apart."""

    options: list[Item] = field(default_factory=list)
    environment: list[Item] = field(default_factory=list)
    has_env_file: bool = False
    misplaced: list[Item] = field(default_factory=list)
    image: Word | None = None
    entrypoint: Word | None = None
    command: list[Word] = field(default_factory=list)


def docker_run(words: Sequence[Word], *, is_exec: bool = False) -> DockerRun:
    """What the words after `docker run` say; an option Docker doesn't have is taken for the engine's.

    After `docker exec` (`is_exec`) a container's name stands in the image's place.
    """
    run = DockerRun()
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.text.startswith("-") or word.text == "-":
            behind = words[index].text if index < len(words) else ""
            if not is_exec and _stands_for_options(word.text, behind):
                continue
            run.image, run.command = word, list(words[index:])
            break
        if word.text == "--":
            continue
        name, equals, _ = word.text.partition("=")
        if word.text.startswith("--"):
            plain = name[2:]
            value = word.part(len(name) + 1) if equals else None
        else:
            plain, value = _short(run, word)
            if not plain:
                continue
        if plain in _SWITCHES:
            if value is None or value.text.lower() not in ("false", "0"):
                _keep(run, plain, None, word)
        elif plain in _VALUED:
            if value is None and index < len(words):
                value = words[index]
                index += 1
            _keep(run, plain, value, word)
        else:
            engine_name = plain.replace("_", "-")
            following = words[index] if index < len(words) else None
            is_valued = following is not None and not following.text.startswith("-") and not is_switch(engine_name)
            # The last word is the image's name.
            if value is None and is_valued and index + 1 < len(words):
                value = following
                index += 1
            run.misplaced.append(_item(engine_name, value.text if value else None, word, value))
    return run


def own_option(text: str) -> tuple[str, str | None, bool] | None:
    """(long name, value joined to it, whether the next word is its value) of an option of Docker's; None for others.

    Of short switches in one word the last one is named.
    """
    name, equals, value = text.partition("=")
    if text.startswith("--"):
        plain = name[2:]
        if plain in _SWITCHES:
            return plain, value if equals else None, False
        return (plain, value if equals else None, not equals) if plain in _VALUED else None
    plain = ""
    for index, letter in enumerate(text[1:], 1):
        if letter in _SHORT_VALUED:
            rest = text[index + 1 :]
            return _SHORT_VALUED[letter], rest.removeprefix("=") if rest else None, not rest
        plain = _SHORT_SWITCHES.get(letter, "")
        if not plain:
            return None
    return (plain, None, False) if plain else None


def _stands_for_options(text: str, following: str) -> bool:
    """Whether a word is left out (`...`) or holds options from somewhere else, and not the image's name."""
    if text in ("...", "…"):
        return True
    if not text.startswith("$") or re.search(r"[/:]|image|img", text, re.IGNORECASE):
        return False
    if following.startswith("--"):
        return following[2:].partition("=")[0] in _SWITCHES | _VALUED
    return following.startswith("-") or bool(re.search(r"[^/.]/|:", following))


def _short(run: DockerRun, word: Word) -> tuple[str, Word | None]:
    """`-it`, `-p8000:8000`, `-e`: the last letter's option, and its value where it is joined."""
    for index, letter in enumerate(word.text[1:], 1):
        if letter in _SHORT_SWITCHES:
            _keep(run, _SHORT_SWITCHES[letter], None, word)
        elif letter in _SHORT_VALUED:
            rest = word.part(index + 1)
            return _SHORT_VALUED[letter], (rest.part(int(rest.text.startswith("="))) if rest.text else None)
        else:
            return "", None
    return "", None


def _keep(run: DockerRun, name: str, value: Word | None, word: Word) -> None:
    name = _ALIASES.get(name, name)
    if name == "env" and value is not None:
        run.environment.append(variable(value, word))
    elif name == "env-file":
        run.has_env_file = True
    elif name == "entrypoint":
        run.entrypoint = value
    elif name == "mount" and value is not None and "=" in value.text.partition(",")[0]:
        run.options.append(_item(name, _long_mount(value.text), word, value))
    else:
        run.options.append(_item(name, value.text if value else None, word, value))


def variable(assignment: Word, option: Word | None = None) -> Item:
    """NAME=value as an item; without a value it is taken over from the caller's environment, and not known."""
    name, equals, _ = assignment.text.partition("=")
    value = assignment.part(len(name) + 1)
    return Item(
        name=name,
        value=value.text if equals else f"${name}",
        span=hull(option or assignment, assignment),
        value_span=value.span,
    )


def _item(name: str, value: str | None, word: Word, value_word: Word | None) -> Item:
    return Item(name=name, value=value, span=hull(word, value_word), value_span=value_word.span if value_word else None)


def _long_mount(text: str) -> str:
    """`type=bind,source=A,target=B` as A:B."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    source = parts.get("source") or parts.get("src") or ""
    return f"{source}:{parts.get('target') or parts.get('destination') or parts.get('dst') or ''}"
