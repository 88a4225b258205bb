"""What `explain` says where a process ended and no rule knows why: its own words and advice, in its engine's flags."""

from __future__ import annotations

from pathlib import Path

from tests.table import over

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.logs.advice import advice_of
from sparktop.diagnose.logs.last_words import TRACEBACK
from sparktop.diagnose.logs.rule import shipped
from sparktop.diagnose.names import fill
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding


def explained(*lines: str) -> tuple[Finding, ...]:
    explanation = Explanation("log", shipped())
    explanation.feed("\n".join(lines).encode() + b"\n")
    return explanation.finish()


def loud(*lines: str) -> list[str]:
    return [finding.rule for finding in explained(*lines) if finding.severity is not Severity.INFO]


SYSTEMD = "Mar 03 10:00:01 spark1 systemd[1]: "
FAILED = (
    SYSTEMD + "nim-proxy.service: Main process exited, code=exited, status=2/INVALIDARGUMENT",
    SYSTEMD + "nim-proxy.service: Failed with result 'exit-code'.",
)


@over(
    "lines, name, words",
    [
        (["Mar 03 10:00:00 spark1 nim-proxy[77]: Error: unknown flag: --colour", *FAILED], "nim-proxy", "--colour"),
        (
            ["Mar 03 10:00:00 spark1 python3[77]: the licence file is of another machine", *FAILED],
            "nim-proxy",
            "licence",
        ),
        (["gate-1  | panic: no route to the store", "gate-1 exited with code 2"], "gate-1", "no route to the store"),
    ],
)
def test_last_words_of_a_program_that_somebody_says_has_failed(lines: list[str], name: str, words: str) -> None:
    first = explained(*lines)[0]
    assert (first.rule, first.confidence) == ("engine.last-words", Confidence.SUSPECTED)
    assert name in first.title
    assert words in first.title


def test_a_unit_that_no_engine_needs_is_a_note() -> None:
    said = "Mar 03 10:00:00 spark1 fwupdmgr[77]: Failed to download metadata"
    told = explained(said, *(line.replace("nim-proxy", "fwupd-refresh") for line in FAILED))
    assert [(one.rule, one.severity) for one in told] == [("engine.last-words", Severity.INFO)]


def test_what_a_program_says_after_it_was_started_again_are_not_its_last_words() -> None:
    again = "Mar 03 10:00:09 spark1 nim-proxy[78]: ready for the next model"
    found = explained("Mar 03 10:00:00 spark1 nim-proxy[77]: Error: unknown flag: --colour", *FAILED, again)
    assert "--colour" in found[0].title


def test_a_unit_that_failed_and_its_restarts_hang_under_its_program_s_last_words() -> None:
    again = SYSTEMD + "nim-proxy.service: Scheduled restart job, restart counter is at 7."
    found = explained("Mar 03 10:00:00 spark1 nim-proxy[77]: Error: unknown flag: --colour", *FAILED, again)
    assert {one.rule: one.caused_by for one in found} == {
        "engine.last-words": None,
        "host.unit-failed": "engine.last-words",
        "host.unit-restart-loop": "engine.last-words",
    }


@over(
    "lines",
    [
        ["gate-1  | stopping", "gate-1 exited with code 0"],
        ["gate-1  | stopping", "gate-1 exited with code 143"],
        ["Mar 03 10:00:00 spark1 nim-proxy[77]: bye", SYSTEMD + "nim-proxy.service: Deactivated successfully."],
    ],
)
def test_a_program_that_was_stopped_has_none(lines: list[str]) -> None:
    assert loud(*lines) == []


@over(
    "lines, severity",
    [
        (["/src/fold.cu:7: GGML_ASSERT(ok) failed", *["[New LWP 7]"] * 9], Severity.CRITICAL),
        (
            ["Failed to start the GPU's guard: no map", "For more, read on", "See the guide", *["You can"] * 4],
            Severity.CRITICAL,
        ),
        (["error: no compiler for this GPU", *["it went on"] * 6], Severity.WARNING),
        (["Failed to open the shop: no key"], Severity.INFO),
        (['level=fatal msg="the shop has no key"'], Severity.WARNING),
        (["ERROR the shop has no key", "If it is a GPU's, unlock it"], Severity.CRITICAL),
    ],
)
def test_an_end_that_concerns_the_machine_is_told_whatever_follows(lines: list[str], severity: Severity) -> None:
    assert [(one.rule, one.severity) for one in explained(*lines)] == [("engine.last-words", severity)]


def test_a_program_that_stops_for_its_own_error_has_last_words() -> None:
    first = explained("ERROR vllm.serve: no seat for rank 0", "INFO:     Shutting down")[0]
    assert (first.rule, first.severity) == ("engine.last-words", Severity.CRITICAL)


def test_what_the_program_goes_on_without_is_nothing() -> None:
    gone = (
        "OSError: org/fold is not a local folder and is not a valid model identifier listed on 'https://huggingface.co'"
    )
    assert loud(gone, "Falling back to 'gpt2' tokenizer.") == []
    assert loud("common_download: HEAD failed, status: 404", "common_params: no remote preset found, skipping") == []


VLLM = '  File "/opt/venv/lib/python3.12/site-packages/vllm/{}", line 7, in f'


@over(
    "file, error, advised",
    [
        (
            "config/cache.py",
            "ValueError: block size must be one of [16, 32, 64], but got 48",
            "Choose one of what it takes: 16, 32, 64",
        ),
        (
            "config/cache.py",
            "ValueError: this needs the other scheduler. Set VLLM_USE_OTHER=1 to go on",
            "VLLM_USE_OTHER=1",
        ),
        ("config/cache.py", "ValueError: no seats. Please try to take fewer guests", "own advice: take fewer guests"),
        ("_ops.py", "RuntimeError: _C::fold_rows() expected at most 0 argument(s)", "lacks the operator _C::fold_rows"),
        ("v1/attention/backends/new.py", "RuntimeError: the plan is empty", "--attention-backend TRITON_ATTN"),
        ("model_executor/layers/fused_moe/new.py", "AssertionError", "--moe-backend marlin"),
    ],
)
def test_its_own_advice_and_its_part_s_lever_come_first(file: str, error: str, advised: str) -> None:
    found = explained("Traceback (most recent call last):", VLLM.format(file), "    f()", error)
    assert found[0].rule == "engine.last-words"
    assert any(advised in remedy.title for remedy in found[0].remedies[:2]), found[0].remedies


def test_advice_below_the_error_is_its_own() -> None:
    first = explained("ERROR vllm.fold: no map", "Maps are new.", "To go on, add --no-map to the command.")[0]
    assert "add --no-map" in first.remedies[0].title


def test_two_paths_in_one_error_are_advised_apart() -> None:
    advice = advice_of("Permission denied: '/a/key'; No such file or directory: '/b/key'", "", "")
    titles = [fill(remedy.title, advice.values) for remedy in advice.remedies]
    assert ["/a/key" in title for title in titles] == [True, False]
    assert ["/b/key" in title for title in titles] == [False, True]
    assert not any("{" in title for title in titles)


def test_another_program_gets_no_engine_s_flags() -> None:
    error = "RuntimeError: the attention plan is empty"
    (found,) = explained("Traceback (most recent call last):", '  File "/srv/app/attention.py", line 7', error)
    assert not any("--" in remedy.title for remedy in found.remedies)


def test_an_illegal_access_that_the_watchdog_of_nccl_tells_is_the_kernel_s() -> None:
    glog = "[rank3]:[E704 02:11:05.123456789 ProcessGroupNCCL.cpp:1595] [Rank 3] watchdog thread terminated: "
    access = "CUDA error: an illegal memory access was encountered"
    assert loud(glog + access)[0] == "cuda.illegal-memory-access"
    assert loud("a:1:2 [0] enqueue.cc:9 NCCL WARN Cuda failure 'an illegal memory access'") != [
        "cuda.illegal-memory-access"
    ]


HUB = "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out."


@over(
    "lines, told",
    [
        ([HUB], ["hub.unreachable"]),
        ([HUB, "Retrying in 2s [Retry 1/5]."], []),
        ([HUB, "Retrying in 2s [Retry 1/5].", HUB], ["hub.unreachable"]),
        ([HUB, "Fetching 9 files: 100%|####| 9/9 [00:20<00:00, 2.1s/it]"], []),
    ],
)
def test_what_was_tried_again_with_success_is_not_told(lines: list[str], told: list[str]) -> None:
    assert loud(*lines) == told


@over(
    "line, told",
    [
        ("ImportError: cannot import name 'Old' from 'transformers' (/x.py)", ["model.transformers-too-old"]),
        ("task 7   FAIL  3.1 s  <ImportError: cannot import name 'Old' from 'typing'>", []),
        ("| 7 | ImportError: cannot import name 'Old' from 'typing' | 3.1 s |", []),
    ],
)
def test_an_exception_in_a_row_of_results_is_somebody_else_s(line: str, told: list[str]) -> None:
    assert loud(line) == told


@over(
    "error, severity",
    [
        ("RuntimeError: the attention backend of this GPU is unknown", Severity.CRITICAL),
        ("RuntimeError: the guild has no channel of that name", Severity.INFO),
    ],
)
def test_an_unknown_program_s_error_is_loud_where_it_concerns_the_machine(error: str, severity: Severity) -> None:
    (found,) = explained("Traceback (most recent call last):", '  File "/srv/app/x.py", line 7', "    f()", error)
    assert found.severity is severity


@over(
    "lines, name",
    [
        (["10:00:00 - LiteLLM Proxy:ERROR: utils.py:9 - the key's table is missing"], "LiteLLM"),
        (["INFO:open_webui.env:starts", "Error: no such revision: 7"], "Open WebUI"),
        (["2026-04-09T10:00:00.1Z  INFO text_embeddings_router: starts", "Error: no such pooling"], "Text Embeddings"),
    ],
)
def test_a_program_beside_the_engine_is_told_of_by_its_name(lines: list[str], name: str) -> None:
    (found,) = explained(*lines)
    assert (found.rule, found.severity) == ("engine.last-words", Severity.CRITICAL)
    assert name in found.title


GUIDE = ["# Trouble", "## No memory", "**Symptom**", "```", "{}", "```", "**Solution**: fewer sequences"]
REPORT = ["# Bug", "## Describe the bug", "It ends", "```", "{}", "```", "## Environment", "one GPU"]


@over("text, told", [(GUIDE, []), (REPORT, ["torch.oom"])])
def test_an_error_that_a_guide_shows_is_nobody_s(text: list[str], told: list[str]) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert loud(*(line.format(error) for line in text)) == told


@over(
    "line, told",
    [
        ("[  900.100000] NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.", ["kernel.xid-79"]),
        ('    input: "[  900.100000] NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.",', []),
        (
            "kern  :err   : [  900.100000] NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.",
            ["kernel.xid-79"],
        ),
    ],
)
def test_a_kernel_line_in_quotes_is_source_code(line: str, told: list[str]) -> None:
    assert loud(line) == told


CAPTURES = Path(__file__).parents[2] / "real/captures"


@over("stopped", ["sglang-0.5.23/stopped.log", "vllm-0.32.0/served-and-stopped.log"])
def test_a_run_that_fails_before_it_says_that_it_begins_is_read_after_one_that_was_stopped(stopped: str) -> None:
    before = (CAPTURES / stopped).read_text().splitlines()
    frame = '  File "/usr/local/bin/serve", line 5, in <module>'
    found = explained(*before, TRACEBACK, frame, "    import codecs9", "ModuleNotFoundError: No module named 'codecs9'")
    assert ["codecs9" in one.title for one in found if one.severity is Severity.CRITICAL] == [True]
    assert not [one for one in explained(*before) if one.severity is Severity.CRITICAL]


def test_a_chat_template_s_file_that_is_not_there_is_named() -> None:
    said = "ValueError: The supplied chat template string (/models/x.jinja) appears path-like, but doesn't exist!"
    assert explained(said)[0].title.endswith(": /models/x.jinja")


def test_one_request_that_a_healthy_server_refuses_is_a_note() -> None:
    lines = (CAPTURES / "vllm-0.32.0/healthy.log").read_text().splitlines()
    assert loud(*lines) == []
    twice = [
        again for line in lines for again in ([line, line] if "404" in line or "does not exist" in line else [line])
    ]
    assert loud(*twice) != []


def test_a_path_is_advised_whole() -> None:
    advice = advice_of("a.h:7:10: fatal error: fold/fold.h: No such file or directory", "", "")
    assert ["fold/fold.h" in fill(one.title, advice.values) for one in advice.remedies] == [True]
