"""Run git: copies a repository's newest state as plain files, and says at which commit a folder is.

A repository is somebody else's: its URL is no option and no program, its links become text, none of its hooks,
submodules or large files is fetched or run, and the copy keeps no `.git` that could. git asks for nothing: a password
comes from its own credential helper, a key from ssh's agent.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

from sparktop import sanitise
from sparktop.errors import SparktopError, UsageError
from sparktop.masking import mask_text

CLONE_LIMIT_S = 600.0
_HEAD_LIMIT_S = 10.0
_SETTINGS = ("-c", "core.hooksPath=/dev/null", "-c", "core.symlinks=false", "-c", "core.fsmonitor=false")
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "https:ssh:file",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
}
_OF_A_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
"""Variables that a hook sets, and that would lead git to another repository."""
_URL = re.compile(
    r"https://[^\s@/-][^\s@]*|file:///.+|ssh://([\w.+-]+@)?[\w\[][^\s@]*|[\w.+-]+@\w[\w.-]*:[^\s-]\S*", re.ASCII
)


class GitFailed(SparktopError):
    """git isn't there, or it could not do what it was asked for."""


def check_url(url: str) -> None:
    """Refuse a URL that git would take for something else, that travels unprotected, or that holds a password.

    Raises:
        UsageError: it is no https, ssh or file URL.
    """
    if _URL.fullmatch(url) and url.isprintable():
        return
    shown = mask_text(sanitise.line(url, limit=256))
    if url.startswith("https://") and "@" in url:
        hint = "leave it out, and keep it in git's credential helper: git help credentials"
        raise UsageError(
            f"{shown} holds a user name or a password, which every user of this machine could see", hint=hint
        )
    hint = "https://HOST/REPOSITORY, git@HOST:REPOSITORY, file:///FOLDER, or a folder of this machine: ./FOLDER"
    raise UsageError(f"{shown!r} is no folder here and no https, ssh or file URL", hint=hint)


def clone(url: str, folder: Path) -> tuple[str, str]:
    """Copy the files of the repository's newest commit into a new folder; (commit, its day).

    Raises:
        GitFailed: the repository can't be read.
    """
    flags = ("--quiet", "--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules", "--template=")
    _git(("clone", *flags, "--", url, str(folder)), CLONE_LIMIT_S, url)
    commit, day = head(folder)
    if not commit:
        raise GitFailed(f"{url} has no commit", hint="look at the repository")
    shutil.rmtree(folder / ".git")
    return commit, day


def head(folder: Path) -> tuple[str, str]:
    """(commit that is checked out there, its day); empty where it is no checkout, or git can't tell."""
    try:
        words = ("-C", str(folder), "log", "-1", "--no-show-signature", "--format=%H %cs")
        told = _git(words, _HEAD_LIMIT_S, str(folder))
    except GitFailed:
        return "", ""
    commit, _, day = told.strip().partition(" ")
    return (commit, day) if re.fullmatch(r"[0-9a-f]{40,64}", commit) else ("", "")


def _git(words: tuple[str, ...], limit_s: float, place: str) -> str:
    """What git prints; `place` is the repository, as an error names it."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY} | _ENVIRONMENT
    try:
        process = subprocess.Popen(
            ["git", *_SETTINGS, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # with what git starts, it has no terminal to ask on, and ends as one
        )
    except OSError as error:
        raise GitFailed(f"git can't be run: {error.strerror or error}", hint="install git") from error
    try:
        out, errors = process.communicate(timeout=limit_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise GitFailed(f"git got no answer from {place} in {limit_s:.0f} s", hint="try again") from None
        raise
    if process.returncode:
        lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
        causes = [line for line in lines if not line.lower().startswith(("warning", "cloning", "remote:"))]
        why = (causes or lines or ["it does not say why"])[0]  # what ssh says comes before git's own
        said = mask_text(sanitise.line(why.removeprefix("fatal: "), limit=300))
        raise GitFailed(f"git can't read {place}: {said}", hint=f"try it by hand: git ls-remote {shlex.quote(place)}")
    return out.decode("utf-8", "replace")
