"""The observing side against real OpenSSH servers: true figures, every kind of loss named, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.integration.desk import while_running
from tests.integration.sshd import Sshd, sshd
from tests.support import PATIENCE_S, poll, unavailable

from sparktop.model.fleet import FleetState, LinkState, NodeView, Reach
from sparktop.observe.monitor import Monitor

pytestmark = pytest.mark.integration
__all__ = ["sshd"]


@contextlib.asynccontextmanager
async def watching(*servers: Sshd) -> AsyncIterator[Monitor]:
    published: list[FleetState] = []
    connectors = [server.connector(f"spark{number}") for number, server in enumerate(servers, 1)]
    monitor = Monitor(connectors, publish=published.append, interval_s=0.25)
    async with while_running(monitor):
        yield monitor


async def until(monitor: Monitor, condition: Callable[[NodeView], bool]) -> NodeView:
    """Wait until the first node's picture fits."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        node = monitor.state.nodes[0]
        if condition(node):
            return node
        if time.monotonic() > deadline:
            pytest.fail(f"not within {PATIENCE_S} s; the link is {node.link} after {node.link_history}")
        await asyncio.sleep(0.02)


def is_live(node: NodeView) -> bool:
    return node.link.state is LinkState.LIVE and node.sample is not None


def probes(sshd: Sshd) -> set[int]:
    """Processes of the probes that this server started, children included."""
    found, own = set(), f" {sshd.host} {sshd.port}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                is_probe = words[0].endswith((b"python3", b"/sh")) and b"sparktop-probe" in words
                if is_probe or b"SPARKTOP" in b"".join(words):
                    given = (entry / "environ").read_bytes().split(b"\0")
                    if any(one.startswith(b"SSH_CONNECTION=") and one.endswith(own) for one in given):
                        found.add(int(entry.name))
    return found


async def test_two_hosts_show_true_figures(sshd: Sshd, tmp_path: Path) -> None:
    with Sshd.start(tmp_path / "second") as second:
        async with watching(sshd, second) as monitor:
            node = await until(monitor, lambda node: is_live(node) and node.processes is not None)
            assert node.sample is not None
            total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
            assert node.sample.memory.total_bytes == int(total.split()[1]) * 1024
            assert node.facts is not None
            assert node.facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            assert node.ledger is not None
            assert sum(holder.held_bytes for holder in node.ledger.holders) == pytest.approx(
                node.sample.memory.total_bytes, abs=10
            )
            await until(monitor, lambda _: is_live(monitor.state.nodes[1]))
            # Both are this machine, and the console says so rather than showing it twice in silence.
            assert any("one machine" in notice.text for notice in monitor.state.notices)


async def test_a_killed_session_is_lost_and_comes_back(sshd: Sshd) -> None:
    async with watching(sshd) as monitor:
        before = await until(monitor, is_live)
        sshd.kill_sessions()
        await until(monitor, lambda node: node.link.state is LinkState.LOST)
        after = await until(monitor, is_live)
        states = [change.state for change in after.link_history]
        assert states == [LinkState.LIVE, LinkState.LOST, LinkState.LIVE]
        assert after.sample is not None
        assert before.sample is not None
        assert after.sample.boot_s > before.sample.boot_s
        assert after.available_history.values[0] is not None


async def test_a_frozen_host_is_called_starved_and_thaws(sshd: Sshd) -> None:
    async with watching(sshd) as monitor:
        await until(monitor, is_live)
        sshd.freeze()
        stopped = sshd.kill_sessions(signal.SIGSTOP)
        try:
            stale = await until(monitor, lambda node: node.link.state is LinkState.STALE)
            assert stale.sample is not None
            named = await until(monitor, lambda node: node.link.reach is Reach.SSH_SILENT)
            assert "answers TCP" in named.link.reason
            await until(monitor, lambda node: node.link.state is LinkState.LOST)
        finally:
            sshd.thaw()
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        await until(monitor, is_live)


async def test_a_stopped_sshd_is_named_and_its_return_seen(sshd: Sshd) -> None:
    async with watching(sshd) as monitor:
        await until(monitor, is_live)
        sshd.stop()
        named = await until(monitor, lambda node: node.link.reach is Reach.NO_SSHD)
        assert named.link.state is LinkState.LOST
        assert "nothing listens" in named.link.reason
        sshd.run()
        await until(monitor, is_live)


async def test_a_probe_that_is_killed_is_started_again_on_the_same_connection(sshd: Sshd) -> None:
    async with watching(sshd) as monitor:
        await until(monitor, is_live)
        connections = sshd.connection_pids()
        first = monitor.state.nodes[0].sample
        assert first is not None
        for pid in probes(sshd):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await until(
            monitor, lambda node: is_live(node) and node.sample is not None and node.sample.boot_s > first.boot_s + 0.6
        )
        assert sshd.connection_pids() == connections


async def test_without_python3_the_console_says_what_to_install(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "bash", "env"):  # what a login shell may want of itself
        (programs / name).symlink_to(shutil.which(name) or "/bin/sh")
    with Sshd.start(tmp_path / "bare", options={"SetEnv": f"PATH={programs}"}) as bare:
        async with watching(bare) as monitor:
            node = await until(monitor, lambda node: node.link.state is LinkState.REFUSED)
            assert "python3" in node.link.hint
            monitor.retry_now("spark1")
            await until(monitor, lambda node: node.link.attempt == 2)


async def test_an_xid_written_to_the_kernel_log_appears(sshd: Sshd) -> None:
    if not os.access("/dev/kmsg", os.W_OK):
        unavailable("the kernel log can't be written here")
    async with watching(sshd) as monitor:
        await until(monitor, lambda node: is_live(node) and bool(node.kernel_source))
        pid = os.getpid()
        Path("/dev/kmsg").write_text(
            f"<3>NVRM: Xid (PCI:000f:01:00): 43, pid={pid}, name=[/{pid}], channel 0x00000002\n"
        )
        mine = f"[/{pid}]"  # other tests of this process write Xids too, and the kernel keeps them
        node = await until(monitor, lambda node: any(event.process == mine for event in node.kernel_events))
        event = next(event for event in node.kernel_events if event.process == mine)
        assert (event.code, event.pid) == (43, pid)
        assert event.advice


async def test_a_clean_end_leaves_no_process(sshd: Sshd) -> None:
    async with watching(sshd) as monitor:
        await until(monitor, lambda node: is_live(node) and node.processes is not None)
        assert probes(sshd)
    poll(lambda: not probes(sshd), what="the probe's end")


def test_a_killed_client_leaves_no_process(sshd: Sshd) -> None:
    sshd.trust()
    config = sshd.alias("spark1")
    words = [sys.executable, "-m", "sparktop", "status", "--watch", "--json", "-F", str(config), "spark1"]
    client = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert b'"live"' in client.stdout.readline()
    assert probes(sshd)
    client.kill()
    client.wait()
    client.stdout.close()
    poll(lambda: not probes(sshd), what="the probe's end")


async def test_a_killed_sshd_leaves_no_process(sshd: Sshd) -> None:
    async with watching(sshd) as monitor:
        await until(monitor, lambda node: is_live(node) and node.processes is not None)
        sshd.stop()
        await until(monitor, lambda node: node.link.state is LinkState.LOST)
        poll(lambda: not probes(sshd), what="the probe's end")


async def test_a_shell_that_prints_three_megabytes_is_named(tmp_path: Path) -> None:
    prints = "yes welcome | head -c 3000000; eval $SSH_ORIGINAL_COMMAND"
    with Sshd.start(tmp_path / "sshd", options={"ForceCommand": prints}) as sshd:
        async with watching(sshd) as monitor:
            node = await until(monitor, lambda node: node.link.state is LinkState.REFUSED)
            assert "printed more than 64 KiB" in node.link.reason
            assert "welcome" in node.link.hint


async def test_a_shell_that_eats_standard_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktop.observe.probe_session.START_LIMIT_S", 6.0)
    with Sshd.start(tmp_path / "sshd", options={"ForceCommand": "cat >/dev/null"}) as sshd:
        async with watching(sshd) as monitor:
            node = await until(monitor, lambda node: "has not started for" in node.link.reason)
            assert node.link.state is LinkState.CONNECTING
            assert "standard input" in node.link.hint
            node = await until(monitor, lambda node: "did not start within 6 s" in node.link.reason)
            assert node.link.next_attempt_s is not None
