"""A report says what a recording holds, shows what is missing as missing, and is inert whatever a node wrote."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from tests.pictures_support import NOW_S, WALL_S, engine, node, picture
from tests.scenario_support import Stage
from tests.unit.observe.test_replay import recorders

from sparktop.cli.commands import BY_NAME
from sparktop.cli.record import find
from sparktop.diagnose.events import events_between
from sparktop.errors import UsageError
from sparktop.headless.report.account import account_of, outages, thinned
from sparktop.headless.report.page import folded, page
from sparktop.headless.report.plots import Box, line, memory_areas, node_plots, ticks
from sparktop.model.event import Event, EventKind, Severity
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import LinkState
from sparktop.model.telemetry import Level
from sparktop.record.tape import recordings

LENGTH_S = 90.0
"""In which the memory spike begins, is found, and the node is silent and back."""
HOSTILE = (
    "<script>alert(1)</script><img src=http://evil/x onerror=a()>\x1b]52;c;QQ\x07\u202e"
    "\"' `a` [b](javascript:c) {{ 7*7 }} |x|"
)
BOX = Box(begin_s=0.0, end_s=100.0, top=10.0)


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.paths: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.paths += [value or "" for name, value in attrs if name == "d"]
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "path"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def is_inert(self) -> bool:
        """Whether it runs nothing, and loads nothing."""
        names = {name for name, _ in self.attributes}
        loading = [value for name, value in self.attributes if name in ("src", "href") and not value.startswith("#")]
        return not (self.tags & {"script", "img", "link", "iframe", "object"} or loading or
                    any(name.startswith("on") for name in names))  # fmt: skip


@pytest.fixture(scope="module")
def tapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("recordings")
    kept = recorders(home, ["spark1", "spark2"])
    for _ in Stage("memory-spike", tapes=kept).play(LENGTH_S):
        pass
    for tape in kept.values():
        tape.close()
    return home


def test_a_page_tells_what_was_wrong(tapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "night.html"
    assert BY_NAME["report"].run([str(tapes / "spark1"), str(tapes / "spark2"), "-o", str(out)]) == 0
    assert f"{out} (" in capsys.readouterr().err
    html = out.read_text()
    shown = Page(html)
    assert shown.is_inert
    assert "http" not in re.sub(r"http-equiv", "", html.split("<body>")[0])
    assert "Out of memory: the kernel killed VLLM::EngineCor" in shown.text
    begun = re.search(r"No samples of spark1 from (\S+) for 47 s", shown.text)
    assert begun
    assert f"{begun[1]}spark1▲ stale" in shown.text.replace("\n", ""), "the timeline has the time of the loss"
    assert any("M" in path[1:] for path in shown.paths), "the lines break off where samples are missing"
    assert "no samples" in shown.text
    assert not list(tmp_path.glob(".night*"))
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~mask, "it is to be shared"


def test_markdown_has_the_same_and_is_printed(tapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert BY_NAME["report"].run([str(tapes / "spark1"), "-o", "-"]) == 0
    text = capsys.readouterr().out
    assert "### 1. ✖ Out of memory" in text
    assert re.search(r"\| spark1 \| available memory \| 0.4 GiB \|", text)
    assert "No samples of spark1" in text
    assert "vllm serve openai/gpt-oss-120b" in text


def test_a_window_leaves_out_what_is_before_and_after(tapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began_s = find([str(tapes / "spark1")], None).begin_s
    since, until = (datetime.fromtimestamp(began_s + at_s).isoformat(" ", "seconds") for at_s in (20, 40))
    assert BY_NAME["report"].run([str(tapes / "spark1"), "--since", since, "--until", until, "-o", "-"]) == 0
    text = capsys.readouterr().out
    assert "Stop vllm-gptoss now" in text, "it was found before, and fires"
    assert "the kernel killed VLLM" not in text


def test_a_window_over_several_recordings_shows_all_and_the_hole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A console that was started again five minutes later, while another one ran for its first seconds."""
    folder = tmp_path / "spark1"
    for begin_s, length_s in ((0.0, 30.0), (300.0, 60.0), (310.0, 15.0)):
        stage, tape = Stage("healthy", begin_s=begin_s), recorders(tmp_path, ["spark1"], begin_s)["spark1"]
        stage.nodes[0].intake.tape = tape
        stage.run(begin_s + length_s)
        tape.close()
        (newest,) = recordings(folder)[-1].files
        os.utime(newest, (stage.clock.wall(), stage.clock.wall()))
    began_s = stage.clock.wall() - stage.t
    since, until = (datetime.fromtimestamp(began_s + at_s).isoformat(" ") for at_s in (5, 3000))
    assert BY_NAME["report"].run([str(folder), "--since", since, "--until", until, "-o", "-"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"No samples of spark1\*\* from \S+ for (4 min|27\d s).*: nothing was recorded from \w+ \d+", text)
    assert "spark1 was recorded twice at once between" in text
    assert text.count("nothing was recorded from") == 2, "above, and in the timeline"
    taped = find([str(folder)], began_s)
    assert [piece.end_s - piece.begin_s for piece in taped.pieces["spark1"]] == pytest.approx([30, 60], abs=2)
    assert taped.holes[0][1] - taped.holes[0][0] == pytest.approx(270, abs=2)
    assert len(find([str(folder)], None).pieces["spark1"]) == 1, "without a window the newest"
    (folder / "20250101T000000Z-1.0000.tape.gz").write_bytes(b"cut short")
    (unread,) = find([str(folder)], began_s).notes[:1]
    assert "is no recording" in unread


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["spark9", "-o", "-"], "nothing of spark9 was recorded"),
        (["TAPE", "--since", "yesterday", "-o", "-"], "'yesterday' is no time"),
        (["TAPE", "--since", "2999-01-01 00:00", "-o", "-"], "nothing was recorded"),
        (["TAPE", "--until", "1999-01-01 00:00", "-o", "-"], "is not after"),
        (["TAPE", "-o", "/nowhere/at/all.html"], "can't be written"),
        (["TAPE", "-o", "/dev/full.html/x.md"], "can't be written"),
        (["TAPE", "-o", "night.pdf"], "neither .html nor .md"),
    ],
)
def test_what_cannot_be_written_is_refused(tapes: Path, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        BY_NAME["report"].run([str(tapes / "spark1") if word == "TAPE" else word for word in words])


def test_nothing_that_a_node_wrote_runs() -> None:
    wrong = Finding(
        rule="memory.low",
        severity=Severity.CRITICAL,
        title=HOSTILE,
        explanation=f"1. {HOSTILE}",
        evidence=(Evidence(source=HOSTILE, text=HOSTILE),),
        remedies=(Remedy(title=HOSTILE, steps=(HOSTILE, "```"), cost=HOSTILE),),
        distinction=(f"# {HOSTILE}",),
        references=(HOSTILE, "javascript:a()"),
        nodes=("spark1",),
    )
    spark = node(engines=(engine(name=HOSTILE, version=HOSTILE, argv=(HOSTILE, HOSTILE)),))
    now = replace(picture(spark), findings=(wrong,))
    account = account_of([replace(now, wall_s=WALL_S - 900, monotonic_s=NOW_S - 900), now], 0.0)
    assert account is not None
    html = page(account, is_html=True)
    shown = Page(html)
    assert shown.is_inert
    assert max(map(len, shown.paths)) > 16_000
    assert all(re.fullmatch("[MHhZ0-9., -]+", path) for path in shown.paths), "a long path isn't cut as a text is"
    assert shown.text.count("<script>alert(1)") >= 10, "it is shown as it was written"
    assert not set("\x1b\x07\u202e") & set(html)
    text = page(account, is_html=False)
    assert not set("\x1b\x07\u202e") & set(text)
    bare = re.sub(r"(`{4,})text\n.*?\n *\1\n", "", text, flags=re.DOTALL)
    assert bare != text
    assert not re.search(r"(?<!\\)(?:<|`a|\[b\]|\|x)", bare.replace("```text", "").partition("## Versions")[0])


def test_a_line_breaks_off_where_nothing_was_received() -> None:
    points = [(0.0, 0.0), (10.0, 10.0), (20.0, None), (30.0, 5.0), (40.0, 5.0), (50.0, None), (60.0, 20.0)]
    assert line(points, BOX) == "M0.0,100.0 100.0,0.0 M300.0,50.0 400.0,50.0 M600.0,0.0h.1"
    assert line([(0.0, None)], BOX) == ""


def test_memory_is_stacked_where_its_holders_are_known() -> None:
    level = Level(4.0, (3, 4, 4, 5))
    points = [(0.0, 4.0), (10.0, 4.0), (20.0, level), (30.0, level)]
    areas = {kind: path for kind, _, path in memory_areas(points, BOX)}
    assert list(areas) == ["hold-engine", "hold-processes", "hold-cache", "hold-used"]
    assert areas["hold-engine"] == "M200.0,70.0 300.0,70.0 300.0,100.0 200.0,100.0Z"
    assert areas["hold-used"].startswith("M0.0,40.0 100.0,40.0")


def test_thinning_keeps_extremes_and_gaps() -> None:
    points = [(float(at), float(at % 7)) for at in range(1000)]
    points[500], points[501], points[700] = (500.0, -9.0), (501.0, 99.0), (700.0, None)
    kept = thinned(points, 20)
    assert len(kept) <= 45
    assert kept == sorted(kept)
    assert {(500.0, -9.0), (501.0, 99.0), (700.0, None)} <= set(kept)
    assert thinned([(1.0, 2.0)] * 100, 20), "of one moment"


def test_the_axis_has_few_round_times() -> None:
    for span_s in (20.0, 300.0, 7200.0, 86_400.0, 30 * 86_400.0):
        labels = [label for _, label in ticks(WALL_S + 0.3, WALL_S + span_s)]
        assert 1 <= len(labels) <= 8, span_s
        assert len(set(labels)) == len(labels)


def test_long_runs_are_folded() -> None:
    again = [Event(at_s=at, kind=EventKind.FOUND, nodes=("a",), subject="x", text=f"{at}") for at in range(50)]
    other = Event(at_s=99.0, kind=EventKind.ENGINE, nodes=("a",), subject="vllm", text="vllm: exited")
    rows = folded([*again, other])
    assert [(row.event.at_s, row.more) for row in rows] == [(0, 0), (1, 47), (49, 0), (99.0, 0)]
    assert [row.event for row in folded(again[:6])] == again[:6]


def test_a_short_silence_is_no_outage_and_a_lost_node_is_one_to_the_end() -> None:
    def told(at_s: float, state: LinkState) -> Event:
        severity = None if state is LinkState.LIVE else Severity.WARNING
        return Event(at_s=at_s, kind=EventKind.LINK, nodes=("a",), subject=state, severity=severity, text=state)

    events = [told(10, LinkState.STALE), told(13, LinkState.LIVE), told(20, LinkState.STALE), told(40, LinkState.LIVE),
              told(50, LinkState.STALE), told(52, LinkState.LOST)]  # fmt: skip
    assert [(one.begin_s, one.end_s) for one in outages(events, 53.0)] == [(20, 40), (50, None)]


def test_a_finding_is_marked_each_time_but_not_at_once_again() -> None:
    low = Finding(rule="memory.low", severity=Severity.CRITICAL, title="Little memory", nodes=("spark1",))
    pictures = [
        replace(picture(), wall_s=WALL_S + at_s, monotonic_s=NOW_S + at_s, findings=(low,) * is_low)
        for at_s, is_low in ((0, 0), (10, 1), (11, 0), (12, 1), (13, 0), (60, 1), (100, 0))
    ]
    pictures[1:] = [replace(now, news=tuple(events_between(old, now))) for old, now in pairwise(pictures)]
    account = account_of(pictures, 0.0)
    assert account is not None
    assert account.occurrences[0].times == 3
    assert [(round(at), number) for at, _, number, _ in node_plots(pictures[-1].nodes[0], account).marks] == [
        (10, 1),
        (60, 1),
    ]
