"""Lint of what runs: argv and environment of an engine in the picture, never critical, asked cheaply."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import engine, node, picture
from tests.table import over

from sparktop.diagnose.lint.user_rules import parse
from sparktop.diagnose.rule import LiveRule
from sparktop.diagnose.rules.engine.config import running as config_running
from sparktop.model.engine import Container, Engine, EngineKind, EngineState, LogFacts
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

RULE = config_running()

SERVE = ("vllm", "serve", "Org/Model-30B-A3B", "--gpu-memory-utilization", "0.7")


def running(*argv: str, **more: Any) -> Engine:
    return engine(**{"argv": argv or SERVE, "container": None, "environment": (), **more})


def found(*engines: Engine, rule: LiveRule = RULE, **more: Any) -> dict[str, Finding]:
    view = replace(node("spark1", **more), engines=engines)
    return {finding.rule.removeprefix("config."): finding for finding in rule.check(picture(view))}


def test_a_healthy_picture_is_quiet() -> None:
    assert list(RULE.check(picture(node("spark1"), node("spark2")))) == []
    assert found(running()) == {}


def test_a_faulty_argv_is_told_with_its_engine_and_node() -> None:
    finding = found(running(*SERVE, "--enforce-eager"))["enforce-eager"]
    assert finding.severity is Severity.WARNING
    assert finding.nodes == ("spark1",)
    assert finding.evidence[0].source.startswith("argv of ")
    assert finding.evidence[0].source.endswith(" @ spark1")
    assert finding.evidence[0].text == "--enforce-eager"
    assert finding.remedies[0].steps == ("- --enforce-eager",)


def test_a_variable_is_judged_by_the_version_that_runs() -> None:
    one = running(environment=("VLLM_USE_FLASHINFER_MOE_FP4=0", "PATH=/bin"), version="0.33.0")
    assert "variable-without-effect" in found(one)
    assert "variable-without-effect" not in found(replace(one, version="0.19.0"))


@over("available_gib, severity", [(40.0, Severity.INFO), (6.0, Severity.WARNING)])
def test_a_large_share_of_memory_is_a_warning_only_while_memory_is_short(
    available_gib: float, severity: Severity
) -> None:
    one = running("vllm", "serve", "/m", "--gpu-memory-utilization", "0.95")
    assert found(one, available_gib=available_gib)["gpu-memory-utilization-high"].severity is severity


def test_nothing_of_what_runs_is_critical() -> None:
    argv = ("--gpu-memory-utilization", "0.99", "--performance-mode", "throughput", "--api-key", "<masked>", "-tp", "2")
    container = Container(
        container_id="a" * 64, name="v", image="nvcr.io/nvidia/vllm:26.04-py3", network_mode="bridge", argv=SERVE
    )
    findings = found(running("vllm", "serve", "Org/M-30B-A3B-NVFP4", *argv, container=container))
    assert {"host-network", "secret-in-argv", "nvfp4-moe-backend"} <= set(findings)
    assert Severity.CRITICAL not in {finding.severity for finding in findings.values()}


def test_a_wrapper_in_a_container_is_read_by_the_containers_command() -> None:
    container = Container(
        container_id="b" * 64,
        name="v",
        image="x/vllm",
        argv=("bash", "-c", "pip install a && vllm serve /m --gpu-memory-utilization 0.7 --enforce-eager"),
    )
    assert "enforce-eager" in found(running(argv=(), container=container))


def test_workers_wrappers_and_ended_engines_are_not_judged() -> None:
    assert found(running("VLLM::Worker_TP1")) == {}
    assert found(running(*SERVE, "--enforce-eager", state=EngineState.EXITED)) == {}
    assert found(running("sglang", "serve", "--model-path", "/m")) == {}  # another kind than the engine found


def test_two_ranks_are_one_engine() -> None:
    argv = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "2", "--nnodes", "2")
    head, other = (
        running(*argv, "--node-rank", str(rank), kind=EngineKind.SGLANG, environment=("SGLANG_DISABLE_CUDA_GRAPH=1",))
        for rank in (0, 1)
    )
    views = [
        replace(node(name), engines=(one,))
        for name, one in (("spark1", head), ("spark2", replace(other, metrics=None, endpoint=None)))
    ]
    findings = [each for each in RULE.check(picture(*views)) if each.rule == "config.variable-without-effect"]
    (finding,) = findings
    assert finding.nodes == ("spark1", "spark2")
    assert len(finding.evidence) == 2


def test_a_desktop_beside_it_makes_the_throughput_mode_a_warning() -> None:
    one = running(*SERVE, "--performance-mode", "throughput")
    view = replace(node("spark1"), engines=(one,), desktop=None)
    assert view.facts is not None
    for is_graphical, told in ((True, [Severity.WARNING]), (None, []), (False, [])):
        seen = replace(view, facts=replace(view.facts, is_graphical=is_graphical))
        assert [finding.severity for finding in RULE.check(picture(seen))] == told


def test_what_is_merely_worth_knowing_is_left_to_paper() -> None:
    one = running(*SERVE, "-O3", environment=("VLLM_FLASHINFER_MOE_BACKEND=latency",), version="0.21.0")
    assert found(one) == {}


def test_own_rules_look_at_what_runs_too() -> None:
    own = parse(
        '[[lint]]\nid = "site.len"\ntitle = "t"\nseverity = "warning"\nflag = "--max-model-len"\nop = "absent"\n'
        'explanation = "e"\nexamples = ["vllm serve /m"]\n',
        "own.toml",
        user=True,
    )
    assert "site.len" in found(running(), rule=config_running(own))


def test_the_keys_of_an_engines_findings_differ() -> None:
    one = running(version="0.33.0", environment=("VLLM_MXFP4_USE_MARLIN=1", "VLLM_ATTENTION_BACKEND=X"))
    findings = list(RULE.check(picture(replace(node("spark1"), engines=(one,)))))
    assert len({finding.key for finding in findings}) == len(findings) == 2


def test_what_the_log_says_it_chose_settles_what_the_flags_leave_open() -> None:
    argv = ("vllm", "serve", "nvidia/Qwen3-30B-A3B-NVFP4", "--gpu-memory-utilization", "0.7")
    silent = running(*argv, version="0.19.0")
    assert "nvfp4-moe-backend" in found(silent)
    chosen = Finding(rule="vllm.fp4-marlin-notice", severity=Severity.INFO, title="Marlin")
    assert "nvfp4-moe-backend" not in found(replace(silent, log=LogFacts(findings=(chosen,))))
