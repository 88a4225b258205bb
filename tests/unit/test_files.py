"""Files of our own on a real file system: what stands in their place, what is in them, and who may read them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktop import config, faults, files
from sparktop.bringup.catalogue import BY_ID
from sparktop.bringup.kept import ResultFile
from sparktop.clock import SystemClock
from sparktop.documents.attention import Attention
from sparktop.errors import ConfigError
from sparktop.model.bringup import CheckResult
from sparktop.model.state import State
from sparktop.observe.baseline import BaselineFile
from sparktop.operate.audit.interventions import Interventions
from sparktop.operate.audit_file import UNDER_WAY, Audit, AuditError, entries
from sparktop.recipe import operator_secrets
from sparktop.recipe.read import shelf


def load_config(path: Path) -> bool:
    try:
        return config.load(path) == config.Config()
    except ConfigError:
        return True


def read_rules(path: Path) -> bool:
    try:
        return bool(config.read_rule_file(path))
    except ConfigError:
        return True


def read_audit(path: Path) -> bool:
    try:
        return entries(path)[0] == []
    except AuditError:
        return True


READERS: dict[str, Callable[[Path], bool]] = {
    "acknowledged.json": lambda path: not Attention(SystemClock(), path)._marks,
    "baselines.json": lambda path: BaselineFile(path).of("m").boot_id == "",
    "bringup.json": lambda path: not ResultFile(path).read(),
    "config.toml": load_config,
    "rules.toml": read_rules,
    "recipe.yaml": lambda path: shelf.read_file(path).recipe is None,
    ".env": lambda path: operator_secrets.read(path)[0] == {},
    "audit.jsonl": read_audit,
    "audit.jsonl, read on": lambda path: Interventions(path)() == (),
}
"""Each file that we read back: its reader, which says whether nothing was taken from it."""


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def holding(text: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(text)
        path.chmod(0o600)

    return write


PLACES: dict[str, Callable[[Path], None]] = {
    "fifo": fifo,
    "folder": Path.mkdir,
    "endless": device,
    "nothing": lambda path: None,
    "to nowhere": lambda path: path.symlink_to("/nonexistent"),
    "nested": holding(b"[" * 200_000),
    "nested in": holding(b'{"findings":' + b"[" * 900 + b"]" * 900 + b"}"),
    "huge number": holding(b'{"version": 1, "findings": [{"rule": "a", "nodes": [], "subject": "", "severity": "info", '
                           b'"is_acknowledged": true, "snoozed_until_s": 1' + b"0" * 400 + b', "seen_s": 1e400}]}'),
    "other kinds": holding(b'{"version": 1, "findings": [[], {"rule": {}, "nodes": 3}], "machines": 3}'),
    "a list": holding(b"[1, 2]"),
    "bytes": holding(bytes(range(256)) * 10),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_of_ours_is_read_as_none(tmp_path: Path, name: str, place: str) -> None:
    path = tmp_path / name.partition(",")[0]
    PLACES[place](path)
    assert READERS[name](path)


def test_a_long_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    assert files.read_json(path) == {}
    with pytest.raises(OSError, match="is larger than"):
        files.read(path)


@pytest.mark.parametrize("place", ["fifo", "folder", "endless"])
async def test_nothing_is_written_through_what_stands_in_a_file_s_place(tmp_path: Path, place: str) -> None:
    for name in ("audit.jsonl", faults.LOG_NAME, "bringup.lock"):
        PLACES[place](tmp_path / name)
    with pytest.raises(AuditError, match="can't be written"):
        await Audit(tmp_path / "audit.jsonl").keep("intent", {"run": "r"})
    faults.keep_in(tmp_path)
    assert "a fault in sparktop itself" in faults.report("a test", ValueError("x"))
    faults.keep_in(None)
    row = CheckResult(
        check=next(iter(BY_ID)), nodes=(), state=State.PASSED, found="", basis={"a": "b"}, proven_wall_s=1.0
    )
    with pytest.raises(ConfigError, match="can't be written"):
        ResultFile(tmp_path / "bringup.json").keep([row])


async def test_the_audit_follows_no_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious\n")
    (tmp_path / "audit.jsonl").symlink_to(other)
    with pytest.raises(AuditError, match="it is a link"):
        await Audit(tmp_path / "audit.jsonl").keep("intent", {"run": "r"})
    with pytest.raises(AuditError, match="it is a link"):
        entries(tmp_path / "audit.jsonl")
    assert other.read_text() == "precious\n"


FIRST_COMMANDS = {
    "act": "from sparktop.operate.audit_file import Audit, audit_path; a = Audit(); a.hold('r'); a.note('intent', {})",
    "watch": "from sparktop.files import write_private; from sparktop.config import state_home as h; "
    "write_private(h() / 'acknowledged.json', '{}')",
    "evidence": "from sparktop.files import private_folder; from sparktop.config import state_home as h; "
    "private_folder(h() / 'evidence')",
}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("first", FIRST_COMMANDS)
def test_the_state_folder_is_its_owner_s_alone_whatever_comes_first(tmp_path: Path, first: str, umask: int) -> None:
    home = tmp_path / "a" / "state"
    environment = {**os.environ, "XDG_STATE_HOME": str(home)}
    program = f"import os; os.umask({umask}); {FIRST_COMMANDS[first]}"
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    for path in (home, *home.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    (home / "sparktop").chmod(0o777)  # by an earlier version
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    assert first == "evidence" or stat.S_IMODE((home / "sparktop").stat().st_mode) == 0o700
    if first == "act":
        assert (home / "sparktop" / UNDER_WAY / "r").exists()
