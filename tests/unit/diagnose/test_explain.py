"""Explaining a text: lines, kernel events and documents together, whatever carried them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plain_text import unclean
from tests.table import over

from sparktop.diagnose.explain import DOCUMENT_CHARS, STREAMS, Explanation, explain_together
from sparktop.diagnose.logs.rule import LogRule, shipped
from sparktop.model.finding import Finding

KILL = (
    "[  940.100200] Out of memory: Killed process 7311 (VLLM::EngineCor) total-vm:120000000kB, anon-rss:9000000kB, "
    "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:2000kB oom_score_adj:0"
)
DEATH = "vllm-a-1 exited with code 137"
XID = "[  941.000000] NVRM: Xid (PCI:000f:01:00): 31, pid=811, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"
OOM = (
    "(EngineCore pid=71) ERROR 05-06 07:08:09 [core.py:5] torch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 3.25 GiB. GPU 0 has a total capacity of 121.69 GiB of which 1.50 GiB is free."
)


def explained(data: bytes | str, rules: tuple[LogRule, ...] | None = None) -> tuple[Finding, ...]:
    explanation = Explanation("stdin", shipped() if rules is None else rules)
    explanation.feed(data.encode() if isinstance(data, str) else data)
    return explanation.finish()


def names(found: tuple[Finding, ...]) -> list[str]:
    return [one.rule for one in found]


def test_a_kernels_line_is_read_with_its_place() -> None:
    (found,) = explained(f"one\ntwo\n{XID}\n")
    assert found.rule == "kernel.xid-31"
    assert [(each.source, each.line) for each in found.evidence] == [("stdin", 3)]


def test_an_engines_end_hangs_under_the_kernels_kill_in_whatever_order_they_come() -> None:
    for text in (f"{KILL}\n{DEATH}\n", f"{DEATH}\n{KILL}\n"):
        first, second = explained(text)
        assert first.rule == "kernel.oom-kill"
        assert second.caused_by == "kernel.oom-kill"


def test_two_files_are_one_incident() -> None:
    readings = []
    for name, text in (("engine.log", DEATH), ("kernel.log", KILL)):
        readings.append(Explanation(name, shipped()))
        readings[-1].feed(text.encode())
    first, second = explain_together(readings, shipped())
    assert (first.rule, first.evidence[0].source) == ("kernel.oom-kill", "kernel.log")
    assert (second.caused_by, second.evidence[0].source) == ("kernel.oom-kill", "engine.log")


def _json_log(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-05-06T07:08:09.5Z"})


def _journal(line: str) -> str:
    return json.dumps({"MESSAGE": line, "_SYSTEMD_UNIT": "vllm.service", "__REALTIME_TIMESTAMP": "1778051289000000"})


@pytest.mark.parametrize("line", [OOM, KILL, XID], ids=["engine", "kill", "xid"])
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda line: f"vllm-1  | {line}", id="compose"),
        pytest.param(lambda line: f"2026-05-06T07:08:09.123456789Z {line}", id="docker logs --timestamps"),
        pytest.param(lambda line: f"2026-05-06T07:08:09.12Z stderr F {line}", id="kubernetes"),
        pytest.param(_json_log, id="json-file"),
        pytest.param(_journal, id="journal"),
        pytest.param(lambda line: json.dumps({"level": "ERROR", "msg": line}), id="json logger"),
        pytest.param(lambda line: f"> {line}", id="quoted"),
        pytest.param(lambda line: f"    {line}", id="indented"),
        pytest.param(lambda line: f"  412\t{line}", id="cat -n"),
        pytest.param(lambda line: f"412:{line}", id="grep -n"),
        pytest.param(lambda line: f"```\n{line}\n```", id="markdown"),
        pytest.param(lambda line: f"May  6 07:08:09 spark1 vllm[33]: {line}", id="syslog"),
        pytest.param(lambda line: f"\x1b[1;31m{line}\x1b[0m", id="colour"),
        pytest.param(lambda line: f"Loading:  10%\rLoading: 100%\r{line}\r", id="progress"),
        pytest.param(lambda line: f"RuntimeError: b'one\\n{line}\\ntwo\\n'", id="printed bytes"),
        pytest.param(lambda line: f"\0\0{line}\0", id="nul"),
    ],
)
def test_whatever_carries_a_line_it_is_read(wrap, line: str) -> None:  # type: ignore[no-untyped-def]
    plain = names(explained(line))
    assert plain
    assert names(explained(f"before\n{wrap(line)}\nafter\n")) == plain


@over(
    "encode",
    [
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: b"\xff\xfe\xfd caf\xe9\n" + text.encode(),
    ],
)
def test_encodings(encode) -> None:  # type: ignore[no-untyped-def]
    assert names(explained(encode(f"hello\n{OOM}\n"))) == names(explained(OOM))


def test_one_services_stop_silences_no_other() -> None:
    stop = "[2026-05-06 07:08:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    assert names(explained(f"proxy | {stop}\nvllm | {OOM}\n")) == names(explained(OOM))
    assert explained(f"vllm | {stop}\nvllm | {OOM}\n") == ()


def test_secrets_are_masked_in_all_evidence() -> None:
    explanation = Explanation("stdin", shipped(), mask=lambda text: text.replace("hf_abc", "***"))
    explanation.feed(f"{OOM} hf_abc\n{XID} hf_abc\n".encode())
    found = explanation.finish()
    assert len(found) >= 2
    assert "hf_abc" not in str(found)


def test_it_says_of_what_the_text_is() -> None:
    explanation = Explanation("stdin", shipped())
    explanation.feed(b"(APIServer pid=1) INFO 05-06 07:08:09 [x.py:1] hello\n[    0.000000] Linux version 6.11\n")
    assert explanation.finish() == ()
    assert explanation.seen == ("vLLM", "the kernel")
    assert explanation.lines == 2


def test_what_is_kept_is_bounded() -> None:
    explanation = Explanation("stdin", shipped())
    for number in range(STREAMS * 3):
        explanation.feed(f"service{number} | {OOM}\n".encode())
    explanation.feed(b"x" * (DOCUMENT_CHARS + 10))
    assert len(explanation._readers) <= STREAMS + 1
    assert explanation._document_lines is None
    assert explanation.finish()


PIECES = [OOM, KILL, XID, DEATH, _json_log(OOM), _journal(KILL), "a | b", "{", "\0", "\x1b[", "x" * 5000, "\r", "> "]


@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=30), max_size=30), st.lists(st.integers(0, 9000), max_size=4)
)
def test_no_text_breaks_it_and_how_it_is_cut_makes_no_difference(lines: list[str], cuts: list[int]) -> None:
    data = "\n".join(lines).encode("utf-8", "replace")
    whole = explained(data)
    explanation = Explanation("stdin", shipped())
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        explanation.feed(data[start:end])
    assert explanation.finish() == whole
    assert unclean(whole) == []


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    assert unclean(explained(data)) == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_text() -> None:
    def resident_kib() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    explanation = Explanation("stdin", shipped())
    piece = "".join(
        f"(APIServer pid=1) INFO request {os.urandom(40).hex()} served\n{OOM}\n" for _ in range(3000)
    ).encode()
    for _ in range(8):
        explanation.feed(piece)
    before = resident_kib()
    for _ in range(24):
        explanation.feed(piece)
    assert resident_kib() - before < 4 * len(piece) // 1024


SAID = "CUDA out of memory\\n\\nRuntimeError: CUDA error: device-side assert triggered\\n[1.0] NVRM: Xid (PCI:01): 79"


@over(
    "line",
    [
        f"INFO 01-31 19:05:39 [logger.py:43] Received request chatcmpl-7b: prompt: '{SAID}', params: SamplingParams()",
        f"INFO 01-31 19:05:41 [logger.py:71] Generated response chatcmpl-7b: output: '{SAID}', output_token_ids: None",
        f"vllm-1  | (APIServer pid=1) INFO 01-31 [request_logger.py:4] Received request cmpl-1: prompt: '{SAID}'",
        f"[2026-02-02 10:00:00] Receive: obj=GenerateReqInput(rid='1', text='{SAID}')",
        f"[2026-02-02 10:00:00] Finish: obj=GenerateReqInput(rid='1'), out={{'text': '{SAID}'}}",
    ],
)
def test_what_clients_and_models_say_is_no_failure(line: str) -> None:
    assert explained(line) == ()
    assert explained(SAID.replace("\\n", "\n")) != ()


STOP = "2026-11-28T00:10:00.1Z (APIServer pid=1) INFO 11-28 [a.py:254] [shutdown] API server: shutdown triggered"
START = '[{"State": {"Status": "exited", "ExitCode": 1,\n "StartedAt": "2026-11-28T00:24:04.5Z"}}]'
AGAIN = "2026-11-28T00:24:05.1Z OSError: [Errno 98] Address already in use"


def test_a_containers_start_begins_a_run_of_what_was_logged_later() -> None:
    assert explained(f"{STOP}\n{AGAIN}") == ()
    assert "start.port-in-use" in names(explained(f"{START}\n{STOP}\n{AGAIN}"))
    earlier = AGAIN.replace("T00:24:05", "T00:11:00")
    assert "start.port-in-use" not in names(explained(f"{START}\n{STOP}\n{earlier}"))


def test_the_lines_of_two_runs_that_docker_joined_are_parted() -> None:
    (found,) = explained(f"2026-11-28T00:10:00.1Z see https://nanobind/refleaks.html{AGAIN}")
    assert found.evidence[0].text == AGAIN.partition(" ")[2]


def test_a_step_names_the_port_that_the_log_does() -> None:
    begun = "(APIServer pid=1) INFO 11-28 [api_utils.py:286] non-default args: {'model_tag': '/m', 'port': 8100}"
    (found,) = explained(f"{begun}\nOSError: [Errno 98] Address already in use")
    assert any(":8100" in step for remedy in found.remedies for step in remedy.steps)


def test_a_remedy_takes_out_every_flag_that_is_gone() -> None:
    (found,) = explained("vllm: error: unrecognized arguments: --swap-space 4 --cuda-graph-sizes 1 2")
    assert found.remedies[0].change is not None
    assert found.remedies[0].change.flags == {"--swap-space": None, "--cuda-graph-sizes": None}
