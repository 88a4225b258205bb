"""The Xid catalogue as docs/facts/gb10.md section 3 has it."""

from __future__ import annotations

from tests.table import over

from sparktop.diagnose.kernel import xid
from sparktop.model.event import Severity

CRITICAL = {46, 48, 62, 64, 79, 95, 109, 119, 120, 140, 143, 158}
INFO = {45, 63, 92}
APPLICATION_FAULTS = {13, 31, 43, 69, 94}
LISTED = {
    *(8, 13, 31, 32, 38, 39, 40, 41, 43, 44, 45, 46, 48, 56, 61, 62, 63, 64, 68, 69, 70, 71, 72, 74, 79, 92, 94, 95),
    *(109, 119, 120, 121, 137, 140, 141, 143, *range(144, 151), 151, *range(154, 162), 167, 168, 169, 171, 172),
    *(173, 174, 175, 176),
}
IMMEDIATE = {
    8: "RESTART_APP",
    13: "RESTART_APP",
    31: "RESTART_APP",
    43: "IGNORE",
    45: "WORKFLOW_XID_45",
    48: "WORKFLOW_XID_48",
    62: "RESET_GPU",
    63: "IGNORE",
    64: "RESET_GPU",
    74: "WORKFLOW_NVLINK_ERR",
    79: "RESTART_BM",
    94: "RESTART_APP",
    95: "RESET_GPU",
    109: "RESET_GPU",
    119: "RESET_GPU",
    120: "RESET_GPU",
    121: "IGNORE",
    144: "WORKFLOW_NVLINK5_ERR",
    151: "RESTART_VM",
    158: "RESET_GPU",
    159: "CHECK_UVM",
}


def test_every_xid_of_the_facts_is_listed() -> None:
    assert set(xid.catalogue()) >= LISTED


@over("code", sorted(LISTED))
def test_severity(code: int) -> None:
    worst = {**dict.fromkeys(CRITICAL, Severity.CRITICAL), **dict.fromkeys(INFO, Severity.INFO)}
    if code in worst or code in APPLICATION_FAULTS:
        assert xid.lookup(code).severity is worst.get(code, Severity.WARNING)


@over("code, bucket", IMMEDIATE.items())
def test_nvidias_immediate_action(code: int, bucket: str) -> None:
    assert xid.lookup(code).immediate == bucket


@over("code", sorted(xid.catalogue()))
def test_every_entry_says_who_what_and_what_next(code: int) -> None:
    entry = xid.lookup(code)
    assert entry.code == code
    for advice in entry.advice:
        assert advice.source
        assert advice.meaning.endswith(".")
        assert advice.remedy.endswith(".")
    if entry.advice[0].source.startswith("NVIDIA Xid catalogue"):
        assert "by analogy" in entry.advice[0].source
    assert code not in entry.follows


@over("code", sorted(xid.catalogue()))
def test_a_gpu_reset_says_that_gb10_means_a_reboot(code: int) -> None:
    entry = xid.lookup(code)
    said = any("reboot in practice" in advice.meaning for advice in entry.advice)
    if entry.immediate == "RESET_GPU" or code in (48, 154):
        assert said
    if entry.immediate in ("RESTART_APP", "IGNORE"):
        assert not said


def test_seen_on_gb10() -> None:
    assert {code for code, entry in xid.catalogue().items() if entry.seen_on_gb10} == {13, 31, 43, 119, 120, 154}


def test_79_says_both_and_whose_word_it_is() -> None:
    nvidia, field = xid.lookup(79).advice
    assert nvidia.source.startswith("NVIDIA")
    assert "PCIe" in nvidia.meaning
    assert "Reboot" in nvidia.remedy
    assert field.source.startswith("field report 000")
    assert "display hung" in field.meaning


def test_notes_hold_only_for_lines_that_show_them() -> None:
    entry = xid.lookup(119)
    kms = entry.advice_for(", pid=1, name=KMS thread, Timeout after 45s of waiting")
    other = entry.advice_for(", pid=1, name=python3, Timeout after 45s of waiting")
    assert any("desktop freeze" in advice.meaning for advice in kms)
    assert not any("desktop freeze" in advice.meaning for advice in other)
    assert any("45 s" in advice.meaning for advice in other)
    assert set(kms) <= set(entry.advice)


def test_an_unlisted_number_says_so() -> None:
    entry = xid.lookup(4242)
    assert 4242 not in xid.catalogue()
    assert entry.severity is Severity.WARNING
    assert "doesn't list" in entry.advice[0].meaning
    assert "NVIDIA" not in entry.advice[0].source


@over(
    "wanted, severity",
    [
        ("None", Severity.INFO),
        ("GPU Reset Required", Severity.CRITICAL),
        ("Reset Required", Severity.CRITICAL),
        ("Node Reboot Required", Severity.CRITICAL),
        ("OS Reboot", Severity.CRITICAL),
        ("Drain and Reset", Severity.CRITICAL),
        ("Drain P2P", Severity.WARNING),
        ("Recover IMEX Domain", Severity.WARNING),
    ],
)
def test_recovery_actions(wanted: str, severity: Severity) -> None:
    found = xid.recovery(f", GPU recovery action changed from 0x0 (None) to 0x1 ({wanted})")
    assert found is not None
    assert found[0] is severity
    assert wanted == "None" or wanted in found[1]


def test_a_cut_recovery_line_names_no_action() -> None:
    assert xid.recovery(", GPU recovery action changed from 0x0 (None) to 0x1 (GPU Re") is None
