"""`sparktop act prove-endpoint`, and what `sparktop bringup` shows of it, on a real engine-like container over a real
sshd."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.spark import Spark, machine, spark
from tests.integration.terminal import sparktop

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["machine", "spark"]

NAME = "vllm-proven"
QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}
PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
KEY = "sk-canary-77"
CHECKS = ("answer", "stream", "tools", "long-prompt", "parallel", "key")


def proven() -> tuple[int, dict[str, Any]]:
    out = sparktop("act", "prove-endpoint", "spark1", "--engine", NAME, "--yes", "--json", "--timeout", "60")
    assert out.stdout, out.stderr
    assert "canary" not in out.stdout + out.stderr
    return out.returncode, json.loads(out.stdout)


def rows() -> dict[str, dict[str, Any]]:
    """What was measured of the endpoint, as a bring-up shows it."""
    out = sparktop("bringup", "spark1", "--only", "endpoint", "--json")
    assert out.stdout, out.stderr
    found = [
        row for row in json.loads(out.stdout)["checks"] if row["subject"] == NAME and row["check"] != "endpoint.reach"
    ]
    return {row["check"].partition(".")[2]: row for row in found}


def states() -> dict[str, str]:
    return {check: row["state"] for check, row in rows().items()}


def files_with(text: bytes) -> list[Path]:
    home = Path(os.environ["XDG_STATE_HOME"])
    return [path for path in home.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_an_engine_is_proven_until_it_starts_again(spark: Spark) -> None:
    argv = (*PARSERS, "--max-model-len", "16384")
    engine = spark.engines.start(NAME, *argv, env={**QUICK, "VLLM_API_KEY": KEY})
    assert states() == dict.fromkeys(CHECKS, "unknown")
    code, data = proven()
    run = data["run"]
    assert (code, run["state"]) == (0, "done"), run
    figures = {name: value for step in run["steps"] for name, value in step["figures"].items()}
    assert {figures[name] for name in ("answer", "stream", "tool_call", "long_prompt", "two_at_once", "wrong_key")} == {
        "ok"
    }
    assert figures["first_token_ms"] > 0
    assert files_with(b"canary") == []
    shown = rows()
    assert {row["state"] for row in shown.values()} == {"passed"}, shown
    assert all(row["is_kept"] for row in shown.values())
    assert shown["key"]["found"] == "401 to a wrong key, 401 without one"
    spark.dockerd.api.restart(engine.container_id, timeout=1)
    engine.wait_ready(key=KEY)
    assert states() == dict.fromkeys(CHECKS, "unknown")


def test_one_that_answers_health_and_hangs_has_failed_within_a_minute(spark: Spark) -> None:
    spark.engines.start(NAME, *PARSERS, env={**QUICK, "ENGINE_COMPLETION": "hang"})
    code, data = proven()
    steps = {step["id"]: step for step in data["run"]["steps"]}
    assert (code, data["run"]["state"]) == (1, "failed")
    assert steps["prove-health"]["state"] == "done"
    assert "no answer within 9 s" in steps["prove-answer"]["detail"]
    assert steps["prove-stream"]["state"] == "skipped"
    shown = rows()
    assert (shown["answer"]["state"], shown["answer"]["is_kept"]) == ("failed", True)
    assert shown["answer"]["remedies"][0]["action"] == "safe-restart"
    assert shown["tools"]["state"] == "unknown"


def test_one_whose_answers_are_empty_has_failed(spark: Spark) -> None:
    spark.engines.start(NAME, *PARSERS, env={**QUICK, "ENGINE_COMPLETION": "empty"})
    code, data = proven()
    assert (code, data["run"]["state"]) == (1, "failed")
    assert states()["answer"] == "failed"
    assert "without any text" in rows()["answer"]["found"]


def test_one_that_only_reasons_is_explained(spark: Spark) -> None:
    spark.engines.start(NAME, *PARSERS, env={**QUICK, "ENGINE_COMPLETION": "null"})
    proven()
    answer = rows()["answer"]
    assert (answer["state"], "content is null" in answer["found"]) == ("passed", True)


def test_one_that_others_use_is_left_alone(spark: Spark) -> None:
    spark.engines.start(NAME, *PARSERS, env={**QUICK, "ENGINE_BUSY": "1"})
    code, data = proven()
    assert code == 1
    assert "holds 1 request" in data["refusal"]["reason"]
    assert states() == dict.fromkeys(CHECKS, "unknown")


def test_without_parser_and_key_it_is_worth_a_look(spark: Spark) -> None:
    spark.engines.start(NAME, "--max-model-len", "16384", env=QUICK)
    code, data = proven()
    assert (code, data["run"]["state"]) == (0, "done")
    shown = rows()
    assert {check: row["state"] for check, row in shown.items()} == {
        **dict.fromkeys(CHECKS, "passed"), "tools": "warning", "key": "warning",
    }  # fmt: skip
    assert "--enable-auto-tool-choice --flag=--tool-call-parser=NAME" in shown["tools"]["remedies"][0]["steps"][0]
