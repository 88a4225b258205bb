"""`sparktop watch --install`: a user service of this machine, by systemd or launchd, that keeps the watcher running."""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sparktop.cmdline.systemd import joined, quoted
from sparktop.config import shown
from sparktop.dataclass import dataclass
from sparktop.errors import ConfigError, UsageError
from sparktop.headless.terminal import say

NAME = "sparktop-watch"
MARK = "Written by `sparktop watch`, and its to overwrite or remove"
_KEPT = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")
"""Variables of the shell that say where the watcher's files are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service file, and the commands that start and stop it."""

    path: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    hint: str


def service(argv: Sequence[str], platform: str = sys.platform) -> Service:
    """The service of this machine's kind that runs `argv`."""
    kept = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    return _agent(argv, kept) if platform == "darwin" else _unit(argv, kept)


def _unit(argv: Sequence[str], kept: dict[str, str]) -> Service:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    environment = "".join(f"Environment={quoted(f'{name}={value}', fills=False)}\n" for name, value in kept.items())
    text = f"""\
# {MARK}
[Unit]
Description=sparktop watches, and announces incidents

[Service]
ExecStart={joined(argv)}
{environment}Restart=always
RestartSec=10
# 2: the configuration is wrong, which starting again doesn't change
RestartPreventExitStatus=2
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""
    control = ("systemctl", "--user")
    return Service(
        path=base / "systemd" / "user" / f"{NAME}.service",
        text=text,
        start=((*control, "daemon-reload"), (*control, "enable", NAME), (*control, "restart", NAME)),
        stop=((*control, "disable", "--now", NAME),),
        hint="it stops at your logout unless you linger: loginctl enable-linger · its log: "
        f"journalctl --user -u {NAME}",
    )


def _agent(argv: Sequence[str], kept: dict[str, str]) -> Service:
    label = f"org.sparktop.{NAME}"
    path = Path.home() / "Library" / "LaunchAgents" / f"{label}.plist"
    log = str(Path.home() / "Library" / "Logs" / f"{NAME}.log")
    job = {
        "Label": label,
        "ProgramArguments": list(argv),
        "EnvironmentVariables": kept,
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    text = plistlib.dumps(job).decode().replace("<plist", f"<!-- {MARK} -->\n<plist", 1)
    return Service(
        path=path,
        text=text,
        start=(("launchctl", "unload", str(path)), ("launchctl", "load", "-w", str(path))),
        stop=(("launchctl", "unload", "-w", str(path)),),
        hint=f"its log: {log}",
    )


def install(made: Service, *, is_agreed: bool) -> int:
    """Print the service file; agreed to, write and start it; the exit code.

    Raises:
        ConfigError: the file can't be written, or another one stands there.
    """
    if not is_agreed:
        print(made.text, end="", flush=True)
        say(f"not written; --yes writes it to {shown(made.path)} and starts it")
        return 0
    _refuse_stranger(made.path)
    try:
        made.path.parent.mkdir(parents=True, exist_ok=True)
        made.path.write_text(made.text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{made.path} can't be written: {error.strerror or error}") from error
    problem = _run(made.start)
    retry = " && ".join(" ".join(command) for command in made.start)
    after = f"not started: {problem}\n  start it yourself: {retry}" if problem else f"started; {made.hint}"
    say(f"written to {shown(made.path)}, {after}")
    return int(bool(problem))


def remove(made: Service) -> int:
    """Stop the service and remove its file; the exit code.

    Raises:
        UsageError: there is none.
        ConfigError: another one stands there.
    """
    if not made.path.exists():
        raise UsageError(f"there is no {shown(made.path)}", hint="sparktop watch --install HOST")
    _refuse_stranger(made.path)
    problem = _run(made.stop)
    made.path.unlink()
    say(f"removed {shown(made.path)}{f'; it may still run: {problem}' if problem else ', and stopped'}")
    return int(bool(problem))


def _refuse_stranger(path: Path) -> None:
    if path.exists() and MARK not in path.read_text("utf-8", "replace"):
        raise ConfigError(f"{shown(path)} isn't sparktop's: it stays as it is", hint="move it away, then try again")


def _run(commands: Sequence[Sequence[str]]) -> str:
    """Run the commands; what went wrong with the last one."""
    problem = ""
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            said = done.stderr.strip() or f"{command[0]} ended with code {done.returncode}"
            problem = said.splitlines()[-1] if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = f"{command[0]}: {error}"
    return problem
