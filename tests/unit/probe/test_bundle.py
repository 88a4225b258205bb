"""Packing the probe, recognising its command line, and explaining why it didn't start."""

from __future__ import annotations

import ast
import asyncio
import shlex
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop import wire
from sparktop.errors import ProbeError
from sparktop.probe import bundle
from sparktop.probe.remote.children import unpack
from sparktop.probe.remote.main import PROTOCOL


def test_constants_are_the_protocols() -> None:
    assert PROTOCOL == wire.PROTOCOL


def test_a_launch_holds_the_probe_and_nvidias_module() -> None:
    launch = bundle.launch(interval_s=1.0)
    opened = zlib.decompressobj()
    first = opened.decompress(launch.payload)
    parts = {name: zlib.decompress(packed) for name, packed in unpack(opened.unused_data).items()}
    start, later = bundle.sources("probe")
    assert first == b"\0".join(f"{name}\n".encode() + text for name, text in start.items())
    assert {name: parts[name] for name in later} == later
    assert set(parts) - set(later) == {"engine_marks", "pynvml"}
    assert b"def nvmlInit" in parts["pynvml"]
    assert launch.digest == f"{zlib.crc32(launch.payload):08x}"
    assert launch.argv[:2] == ("/bin/sh", "-c")
    assert len(shlex.join(launch.argv)) < 4096


def test_packing_is_done_once_and_nonces_differ() -> None:
    one, two = bundle.launch(interval_s=1.0), bundle.launch(interval_s=2.0)
    assert one.payload is two.payload
    assert one.nonce != two.nonce


def test_stage_0_can_stand_in_single_quotes_and_in_any_python_3() -> None:
    script = bundle.launch(interval_s=1.0).argv[2]
    stage_0 = script.partition("python3 -I -S -B -c '")[2].rpartition('\' "$@"')[0]
    assert stage_0
    assert "'" not in stage_0
    ast.parse(stage_0, feature_version=(3, 4))
    subprocess.run(["/bin/sh", "-n", "-c", script], check=True)


def test_an_older_python_is_refused_by_its_version() -> None:
    launch = bundle.launch(interval_s=1.0)
    stage_0 = launch.argv[2].partition("python3 -I -S -B -c '")[2].rpartition('\' "$@"')[0]
    script = f"import sys; sys.version_info = (3, 8, 10); sys.version = '3.8.10 (default)'; exec({stage_0!r})"
    done = subprocess.run([sys.executable, "-c", script], input=launch.payload, capture_output=True, check=False)
    assert done.returncode == bundle.OLD_PYTHON_EXIT
    assert done.stdout.strip() == b"SPARKTOP-OLDPY 3.8.10"
    assert "3.8.10" in bundle.explain_failure(done.returncode, "", done.stdout)


@given(interval_s=st.floats(0.1, 60), lease_s=st.sampled_from([30.0, 1.5]))
def test_a_command_line_is_recognised_as_an_ssh_server_gets_it(interval_s: float, lease_s: float) -> None:
    launch = bundle.launch(interval_s=interval_s, lease_s=lease_s)
    found = bundle.parse_command(shlex.join(launch.argv))
    assert found is not None
    assert found.length == len(launch.payload)
    assert f"{found.crc:08x}" == launch.digest
    assert found.nonce == launch.nonce
    assert found.interval_s == pytest.approx(interval_s, rel=1e-4)
    assert found.lease_s == lease_s


@over(
    "command",
    ["", "ls -l", "sparktop-probe", "sparktop-probe 1 2", "x sparktop-probe a b c d", "echo 'unclosed sparktop-probe"],
)
def test_other_commands_are_not_recognised(command: str) -> None:
    assert bundle.parse_command(command) is None


@given(st.text(max_size=60))
def test_any_command_is_looked_at_without_failing(command: str) -> None:
    for text in (command, "sparktop-probe " + command):
        arguments = bundle.parse_command(text)
        assert arguments is None or str(arguments.length) in text


@over(
    "status, stderr, stdout, words",
    [
        (97, "", b"SPARKTOP-NOPY\n", "sudo apt install python3"),
        (96, "", b"SPARKTOP-OLDPY 3.8.10\n", "3.8.10"),
        (98, "sparktop: the probe arrived damaged: 5 of 9 bytes", b"", "5 of 9"),
        (95, "", b"SPARKTOP x\n", "not Linux"),
        (127, "bash: line 1: /bin/sh: No such file", b"", "No such file"),
        (1, "", b"This account is currently not available.\n", "no shell"),
        (0, "", b"Welcome to git\n", "forced command"),
        (1, "boom", b"", "boom"),
        (None, "", b"", "killed before it started"),
        (70, "sparktop: the probe failed: MemoryError: ", b"", "MemoryError"),
    ],
)
def test_failures_are_explained(status: int | None, stderr: str, stdout: bytes, words: str) -> None:
    assert words in bundle.explain_failure(status, stderr, stdout)


@given(status=st.none() | st.integers(0, 255), stderr=st.text(max_size=80), stdout=st.binary(max_size=80))
def test_an_explanation_is_one_clean_line_whatever_was_printed(status: int | None, stderr: str, stdout: bytes) -> None:
    said = bundle.explain_failure(status, stderr, stdout)
    assert said
    assert said.isprintable() or not said.isascii()
    assert "\x1b" not in said
    assert "\n" not in said


class Printing:
    """A remote command that prints these pieces, then ends with `status`, or never."""

    def __init__(self, *pieces: bytes, status: int | None = None) -> None:
        self.pieces = list(pieces)
        self.status = status
        self.read_bytes = 0

    async def read(self, limit: int = 65536) -> bytes:
        piece = self.pieces.pop(0) if self.pieces else b""
        self.read_bytes += len(piece)
        return piece

    def error_tail(self) -> str:
        return ""

    async def exit_status(self) -> int | None:
        if self.pieces:
            await asyncio.Event().wait()  # output that nobody reads keeps it from ending
        return self.status


async def test_what_a_shell_prints_first_is_skipped() -> None:
    noise = [b"Welcome to \x1b[1mDGX\x1b[0m\n" * 100, b"SPARKTOP other\nSPARK", b'TOP n1\n{"kind":', b"later"]
    assert await bundle.greeted(Printing(*noise), "n1") == b'{"kind":'


async def test_a_shell_that_prints_without_end_is_cut_and_named() -> None:
    printing = Printing(*[b"\x1b[31mno space left\n" * 1000] * 200)
    with pytest.raises(ProbeError, match="printed more than 64 KiB") as refused:
        await asyncio.wait_for(bundle.greeted(printing, "n1", "runner"), 10)
    assert printing.read_bytes < 2 * bundle.GREETING_LIMIT_BYTES
    assert refused.value.hint is not None
    assert "no space left" in refused.value.hint
    assert "\x1b" not in refused.value.hint


async def test_a_command_that_ends_first_says_why() -> None:
    with pytest.raises(ProbeError, match="the probe didn't start") as refused:
        await bundle.greeted(Printing(b"hello\n", status=0), "n1")
    assert refused.value.hint is not None
    assert "something else" in refused.value.hint
