"""Packing the runner, recognising its command line, and how much memory it takes."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from sparktop.probe import bundle


def test_its_command_line_is_recognised_and_holds_no_probe_s() -> None:
    launch = bundle.launch_runner()
    command = shlex.join(launch.argv)
    found = bundle.parse_command(command, bundle.RUNNER_NAME)
    assert found is not None
    assert (found.nonce, found.length, found.lease_s) == (launch.nonce, len(launch.payload), 30.0)
    assert bundle.parse_command(command) is None
    assert bundle.parse_command(shlex.join(bundle.launch(interval_s=1.0).argv), bundle.RUNNER_NAME) is None
    assert len(command) < 2000
    assert len(launch.payload) < 60_000


def test_a_damaged_payload_is_not_run() -> None:
    launch = bundle.launch_runner()
    payload = launch.payload[:-1] + bytes([launch.payload[-1] ^ 1])
    done = subprocess.run(launch.argv, input=payload, capture_output=True, check=False)
    assert done.returncode == bundle.CUT_EXIT
    assert b"the runner arrived damaged" in done.stderr
    assert done.stdout == b""


def test_its_memory_is_small(tmp_path: Path) -> None:
    """11 MB as Debian's python3 has it; the limit here allows for a Python that is built otherwise."""
    tmp_path.chmod(0o700)
    launch = bundle.launch_runner(state_folder=str(tmp_path))
    process = subprocess.Popen(launch.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(launch.payload)
        process.stdin.flush()
        assert process.stdout.readline() == f"SPARKTOP {launch.nonce}\n".encode()
        assert b'"hello"' in process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        own_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
        assert own_kb < 6_000
        assert Path(f"/proc/{process.pid}/comm").read_text() == "sparktop-runner\n"
    finally:
        process.stdin.close()
        assert process.wait(10) == 0
        process.stdout.close()
