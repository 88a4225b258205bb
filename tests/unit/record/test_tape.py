"""A tape is readable up to its last whole line whatever ended its writer, keeps to its limits, and is its owner's."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparktop.clock import ManualClock
from sparktop.errors import UsageError
from sparktop.record import writer as module
from sparktop.record.reader import entries, heading_of
from sparktop.record.tape import Recording, folder_of, recordings
from sparktop.record.writer import Limits, TapeWriter


def tape(home: Path, **more: object) -> TapeWriter:
    limits = Limits(**{"days": 7.0, "total_bytes": 1 << 30, **more})  # type: ignore[arg-type]
    return TapeWriter("spark1", limits=limits, product="1.2.3", home=home, wall=lambda: 1_780_000_000.0, lead_s=0.0)


def newest(home: Path) -> Recording:
    return recordings(folder_of("spark1", home))[-1]


def test_what_was_put_is_read_back_and_is_nobody_elses(tmp_path: Path) -> None:
    one = tape(tmp_path)
    for number in range(1000):
        one.put(number / 8, "probed", json.dumps({"seq": number, "text": "ä\\n"}).encode())
    one.close()
    (file,) = newest(tmp_path).files
    assert [json.loads(entry.payload)["seq"] for entry in entries([file])] == list(range(1000))
    assert [entry.at_s for entry in entries([file])][-1] == 124.875
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert heading_of(file).host == "spark1"


def test_after_a_kill_all_but_the_last_seconds_can_be_read(tmp_path: Path) -> None:
    script = f"""
import sys, time; from pathlib import Path; sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.unit.record.test_tape import tape
one, at_s = tape(Path({str(tmp_path)!r})), 0.0
while True:
    at_s += 0.5
    one.put(at_s, "probed", b'{{"seq":%d}}' % (at_s * 2))
    print(int(at_s * 2), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(500)]
        os.kill(writer.pid, signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().split()]
    read = [json.loads(entry.payload)["seq"] for entry in entries(newest(tmp_path).files)]
    assert read[: len(said)] == said[: len(read)]  # the newest may be kept and not yet said
    assert len(read) > len(said) - 2 * module.FLUSH_S / 0.5


def test_after_the_operators_machine_slept_the_times_are_those_of_the_wall(tmp_path: Path) -> None:
    wall = ManualClock(wall=1_780_000_000.0)
    lead_s = wall.wall() - wall.monotonic()
    one = TapeWriter("spark1", limits=Limits(), product="0", home=tmp_path, wall=wall.wall, lead_s=lead_s)
    for slept_s in (0.0, 0.0, 7200.0, 0.0):
        one.put(wall.monotonic(), "probed", b"{}", kept="probed")
        wall.advance(1.0)
        wall._wall += slept_s
    one.close()
    files = newest(tmp_path).files
    assert len(files) == 2, "what tells a recording's end by its last file holds"
    assert [entry.at_s - 1_780_000_000.0 for entry in entries(files)] == [0, 1, 2, 7203]


def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tape(tmp_path)
    one.put(1.0, "probed", b"{}")
    one.put(4.0, "probed", b"{}")  # flushed
    write = os.write

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "write", full)
    one.put(8.0, "probed", b"{}")
    assert one.problem == "spark1 is not recorded: the disk is full"
    assert len(list(entries(newest(tmp_path).files))) == 2
    monkeypatch.setattr(module.os, "write", write)
    one.put(9.0, "probed", b"{}")
    assert one.problem, "it is tried once a minute"
    one.put(70.0, "probed", b"{}")
    assert not one.problem
    one.close()
    assert [entry.at_s for entry in entries(newest(tmp_path).files)] == [1.0, 4.0, 70.0]


def test_a_later_file_begins_with_what_stands(tmp_path: Path) -> None:
    one = tape(tmp_path)
    one.put(1.0, "linked", b'"old"', kept="linked")
    one.put(2.0, "linked", b'"new"', kept="linked")
    one.put(3.0, "logged", b'"gone"')
    one.put(3.0 + module.FILE_S, "probed", b'"later"')
    one.close()
    first, second = newest(tmp_path).files
    assert [entry.payload for entry in entries([second])] == [b'"new"', b'"later"']
    assert [entry.payload for entry in entries([first, second])] == [b'"old"', b'"new"', b'"gone"', b'"later"']


def test_the_oldest_files_go_beyond_the_limits(tmp_path: Path) -> None:
    folder = folder_of("spark1", tmp_path)
    folder.mkdir(parents=True)
    for day in range(12):
        file = folder / f"2026010{day % 10}T000000Z-{day}.0000.tape.gz"
        file.write_bytes(b"x" * (1 << 20))
        os.utime(file, (1_780_000_000.0 - day * 86_400.0 - 60.0,) * 2)
    stranger = folder / "notes.txt"
    stranger.write_text("mine")
    one = tape(tmp_path, total_bytes=module.FILE_BYTES + (4 << 20))
    one.put(1.0, "probed", b"{}")
    one.close()
    assert sorted(int(path.name.split("-")[1].split(".")[0]) for path in folder.glob("2026010*")) == [0, 1, 2, 3]
    assert stranger.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"no gzip", "is no recording"),
        (gzip.compress(b"1.0 probed {}\n"), "is no recording"),
        (gzip.compress(b'1.0 tape {"version":99,"host":"spark1"}\n'), "newer sparktop"),
        (gzip.compress(b"1.0 tape " + b"[" * 100_000 + b"\n"), "is no recording"),
        (gzip.compress(b"\0" * (40 << 20)), "is no recording"),
    ],
    ids=["text", "no heading", "newer", "brackets", "a bomb"],
)
def test_what_is_no_tape_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    file = tmp_path / "x.tape.gz"
    file.write_bytes(text)
    with pytest.raises(UsageError, match=message):
        list(entries([file]))


def test_damage_costs_its_lines_alone(tmp_path: Path) -> None:
    lines = [b'1.0 tape {"version":1,"host":"spark1"}', b"1.0 probed 1", b"\xff\xfe", b"x y z", b"", b"2.0 probed 2"]
    file = tmp_path / "x.tape.gz"
    file.write_bytes(gzip.compress(b"\n".join(lines) + b"\n2.0 prob"))
    assert [entry.payload for entry in entries([file])] == [b"1", b"2"]


@pytest.mark.parametrize("host", ["spark1", "me@10.0.0.7:2222", "[fe80::1]", ".hidden"])
def test_a_hosts_folder_is_one_folder_with_its_name(tmp_path: Path, host: str) -> None:
    folder = folder_of(host, tmp_path)
    assert folder.parent == tmp_path
    assert not folder.name.startswith(".")
    file = folder / "20260101T000000Z-1.0000.tape.gz"
    assert Recording(files=(file,)).host == host
