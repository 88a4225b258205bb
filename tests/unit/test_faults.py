"""How a fault of sparktop's own is named, and where its traceback goes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from sparktop import faults


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    faults.keep_in(tmp_path / "state")
    yield tmp_path / "state" / faults.LOG_NAME
    faults.keep_in(None)


def fault(text: str = "too large") -> Exception:
    try:
        raise OverflowError(text)
    except OverflowError as error:
        return error


def test_the_traceback_is_logged_once_for_a_place(log: Path) -> None:
    text = faults.report("spark1's sample", fault())
    assert text == "a fault in sparktop itself, in spark1's sample: OverflowError: too large"
    faults.report("spark1's sample", fault())
    faults.report("spark2's sample", fault())
    written = log.read_text()
    assert written.count("Traceback (most recent call last)") == 2
    assert "test_faults.py" in written
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_what_a_spark_sent_is_plain_and_masked_in_it(log: Path) -> None:
    text = faults.report("x", fault("\x1b]52;c;A\x07 hf_" + "a" * 30 + "\nsecond"))
    assert text.isprintable()
    assert "hf_a" not in text + log.read_text()
    assert "\x1b" not in log.read_text()


def test_a_deep_recursion_and_many_faults_do_not_fill_the_disk(log: Path) -> None:
    def deep(level: int) -> None:
        if not level:
            raise RecursionError("x")
        deep(level - 1)

    for number in range(100):
        try:
            deep(400)
        except RecursionError as error:
            faults.report(f"place {number}", error)
    assert log.stat().st_size <= 2 * faults.MAX_LOG_BYTES


def test_a_group_is_named_by_its_cause_and_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    faults.keep_in(None)
    group = BaseExceptionGroup("unhandled errors in a TaskGroup", [fault("inner")])
    assert faults.report("x", group).endswith("OverflowError: inner")
    (tmp_path / "file").write_text("")
    faults.keep_in(tmp_path / "file")
    assert faults.report("x", fault("no folder")).endswith("no folder")
    faults.keep_in(None)


async def test_a_socket_that_is_closed_as_it_can_be_read_is_no_fault(
    log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a link's end does to a request over its forwarded socket."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(faults.in_callback)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        stream = await anyio.connect_unix(tmp_path / "socket")
        peer, _ = listener.accept()
        with peer:
            reading = asyncio.create_task(stream.receive())
            await asyncio.sleep(0.01)
            closing = asyncio.create_task(stream.aclose())
            peer.send(b"x")  # found readable in the turn of the loop in which it is closed, and told after that
            with contextlib.suppress(anyio.ClosedResourceError):
                await reading
            await closing
    await asyncio.sleep(0.01)
    assert not log.exists()
    assert not caplog.records


async def test_what_a_callback_raises_goes_to_the_log_and_not_to_the_terminal(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise OverflowError("too large")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(faults.in_callback)
    loop.call_soon(fails)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "in a callback" in log.read_text()
    assert not caplog.records
    faults.keep_in(None)
    loop.call_soon(fails)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "too large" in caplog.text, "with no log it is told as ever"
