"""A service's unit files, and the drop-in that sparktop writes over them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field

from sparktop.cmdline import docker_run, systemd
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.launch_command import changed
from sparktop.cmdline.systemd import Unreadable, quoted, split
from sparktop.dataclass import dataclass
from sparktop.masking import is_secret, mask_text
from sparktop.model.survey import Ask, FileText, Output, Survey
from sparktop.operate.plan.common_steps import key_values
from sparktop.operate.plan.origin import systemctl
from sparktop.operate.plan.service import home_asks, unit_folder
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.operate.secrets.masking import secret_words, secrets_of

NAME = "sparktop.conf"
"""File name of the drop-in."""


HEAD = """\
# Written by sparktop: what its relaunches have changed of this service. To undo: remove this file, then
# systemctl daemon-reload and restart the service.
"""


_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service's settings, merged from its unit file and drop-ins."""

    command: str = field(repr=False)
    """The one ExecStart as written, with continued lines joined."""
    source: str = ""
    """The file that sets it."""
    has_environment_file: bool = False
    """Whether it has an EnvironmentFile=, whose variables win over Environment=."""
    files: tuple[str, ...] = ()


def read(text: str, paths: Collection[str]) -> Service:
    """Read the text of `systemctl cat`.

    Args:
        paths: the unit's file and its drop-ins, as systemd lists them.

    Raises:
        Unreadable: it has no command, or several.
    """
    commands: list[tuple[str, str]] = []
    has_file = False
    files: list[str] = []
    for setting in systemd.settings(text, paths):
        name, value = setting.name.text, setting.value.text
        if setting.file not in files:
            files.append(setting.file)
        if setting.section != "Service":
            continue
        if name == "ExecStart":
            commands = [*commands, (setting.file, value)] if value else []
        elif name == "EnvironmentFile":
            has_file = bool(value)
    if len(commands) != 1:
        raise Unreadable(f"it has {len(commands) or 'no'} commands (ExecStart=)")
    source, command = commands[0]
    return Service(command=command, source=source, has_environment_file=has_file, files=tuple(files))


def variables(text: str | None) -> dict[str, str]:
    """Environment= of a drop-in that sparktop wrote.

    Raises:
        Unreadable: somebody else wrote it.
    """
    if text is None:
        return {}
    if not text.startswith(HEAD.partition("\n")[0]):
        raise Unreadable(f"{NAME} is there already, and was not written by sparktop")
    matches = (_ASSIGNED.fullmatch(word) for word in _service_words(text, "Environment"))
    return {match[1]: match[2] for match in matches if match}


def unset(text: str | None) -> tuple[str, ...]:
    """UnsetEnvironment= of a drop-in that sparktop wrote."""
    return tuple(_service_words(text or "", "UnsetEnvironment"))


def _service_words(text: str, name: str) -> Iterator[str]:
    for setting in systemd.settings(text):
        if (setting.section, setting.name.text) == ("Service", name):
            yield from split(setting.value.text, fills=False)


def written(command: str, environment: Mapping[str, str | None]) -> str:
    """Text of the drop-in: a command that replaces the service's own, and variables (None: remove it)."""
    rows = ["[Service]"]
    rows += [
        f"Environment={quoted(f'{name}={value}', fills=False)}"
        for name, value in environment.items()
        if value is not None
    ]
    rows += [f"UnsetEnvironment={quoted(name, fills=False)}" for name, value in environment.items() if value is None]
    rows += ["ExecStart=", f"ExecStart={command}"]
    return HEAD + "\n".join(rows) + "\n"


def overriding_drop_in(service: Service, own_path: str) -> str:
    """A drop-in that sets the command and that systemd reads after sparktop's; empty where there is none."""
    source = service.source
    is_drop_in = source.endswith(".conf") and source != own_path
    return source if is_drop_in and source.rpartition("/")[2] > NAME else ""


class NoDropIn(ValueError):
    """Why a drop-in can't make the change; `remedies` say what can."""

    def __init__(self, reason: str, *remedies: str) -> None:
        super().__init__(reason)
        self.remedies = remedies


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIn:
    """sparktop's drop-in of one service, and the service as it is."""

    path: str
    before: str | None = field(default=None, repr=False)
    """The drop-in's text now; None: there is none."""
    service: Service
    is_stale: bool = False
    """Files were changed since systemd read them; the reload puts those changes into effect too."""


def asks(rank_change: RankChange, survey: Survey) -> Iterator[Ask]:
    """Questions about the service's files and where its drop-in belongs."""
    rank = rank_change.rank
    if not rank.origin.is_service:
        return
    yield _cat(rank_change)
    yield _show(rank_change)
    if rank.origin.is_own:
        yield from home_asks(rank.view)
    path = _path(rank_change, survey)
    if path:
        yield FileText(node=rank.node, path=path)


def drop_in_of(rank_change: RankChange, survey: Survey) -> DropIn:
    """The service's drop-in.

    Raises:
        NoDropIn: a drop-in can't make the change.
        Unreadable: the service's command can't be read.
    """
    unit, node = rank_change.origin.unit, rank_change.rank.node
    text, shown = survey.value(_cat(rank_change)), key_values(survey.value(_show(rank_change)))
    if not isinstance(text, str) or not text.strip():
        why = survey.problem(_cat(rank_change)) or "systemd shows none of its files"
        raise NoDropIn(f"its files can't be read as this user: {why}")
    fragment = shown.get("FragmentPath", "")
    drop_ins = shown.get("DropInPaths", "").split()
    if "/nix/store/" in text or fragment.startswith("/nix/"):
        raise NoDropIn(
            "NixOS generates its units from its configuration",
            "change virtualisation.oci-containers.containers or systemd.services in configuration.nix, then: "
            "sudo nixos-rebuild switch",
        )
    if fragment.startswith(("/run/systemd/generator", "/run/user/")) and "generator" in fragment:
        raise NoDropIn(
            "its file is generated, by Podman's Quadlet as a rule",
            f"on {node}: edit the .container file of {unit} (/etc/containers/systemd, ~/.config/containers/systemd), "
            "then systemctl daemon-reload and restart it",
        )
    path = _path(rank_change, survey)
    if not path:
        raise NoDropIn("the user's home folder isn't known")
    ask = FileText(node=node, path=path)
    if survey.problem(ask):
        raise NoDropIn(f"{path} can't be read: {survey.problem(ask)}")
    before = survey.value(ask)
    service = read(text, {fragment, *drop_ins})
    if winner := overriding_drop_in(service, path):
        raise NoDropIn(f"{winner} sets its command too, and comes after {NAME}", f"change it in {winner}")
    return DropIn(
        path=path,
        before=before if isinstance(before, str) else None,
        service=service,
        is_stale=shown.get("NeedDaemonReload") == "yes",
    )


def _path(rank_change: RankChange, survey: Survey) -> str:
    folder = unit_folder(rank_change.rank.view, survey, is_own=rank_change.origin.is_own)
    return f"{folder}/{rank_change.origin.unit}.d/{NAME}" if folder else ""


def _manager(rank_change: RankChange) -> tuple[str, ...]:
    return systemctl(rank_change.rank.view, is_own=rank_change.origin.is_own)


def _cat(rank_change: RankChange) -> Output:
    return Output(
        node=rank_change.rank.node,
        argv=(*_manager(rank_change), "cat", "--no-pager", "--", rank_change.origin.unit),
    )


def _show(rank_change: RankChange) -> Output:
    names = "FragmentPath,DropInPaths,NeedDaemonReload,Type"
    argv = (*_manager(rank_change), "show", "--no-pager", "-p", names, "--", rank_change.origin.unit)
    return Output(node=rank_change.rank.node, argv=argv)


_ENV = "/usr/bin/env"


_SYSTEMD_VARIABLE = re.compile(rf"{systemd.LIVE}(?:\{{\w+\}}|\w+)")


MIN_SECRET_CHARS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEdit:
    """The new drop-in's text and the flags that it changes."""

    text: str = field(repr=False)
    flags: tuple[FlagChange, ...] = ()


def edited(rank_change: RankChange, drop_in: DropIn) -> UnitEdit:
    """The drop-in with the change.

    Raises:
        CannotEdit: the command can't be changed safely.
        NoDropIn: a secret would have to be written into it.
        Unreadable: systemd would not run the command as written.
    """
    change = rank_change.change
    for name, value in change.environment.items():
        if value is not None and is_secret(name, value):
            raise _secret_refusal(f"{name} is a secret, and everybody can read a drop-in", drop_in)
    prefix, command = systemd.prefix(drop_in.service.command)
    if "@" in prefix:
        raise CannotEdit("it runs under another name than its file's (ExecStart=@)")
    fills = ":" not in prefix
    words = systemd.split(command, fills=fills)
    if not words:
        raise CannotEdit("it is empty")
    environment: dict[str, str | None] = {
        **dict.fromkeys(unset(drop_in.before)), **variables(drop_in.before)
    }  # fmt: skip
    if docker_run.starts(words):
        words, flags = docker_run.edited(
            words,
            environment=change.environment,
            flags=change.flags,
            options=change.options,
            image=change.image,
            inspect=rank_change.raw,
        )
    else:
        words, flags = _native(rank_change, words)
        if drop_in.service.has_environment_file and change.environment:
            # EnvironmentFile= wins over Environment=, env wins over both
            words = [_ENV, *_env_words(change.environment), *words]
        else:
            environment |= change.environment
    _refuse_unknown_words(words, bool(change.flags))
    texts = [*words, *(f"{name}={value}" for name, value in environment.items() if value is not None)]
    if _holds_secret(texts, secrets_of(rank_change.config)):
        raise _secret_refusal("its command holds a secret, which a drop-in would show to everybody", drop_in)
    text = written(prefix + systemd.joined(words, fills=fills), environment)
    return UnitEdit(text=text, flags=flags)


def _native(rank_change: RankChange, words: list[str]) -> tuple[list[str], tuple[FlagChange, ...]]:
    """The command with its flags edited: of the engine itself, or of a shell that starts it."""
    change = rank_change.change
    if rank_change.rank.container is not None and (change.environment or change.options or change.image):
        raise CannotEdit("a shell's text starts its container, where only the engine's flags can be changed safely")
    if change.image or change.options:
        raise CannotEdit("it runs in no container: there is no image and no container option to set")
    command_line = changed((), words, change.flags, change.environment)
    return list(command_line.command), command_line.flags


def _env_words(environment: Mapping[str, str | None]) -> list[str]:
    unset = [word for name, value in environment.items() if value is None for word in ("-u", name)]
    return [*unset, *(f"{name}={value}" for name, value in environment.items() if value is not None)]


def _holds_secret(texts: list[str], secrets: Sequence[str]) -> bool:
    """Whether a text has a secret in it; a variable that systemd fills in is none."""
    bare = [_SYSTEMD_VARIABLE.sub("", text) for text in texts]
    return any(secret_words(bare)) or any(
        mask_text(text) != text or any(len(secret) >= MIN_SECRET_CHARS and secret in text for secret in secrets)
        for text in bare
    )


def _refuse_unknown_words(words: list[str], has_flags: bool) -> None:
    loose = next((word for word in words if systemd.is_open(word)), None)
    if loose is not None and has_flags:
        raise CannotEdit(f"part of its words come from {systemd.shown(loose)}: sparktop can't know what they are")


def _secret_refusal(why: str, drop_in: DropIn) -> NoDropIn:
    folder = drop_in.path.rpartition("/")[0]
    return NoDropIn(
        why,
        f"put it into a root-owned file of mode 0600, named by EnvironmentFile= in {folder}/secrets.conf; for a "
        "container: --env-file in the command",
        "then relaunch without it",
    )
