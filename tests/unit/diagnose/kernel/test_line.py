"""One kernel line to one event, by the tables in tests/cases/kernel."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.kernel import line as kernel
from sparktop.model.event import KernelEvent
from sparktop.model.telemetry import LogLine

CASES = Path(__file__).resolve().parents[3] / "cases" / "kernel"
ROWS: list[dict[str, Any]] = [
    row
    for table in ("xid", "memory", "machine")
    for row in tomllib.loads((CASES / f"{table}.toml").read_text())["case"]
]
QUIET: dict[str, list[str]] = tomllib.loads((CASES / "quiet.toml").read_text())

PREFIXES = {
    "dmesg": "[ 4321.500000] ",
    "dmesg -T": "[Sun Feb 22 16:24:18 2026] ",
    "dmesg -d": "[  +0.000046] ",
    "dmesg with caller": "[    1.234567][ T4711] ",
    "journalctl": "Aug 28 11:55:08 spark-7e21 kernel: ",
    "journalctl -o short-iso": "2026-10-09T10:15:22+0200 spark-7e21 kernel: ",
    "journalctl -o short-monotonic": "[ 4321.500000] spark-7e21 kernel: ",
    "dmesg --time-format iso": "2026-10-09T10:15:22,123456+02:00 ",
    "syslog with both": "Nov 15 12:43:10 spark-7e21 kernel: [ 7613.977841] ",
    "kmsg": "<4>",
}


def read(text: str, **fields: Any) -> KernelEvent | None:
    return kernel.read(LogLine(text=text, **fields))


@over("row", ROWS, ids=[row["line"][:70] for row in ROWS])
def test_lines_that_matter(row: dict[str, Any]) -> None:
    event = read(row["line"])
    assert event is not None
    assert row["title_contains"] in event.headline
    assert {
        "kind": event.kind,
        "code": event.code,
        "severity": event.severity.value,
        "pid": event.pid,
        "process": event.process,
        "container": event.container_id,
        "follows": event.follows,
        "boot_s": event.first_boot_s,
    } == {
        "kind": row["kind"],
        "code": row.get("code"),
        "severity": row["severity"],
        "pid": row.get("pid"),
        "process": row.get("process"),
        "container": row.get("container"),
        "follows": row.get("follows"),
        "boot_s": row.get("boot_s"),
    }
    assert event.text == row["line"]
    assert event.count == 1
    assert event.advice
    told = " ".join(f"{advice.meaning} {advice.remedy}" for advice in event.advice)
    assert row.get("advice_contains", "") in told


@over("line", [*QUIET["plain"], *QUIET["look_alikes"]])
def test_ordinary_lines_are_no_events(line: str) -> None:
    for prefix in ("", *PREFIXES.values()):
        assert read(prefix + line) is None


def test_an_ordinary_line_meets_no_regular_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps a boot's lines cheap; "nvidia-uvm: " and the like are let through to one regex on purpose."""

    def no_regex(_regex: str) -> Any:
        raise AssertionError("a regular expression ran")

    monkeypatch.setattr(kernel, "expression", no_regex)
    meant_to_pass = ("nvidia-uvm: ", "arm-smmu-v3", "EDAC MC")
    for line in QUIET["plain"]:
        if not any(literal in line for literal in meant_to_pass):
            assert read(line) is None
    with pytest.raises(AssertionError, match="ran"):
        read("INFO: task gnome-shell:3849 blocked for more than 120 seconds.")


@over("prefix, row", product(PREFIXES.values(), ROWS[::5]))
def test_any_prefix_gives_the_same_event(prefix: str, row: dict[str, Any]) -> None:
    bare, _ = kernel.split_prefix(row["line"])
    event = read(prefix + bare, boot_s=9999.0)
    plain = read(bare, boot_s=9999.0)
    assert event is not None
    assert plain is not None
    assert (event.kind, event.code, event.headline, event.pid, event.process) == (
        plain.kind,
        plain.code,
        plain.headline,
        plain.pid,
        plain.process,
    )


def test_a_host_is_not_mistaken_for_the_line() -> None:
    assert kernel.split_prefix("2026-10-09T10:15:22,1+02:00 nvme nvme0: I/O 1 QID 1 timeout, aborting") == (
        "nvme nvme0: I/O 1 QID 1 timeout, aborting",
        None,
    )
    assert kernel.split_prefix("Oct  1 12:00:00 spark-7e21 kernel: [   12.5] x") == ("x", 12.5)


def test_times_come_from_the_line_record_before_the_text() -> None:
    event = read("[  10.5] NVRM: Xid (PCI:000f:01:00): 43, pid=1, name=a, channel 0x2", boot_s=70.25, wall_s=1.78e9)
    assert event is not None
    assert (event.first_boot_s, event.last_boot_s) == (70.25, 70.25)
    assert (event.first_wall_s, event.last_wall_s) == (1.78e9, 1.78e9)


def test_a_port_without_cable_is_news_only_after_boot() -> None:
    line = "mlx5_core 0000:01:00.1: Port module event: module 1, Cable unplugged"
    assert [read(line, boot_s=at) and read(line, boot_s=at).severity.value for at in (9.0, 179.0, 181.0, None)] == [  # type: ignore[union-attr]
        "info",
        "info",
        "warning",
        "warning",
    ]


def test_the_victims_container_gets_its_name() -> None:
    identity = "4f1d5c0b7a9e8d2c6b3a1f0e9d8c7b6a5f4e3d2c1b0a9f8e7d6c5b4a39281706"
    line = next(row["line"] for row in ROWS if row.get("container") == identity)
    event = read(line)
    assert event is not None
    assert event.container is None
    assert kernel.with_container(event, {identity: "vllm-minimax"}).container == "vllm-minimax"
    assert kernel.with_container(event, {identity[:12]: "vllm-minimax"}).container == "vllm-minimax"
    assert kernel.with_container(event, {"0" * 64: "other"}) is event
    xid = read("NVRM: Xid (PCI:000f:01:00): 13,")
    assert xid is not None
    assert kernel.with_container(xid, {identity: "vllm-minimax"}) is xid


@over(
    "cgroup",
    ["/system.slice/docker-{}.scope", "/docker/{}", "/kubepods/pod1/{}", "/a.slice/libpod-{}.scope/container"],
)
def test_container_ids_in_control_groups(cgroup: str) -> None:
    assert kernel.container_id(cgroup.format("ab" * 32)) == "ab" * 32
    assert kernel.container_id(cgroup.format("ab" * 31)) is None


LITERALS = st.sampled_from([*kernel.words(), *(row["line"] for row in ROWS), ", pid=", "name=", "task_memcg=", "pid="])


@given(st.lists(st.one_of(LITERALS, st.text(max_size=40)), max_size=8).map("".join), st.booleans())
def test_any_text_is_read_without_complaint(text: str, stamped: bool) -> None:
    event = read(f"[    5.000000] {text}" if stamped else text)
    if event is not None:
        assert event.title
        assert event.advice
        assert event.pid is None or event.pid >= 0


@over("literal", kernel.words())
def test_hostile_long_lines_end(literal: str) -> None:
    """Repeated openings are what makes a regular expression run away."""
    for filler in ("", " ", "a", "0", ", ", ": ", "(", "-", ", name=a"):
        text = (literal + filler) * 20000
        for line in (text, "[    1.0] " * 5000 + text):
            event = read(line)
            assert event is None or event.title
