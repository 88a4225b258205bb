"""How a model comes to a node: by huggingface_hub there, or in the engine's image, or from the other node. Pure.

Every way is an argv without a shell and without a secret: the token is a variable of the process alone, and its name is
all that `docker run -e` is given. What comes from a node (paths, users, what a program is called) stands only where it
can be nothing else: after `--`, or as a variable's value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePosixPath

from sparktop.model.operation import Command
from sparktop.operate.survey import Output, Survey
from sparktop.recipe.models import Disk, Hub, HubFile

TOKEN = "HF_TOKEN"  # noqa: S105 - a variable's name
USUAL_HUB = "https://huggingface.co"
FETCH_LIMIT_S = 24 * 3600.0
OLDEST_RSYNC = (3, 2, 3)
"""--mkpath."""
INSTALL = "uv tool install huggingface_hub    # or: pipx install huggingface_hub"
_PROGRAMS = ("hf", "huggingface-cli")
"""The older name does nothing any more in huggingface_hub 1.0 and later."""
_PLACES = (".local/bin", ".venv/bin", "venv/bin", "miniconda3/bin", "miniforge3/bin")
"""Below the home: what the login shell adds to PATH isn't seen by a command over SSH."""
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
_VERSION = re.compile(r"\brsync\s+version\s+v?(\d+)\.(\d+)(?:\.(\d+))?")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. +/-]*")
_FILES_AT_MOST = 400
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")
_SSH_COPY = (
    "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o Compression=no "
    "-o Ciphers=^aes128-gcm@openssh.com"
)
"""One cipher is set before the usual ones: it is the one that the CPU does in hardware."""
_IN_IMAGE = (
    "import sys\n"
    "from huggingface_hub import snapshot_download\n"
    "snapshot_download(sys.argv[1], revision=sys.argv[2], allow_patterns=sys.argv[3:] or None)\n"
)
"""The command line's own call: which of its two programs an image has, depends on its age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One that works."""

    name: str
    """ "hf", "huggingface-cli", "the image"."""
    program: str = ""


# --- downloading


def programs_ask(node: str, home: str) -> Output:
    """Which of the programs there are, in PATH and where they usually are installed to."""
    there = [f"{home.rstrip('/')}/{place}/{name}" for name in _PROGRAMS for place in _PLACES] if home else []
    return Output(node=node, argv=("which", "-a", *_PROGRAMS, *there))


def way_of(disk: Disk, survey: Survey, *, has_docker: bool) -> Way | None:
    """The first that works on the node: hf, its older name, the engine's image; None: there is none."""
    said = survey.value(programs_ask(disk.node, disk.home))
    lines = [line for line in said.splitlines() if line.startswith("/")] if isinstance(said, str) else []
    for name in _PROGRAMS:
        for line in lines:
            if PurePosixPath(line).name == name and line.isprintable():
                return Way(name=name, program=line)
    if has_docker and disk.uid is not None and disk.gid is not None and _can_be_mounted(disk.cache):
        return Way(name="the image")
    return None


def download(
    way: Way, disk: Disk, *, repo: str, revision: str, files: Sequence[str], image: str, token: str, hub: str, name: str
) -> Command:
    """The command that downloads, into the cache that engines see.

    Args:
        files: those that are wanted; empty: all of the repository.
        name: of the container, where it runs in one.
    """
    environment = {
        "HF_HOME": disk.cache,
        "HF_HUB_CACHE": disk.hub,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DOWNLOAD_TIMEOUT": "60",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_SHARED_BLOBS": "1",  # every model's folder stays whole by itself, to be copied as it is
        **({"HF_ENDPOINT": hub.rstrip("/")} if hub.rstrip("/") != USUAL_HUB else {}),
        **({TOKEN: token} if token else {}),
    }
    if way.program:
        argv = (way.program, "download", repo, *files, "--revision", revision)
    else:
        passed = [word for key in sorted(environment) for word in ("--env", key)]
        argv = (
            *("docker", "run", "--rm", "--init", "--name", name, "--network", "host"),
            *("--user", f"{disk.uid}:{disk.gid}", "--mount", f"type=bind,source={disk.cache},target={disk.cache}"),
            *(*passed, "--env", "HOME=/tmp", "--entrypoint", "python3", image),
            *("-c", _IN_IMAGE, repo, revision, *files),
        )
    return Command(argv=argv, limit_s=FETCH_LIMIT_S, environment=environment)


def wanted_files(hub: Hub | None) -> tuple[str, ...]:
    """The files by name, where the repository has some that nobody loads; empty: all of it."""
    if hub is None or len(hub.needed) == len(hub.files) or not 1 < len(hub.needed) <= _FILES_AT_MOST:
        return ()
    names = tuple(one.path for one in hub.needed)
    return names if all(_FILE.fullmatch(name) and not name.endswith("/") for name in names) else ()


def coming_bytes(hub: Hub | None) -> int | None:
    """What a download brings, all in all; None: not known."""
    if hub is None:
        return None
    files: tuple[HubFile, ...] = hub.needed if wanted_files(hub) else hub.files
    sizes = [one.size_bytes for one in files]
    return sum(size for size in sizes if size) if sizes and None not in sizes else None


def _can_be_mounted(path: str) -> bool:
    return path.startswith("/") and "," not in path and path.isprintable()


# --- copying


def rsync_ask(node: str) -> Output:
    return Output(node=node, argv=("rsync", "--version"))


def reach_ask(node: str, ip: str, user: str = "") -> Output | None:
    """From `node` to the node that has the model, and whether rsync is there; None for what is no address."""
    where = address(ip, user)
    if where is None:
        return None
    return Output(node=node, argv=(*_SSH, "--", where, "rsync --version"), limit_s=15.0)


def address(ip: str, user: str = "") -> str | None:
    """As ssh is given it."""
    try:
        known = ip_address(ip)
    except ValueError:
        return None
    return f"{user}@{known}" if _USER.fullmatch(user) else str(known)


def has_rsync(said: object) -> bool:
    """Whether this is an rsync that makes folders where they are missing."""
    found = _VERSION.search(said) if isinstance(said, str) else None
    return found is not None and tuple(int(part or 0) for part in found.groups()) >= OLDEST_RSYNC


def copy(ip: str, user: str, source: str, target: str) -> Command:
    """rsync on the node that lacks the model, from the one that has it: there the progress can be seen.

    Links inside the folder (snapshot to blob) stay links; one that leads out of it becomes the file it means. What is
    half there is kept aside and gone on from, under no name that an engine would read.
    """
    host = f"[{ip}]" if ":" in ip else ip
    where = f"{user}@{host}" if _USER.fullmatch(user) else host
    return Command(
        argv=(
            *("rsync", "-rltp", "-s", "--mkpath", "--copy-unsafe-links", "--partial-dir=.rsync-partial"),
            *("--exclude=*.incomplete", "--exclude=.rsync-partial", "--exclude=.locks", "--timeout=300"),
            *("-e", _SSH_COPY, "--", f"{where}:{source.rstrip('/')}/", f"{target.rstrip('/')}/"),
        ),
        limit_s=FETCH_LIMIT_S,
    )


def cache_folder(hub: str, repo: str) -> str:
    """models--ORG--NAME."""
    return f"{hub.rstrip('/')}/models--{repo.replace('/', '--')}"
