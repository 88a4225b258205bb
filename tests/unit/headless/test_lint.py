"""`sparktop lint` as a user meets it: exit codes, JSON, plain text, secrets, standard input."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from tests.lint_support import CASES

from sparktop.cli import main


@pytest.fixture(autouse=True)
def _no_own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_findings_are_one_and_a_good_file_is_nought(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(CASES / "report-004.service")]) == 1
    out = capsys.readouterr()
    assert "report-004.service:16  RestartSec=30" in out.out
    assert "- RestartSec=30" in out.out
    assert "Holds for\n    systemd units of engines on GB10" in out.out
    assert "Sources\n    · field report 004" in out.out
    assert main(["lint", str(CASES / "report-001-compose.yml")]) == 0
    out = capsys.readouterr()
    assert out.out == ""
    assert "nothing found" in out.err


def test_information_alone_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(CASES / "report-000.sh")]) == 0
    assert "optimization-level" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("services:\n  db: {image: postgres}\n", 0, "nothing to check"),
        ("services: [\n", 2, "stdin:2"),
        ("a\0b", 2, "give a compose file"),
        ("", 0, "give a compose file"),
    ],
)
def test_what_is_nothing_and_what_cant_be_read(
    text: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["lint", "-"]) == code
    out = capsys.readouterr()
    assert out.out == ""
    assert said in out.err


def test_files_that_arent_there_are_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(tmp_path / "no.yml")]) == 2
    assert main(["lint", str(tmp_path)]) == 2
    assert "no.yml" in capsys.readouterr().err


def test_json_has_the_shape_of_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--json", str(CASES / "report-001.sh"), str(CASES / "report-004.sh")]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["version"] == 1
    severities = [finding["severity"] for finding in answer["findings"]]
    assert severities == sorted(severities, key=["critical", "warning", "info"].index)
    for finding in answer["findings"]:
        assert finding["rule"].startswith("config.")
        assert finding["scope"]
        assert finding["references"]
        assert finding["evidence"][0]["line"] >= 1
        assert {"title", "steps", "action"} <= set(finding["remedies"][0]) if finding["remedies"] else True
    sources = {evidence["source"] for finding in answer["findings"] for evidence in finding["evidence"]}
    assert len(sources) == 2


def test_no_secret_is_shown_however_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "docker run --restart always --rm -e HF_TOKEN=canary1canary -e VLLM_API_KEY='canary 2' --gpus all \\\n"
        "  vllm/vllm-openai:v0.33.0 Org/M --enforce-eager --api-key canary3 canary4 --admin-api-key=canary5 -O3\n"
    )
    compose = tmp_path / "compose.yml"
    compose.write_text(
        "services:\n  v:\n    image: lmsysorg/sglang:v0.5.12\n"
        "    environment: {HF_TOKEN: canary6, OTHER_SECRET: canary7}\n"
        "    command:\n      - sglang\n      - serve\n      - --model-path\n      - Org/M\n"
        "      - --api-key\n      - canary8\n"
    )
    assert main(["lint", str(script), str(compose)]) == 1
    text = capsys.readouterr()
    assert main(["lint", "--json", str(script), str(compose)]) == 1
    assert "secret-in-argv" in text.out
    assert "<masked>" in text.out
    assert "canary" not in text.out + text.err + capsys.readouterr().out


def test_control_characters_of_a_file_are_no_escape_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text("vllm serve /m --gpu-memory-utilization 0.95 --x '\x1b]52;c;eA==\x07\x1b[31m\u202e'\n")
    assert main(["lint", str(script)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_own_rules_are_tried_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "config" / "sparktop" / "rules"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        '[[lint]]\nid = "site.port"\ntitle = "Port {value} is taken here"\nseverity = "warning"\nflag = "--port"\n'
        'op = "equals"\nvalue = 8000\nexplanation = "By the proxy."\nexamples = ["vllm serve /m --port 8000"]\n'
    )
    script = tmp_path / "run.sh"
    script.write_text("vllm serve /m --gpu-memory-utilization 0.7 --port 8000\n")
    assert main(["lint", str(script)]) == 1
    assert "Port 8000 is taken here" in capsys.readouterr().out
