"""Whether the desktop answers: the question on the wire, a bus that behaves badly, and the compositor's own state."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import bus_support
from tests.bus_support import FakeBus

from sparktop.model.telemetry import DesktopReading
from sparktop.probe.remote.desktop import Desktop, bus_message, parse_bus_message
from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.system import boottime
from sparktop.wire.decode import decode

Lay = Callable[..., None]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Lays a process down in a folder like /proc."""

    def add(
        pid: int, comm: str, *, uid: int | None = None, state: str = "S", ticks: int = 40, wchan: str = "do_sys_poll"
    ) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir(exist_ok=True)
        fields = [state, "1", *["0"] * 9, str(ticks), "2", *["0"] * 6, "5000", "1", "100", "0", "0"]
        (folder / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
        (folder / "status").write_text(f"Uid:\t{os.getuid() if uid is None else uid}\t0\t0\t0\n")
        (folder / "wchan").write_text(wchan)

    return add


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[FakeBus]:
    folder = tmp_path / "run" / str(os.getuid())
    folder.mkdir(parents=True)
    made = FakeBus(folder / "bus")
    yield made
    made.close()


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desktop:
    monkeypatch.setattr("sparktop.probe.remote.desktop.SILENT_S", 0.15)
    return Desktop(str(tmp_path), str(tmp_path / "run"))


def looked(desktop: Desktop, *pids: int, ask: bool = True) -> list[dict[str, Any]]:
    return list(desktop.look(pids, ask=ask))


def test_a_shell_that_answers(desktop: Desktop, bus: FakeBus, lay: Lay) -> None:
    lay(3849, "gnome-shell")
    for _ in range(3):
        (told,) = looked(desktop, 3849)
        assert (told["answers"], told["silent"], told["reason"]) == (True, None, "")
    # One connection for all, and never a Ping, which the thread that reads the bus answers for a dead shell too.
    assert [(call[1], call[2], call[3], call[6]) for call in bus.calls] == [
        ("/org/gnome/Shell", "org.freedesktop.DBus.Properties", "Get", "org.gnome.Shell")
    ] * 3


def test_silence_is_asked_twice_and_lasts_until_an_answer(desktop: Desktop, bus: FakeBus, lay: Lay) -> None:
    lay(3849, "gnome-shell")
    bus.answers = "nothing"
    before = boottime()
    first, second = looked(desktop, 3849)
    (third,) = looked(desktop, 3849, ask=False)
    assert [told["answers"] for told in (first, second, third)] == [False] * 3
    assert before - 0.01 <= first["silent"] == second["silent"] == third["silent"] < first["boot"] < second["boot"]
    bus.answers = "well"
    (told,) = looked(desktop, 3849)
    assert (told["answers"], told["silent"]) == (True, None)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ("error", "ServiceUnknown"),
        ("rubbish", "not a D-Bus message"),
        ("closes", "closed the connection"),
        ("refuses", "rejected the login"),
    ],
)
def test_a_bus_that_misbehaves_is_no_frozen_shell(
    desktop: Desktop, bus: FakeBus, lay: Lay, answers: str, why: str
) -> None:
    lay(3849, "gnome-shell")
    bus.answers = answers
    (told,) = looked(desktop, 3849)
    assert (told["answers"], told["silent"]) == (None, None)
    assert why in told["reason"]


def test_without_a_bus_it_says_why(desktop: Desktop, lay: Lay) -> None:
    lay(3849, "gnome-shell")
    (told,) = looked(desktop, 3849)
    assert told["answers"] is None
    assert "No such file" in told["reason"]


@pytest.mark.parametrize(("uid", "greeter"), [(1000 + os.getuid(), False), (121, True), (60_600, True)])
def test_another_users_bus_is_left_alone(desktop: Desktop, lay: Lay, uid: int, greeter: bool) -> None:
    lay(3849, "gnome-shell", uid=uid)
    (told,) = looked(desktop, 3849)
    assert told["answers"] is None
    assert f"belongs to user {uid}" in told["reason"]
    assert told["greeter"] is greeter


def test_ours_comes_first_then_a_session_then_what_draws(desktop: Desktop, lay: Lay) -> None:
    lay(900, "gnome-shell", uid=121)
    lay(1000, "Xorg", uid=4000)
    lay(1001, "gnome-shell", uid=4000)
    lay(1002, "nautilus", uid=4000)
    lay(1003, "gnome-shell", state="Z")
    every = (900, 1000, 1001, 1002, 1003, 5555)
    assert looked(desktop, *every, ask=False)[0]["pid"] == 1001
    lay(2000, "Xorg")
    assert looked(desktop, *every, 2000, ask=False)[0]["pid"] == 2000
    assert "session bus" in looked(desktop, 2000)[0]["reason"]


def test_a_wait_in_the_kernel_counts_only_while_nothing_runs(desktop: Desktop, lay: Lay) -> None:
    def state(**how: Any) -> dict[str, Any]:
        lay(3849, "gnome-shell", **how)
        (told,) = looked(desktop, 3849, ask=False)
        return told

    assert state(state="S")["blocked"] is None
    first = state(state="D", ticks=41, wchan="nv_drm_atomic_commit")
    assert first["blocked"] == pytest.approx(boottime(), abs=5)
    time.sleep(0.01)
    again = state(state="D", ticks=41, wchan="nv_drm_atomic_commit")
    assert again["blocked"] == first["blocked"] < again["boot"]
    moved = state(state="D", ticks=42)
    assert moved["blocked"] > first["blocked"]
    assert state(state="S", ticks=42)["blocked"] is None


def test_another_compositor_starts_anew_and_none_is_said(desktop: Desktop, bus: FakeBus, lay: Lay) -> None:
    lay(3849, "gnome-shell")
    bus.answers = "nothing"
    assert looked(desktop, 3849)[0]["answers"] is False
    lay(3990, "gnome-shell")
    (told,) = looked(desktop, 3990, ask=False)
    assert (told["answers"], told["silent"]) == (None, None)
    (told,) = looked(desktop)
    assert set(told) == {"kind", "boot", "reason"}


def test_a_greedy_bus_is_cut_off() -> None:
    huge = struct.pack("<BBBBIII", ord("l"), 2, 0, 1, 1 << 30, 1, 8)
    with pytest.raises(ValueError, match="too large"):
        parse_bus_message(huge)


def test_our_messages_are_as_another_writer_writes_them() -> None:
    ours = bus_message(7, "org.gnome.Shell", "/org/gnome/Shell", "Get", ("org.gnome.Shell", "Mode"))
    body = bus_support.padded(bus_support.text("org.gnome.Shell"), 4) + bus_support.text("Mode")
    theirs = bus_support.message(
        bus_support.CALL,
        7,
        {
            1: ("o", "/org/gnome/Shell"),
            2: ("s", "org.freedesktop.DBus.Properties"),
            3: ("s", "Get"),
            6: ("s", "org.gnome.Shell"),
            8: ("g", "ss"),
        },
        body,
    )
    assert ours[2] == 2  # start nothing that isn't there
    assert ours[:2] + b"\0" + ours[3:] == theirs
    assert parse_bus_message(ours) == (len(ours), 1, None, "")
    assert all(parse_bus_message(ours[:end]) is None for end in range(len(ours)))


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    for start in (b"", b"l\x02\x00\x01" + struct.pack("<III", 0, 1, 120)):
        try:
            found = parse_bus_message(start + data)
        except ValueError:
            continue
        assert found is None or found[0] >= 16


def test_the_message_decodes(desktop: Desktop, bus: FakeBus, lay: Lay) -> None:
    lay(3849, "gnome-shell", state="D", wchan="nv\x1b[31mdrm")
    (told,) = looked(desktop, 3849)
    reading = decode(encode(told).encode())
    assert isinstance(reading, DesktopReading)
    assert (reading.compositor, reading.pid, reading.state, reading.answers) == ("gnome-shell", 3849, "D", True)
    assert reading.wait_channel is not None
    assert "\x1b" not in reading.wait_channel
    assert reading.blocked_since_boot_s is not None
    nobody = decode(b'{"kind":"desktop","boot":12.5,"reason":"no compositor runs"}')
    assert nobody == DesktopReading(boot_s=12.5, reason="no compositor runs")
