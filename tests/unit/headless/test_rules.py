"""`sparktop rules`, and the operator's own rules wherever rules speak."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.pictures_support import container, engine, node, picture
from tests.table import over

from sparktop import config
from sparktop.cli import main
from sparktop.diagnose.catalogue import cards, live_rules, read_own
from sparktop.headless.rules import check_files
from sparktop.observe.monitor import Monitor

GOOD = """
[[rule]]
id = "site.proxy-gave-up"
title = "The proxy gave up after {seconds} s"
severity = "warning"
any = ["proxy gave up"]
regex = 'proxy gave up after (?P<seconds>\\d+) s'
explanation = "Our proxy waits {seconds} s for a first token."
examples = ["ERROR proxy gave up after 30 s"]
quiet = ["INFO the proxy gave up its lease"]
[[rule.remedy]]
title = "Raise proxy_read_timeout"
"""
LINT = """
[[lint]]
id = "site.context-too-long"
title = "A context of {value} is more than our proxy lets through"
severity = "warning"
engine = "vllm"
flag = "--max-model-len"
op = "above"
value = 65536
explanation = "Our proxy cuts longer requests."
examples = ["vllm serve m --max-model-len 131072"]
quiet = ["vllm serve m --max-model-len 4096"]
"""


def write(text: str, name: str = "site.toml") -> Path:
    folder = config.config_home() / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, "utf-8")
    return folder / name


def checked(*texts: str) -> tuple[int, str]:
    with redirect_stdout(io.StringIO()) as out:
        return check_files([(f"{number}.toml", text) for number, text in enumerate(texts)]), out.getvalue()


def test_the_list_has_every_rule_and_yours(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD + LINT)
    assert main(["rules", "list"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert len(lines) == len(cards()) + 2
    assert lines[-2].split()[:3] == ["site.proxy-gave-up", "log", "warning"]
    assert lines[-1].endswith("(yours)")
    assert f"{len(lines)} rules" in shown.err
    assert main(["rules", "list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["version"] == 1
    assert {rule["kind"] for rule in data["rules"]} == {"live", "log", "kernel", "lint", "document"}
    assert [rule["id"] for rule in data["rules"] if rule["user"]] == ["site.proxy-gave-up", "site.context-too-long"]


@over("card", cards(), ids=lambda card: card.id)
def test_every_rule_can_be_shown(card: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "show", card.id]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0] == card.id
    assert ("Sources" in lines) == bool(card.sources)
    assert any(line in ("Signals", "Looks for") for line in lines)
    assert [slot for slot in ("{container}", "{image}", "partial application") if slot in shown] == []


def test_your_own_rule_is_shown_with_its_signals(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD + LINT)
    main(["rules", "show", "site.proxy-gave-up"])
    text = capsys.readouterr().out
    for part in ("log rule, warning at worst, yours", "proxy gave up after (?P<seconds>", "1  Raise proxy_read_timeout",
                 "| ERROR proxy gave up after 30 s", "| INFO the proxy gave up its lease"):  # fmt: skip
        assert part in text
    main(["rules", "show", "site.context-too-long"])
    assert "--max-model-len above 65536" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "gpu.spin-deadlok"], "did you mean gpu.spin-deadlock"),
        (["show"], "which rule?"),
        (["list", "gpu"], "takes no name"),
        (["check", "/nonexistent.toml"], "No such file"),
    ],
)
def test_a_mistake_is_two(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", *words]) == 2
    assert said in capsys.readouterr().err


def test_good_files_are_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check"]) == 0
    assert "no rule file" in capsys.readouterr().out
    file = write(GOOD + LINT)
    assert main(["rules", "check"]) == 0
    assert f"✓ {file}: 2 rules" in capsys.readouterr().out
    assert main(["rules", "check", str(file)]) == 0


@over(
    "text, said",
    [
        ("[[rule]\n", "0.toml: "),
        (GOOD.replace("severity", "severty"), "did you mean `severity`"),
        (GOOD.replace("(?P<seconds>", "(?P<seconds"), "0.toml: rule 1 (site.proxy-gave-up): `regex` is no regular"),
        (GOOD.replace("site.proxy-gave-up", "gpu.spin-deadlock"), "gpu.spin-deadlock is taken by one of sparktop's"),
        (GOOD + GOOD, "two rules are called site.proxy-gave-up"),
        (GOOD.replace("ERROR proxy gave up after 30 s", "ERROR proxy gave up"), "it doesn't read its example"),
        (GOOD.replace("INFO the proxy gave up its lease", "proxy gave up after 3 s"), "a line it must leave alone"),
        (GOOD + LINT.replace("131072", "1024"), "finds nothing in its example"),
        (GOOD + LINT.replace("4096", "99999"), "finds something where it must not"),
        (GOOD.replace("after (?P", "after(?= ) (?P"), "searched in bounded time"),
        (GOOD + "[[rules]]\nid = 'a.b'\n", "unknown key `rules`"),
        (
            GOOD.replace("proxy gave up after (?P<seconds>\\d+) s", "proxy (a+)+$").replace(
                "proxy gave up after 30 s", f"proxy gave up, proxy {'a' * 60}!"
            ),
            "it doesn't read its example",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, said: str) -> None:
    code, out = checked(text)
    assert code == 1
    assert said in out
    assert "✓" not in out


def test_two_files_with_one_id_are_refused_and_the_first_stays() -> None:
    assert "0.toml has this rule id" in checked(GOOD, GOOD)[1]
    own = read_own([("a.toml", GOOD), ("b.toml", GOOD)])
    assert [rule.id for rule in own.log] == ["site.proxy-gave-up"]
    assert "taken by a.toml" in own.problems[0].message


def test_a_file_without_rules_is_said_and_no_fault() -> None:
    assert checked("# nothing yet\n") == (0, "▲ 0.toml: no [[rule]] and no [[lint]] in it\n")


def test_explain_and_lint_use_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD + LINT)
    log, script = tmp_path / "engine.log", tmp_path / "run.sh"
    log.write_text("ERROR proxy gave up after 45 s\n")
    script.write_text("vllm serve m --max-model-len 131072\n")
    assert main(["explain", "--json", str(log)]) == 1
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["rule"], found["title"]) == ("site.proxy-gave-up", "The proxy gave up after 45 s")
    main(["lint", "--json", str(script)])
    rules = [one["rule"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert "site.context-too-long" in rules


@pytest.mark.parametrize("command", ["explain", "lint", "rules"])
def test_a_broken_file_is_two_for_who_asks_about_a_text(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(GOOD.replace("severity", "severty"))
    text = tmp_path / "text"
    text.write_text("vllm serve m\n")
    assert main([command, "list" if command == "rules" else str(text)]) == 2
    assert "site.toml" in capsys.readouterr().err


def test_a_broken_file_is_a_notice_for_who_watches(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD, "a.toml")
    write(GOOD.replace("severity", "severty"), "b.toml")
    assert main(["status", "--json", "local"]) in (0, 1)
    notices = json.loads(capsys.readouterr().out)["notices"]
    assert [notice["text"] for notice in notices if "b.toml" in notice["text"]]


def test_an_own_lint_looks_at_what_runs() -> None:
    (rule,) = read_own([("a.toml", LINT)]).lint
    ids = [each.id for each in live_rules()]
    assert [each.id for each in live_rules((rule,))] == ids
    argv = ("vllm", "serve", "m", "--max-model-len", "131072")
    spark = node(engines=(engine(argv=argv, container=container(argv=argv)),))
    found = {one.rule for each in live_rules((rule,)) for one in each.check(picture(spark))}
    assert "site.context-too-long" in found
    assert "site.context-too-long" not in {one.rule for each in live_rules() for one in each.check(picture(spark))}


async def test_the_monitor_says_what_it_is_told_to() -> None:
    own = read_own([("b.toml", "[[rule]\n")])
    watch = Monitor([], publish=lambda _: None, remarks=own.remarks)
    assert [notice.text for notice in watch.state.notices] == [f"own rules left out: {own.problems[0].message}"]
    await asyncio.sleep(0)
