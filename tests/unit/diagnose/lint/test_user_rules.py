"""The operator's own lint rules: what may be said, how it is judged, and what is said of mistakes."""

from __future__ import annotations

import pytest
from tests.lint_support import WORSE
from tests.table import over

from sparktop.diagnose.lint.catalogue import check
from sparktop.diagnose.lint.user_rules import parse
from sparktop.errors import ConfigError
from sparktop.launchspec.read.configuration import read
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding

GOOD = {
    "id": '"site.context"',
    "title": '"A context of {value} is too long for us"',
    "severity": '"warning"',
    "flag": '"--max_model_len"',
    "op": '"above"',
    "value": "65536",
    "explanation": '"Our proxy cuts it."',
    "examples": '["vllm serve /m --max-model-len 70000"]',
}


def rule(**changed: str | None) -> str:
    rows = {**GOOD, **changed}
    return "[[lint]]\n" + "\n".join(f"{key} = {value}" for key, value in rows.items() if value is not None)


def found(toml: str, text: str) -> list[Finding]:
    own = parse(toml, "own.toml", user=True)
    findings = check(read(text, "f").specs, mask=str, own=own)
    return [finding for finding in findings if finding.rule.startswith("site.")]


def test_a_rule_speaks_with_the_value_and_the_changed_line() -> None:
    (finding,) = found(rule(fix='"65536"'), "vllm serve /m \\\n  --max-model-len 70000 \\\n  --port 1")
    assert finding.title == "A context of 70000 is too long for us"
    assert finding.severity is Severity.WARNING
    assert finding.remedies[0].steps == ("-   --max-model-len 70000 \\", "+   --max-model-len 65536 \\")
    assert finding.evidence[0].line == 2


@over(
    "changed, firing, quiet",
    [
        ({}, "--max-model-len 65537", "--max-model-len 65536"),
        ({"op": '"below"'}, "--max-model-len 1", "--max-model-len 65536"),
        ({"op": '"equals"', "value": '"AUTO"'}, "--max-model-len auto", "--max-model-len 5"),
        ({"op": '"equals"', "value": "8"}, "--max-model-len 8.0", "--max-model-len 9"),
        ({"op": '"not-equals"', "value": "8"}, "--max-model-len 9", "--max-model-len=8"),
        ({"op": '"not-equals"', "value": "8"}, "--max-model-len 9", "--max-model-len $N"),
        ({"op": '"matches"', "value": "'^7'"}, "--max-model-len 71", "--max-model-len 17"),
        ({"op": '"present"', "value": None}, "--max_model_len=1", "--port 1"),
        ({"op": '"absent"', "value": None}, "--port 1", "--max-model-len 1"),
        ({"flag": '"-tp"', "value": "1"}, "--tensor_parallel_size 2", "--tp-size=1"),
        ({"flag": '"-cc.cudagraph_mode"', "op": '"present"', "value": None}, "-cc.cudagraph_mode=NONE", "-cc.mode=3"),
        ({"engine": '"vllm"'}, "--max-model-len 99999", "--max-model-len 5"),
        ({"unless": '["--port", "NO_JUDGE"]'}, "--max-model-len 99999", "--max-model-len 99999 --port 1"),
        ({"nodes": "2"}, "--max-model-len 99999 -tp 2", "--max-model-len 99999"),
        ({"nodes": "1"}, "--max-model-len 99999", "--max-model-len 99999 -tp 2"),
        ({"model": '"(?i)fp8"'}, "--max-model-len 99999 --model Org/x-FP8", "--max-model-len 99999 --model Org/x"),
    ],
)
def test_each_operator_and_scope(changed: dict[str, str | None], firing: str, quiet: str) -> None:
    serve = "python3 -m vllm.entrypoints.openai.api_server"
    assert found(rule(**changed), f"{serve} {firing}")
    assert not found(rule(**changed), f"{serve} {quiet}")


def test_variables_and_docker_options_are_judged_too() -> None:
    variable = rule(flag=None, variable='"NCCL_DEBUG"', op='"equals"', value='"TRACE"')
    assert found(variable, "NCCL_DEBUG=TRACE vllm serve /m")
    assert not found(variable, "NCCL_DEBUG=WARN vllm serve /m")
    option = rule(flag=None, option='"--pids-limit"', op='"below"', value="1000")
    assert found(option, "docker run --pids-limit 100 --gpus all x/vllm vllm serve /m")
    absent = rule(flag=None, option='"name"', op='"absent"', value=None)
    assert found(absent, "docker run --gpus all x/vllm vllm serve /m")
    assert not found(absent, "docker run --name a --gpus all x/vllm vllm serve /m")
    assert not found(absent, "vllm serve /m")


@over(
    "versions, version, fires",
    [
        (">=0.19", "0.19.0", True), (">=0.19, <0.23", "0.22.1", True), (">=0.19, <0.23", "0.23.0", False),
        ("<=0.22", "0.22.1", True), ("<=0.22.0", "0.22.1", False), ("==0.22", "0.22.1", True),
        (">0.22", "0.22.1", False), (">0.22", "0.23.0", True),
    ],
)  # fmt: skip
def test_version_ranges(versions: str, version: str, fires: bool) -> None:
    text = f"docker run --gpus all vllm/vllm-openai:v{version} /m --max-model-len 99999"
    assert bool(found(rule(versions=f'"{versions}"'), text)) is fires


def test_an_unknown_version_is_judged_only_where_the_rule_says_how() -> None:
    text = "vllm serve /m --max-model-len 99999"
    assert not found(rule(versions='">=0.19"'), text)
    (finding,) = found(rule(versions='">=0.19"', if_unknown='"info"'), text)
    assert finding.severity not in WORSE
    assert finding.confidence is Confidence.SUSPECTED


@over(
    "toml, said",
    [
        ("[[lint", "own.toml"),
        ("lint = 3", "list of tables"),
        (rule(id='"Nope"'), "area.name"),
        (rule(op='"over"'), "one of present"),
        (rule(titel='"x"'), "did you mean `title`"),
        (rule(title=None), "`title` is missing"),
        (rule(title="3"), "text in quotes"),
        (rule(severity='"bad"'), "info, warning, critical"),
        (rule(engine='"tgi"'), "vllm, sglang"),
        (rule(value=None), "needs a `value`"),
        (rule(value='"a"'), "needs a number"),
        (rule(op='"matches"', value="'('"), "regular expression"),
        (rule(op='"present"'), "takes no `value`"),
        (rule(flag=None), "one of `flag`"),
        (rule(variable='"X"'), "one of `flag`"),
        (rule(versions='"about 3"'), "range"),
        (rule(versions='""'), "range"),
        (rule(nodes="3"), "`nodes`"),
        (rule(nodes="true"), "`nodes`"),
        (rule(families='["NGCX"]'), "NGC"),
        (rule(examples="[]"), "at least one"),
        (rule(examples="[1]"), "list of texts"),
        (rule(model="'['"), "regular expression"),
        (rule() + "\n[[lint.remedy]]\nsteps = ['x']", "a `title`"),
        (rule() + "\n[[lint.remedy]]\ntitle = 'x'\naction = 'reboot'", "unknown key `action`"),
        (rule() + "\n" + rule(), "two rules"),
    ],
)
def test_a_mistake_is_told_with_its_place(toml: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(toml, "own.toml")
    assert said in str(raised.value)
    assert "own.toml" in str(raised.value)


def test_log_rules_in_the_same_file_are_left_to_their_reader() -> None:
    assert len(parse("[[rule]]\nanything = 1\n" + rule(), "own.toml")) == 1
