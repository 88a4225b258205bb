"""The probe's parsers, on text as a DGX Spark and other machines give it, and on anything at all."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.probe.remote import parsers

# Figures as in docs/facts/gb10.md section 2: a unit while it serves.
MEMINFO_SERVING = b"""MemTotal:       127535276 kB
MemFree:         2149448 kB
MemAvailable:    8134368 kB
Buffers:           42144 kB
Cached:          6812020 kB
SwapCached:       221184 kB
Active(anon):   12345678 kB
Active(file):    1200000 kB
SwapTotal:      16777212 kB
SwapFree:       13635544 kB
Shmem:           3742096 kB
SReclaimable:     812004 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
Hugetlb:               0 kB
"""
PRESSURE = b"some avg10=1.53 avg60=0.87 avg300=0.40 total=1234567\nfull avg10=0.51 avg60=0.22 avg300=0.10 total=7\n"
VMSTAT = b"""nr_free_pages 537362
pswpin 1201
pswpout 88040
allocstall_dma 0
allocstall_dma32 3
allocstall_normal 40
allocstall_movable 7
pgmajfault 90211
oom_kill 2
swap_ra 12
"""


def test_meminfo_keeps_what_matters_in_kilobytes() -> None:
    found = parsers.parse_meminfo(MEMINFO_SERVING)
    assert found["MemTotal"] == 127535276
    assert found["MemAvailable"] == 8134368
    assert found["Active(file)"] == 1200000
    assert found["HugePages_Total"] == 0
    assert "Active(anon)" not in found
    assert set(found) <= set(parsers.MEMINFO_KEYS)


@over(
    "data, expected",
    [
        (PRESSURE, [1.53, 0.87, 0.51, 0.22, 7e-06]),
        (
            b"some avg10=99.00 avg60=50.00 avg300=0.00 total=0\n",
            [99.0, 50.0, 0.0, 0.0, 0.0],
        ),  # no `full` for cpu before 5.13
        (b"", None),
        (b"some avg10=x avg60=0.00 avg300=0.00 total=0\n", None),
        (b"full avg10=1.00 avg60=0.00 avg300=0.00 total=0\n", None),
    ],
)
def test_pressure(data: bytes, expected: list[float] | None) -> None:
    assert parsers.parse_pressure(data) == expected


def test_vmstat_sums_the_allocation_stalls_of_all_zones() -> None:
    assert parsers.parse_vmstat(VMSTAT) == {
        "pswpin": 1201,
        "pswpout": 88040,
        "allocstall": 50,
        "pgmajfault": 90211,
        "oom_kill": 2,
    }


@over(
    "data, expected",
    [
        # user nice system idle iowait irq softirq steal guest guest_nice: guest is inside user, idle is idle + iowait
        (b"cpu  100 10 50 800 40 1 2 3 90 0\ncpu0 1 2 3 4\n", [166, 1006]),
        (b"cpu  100 10 50 800\n", [160, 960]),
        (b"", None),
        (b"intr 12\n", None),
        (b"cpu  1 2 x 4 5\n", None),
    ],
)
def test_cpu(data: bytes, expected: list[int] | None) -> None:
    assert parsers.parse_cpu(data) == expected


def test_load() -> None:
    assert parsers.parse_load(b"20.51 18.02 9.90 3/1892 197277\n") == [20.51, 18.02, 9.9]
    assert parsers.parse_load(b"") is None


@over(
    "comm, state",
    [("python3", "R"), ("VLLM::Worker_TP", "S"), ("a) S (b", "D"), ("((sd-pam))", "Z"), ("", "S")],
)
def test_process_stat_with_any_command_name(comm: str, state: str) -> None:
    fields = [state, "77", *["0"] * 17, "6843", "123456", "512", "0"]
    parsed = parsers.parse_process_stat(f"197277 ({comm}) {' '.join(fields)}\n".encode())
    assert parsed == (comm, state, 77, 6843, 512)


def test_process_stat_that_is_cut_is_none() -> None:
    assert parsers.parse_process_stat(b"1 (init) S 0 1") is None
    assert parsers.parse_process_stat(b"") is None


def test_status() -> None:
    status = b"Name:\tx\nUid:\t1000\t0\t0\t0\nRssAnon:\t 9 kB\nRssFile:\t 200 kB\nRssShmem:\t 24 kB\nVmSwap:\t 8 kB\n"
    assert parsers.parse_status(status) == {"uid": 1000, "shm": 224 * 1024, "swap": 8 * 1024}
    assert parsers.parse_status(b"Name:\tkthreadd\nUid:\t0\t0\t0\t0\n") == {"uid": 0}


CONTAINER = "a" * 64


@over(
    "data, expected",
    [
        (f"0::/system.slice/docker-{CONTAINER}.scope\n", f"/system.slice/docker-{CONTAINER}.scope"),
        (f"12:memory:/docker/{CONTAINER}\n9:pids:/\n0::/\n", f"/docker/{CONTAINER}"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "/user.slice/user-1000.slice/session-3.scope"),
        ("0::/\n", "/"),
        ("", ""),
    ],
)
def test_cgroup(data: str, expected: str) -> None:
    assert parsers.parse_cgroup(data.encode()) == expected


@over(
    "data, expected",
    [
        (
            b"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build\nGCC version: 13.3.0\n",
            "580.142",
        ),
        (b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09  Tue Jan 1 2026\n", "580.126.09"),
        (b"GCC version:  gcc version 13.3.0\n", None),
    ],
)
def test_driver_version(data: bytes, expected: str | None) -> None:
    assert parsers.parse_driver_version(data) == expected


def test_dgx_release_is_the_last_update_and_never_the_serial_number() -> None:
    image = b'DGX_NAME="DGX Spark"\nDGX_PRETTY_NAME="NVIDIA DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n'
    serial = b'DGX_SERIAL_NUMBER="1234567890123"\n'
    updates = b'DGX_OTA_VERSION="7.4.0"\nDGX_OTA_DATE="x"\nDGX_OTA_VERSION="7.6.0"\n'
    assert parsers.parse_dgx_release(image + serial + updates) == "7.6.0"
    assert parsers.parse_dgx_release(image + serial) == "7.2.3"
    assert parsers.parse_dgx_release(serial) is None


# --- the kernel log


def journal(**changes: object) -> bytes:
    entry: dict[str, object] = {
        "__CURSOR": "s=1;i=2",
        "__REALTIME_TIMESTAMP": "1757000010500000",
        "__MONOTONIC_TIMESTAMP": "10500000",
        "_BOOT_ID": "0" * 32,
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "PRIORITY": "3",
        "_SOURCE_MONOTONIC_TIMESTAMP": "10000000",
        "MESSAGE": "NVRM: Xid (PCI:000f:01:00): 43, pid=74059, name=train_gpt2_bf16, channel 0x00000002",
    }
    entry.update(changes)
    return json.dumps({key: value for key, value in entry.items() if value is not None}).encode()


def test_a_journal_line_is_dated_by_the_kernel_and_not_by_its_arrival() -> None:
    boot, wall, priority, text = parsers.parse_journal(journal()) or []
    assert (boot, wall, priority) == (10.0, 1757000010.0, 3)
    assert text.startswith("NVRM: Xid (PCI:000f:01:00): 43")


@over(
    "changes, text",
    [
        ({"MESSAGE": [110, 118, 255, 109, 101]}, "nv�me"),
        ({"MESSAGE": "two\nlines"}, "two lines"),
        ({"MESSAGE": "Xid 79", "SYSLOG_IDENTIFIER": "NVRM"}, "NVRM: Xid 79"),  # written to /dev/kmsg by hand
        (
            {
                "_TRANSPORT": "journal",
                "SYSLOG_IDENTIFIER": "gnome-shell",
                "MESSAGE": "Failed to post KMS update: drmModeAtomicCommit: Invalid argument",
            },
            "gnome-shell: Failed to post KMS update: drmModeAtomicCommit: Invalid argument",
        ),
    ],
)
def test_journal_texts(changes: dict[str, object], text: str) -> None:
    row = parsers.parse_journal(journal(**changes))
    assert row is not None
    assert row[3] == text


@over(
    "line",
    [
        b"",
        b"-- No entries --",
        b"[]",
        journal(MESSAGE=None),
        journal(_TRANSPORT="syslog", SYSLOG_IDENTIFIER="sshd"),
        journal(_TRANSPORT="journal", SYSLOG_IDENTIFIER="gnome-shell", MESSAGE="Window manager warning"),
        journal(MESSAGE=[1, 2, 999]),
        journal()[:60],
        b"[" * 100_000,
    ],
)
def test_what_is_no_kernel_line_is_left_out(line: bytes) -> None:
    assert parsers.parse_journal(line) is None


def test_a_journal_line_without_a_kernel_stamp_takes_the_time_of_its_arrival() -> None:
    row = parsers.parse_journal(journal(_SOURCE_MONOTONIC_TIMESTAMP=None, PRIORITY=None))
    assert row is not None
    assert row[:3] == [10.5, 1757000010.5, None]


def test_kmsg_record() -> None:
    record = b"4,1203,10500000,-;NVRM: nvCheckOkFailedNoLog: \\x09tab\n SUBSYSTEM=pci\n DEVICE=+pci:000f:01:00.0\n"
    assert parsers.parse_kmsg(record, 1757000000.0) == (
        1203,
        [10.5, 1757000010.5, 4, "NVRM: nvCheckOkFailedNoLog: \ttab"],
    )
    # facility user (1 << 3) + warning: written by somebody; the priority is what is left
    assert (parsers.parse_kmsg(b"12,5,1,-,caller=T1;hello\n", 0.0) or (0, [0, 0, 0]))[1][2] == 4
    assert parsers.parse_kmsg(b"no record", 0.0) is None


def test_dmesg_line() -> None:
    assert parsers.parse_dmesg(b"<6>[ 1168.826951] mlx5_core 0000:01:00.1: Port module event", 100.0) == [
        1168.826951,
        1268.826951,
        6,
        "mlx5_core 0000:01:00.1: Port module event",
    ]
    assert parsers.parse_dmesg(b"dmesg: read kernel buffer failed: Operation not permitted", 0.0) is None


def test_log_text_is_one_bounded_line() -> None:
    assert parsers.log_text("a\r\nb\u2028c") == "a b c"
    assert len(parsers.log_text("x" * 100_000)) == parsers.TEXT_CHARS + 1
    assert parsers.log_text("\ud800") == "?"


# --- anything at all


PARSERS = [
    parsers.parse_meminfo,
    parsers.parse_pressure,
    parsers.parse_vmstat,
    parsers.parse_cpu,
    parsers.parse_load,
    parsers.parse_process_stat,
    parsers.parse_status,
    parsers.parse_cgroup,
    parsers.parse_driver_version,
    parsers.parse_dgx_release,
    parsers.parse_journal,
    lambda data: parsers.parse_kmsg(data, 1e9),
    lambda data: parsers.parse_dmesg(data, 1e9),
]
SEEDS = st.sampled_from(
    [
        MEMINFO_SERVING,
        PRESSURE,
        VMSTAT,
        journal(),
        b"6,1,2,-;x",
        b"<6>[ 1.5] x",
        b"1 (a) S 0 1 2",
        b"0::/x",
        b"cpu  1 2 3 4",
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Something like real text with a piece replaced."""
    seed = draw(SEEDS)
    start = draw(st.integers(0, len(seed)))
    return seed[:start] + draw(st.binary(max_size=40)) + seed[start + draw(st.integers(0, 20)) :]


@given(data=st.binary(max_size=300) | damaged(), index=st.integers(0, len(PARSERS) - 1))
def test_no_parser_fails_on_anything_and_all_results_are_json(data: bytes, index: int) -> None:
    text = json.dumps(PARSERS[index](data), allow_nan=False)
    assert json.dumps(json.loads(text)) == text


@given(
    st.fixed_dictionaries(
        {"_TRANSPORT": st.just("kernel")},
        optional={
            key: st.none() | st.text(max_size=30) | st.integers() | st.lists(st.integers(-1, 300), max_size=5)
            for key in ("MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP")
        },
    )
)
def test_a_journal_entry_of_any_shape_gives_a_row_or_none(entry: dict[str, object]) -> None:
    row = parsers.parse_journal(json.dumps(entry).encode())
    assert row is None or (isinstance(row[3], str) and "\n" not in row[3])
