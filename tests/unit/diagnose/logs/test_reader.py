"""What each key of a log rule means to the reader, on rules made for the test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.logs import reader as reading
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rule import LogRule, parse
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

STARTS = "(APIServer pid=1) INFO 01-01 10:00:00 [api_server.py:1] vLLM API server version 0.14.0"
SERVES = "(APIServer pid=1) INFO:     Application startup complete."
STOPS = "[2026-01-01 00:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."


def _rule(name: str, word: str, **other: object) -> LogRule:
    rows = {
        "id": f"test.{name}",
        "title": f"{name} happened",
        "severity": "critical",
        "any": [word],
        "regex": word,
        "explanation": "It did.",
        "examples": [word],
        **other,
    }
    lines = [f"{key} = {_toml(value)}" for key, value in rows.items()]
    return parse("[[rule]]\n" + "\n".join(lines), "test")[0]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _read(rules: Sequence[LogRule], lines: Iterable[str], kind: EngineKind | None = None) -> tuple[Finding, ...]:
    reader = LogReader(rules, kind)
    for number, line in enumerate(lines, 1):
        reader.feed(line, line=number)
    return reader.findings("test.log")


def _names(found: Iterable[Finding]) -> list[str]:
    return [one.rule.removeprefix("test.") for one in found]


def test_evidence_is_the_first_line_the_count_and_the_last() -> None:
    (found,) = _read([_rule("fault", "FAULT")], ["a", "FAULT one", "b", "FAULT two", "FAULT three"])
    assert [(each.source, each.line, each.text) for each in found.evidence] == [
        ("test.log", 2, "FAULT one"),
        ("test.log", 5, "and 1 between, the last: FAULT three"),
    ]


def test_groups_fill_the_words_and_other_braces_stay() -> None:
    rule = _rule(
        "room",
        "room",
        regex=r"(?P<need>[\d.]+) GiB(?P<unsaid> of)?",
        title="It needs {need} GiB{unsaid}",
        explanation='Set {"method": 1} for {need} and {other}.',
    )
    (found,) = _read([rule], ["no room for 18.25 GiB"])
    assert found.title == "It needs 18.25 GiB"
    assert found.explanation == 'Set {"method": 1} for 18.25 and {other}.'


def test_what_a_line_says_is_sanitised_cut_and_masked() -> None:
    rule = _rule("word", "says", regex="says (?P<what>.*)", title="It says {what}")
    reader = LogReader([rule], mask=lambda text: text.replace("hf_secret", "***"))
    reader.feed("says hf_secret \x07\u202e" + "x" * 500)
    (found,) = reader.findings("s")
    assert found.title.startswith("It says *** ��xxx")
    assert len(found.title) < 200
    assert "hf_secret" not in str(found)


def test_different_subjects_are_a_few_findings_and_the_rest_is_counted() -> None:
    rule = _rule("variable", "Unknown", regex=r"Unknown (?P<name>\w+)", title="{name} is unknown")
    found = _read([rule], [f"Unknown V{number}" for number in (1, 2, 1, 3, 4, 5, 1)])
    assert [one.title for one in found] == ["V1 is unknown", "V2 is unknown", "V3 is unknown"]
    assert found[-1].evidence[-1].text == "and 2 such lines that name others"


def test_unless_and_engine() -> None:
    rules = [_rule("fault", "FAULT", unless="harmless"), _rule("mine", "FAULT", engine="sglang")]
    assert _names(_read(rules, ["FAULT, harmless"])) == ["mine"]
    assert _names(_read(rules, [STARTS, "FAULT"])) == ["fault"]
    assert _names(_read(rules, ["FAULT", STARTS])) == ["fault"]
    assert _names(_read(rules, ["FAULT"], EngineKind.VLLM)) == ["fault"]
    assert set(_names(_read(rules, ["FAULT"], EngineKind.SGLANG))) == {"fault", "mine"}


@over("gap, said", [(0, True), (2, True), (3, False)])
def test_near_reaches_so_many_lines_back(gap: int, said: bool) -> None:
    rule = _rule("fault", "FAULT", near="moe", near_lines=3)
    assert bool(_read([rule], ["in moe.py", *["-"] * gap, "FAULT"])) is said


def test_near_may_be_the_line_itself_and_never_one_after() -> None:
    rule = _rule("fault", "FAULT", near="moe", near_lines=3)
    assert _read([rule], ["FAULT in moe.py"])
    assert not _read([rule], ["FAULT", "in moe.py"])


def test_near_is_found_again_for_a_later_line() -> None:
    rule = _rule("fault", "FAULT", near="moe", near_lines=3)
    (found,) = _read([rule], ["moe", "FAULT", "FAULT", "FAULT", "FAULT", "moe", "FAULT"])
    assert found.evidence[-1].text.startswith("and 2 between")


def test_at_least() -> None:
    rule = _rule("fault", "FAULT", at_least=3)
    assert not _read([rule], ["FAULT"] * 2)
    assert _read([rule], ["FAULT"] * 3)


def test_when() -> None:
    rules = [_rule("early", "FAULT", when="starting"), _rule("late", "FAULT", when="serving")]
    assert _names(_read(rules, [STARTS, "FAULT", SERVES])) == ["early"]
    assert _names(_read(rules, [STARTS, SERVES, "FAULT"])) == ["late"]
    assert _names(_read(rules, [SERVES, STARTS, "FAULT"])) == ["early"]
    served = '(APIServer pid=1) INFO:     10.0.0.2:50000 - "POST /v1/completions HTTP/1.1" 200 OK'
    assert _names(_read(rules, [served, "FAULT"])) == ["late"]


@over(
    "stop",
    [
        STOPS,
        "KeyboardInterrupt",
        "^C",
        "(APIServer pid=1) INFO:     Shutting down",
        "INFO 01-01 10:00:00 [launcher.py:101] Shutting down FastAPI HTTP server.",
        "(APIServer pid=1) INFO 01-01 10:00:00 [launcher.py:254] [shutdown] API server: shutdown triggered",
        "Subprocess scheduler_0 (pid=31) crashed with exit code -15. Triggering SIGQUIT for cleanup...",
    ],
)
def test_after_the_word_to_stop_only_rules_for_that_speak(stop: str) -> None:
    rules = [_rule("fault", "FAULT"), _rule("teardown", "FAULT", after_stop=True)]
    assert _names(_read(rules, [stop, "FAULT"])) == ["teardown"]
    assert set(_names(_read(rules, [stop, STARTS, "FAULT"]))) == {"fault", "teardown"}


@over(
    "line",
    [
        "W0101 10:00:00.000000 140 torch/distributed/elastic/api.py:900] Sending process 77 closing signal SIGTERM",
        "(Worker pid=5) ERROR worker died unexpectedly, shutting down executor.",
        "except KeyboardInterrupt's sake",
        "(EngineCore pid=7) INFO 01-01 10:00:00 [core.py:1] [shutdown] EngineCore: trigger received signal=SIGTERM",
        "(APIServer pid=1) INFO 01-01 10:00:00 [core_client.py:770] [shutdown] MPClient: start timeout=0s",
        "GET /^Cats",
    ],
)
def test_other_words_are_no_word_to_stop(line: str) -> None:
    assert _names(_read([_rule("fault", "FAULT")], [line, "FAULT"])) == ["fault"]


def test_what_broke_just_before_the_word_to_stop_broke_because_of_it() -> None:
    rules = [_rule("died", "DIED", consequence=True), _rule("fault", "FAULT")]
    assert _names(_read(rules, ["DIED", STOPS])) == []
    assert _names(_read(rules, ["FAULT", "DIED", STOPS])) == ["fault"]
    assert _names(_read(rules, ["DIED", *["-"] * 50, STOPS])) == ["died"]
    # An engine that died by itself shuts its web server down too.
    assert _names(_read(rules, ["DIED", "INFO:     Shutting down"])) == ["died"]


def test_a_consequence_hangs_under_the_best_cause_wherever_that_stands() -> None:
    rules = [
        _rule("died", "DIED", consequence=True, rank=20),
        _rule("failed", "FAILED", consequence=True, rank=10),
        _rule("fault", "FAULT", rank=60),
        _rule("deeper", "DEEP", rank=80),
        _rule("hint", "HINT", severity="warning", rank=90),
    ]
    found = _read(rules, ["HINT", "FAILED", "DIED", "FAULT", "DEEP"])
    assert [(name, one.caused_by) for name, one in zip(_names(found), found, strict=True)] == [
        ("deeper", None),
        ("fault", "test.deeper"),
        ("died", "test.deeper"),
        ("failed", "test.deeper"),
        ("hint", None),
    ]
    found = _read(rules, ["HINT", "FAILED", "DIED"])
    assert [(name, one.caused_by) for name, one in zip(_names(found), found, strict=True)] == [
        ("died", None),
        ("failed", "test.died"),
        ("hint", None),
    ]


def test_follows_names_the_cause_and_far_failures_are_two() -> None:
    rules = [
        _rule("flag", "FLAG", severity="warning"),
        _rule("slow", "SLOW", severity="warning", follows=["test.flag"]),
        _rule("fault", "FAULT", rank=10),
        _rule("deeper", "DEEP", rank=80),
    ]
    assert [one.caused_by for one in _read(rules, ["SLOW", "FLAG"])] == [None, "test.flag"]
    assert [one.caused_by for one in _read(rules, ["FAULT", *["-"] * 400, "DEEP"])] == [None, None]


def test_an_end_hangs_under_the_first_cause_of_all() -> None:
    rules = [
        _rule("died", "DIED", consequence=True),
        _rule("close", "CLOSE", rank=90, follows=["test.first"]),
        _rule("first", "FIRST", rank=40),
    ]
    found = _read(rules, ["FIRST", "CLOSE", "DIED"])
    assert [one.caused_by for one in found] == [None, "test.first", "test.first"]


def test_a_failure_of_an_earlier_run_stays_and_is_said_to_be_one() -> None:
    rules = [_rule("fault", "FAULT"), _rule("died", "DIED", consequence=True)]
    found = _read(rules, [STARTS, "FAULT", "DIED", STARTS, SERVES])
    assert _names(found) == ["fault", "died"]
    assert all("earlier run" in one.explanation and "(line 5)" in one.explanation for one in found)
    (found_again,) = _read(rules, [STARTS, "FAULT", STARTS, SERVES, "FAULT"])
    assert "earlier run" not in found_again.explanation
    # A death in this run has nothing to do with a fault of the last one.
    assert [one.caused_by for one in _read(rules, [STARTS, "FAULT", STARTS, "DIED"])] == [None, None]


def test_what_would_have_ended_a_start_is_taken_back_where_the_engine_serves_all_the_same() -> None:
    rules = [_rule("fallback", "FAULT", ends_start=True), _rule("fault", "FAULT")]
    assert set(_names(_read(rules, [STARTS, "FAULT"]))) == {"fallback", "fault"}
    assert _names(_read(rules, [STARTS, "FAULT", SERVES])) == ["fault"]
    assert set(_names(_read(rules, [STARTS, "FAULT", STARTS, SERVES]))) == {"fallback", "fault"}


def test_reset_forgets() -> None:
    reader = LogReader([_rule("fault", "FAULT")])
    reader.feed(STOPS)
    reader.reset()
    reader.feed("FAULT")
    assert _names(reader.findings("a")) == ["fault"]
    reader.reset()
    assert reader.findings("a") == ()


def test_a_run_begins_where_somebody_else_says_so() -> None:
    reader = LogReader([_rule("fault", "FAULT")])
    reader.feed(STOPS)
    reader.feed("FAULT")
    assert reader.findings("a") == ()
    reader.begin_run()
    reader.feed("FAULT")
    assert _names(reader.findings("a")) == ["fault"]


def test_a_rule_may_take_several_lines() -> None:
    rule = _rule(
        "field", "errors for", lines=2, regex=r"errors for (?P<where>.+\n.+)\n(?P<said>.+)", title="{where}: {said}"
    )
    core = "(EngineCore pid=77) ERROR 05-05 10:00:00 [core.py:1110] "
    (found,) = _read([rule], [core + "2 errors for Config", core + "field", core + "too large", "FAULT"])
    assert found.title == "Config field: too large"
    assert [each.line for each in found.evidence] == [1]
    assert not _read([rule], ["errors for Config"])


def test_a_line_of_source_in_a_traceback_is_no_message() -> None:
    rule = _rule("fault", "FAULT")
    for code in ("    raise FooError(FAULT", "(EngineCore pid=7)     return FAULT", "ERROR [a.py:1]     raise FAULT"):
        assert not _read([rule], [code])
    assert _read([rule], ["    what was raised: FAULT"])


LAST = _rule(
    "last", "Traceback", title="{who}: {said}", unless="elsewhere", last_words=True, consequence=True, fallback=True
)
TRACE = ["Traceback (most recent call last):", '  File "/x/vllm/a.py", line 3, in b', "OSError: none"]


@over(
    "lines, said",
    [
        ([STARTS, *TRACE], ["last"]),
        ([STARTS, SERVES, *TRACE], []),
        ([STARTS, *TRACE, SERVES], []),
        ([STARTS, SERVES, "DIED", *TRACE], ["last", "died"]),
        ([STARTS, *TRACE, "FAULT"], ["fault"]),
        ([STARTS, SERVES, "[shutdown] API server: shutdown triggered", *TRACE], []),
        ([STARTS, *TRACE, STARTS, "more"], ["last"]),
    ],
)
def test_the_last_words_are_told_where_no_rule_knows_more(lines: list[str], said: list[str]) -> None:
    rules = [LAST, _rule("died", "DIED", consequence=True, rank=10), _rule("fault", "FAULT")]
    assert _names(_read(rules, lines)) == said


def test_a_program_that_is_no_engine_is_told_of_as_a_note_once_it_is_over() -> None:
    reader = LogReader([LAST])
    reader.feed("error: invalid argument: --x")
    assert reader.findings("a") == ()
    (found,) = reader.findings("a", is_over=True)
    assert (found.severity, found.title) == (Severity.INFO, "The program: invalid argument: --x")


def test_findings_are_the_same_object_until_something_new_is_seen() -> None:
    reader = LogReader([_rule("fault", "FAULT")])
    reader.feed("FAULT")
    first = reader.findings("a")
    reader.feed("nothing")
    assert reader.findings("a") is first
    reader.feed("FAULT")
    assert reader.findings("a") != first


def test_escape_sequences_do_not_hide_a_line() -> None:
    (found,) = _read([_rule("fault", "FAULT here")], ["\x1b[1;31mFAULT\x1b[0m here\x1b]0;title\x07"])
    assert found.evidence[0].text == "FAULT here"


def _read_joined(rule: LogRule, *lines: str) -> tuple[Finding, ...]:
    reader = LogReader([rule], joined_lines=100)
    for number, line in enumerate(lines, 1):
        reader.feed(line, line=number)
    return reader.findings("test.log")


def test_a_line_that_was_cut_is_read_as_one() -> None:
    rule = _rule("fault", "error 12", regex="completion with error 12, opcode 0, len 0")
    whole = "node-2 Got completion with error 12, opcode 0, len 0, vendor err 129"
    for width in range(8, 80):
        (found,) = _read_joined(rule, "before", "", *(whole[at : at + width] for at in range(0, len(whole), width)))
        assert (found.evidence[0].line, len(found.evidence)) == (3, 1)
    assert _read_joined(rule, *whole.split())
    assert not _read_joined(rule, "Got completion with error 12, opcode 0, len", "INFO 0, vendor err 129")
    assert not _read_joined(rule, "Got completion with error 12, opcode 0, len", "", "0, vendor err 129")
    assert not _read([rule], ["Got completion with error 12, opcode 0, len", "0, vendor err 129"])


def test_a_line_put_together_is_counted_once() -> None:
    (found,) = _read_joined(_rule("fault", "FAULT"), "a FAULT", "goes on", "and on")
    assert len(found.evidence) == 1


def test_in_a_long_line_the_place_is_found_and_what_is_shown_is_bounded() -> None:
    rule = _rule("fault", "FAULT", regex=r"FAULT (?P<code>\d+)", title="Fault {code}")
    line = "FAULT x " * 3 + "y" * 30_000 + " FAULT 42 " + "z" * 30_000
    (found,) = _read([rule], [line])
    assert found.title == "Fault 42"
    assert "FAULT 42" in found.evidence[0].text
    assert len(found.evidence[0].text) < 500


def test_a_regex_is_shown_a_bounded_text() -> None:
    rule = _rule("fault", "FAULT", regex=r"FAULT.*END")
    assert not _read([rule], ["FAULT" + "x" * reading.SHOWN_CHARS * 2 + "END"])


WORDS = ["FAULT", "DIED", "moe", STARTS, SERVES, STOPS, "KeyboardInterrupt", "x" * 3000, "\x1b[", "Unknown V1"]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=40), max_size=60))
def test_no_lines_break_it_and_what_it_says_holds_together(lines: list[str]) -> None:
    rules = [
        _FAULT,
        _DIED,
        _NEAR,
    ]
    found = _read(rules, lines)
    ids = [one.rule for one in found]
    assert all(one.caused_by is None or one.caused_by in ids for one in found)
    assert all(one.severity is Severity.CRITICAL for one in found)
    assert found == _read(rules, lines)


_FAULT = _rule("fault", "FAULT", rank=70)
_DIED = _rule("died", "DIED", consequence=True)
_NEAR = _rule("near", "FAULT", near="moe", near_lines=5)


def test_a_fallback_speaks_only_where_nothing_knows_the_cause() -> None:
    unknown = _rule("unknown", "FooError: ", consequence=True, fallback=True)
    known, noted = _rule("known", "the cause"), _rule("noted", "beware", severity="warning")
    rules = (unknown, known, noted)
    assert _names(_read(rules, ["FooError: x"])) == ["unknown"]
    assert _names(_read(rules, ["the cause", "FooError: x"])) == ["known"]
    assert _names(_read(rules, ["beware", "FooError: x"])) == ["noted"]
    assert "unknown" in _names(_read(rules, ["beware", *["between"] * 40, "FooError: x"]))
    assert "unknown" in _names(_read(rules, ["the cause", *["between"] * 400, "FooError: x"]))
