"""A service's unit files, and the drop-in that sparktop writes over them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from sparktop.cmdline import docker_run, systemd
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.launch_command import changed
from sparktop.cmdline.systemd import Unreadable, quoted, split
from sparktop.dataclass import dataclass
from sparktop.masking import is_secret
from sparktop.model.survey import FileText, Output, Survey
from sparktop.operate.plan.common_steps import key_values
from sparktop.operate.plan.origin import systemctl
from sparktop.operate.plan.service import unit_folder
from sparktop.operate.relaunch.rank_change import CannotChange, RankChange
from sparktop.operate.secrets.masking import holds_secret, secret_words, secrets_of

NAME = "sparktop.conf"
"""File name of the drop-in."""


HEAD = """\
# Written by sparktop: what its relaunches have changed of this service. To undo: remove this file, then
# systemctl daemon-reload and restart the service.
"""


_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIn:
    """sparktop's drop-in of one service, and what the service is without it."""

    path: str
    before: str | None = field(default=None, repr=False)
    """The drop-in's text now; None: there is none."""
    command: str = field(repr=False)
    """The service's one ExecStart as written, with continued lines joined."""
    has_environment_file: bool = False
    """Whether it has an EnvironmentFile=, whose variables win over Environment=."""
    is_stale: bool = False
    """Files were changed since systemd read them; the reload puts those changes into effect too."""


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
    rows += [f"Environment={quoted(pair, fills=False)}" for pair in _assigned(environment)]
    rows += [f"UnsetEnvironment={quoted(name, fills=False)}" for name, value in environment.items() if value is None]
    rows += ["ExecStart=", f"ExecStart={command}"]
    return HEAD + "\n".join(rows) + "\n"


def drop_in_of(rank_change: RankChange, survey: Survey) -> DropIn:
    """The service's drop-in.

    Raises:
        CannotChange: a drop-in can't make the change.
        Unreadable: the service's command can't be read.
    """
    unit, view, is_own = rank_change.origin.unit, rank_change.rank.view, rank_change.origin.is_own
    node, manager = view.name, systemctl(view, is_own=is_own)
    cat = Output(node=node, argv=(*manager, "cat", "--no-pager", "--", unit))
    names = "FragmentPath,DropInPaths,NeedDaemonReload,Type"
    shown = key_values(survey.text(Output(node=node, argv=(*manager, "show", "--no-pager", "-p", names, "--", unit))))
    folder = unit_folder(view, survey, is_own=is_own)
    path = f"{folder}/{unit}.d/{NAME}"
    drop_in = FileText(node=node, path=path)
    text, before = survey.text(cat) or "", survey.text(drop_in) if folder else None
    if not text.strip():
        why = survey.problem(cat) or "systemd shows none of its files"
        raise CannotChange(f"its files can't be read as this user: {why}")
    fragment = shown.get("FragmentPath", "")
    drop_ins = shown.get("DropInPaths", "").split()
    if "/nix/store/" in text or fragment.startswith("/nix/"):
        raise CannotChange(
            "NixOS generates its units from its configuration",
            "change virtualisation.oci-containers.containers or systemd.services in configuration.nix, then: "
            "sudo nixos-rebuild switch",
        )
    if fragment.startswith(("/run/systemd/generator", "/run/user/")) and "generator" in fragment:
        raise CannotChange(
            "its file is generated, by Podman's Quadlet as a rule",
            f"on {node}: edit the .container file of {unit} (/etc/containers/systemd, ~/.config/containers/systemd), "
            "then systemctl daemon-reload and restart it",
        )
    if not folder:
        raise CannotChange("the user's home folder isn't known")
    if survey.problem(drop_in):
        raise CannotChange(f"{path} can't be read: {survey.problem(drop_in)}")
    settings = [row for row in systemd.settings(text, {fragment, *drop_ins}) if row.section == "Service"]
    source, command = _command(settings)
    if source.endswith(".conf") and source != path and source.rpartition("/")[2] > NAME:
        raise CannotChange(f"{source} sets its command too, and comes after {NAME}", f"change it in {source}")
    environment_files = [row.value.text for row in settings if row.name.text == "EnvironmentFile"]
    return DropIn(
        path=path,
        before=before,
        command=command,
        has_environment_file=bool(environment_files and environment_files[-1]),
        is_stale=shown.get("NeedDaemonReload") == "yes",
    )


def _command(settings: Sequence[systemd.Setting]) -> tuple[str, str]:
    """(the file that sets the one ExecStart, its text); an empty one takes back those before it.

    Raises:
        Unreadable: it has no command, or several.
    """
    commands: list[tuple[str, str]] = []
    for row in settings:
        if row.name.text == "ExecStart":
            commands = [*commands, (row.file, row.value.text)] if row.value.text else []
    if len(commands) != 1:
        raise Unreadable(f"it has {len(commands) or 'no'} commands (ExecStart=)")
    return commands[0]


_ENV = "/usr/bin/env"


_SYSTEMD_VARIABLE = re.compile(rf"{systemd.LIVE}(?:\{{\w+\}}|\w+)")


def edited(rank_change: RankChange, drop_in: DropIn) -> tuple[str, tuple[FlagChange, ...]]:
    """(the drop-in's text with the change, the flags that it changes).

    Raises:
        CannotEdit: the command can't be changed safely.
        CannotChange: a secret would have to be written into it.
        Unreadable: systemd would not run the command as written.
    """
    change = rank_change.change
    for name, value in change.environment.items():
        if value is not None and is_secret(name, value):
            raise _secret_refusal(f"{name} is a secret, and everybody can read a drop-in", drop_in)
    prefix, command = systemd.prefix(drop_in.command)
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
        if drop_in.has_environment_file and change.environment:
            # EnvironmentFile= wins over Environment=, env wins over both
            unset_words = [word for name, value in change.environment.items() if value is None for word in ("-u", name)]
            words = [_ENV, *unset_words, *_assigned(change.environment), *words]
        else:
            environment |= change.environment
    loose = next((word for word in words if systemd.is_open(word)), None)
    if loose is not None and change.flags:
        raise CannotEdit(f"part of its words come from {systemd.shown(loose)}: sparktop can't know what they are")
    texts = [*words, *_assigned(environment)]
    if _holds_secret(texts, secrets_of(rank_change.config)):
        raise _secret_refusal("its command holds a secret, which a drop-in would show to everybody", drop_in)
    text = written(prefix + systemd.joined(words, fills=fills), environment)
    return text, flags


def _native(rank_change: RankChange, words: list[str]) -> tuple[list[str], tuple[FlagChange, ...]]:
    """The command with its flags edited: of the engine itself, or of a shell that starts it."""
    change = rank_change.change
    if rank_change.rank.container is not None and (change.environment or change.options or change.image):
        raise CannotEdit("a shell's text starts its container, where only the engine's flags can be changed safely")
    if change.image or change.options:
        raise CannotEdit("it runs in no container: there is no image and no container option to set")
    command_line = changed((), words, change.flags, change.environment)
    return list(command_line.command), command_line.flags


def _assigned(environment: Mapping[str, str | None]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items() if value is not None]


def _holds_secret(texts: list[str], secrets: Sequence[str]) -> bool:
    """Whether a text has a secret in it; a variable that systemd fills in is none."""
    bare = [_SYSTEMD_VARIABLE.sub("", text) for text in texts]
    return any(secret_words(bare)) or any(holds_secret(text, secrets) for text in bare)


def _secret_refusal(why: str, drop_in: DropIn) -> CannotChange:
    folder = drop_in.path.rpartition("/")[0]
    return CannotChange(
        why,
        f"put it into a root-owned file of mode 0600, named by EnvironmentFile= in {folder}/secrets.conf; for a "
        "container: --env-file in the command",
        "then relaunch without it",
    )
