"""Documents in a text: docker inspect, docker ps, nvidia-smi, an API's answer. All texts are ours."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.container_exit import ending_of, endings
from sparktop.diagnose.names import names
from sparktop.diagnose.outputs import reader as outputs
from sparktop.diagnose.outputs.capture_end import UNFINISHED
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence


def inspect(
    status: str = "exited",
    code: int = 0,
    *,
    oom: bool = False,
    restarts: int = 0,
    error: str = "",
    started: str = "2026-11-02T03:10:00.123456789Z",
    finished: str = "0001-01-01T00:00:00Z",
) -> str:
    container = {
        "Id": "4f" * 32,
        "Name": "/vllm-qwen",
        "RestartCount": restarts,
        "State": {
            "Status": status,
            "ExitCode": code,
            "OOMKilled": oom,
            "Error": error,
            "StartedAt": started,
            "FinishedAt": finished,
        },
        "Config": {"Image": "vllm/vllm-openai:v0.22.1", "Env": ["HF_TOKEN=hf_abcdefghijklmnopqrstuv"]},
        "HostConfig": {"RestartPolicy": {"Name": "unless-stopped"}},
    }
    return json.dumps([container], indent=4)


def found(text: str) -> list[tuple[str, str]] | None:
    said = outputs.read(text, "stdin")
    return None if said is None else [(one.rule, one.severity.value) for one in said]


@over(
    "text, expected",
    [
        (inspect("running"), []),
        (inspect("exited", 0), []),
        (inspect("exited", 143), []),
        (inspect("exited", 137), [("restart.exit-137", "warning")]),
        (inspect("exited", 137, oom=True), [("restart.oom-killed", "critical")]),
        (inspect("exited", 2), [("restart.bad-command-line", "critical")]),
        (inspect("exited", 139), [("restart.segfault", "critical")]),
        (inspect("exited", 1), [("restart.failed", "warning")]),
        (inspect("restarting", 1, restarts=7), [("restart.loop", "critical"), ("restart.failed", "warning")]),
        (inspect("running", 137, restarts=4), [("restart.loop", "critical"), ("restart.exit-137", "warning")]),
        (inspect("running", 0, restarts=1), []),
        (inspect("created", 128, error="driver failed"), [("restart.docker-refused", "critical")]),
        (inspect("running", finished="2026-11-02T03:09:48Z"), [("restart.too-soon", "info")]),
        (inspect("running", finished="2026-11-02T03:04:48Z"), []),
    ],
)
def test_what_docker_inspect_says(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected
    assert found(f"$ docker inspect vllm-qwen\n{text}\n$ ") == expected


def test_137_is_a_suspicion_that_says_what_settles_it_and_shows_no_secret() -> None:
    (one,) = outputs.read(inspect("exited", 137), "stdin") or ()
    assert one.confidence is Confidence.SUSPECTED
    assert "OOMKilled" in one.settles
    assert "vllm-qwen" in one.settles  # the command is ready to be pasted
    assert "hf_abc" not in repr(one)


PS = """\
CONTAINER ID   IMAGE                      COMMAND                  CREATED       STATUS                   PORTS    NAMES
1b2c3d4e5f60   vllm/vllm-openai:v0.22.1   "vllm serve Qwen/Qwe…"   3 hours ago   {status:<30}        vllm-qwen
"""


@over(
    "status, expected",
    [
        ("Up 3 hours", []),
        ("Up 3 hours (healthy)", []),
        ("Exited (0) 2 hours ago", []),
        ("Exited (143) 2 minutes ago", []),
        ("Exited (137) 4 minutes ago", [("restart.exit-137", "warning")]),
        ("Exited (137) 3 weeks ago", [("restart.exit-137", "info")]),
        ("Exited (1) 4 minutes ago", [("restart.failed", "info")]),
        ("Exited (127) 9 seconds ago", [("restart.command-not-found", "critical")]),
        ("Restarting (1) 11 seconds ago", [("restart.loop", "critical"), ("restart.failed", "warning")]),
        ("Up 3 hours (unhealthy)", [("restart.unhealthy", "warning")]),
    ],
)
def test_what_docker_ps_says(status: str, expected: list[tuple[str, str]]) -> None:
    text = PS.format(status=status)
    assert found(text) == expected
    if expected:
        (first, *_) = outputs.read(text, "stdin") or ()
        assert first.subject == "vllm-qwen"
        assert first.evidence[0].line == 2


def test_compose_names_stand_in_front() -> None:
    text = (
        "NAME            IMAGE       COMMAND        SERVICE   CREATED      STATUS                      PORTS\n"
        'stack-sgl-1     sgl:5       "python3 -…"   sgl       2 days ago   Exited (137) 2 minutes ago\n'
    )
    (one,) = outputs.read(text, "stdin") or ()
    assert one.subject == "stack-sgl-1"


def test_status_words_in_a_log_are_no_table() -> None:
    assert found("STATUS of worker: Exited (137) 2 minutes ago, restarting\n") is None


SMI = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.142                Driver Version: 580.142        CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  {name:<24}     On  |   0000000F:01:00.0 Off | {ecc:>20} |
| N/A   {temp:<4} {state:<4}         {power:>6} /  N/A  | Not Supported          |  {busy:>6}      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""


def smi(
    *,
    name: str = "NVIDIA GB10",
    ecc: str = "N/A",
    temp: str = "51C",
    state: str = "P0",
    power: str = "38W",
    busy: str = "96%",
) -> str:
    return SMI.format(name=name, ecc=ecc, temp=temp, state=state, power=power, busy=busy)


@over(
    "text, expected",
    [
        (smi(), []),
        (smi(power="3W", busy="0%", state="P8"), []),
        (smi(power="11W", busy="0%"), []),
        (smi(power="15W"), [("gpu.busy-at-low-power", "warning")]),
        (smi(name="NVIDIA L4", power="15W"), []),
        (smi(power="92W"), []),
        (smi(temp="ERR!", state="ERR!", power="ERR!", busy="ERR!"), [("driver.gpu-error", "critical")]),
        (smi(name="NVIDIA H100 80GB HBM3", ecc="0"), []),
        (smi(name="NVIDIA H100 80GB HBM3", ecc="12"), [("driver.ecc-errors", "critical")]),
        ("==============NVSMI LOG==============\n        HW Thermal Slowdown  : Not Active\n", []),
        ("=====NVSMI LOG=====\n        HW Power Brake Slowdown : Active\n", [("gpu.slowed-down", "warning")]),
        ("=====NVSMI LOG=====\n        SW Thermal Slowdown   : Active\n", [("gpu.slowed-down", "warning")]),
    ],
)
def test_what_nvidia_smi_says(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected


def answer(content: str | None, finish: str = "stop", reasoning: str | None = None, **more: object) -> str:
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning, **more}
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"completion_tokens": 64},
        }
    )


@over(
    "text, expected",
    [
        (answer("Hello"), []),
        (answer("Hello", "length"), []),
        (answer(None, "length"), [("serving.content-null", "warning")]),
        (answer(None, "length", "First I"), [("serving.content-null", "warning")]),
        (answer("", "stop", "First I"), [("serving.content-null", "warning")]),
        (answer(None, "tool_calls", tool_calls=[{"id": "x"}]), []),
        ("$ curl -s localhost:8000\n" + answer(None, "length", "First I"), [("serving.content-null", "warning")]),
        (
            answer(None, "length", "First I think of")[:-60].replace('"finish', '"fin'),
            [("serving.content-null", "warning")],
        ),
    ],
)
def test_what_an_answer_says(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected


def test_any_other_text_is_no_document() -> None:
    assert outputs.read("INFO 11-02 03:10:00 [core.py:84] init engine took 12.1 seconds\n", "stdin") is None


MARKS = st.sampled_from(
    [PS, smi(), inspect(), answer(None), '"State"', "STATUS", "NVIDIA-SMI", "chat.completion", "[{", "\n"]
)


@given(st.lists(st.one_of(st.text(max_size=30), MARKS), max_size=8))
def test_no_text_makes_it_raise(parts: list[str]) -> None:
    for text in ("".join(parts), "\n".join(parts)):
        for finding in outputs.read(text, "stdin") or ():
            assert finding.title
            assert all(one.line is None or 1 <= one.line <= text.count("\n") + 1 for one in finding.evidence)


def test_every_ending_has_words_and_a_way_on() -> None:
    for code, ending in endings().items():
        assert ending.explanation, code
        assert ending.remedies or code == "log", code  # its log's own finding has them
        assert ending.sources, code
    assert ending_of(None) is None
    other = ending_of(99)
    assert other is not None
    assert "99" in other.says


def test_a_hostile_name_is_not_put_into_a_command() -> None:
    ending = ending_of(137, called=names(container="x; rm -rf /", image="$(reboot)"))
    assert ending is not None
    assert "`docker inspect -f '{{.State.OOMKilled}}' NAME`" in ending.settles
    assert not any("rm -rf" in step for remedy in ending.remedies for step in remedy.steps)
    shown = ending_of(137, called=names(container="vllm-qwen36"))
    assert shown is not None
    assert "docker stop -t 60 vllm-qwen36" in {step for remedy in shown.remedies for step in remedy.steps}
    assert ending.severity is Severity.WARNING


def test_a_containers_state_alone_is_told_like_the_whole() -> None:
    state = {"Status": "exited", "Running": False, "OOMKilled": False, "ExitCode": 137, "Error": ""}
    for text in (json.dumps(state), json.dumps([{"Id": "5c1d", "State": state, "Image": "sha256:0f"}], indent=4)):
        assert found(text) == [("restart.exit-137", "warning")]
    assert found(json.dumps({**state, "ExitCode": 0})) == []


BAR = "Capturing batches (bs={bs} avail_mem=9.00 GB):  40%|████      | {done}/36 [00:05<00:09,  3.1it/s]"


@over(
    "counts, expected",
    [((14, 14), [UNFINISHED]), ((13, 14), []), ((36, 36), []), ((0,), [UNFINISHED])],
)
def test_a_capture_that_still_moved_was_only_cut_off(counts: tuple[int, ...], expected: list[str]) -> None:
    text = "\n".join(BAR.format(bs=256 - at, done=done) for at, done in enumerate(counts))
    assert [finding.rule for finding in outputs.read(text, "test") or ()] == expected
