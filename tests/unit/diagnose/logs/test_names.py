"""The names in a finding's steps: the engine's where it is known, a placeholder elsewhere, never shell."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.support import engine_of
from tests.table import over

from sparktop.cmdline.engine_command import with_argv
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rule import LogRule, parse, shipped
from sparktop.diagnose.names import PLACEHOLDERS, names_of, steps_of
from sparktop.model.engine import Container, Engine, EngineKind
from sparktop.model.telemetry import LogLine
from sparktop.observe.engines.engine_log import Feed

CONTAINER = Container(container_id="a" * 64, name="vllm-qwen36", image="vllm/vllm-openai:v0.22.1")
ENGINE = engine_of(
    key=CONTAINER.container_id,
    name="vllm-qwen36",
    kind=EngineKind.VLLM,
    container=CONTAINER,
    argv=("vllm", "serve", "Qwen/Qwen3-30B", "--port", "8000"),
)
OFFLINE = (
    "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api: offline mode is enabled."
)


def offline_steps(*engines: Engine) -> set[str]:
    feed = Feed("vllm @ spark1", EngineKind.VLLM, shipped())
    feed.accept((LogLine(text=OFFLINE),))
    feed.facts()
    for engine in engines:
        feed.name(engine)
    (finding,) = feed.facts().findings
    return {step for remedy in finding.remedies for step in remedy.steps}


def test_a_step_names_the_container_and_the_model_once_they_are_known() -> None:
    assert {
        "docker exec NAME ls /root/.cache/huggingface/hub",
        "hf download ORG/MODEL on both nodes",
    } <= offline_steps()
    known = offline_steps(ENGINE)
    assert "docker exec vllm-qwen36 ls /root/.cache/huggingface/hub" in known
    assert "hf download Qwen/Qwen3-30B on both nodes" in known


@over("name", ["a; reboot", "$(reboot)", "-v", "", "x\ny", "a b"])
def test_a_name_that_a_shell_reads_more_in_stays_a_placeholder(name: str) -> None:
    assert names_of(replace(ENGINE, container=replace(CONTAINER, name=name)))["container"] == "NAME"
    assert names_of(replace(ENGINE, container=replace(CONTAINER, image=name)))["image"] == "IMAGE"


def test_a_folder_for_a_model_is_no_name_of_one() -> None:
    assert names_of(with_argv(ENGINE, ("vllm", "serve", "/models/Step-NVFP4")))["model"] == "ORG/MODEL"


def test_steps_fit_an_engine_outside_containers() -> None:
    """Its log is where its process says, what would run in a container runs as it is, and Docker knows nothing."""
    bare = replace(ENGINE, key="pid:40", container=None)
    died = "(APIServer pid=1) ERROR 11-28 01:57:40 [core_client.py:688] [shutdown] MPClient: engine core exited "
    died += "unexpectedly; starting cleanup"
    encountered = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)"
    lines = (LogLine(text="INFO:     Application startup complete."), LogLine(text=died), LogLine(text=encountered))

    def steps(engine: Engine, command: str) -> set[str]:
        feed = Feed("vllm @ spark1", EngineKind.VLLM, shipped(), now=lambda: 0.0)
        feed.accept(lines)
        feed.command = command
        feed.name(engine)
        found = feed.facts().findings
        assert {finding.rule for finding in found} == {"vllm.engine-died", "engine.died-serving"}
        return {step for finding in found for remedy in finding.remedies for step in remedy.steps}

    inside, outside = steps(ENGINE, ""), steps(bare, "journalctl -u vllm.service")
    assert "docker logs vllm-qwen36 2>&1 | grep -nE 'Error|Exception' | head" in inside
    assert "docker inspect -f '{{.State.OOMKilled}}' vllm-qwen36" in inside
    assert "journalctl -u vllm.service | grep -nE 'Error|Exception' | head" in outside
    assert not [step for step in outside if "docker" in step]
    assert steps_of(["docker exec {container} ls -l {path}"], {**names_of(bare), "path": "/m"}) == ("ls -l /m",)


def test_what_a_line_says_is_quoted_in_a_command() -> None:
    text = """[[rule]]
    id = "test.path"
    title = "{path} is closed"
    severity = "critical"
    any = ["closed"]
    regex = "closed: (?P<path>.*)"
    explanation = "It is."
    examples = ["closed: x"]
    [[rule.remedy]]
    title = "Open {path}"
    steps = ["ls -ld {path}"]
    """
    reader = LogReader(parse(text, "test"))
    reader.feed("closed: /models/a; reboot")
    (finding,) = reader.findings("s")
    assert finding.remedies[0].steps == ("ls -ld '/models/a; reboot'",)
    assert finding.title == "/models/a; reboot is closed"


@over("rule", shipped(), ids=lambda rule: rule.id)
def test_no_step_shows_an_unfilled_slot(rule: LogRule) -> None:
    reader = LogReader((rule,), rule.engine)
    if rule.when == "serving":
        reader.feed("INFO:     Application startup complete.")
        reader.feed("[2026-01-01 00:00:00] The server is fired up and ready to roll!")
    for _ in range(rule.at_least):
        for line in rule.examples[0]:
            reader.feed(line)
    (finding, *_) = reader.findings("s")
    known = {f"{{{slot}}}" for slot in PLACEHOLDERS}
    texts = [finding.settles, *(text for remedy in finding.remedies for text in (remedy.title, *remedy.steps))]
    groups = {f"{{{group}}}" for group in re.findall(r"\(\?P<(\w+)>", rule.regex)}
    assert [text for text in texts if any(slot in text for slot in (*known, *groups, "{unit}"))] == []
