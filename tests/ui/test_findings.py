"""Findings in the console: the verdict, the tree, the details, and what the operator does with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.table import over
from tests.ui import claims, pictures
from tests.ui.look import clock_of_pictures, console
from tests.ui.test_app import ready, screen, until
from textual.color import Color
from textual.theme import Theme

from sparktop.clock import ManualClock
from sparktop.diagnose.findings import ENGINE_DOWN
from sparktop.documents.attention import Attention
from sparktop.documents.finding import FindingView, details, evidence_log, short
from sparktop.documents.finding_tree import AttentionState, Order, family, in_order, row_line, rows
from sparktop.model.engine import NOT_ASKED, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, Link, LinkState, Notice
from sparktop.text.lines import plain
from sparktop.ui.commands import COMMANDS
from sparktop.ui.panes.header import KeyLine
from sparktop.ui.panes.verdict import VerdictPane
from sparktop.ui.screens.finding import FindingScreen
from sparktop.ui.screens.help import HelpScreen
from sparktop.ui.theme import DARK_VARIABLES, THEMES, _tones

ONE = Finding(rule="area.one", severity=Severity.CRITICAL, title="One", nodes=("spark1",))


@pytest.fixture
def clock() -> ManualClock:
    return clock_of_pictures()


def is_open(finding: Finding) -> AttentionState:
    return AttentionState.RESOLVED if finding.phase is Phase.RESOLVED else AttentionState.OPEN


def finding(rule: str, caused_by: str | None = None, **fields: object) -> Finding:
    return replace(ONE, **{"rule": rule, "title": rule, "caused_by": caused_by, **fields})  # type: ignore[arg-type]


def verdict(
    clock: ManualClock, fleet: FleetState, *, width: int = 120, height: int = 4, attention: Attention | None = None
) -> list[str]:
    pane = VerdictPane(clock, standing_of=(attention or Attention(clock)).standing)
    pane._fleet = fleet
    lines = pane.draw(width, height)
    assert all(line.width <= width for line in lines)
    return [line.plain.rstrip() for line in lines]


# --- the tree


def test_a_consequence_hangs_under_its_cause() -> None:
    shown = [finding("a.a"), finding("a.b", "a.a"), finding("a.c", "a.b"), finding("a.d", "a.a"), finding("a.e")]
    assert [row.stem for row in rows(shown, is_open)] == ["", "├ ", "│ └ ", "└ ", ""]


def test_a_circle_or_a_lost_cause_makes_roots() -> None:
    shown = [finding("a.a", "a.b"), finding("a.b", "a.a"), finding("a.c", "a.none")]
    assert rows(shown, is_open)[0].stem == ""
    assert len(rows(shown, is_open)) == 3


def test_what_is_over_comes_last_and_newest_first() -> None:
    old = finding("a.old", phase=Phase.RESOLVED, resolved_wall_s=10.0)
    new = finding("a.new", phase=Phase.RESOLVED, resolved_wall_s=20.0)
    now = finding("a.now", severity=Severity.INFO)
    assert [row.finding.rule for row in rows([old, new, now], is_open)] == ["a.now", "a.new", "a.old"]


def test_a_family_is_a_finding_and_all_that_follows_from_it() -> None:
    shown = [finding("a.a"), finding("a.b", "a.a"), finding("a.c", "a.b"), finding("a.d")]
    assert [one.rule for one in family(shown[0], shown)] == ["a.a", "a.b", "a.c"]
    assert [one.rule for one in family(shown[1], shown)] == ["a.b", "a.c"]


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=60)
made = st.builds(
    Finding,
    rule=st.sampled_from(["a.a", "a.b", "a.c"]),
    severity=st.sampled_from(Severity),
    title=texts,
    explanation=texts,
    brief=texts,
    nodes=st.sampled_from([(), ("spark1",), ("spark1", "spark2")]),
    caused_by=st.sampled_from([None, "a.a", "a.b", "a.c"]),
    phase=st.sampled_from([Phase.FIRING, Phase.RESOLVED]),
    since_wall_s=st.one_of(st.none(), st.floats(0, 1e6)),
    is_unseen=st.booleans(),
)


@given(st.lists(made, max_size=6), st.integers(30, 200))
def test_every_row_fits_its_width(found: Sequence[Finding], width: int) -> None:
    shown = rows(found, is_open)
    assert all(row_line(row, width, ("spark1", "spark2"), 2e6, nodes=6).width <= width for row in shown)


@given(made, st.integers(30, 120))
def test_details_fit_their_width(one: Finding, width: int) -> None:
    told = FindingView(finding=one, findings=(one,), now_wall_s=2e6)
    words = max((len(word) for word in f"{one.title} {one.explanation} {one.brief}".split()), default=0)
    if words < width // 3:
        assert all(line.width <= width for line in details(told, width))
    assert len(short(told, width, 7)) <= 7


# --- the verdict


def test_the_root_cause_comes_first_with_its_figures(clock: ManualClock) -> None:
    lines = verdict(clock, pictures.deadlock(clock))
    assert lines[0].startswith(" ✖ both    Spin deadlock across both nodes")
    assert "Spin deadlock across both nodes  96 % SM at 15 W, 0 tok/s, 3 requests held  " in lines[0]
    assert "2 min" in lines[0]
    assert lines[0].index("2 min") == lines[2].index("2 min"), "times stand below one another"
    assert lines[0].endswith("d details")
    assert lines[1].startswith(" ├ ✖ spark1  Clients of vllm-minimax get no answer")
    assert "suspected" in lines[2]
    assert lines[3].endswith("1 note  A all")


@over(
    "title, fields, sure",
    [
        ("sglang-m27-0's CUDA graph capture is stuck at its beginning", {"confidence": Confidence.SUSPECTED}, "?"),
        ("The desktop may be frozen: its GPU doesn't answer the driver any more", {}, ""),
        ("Stop vllm-gptoss now: its first request takes spark1's memory", {"is_unseen": True}, "last seen"),
    ],
)
def test_a_narrow_bar_keeps_its_figure_and_its_key_and_how_sure(
    title: str, fields: dict[str, object], sure: str
) -> None:
    clock = clock_of_pictures()
    remedy = Remedy(title="Restart it", action="restart")
    told = finding("a.a", title=title, brief="96 % SM at 15 W", remedies=(remedy,), since_wall_s=clock.wall(), **fields)
    for others in ((), (finding("a.b"),)):
        words = f"96 % SM at 15 W {sure} f fix {'+1' * len(others)}".split()
        fleet = replace(pictures.deadlock(clock), findings=(told, *others), notices=())
        (line,) = verdict(clock, fleet, width=80, height=1)
        assert line.split()[-len(words) :] == words
        assert title[:25] in line
        assert title not in line
    assert title in verdict(clock, fleet, width=140, height=2)[0]


@given(st.lists(st.builds(finding, st.just("a.a"), title=texts, brief=texts, since_wall_s=st.just(0.0)), max_size=4))
def test_times_stand_below_one_another_or_nowhere(found: Sequence[Finding]) -> None:
    clock = ManualClock(wall=3599.0)
    remedy = Remedy(title="Restart it", action="restart")
    shown = tuple(replace(one, rule=f"a.{index}", remedies=(remedy,)) for index, one in enumerate(found))
    for width in (80, 120):
        lines = verdict(clock, replace(pictures.idle(clock), findings=shown), width=width)
        assert len({cell_len(line[: line.rindex("59 min")]) for line in lines if "59 min" in line}) <= 1


def test_a_narrow_screen_keeps_the_number_of_hidden_findings(clock: ManualClock) -> None:
    title = "The MTU differs at the ends of the cable: 9000 on spark1, 1500 on spark2"
    fleet = replace(pictures.deadlock(clock), notices=(), findings=tuple(
        finding(f"a.{index}", title=title, nodes=("spark1", "spark2")) for index in range(4)
    ))  # fmt: skip
    assert verdict(clock, fleet, width=80, height=2)[1].endswith(f"{title}  +2")


def test_a_notice_is_told_whole_before_the_time_of_the_next_attempt(clock: ManualClock) -> None:
    text = "lost: the connection broke: connection reset by peer · last seen with 26.5 GiB available"
    base = pictures.deadlock(clock)
    lost = Link(state=LinkState.LOST, since_s=clock.monotonic(), next_attempt_s=clock.monotonic() + 9)
    nodes = (replace(base.nodes[0], link=lost), *base.nodes[1:])
    notice = Notice(severity=Severity.CRITICAL, node="spark1", text=text)
    fleet = replace(base, nodes=nodes, findings=(), notices=(notice,))
    narrow = verdict(clock, fleet, width=80, height=2)[0]
    assert "connection reset by peer" in narrow
    assert narrow.endswith("0:09  r now")
    assert verdict(clock, fleet, width=120, height=2)[0].endswith("next try in 0:09  r now")


def test_nothing_wrong_says_how_many_rules_watch_and_what_they_miss(clock: ManualClock) -> None:
    well = replace(pictures.well(clock), findings=())
    assert verdict(clock, well)[0].startswith(" ✓ nothing wrong (58 live rules)")
    blind = replace(pictures.bare(clock), rules_watching=58, notices=())
    assert verdict(clock, blind)[0] == (
        " ✓ nothing wrong (58 live rules), without local's GPU figures, kernel log and containers"
    )


def test_no_tick_stands_over_an_engine_that_does_not_serve_yet(clock: ManualClock) -> None:
    well = pictures.well(clock)
    first, second = well.nodes
    loading = tuple(replace(engine, state=EngineState.LOADING, uptime_s=20.0) for engine in first.engines)
    line = verdict(clock, replace(well, nodes=(replace(first, engines=loading), second)))[0]
    assert line.startswith(f" OK so far; {loading[0].name} is starting (58 live rules)")


@pytest.mark.parametrize("more", [{"containers": NOT_ASKED}, {"has_looked_for_engines": False}])
def test_no_tick_stands_before_the_engines_were_looked_for(clock: ManualClock, more: dict[str, object]) -> None:
    well = pictures.well(clock)
    unread = replace(well, nodes=tuple(replace(view, **more) for view in well.nodes))
    names = " and ".join(view.name for view in well.nodes)
    assert verdict(clock, unread)[0].strip().startswith(f"OK so far · looking for engines on {names}")
    views = [replace(unread.nodes[0], name=f"spark{number}") for number in range(1, 9)]
    assert "looking for engines on 8 nodes" in verdict(clock, replace(unread, nodes=tuple(views)))[0]


def test_nothing_wrong_is_never_said_over_an_engine_that_is_down(clock: ManualClock) -> None:
    down = Finding(
        rule=ENGINE_DOWN, severity=Severity.INFO, title="vllm is down: stopped by you", nodes=("spark1",),
        subject="vllm", since_wall_s=clock.wall() - 40,
    )  # fmt: skip
    meant = replace(pictures.well(clock), findings=(down,))
    assert verdict(clock, meant)[0].startswith(
        " • vllm is down: stopped by you (40 s ago); nothing else (58 live rules)"
    )
    alarm = replace(down, severity=Severity.CRITICAL, title="vllm is down since the reboot")
    marked = VerdictPane(clock, standing_of=lambda finding: AttentionState.ACKNOWLEDGED)
    marked._fleet = replace(meant, findings=(alarm,))
    assert marked.draw(118, 1)[0].plain.startswith(" • vllm is down since the reboot (40 s ago); nothing else")
    assert marked.first is None
    assert marked.fixable == alarm, "f starts it again"
    over = replace(down, phase=Phase.RESOLVED)
    assert verdict(clock, replace(meant, findings=(over,)))[0].startswith(" ✓ nothing wrong")


def test_the_result_of_the_last_run_is_found_again_from_the_top_line(clock: ManualClock) -> None:
    pane = VerdictPane(clock)
    pane._fleet = pictures.well(clock)
    assert "last run" not in pane.draw(118, 1)[0].plain
    pane.has_run = True
    assert pane.draw(118, 1)[0].plain.rstrip().endswith("o last run")


def test_causes_keep_their_lines_when_consequences_have_no_room(clock: ManualClock) -> None:
    lines = verdict(clock, pictures.many(clock), height=4)
    assert [line.split("  ")[0] for line in lines] == [" ✖ both", " ▲ both", " ▲ spark2", " ▲ spark1"]
    assert lines[3].endswith("2 more, 1 note  A all")
    known = tuple(finding(f"b{n}", severity=Severity.INFO) for n in range(3))
    attention = Attention(clock)
    attention.acknowledge(known[:1], on=True)
    fleet = pictures.many(clock)
    fleet = replace(fleet, findings=(*fleet.findings, *known))
    assert verdict(clock, fleet, height=4, attention=attention)[3] == " … and 3 more, 3 notes, 1 acknowledged  A all"
    narrow = verdict(clock, pictures.many(clock), width=80, height=4)
    assert [line.split("  ")[0] for line in narrow] == [" ✖ both", " ▲ both", " ▲ spark2", " ▲ spark1"]
    assert narrow[3].endswith("+2"), "the figures come before the key, which the last line of the screen has too"
    small = verdict(clock, pictures.many(clock), width=60, height=4)
    assert [line.split("  ")[0] for line in small[:3]] == [" ✖ both", " ▲ both", " ▲ spark2"]
    assert small[3] == " … and 3 more, 1 note  A all"


def test_a_setting_that_may_do_harm_gives_way_to_what_happens(clock: ManualClock) -> None:
    found = (
        finding("kernel.xid-119", nodes=("spark1",)),
        finding("desktop.frozen", nodes=("spark1",), caused_by="kernel.xid-119"),
        finding("config.performance-mode", nodes=("spark1",), severity=Severity.WARNING),
    )
    lines = verdict(clock, replace(pictures.idle(clock), findings=found), height=2)
    assert "desktop.frozen" in lines[1]


def test_one_line_still_says_how_many_more(clock: ManualClock) -> None:
    (line,) = verdict(clock, pictures.many(clock), height=1)
    assert "Spin deadlock" in line
    assert line.endswith("A all")


def test_a_title_that_names_its_node_is_not_told_it_again(clock: ManualClock) -> None:
    fleet = claims.with_findings(pictures.idle(clock), clock, claims.low, claims.full_disk, claims.dead_variable)
    lines = verdict(clock, fleet, width=140)
    assert lines[0].startswith(" ✖ spark1 has 3.1 GiB")
    assert lines[1].startswith(" ▲ spark1  The disk")
    narrow = verdict(clock, fleet, width=100)
    assert "41 GB of 3.7 TB free" in narrow[1], "where the first one's title leaves it none"
    assert lines[0].endswith("d details")
    assert lines[1].endswith("1 note  A all")


def test_many_nodes_are_counted_and_not_named_before_a_title() -> None:
    names = [f"spark{number}" for number in range(1, 9)]
    for shown, told in ((8, "all 8 nodes"), (7, "7 nodes"), (3, "spark1+spark2+spark3"), (1, "spark1")):
        one = Finding(rule="a.b", severity=Severity.CRITICAL, title="A fault", nodes=tuple(names[:shown]))
        assert row_line(rows([one], is_open)[0], 100, names, 0.0).plain.startswith(f"✖ {told}  A fault")


def test_what_hangs_under_nothing_shown_has_no_stem(clock: ManualClock) -> None:
    note, late = finding("a.note", severity=Severity.INFO), finding("a.late", "a.note")
    worst, first, rest = finding("b"), finding("b.first", "b"), finding("b.rest", "b", severity=Severity.INFO)
    fleet = replace(pictures.idle(clock), findings=(worst, first, rest, note, late))
    assert [line[:4] for line in verdict(clock, fleet)[:3]] == [" ✖ s", " └ ✖", " ✖ s"]


def test_what_follows_from_a_note_alone_keeps_its_line_before_what_is_less(clock: ManualClock) -> None:
    """Its cause is only noted, so it is a root of the top line, and what `f` mends."""
    note, first = finding("a.note", severity=Severity.INFO), finding("a.first", "a.note")
    fleet = replace(pictures.idle(clock), findings=(note, first, finding("b"), finding("c")))
    lines = verdict(clock, fleet, height=2)
    assert ["a.first" in lines[0], "b" in lines[1]] == [True, True]
    pane = VerdictPane(clock, standing_of=Attention(clock).standing)
    pane._fleet = fleet
    assert [root.rule for root in pane.roots] == ["a.first", "b", "c"]


def test_a_title_that_says_its_figures_is_not_told_them_again(clock: ManualClock) -> None:
    one = finding("a", title="vllm-one failed (exit code 1)", brief="exit code 1")
    two = finding("b", title="vllm-two failed (exit code 1)", brief="exit code 137")
    lines = verdict(clock, replace(pictures.idle(clock), findings=(one, two)))
    assert lines[0].count("exit code 1") == 1
    assert "exit code 137" in lines[1]


def test_a_digit_more_moves_nothing(clock: ManualClock) -> None:
    def drawn(age_s: float, brief: str) -> str:
        found = finding("a", title="spark1 will be out of memory", brief=brief, since_wall_s=clock.wall() - age_s)
        return verdict(clock, replace(pictures.idle(clock), findings=(found,)))[0]

    ages = ["9 s", "59 s", "3 min"]
    lines = [drawn(9, "10.1 GiB available"), drawn(59, "9.1 GiB available"), drawn(180, "10.1 GiB available")]
    assert len({line.index(age) + len(age) for line, age in zip(lines, ages, strict=True)}) == 1


def test_one_line_has_room_for_both_keys(clock: ManualClock) -> None:
    fleet = claims.with_findings(pictures.idle(clock), clock, claims.low, claims.dead_variable)
    (line,) = verdict(clock, fleet)
    assert line.endswith("3.1 of 121.7 GiB available    1 note  A all"), "the figures come before the time"
    (line,) = verdict(clock, fleet, width=160)
    assert line.endswith("d details  1 note  A all")
    (line,) = verdict(clock, fleet, width=80)
    assert line.endswith("…  3.1 of 121.7 GiB available"), "the title is cut"


def test_a_lost_link_comes_before_findings_of_its_severity(clock: ManualClock) -> None:
    fleet = pictures.deadlock(clock)
    lost = Notice(severity=Severity.CRITICAL, text="host gone", node="spark2")
    odd = Notice(severity=Severity.WARNING, text="one machine", node="")
    lines = verdict(clock, replace(fleet, notices=(lost, odd), findings=fleet.findings[:1] + fleet.findings[3:]))
    assert [line.split("  ")[0] for line in lines] == [" ✖ spark2", " ✖ both", " ▲ one machine", " ▲ both"]


def test_a_starved_host_is_told_once_and_the_next_try_is_never_cut(clock: ManualClock) -> None:
    lost = pictures.lost(clock)
    (notice,) = lost.notices
    worse, note = finding("b.worse", nodes=("spark2",)), finding("a.note", severity=Severity.INFO)
    late = replace(notice, severity=Severity.WARNING)
    lines = verdict(clock, replace(lost, notices=(late,), findings=(worse, note)))
    assert lines[1].endswith("next try in 0:12  r now  1 note  A all")
    starved = finding("memory.starved", title="spark1 takes connections and does not answer SSH")
    (line,) = verdict(clock, replace(lost, findings=(starved,)))
    assert "does not answer SSH" in line
    assert notice.text[:20] not in line


def test_what_the_list_below_says_is_not_said_above_it(clock: ManualClock) -> None:
    lost = Notice(severity=Severity.CRITICAL, node="spark2", text="network gone: no answer")
    for notices, lines in (((), 0), ((lost,), 1)):
        pane = VerdictPane(clock)
        pane.is_listed = True
        pane._fleet = FleetState(findings=(ONE,), notices=notices)
        assert pane.wanted_lines == lines
        assert ["network gone" in line.plain for line in pane.draw(120, lines)] == [True] * lines
        assert pane.first is ONE
    pane._fleet = FleetState()
    assert pane.wanted_lines == 1  # with an empty list the quiet line stays


def test_an_acknowledged_one_leaves_the_lines_and_is_counted(clock: ManualClock) -> None:
    attention, fleet = Attention(clock), pictures.deadlock(clock)
    attention.acknowledge(family(fleet.findings[0], fleet.findings), on=True)
    lines = verdict(clock, fleet, attention=attention)
    assert lines[0].startswith(" ▲ both  Available memory")
    attention.acknowledge(fleet.findings[3:4], on=True)
    (line,) = verdict(clock, fleet, attention=attention)
    assert line.startswith(f" • {fleet.findings[-1].title}; nothing new (58 live rules)")
    assert "4 acknowledged" in line


@over("width, height, picture", product([40, 60, 80, 120, 200], [1, 2, 4], ["deadlock", "many", "suspicion", "well"]))
def test_the_verdict_fits(clock: ManualClock, picture: str, width: int, height: int) -> None:
    assert 1 <= len(verdict(clock, pictures.PICTURES[picture](clock), width=width, height=height)) <= height


async def test_an_engine_that_stands_still_is_not_shown_as_serving() -> None:
    app, watch = console("deadlock")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert screen(pilot).count("✖ stalled") == 2
        assert "● serving" not in screen(pilot)
        over = tuple(replace(one, phase=Phase.RESOLVED) for one in watch.state.findings)
        app.publish(replace(watch.state, findings=over))
        await until(pilot, lambda: screen(pilot).count("● serving") == 2)


# --- the details


def test_details_say_all_that_is_known(clock: ManualClock) -> None:
    found = pictures.deadlock(clock).findings
    text = plain(details(FindingView(finding=found[0], findings=found, now_wall_s=clock.wall()), 100))
    parts = (
        "critical · confirmed · since 03:10:43, 2 min · spark1 + spark2", "What was seen", "spark1 kernel log:8121",
        "What to do", "costs the three held requests", "Why this and nothing else", "What belongs to it",
        "No byte moves", "vllm-project/vllm#46097", "rule gpu.spin-deadlock",
    )  # fmt: skip
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    other = plain(details(FindingView(finding=found[2], findings=found, now_wall_s=clock.wall()), 100))
    assert "To be sure" in other
    assert "Belongs to\n  ✖ spark1 + spark2  Spin deadlock" in other


def test_evidence_leads_to_its_log(clock: ManualClock) -> None:
    spin = claims.spin(clock.wall())
    place = evidence_log(spin)
    assert place is not None
    assert (place.node, place.engine) == ("spark1", "vllm-minimax")
    kernel = evidence_log(replace(spin, evidence=spin.evidence[3:]))
    assert kernel is not None
    assert (kernel.node, kernel.engine) == ("spark1", "")
    assert evidence_log(replace(spin, evidence=spin.evidence[:2])) is None


# --- the console


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
async def test_d_opens_the_verdicts_first_finding_and_closes_it(size: tuple[int, int]) -> None:
    app, _ = console("deadlock")
    async with app.run_test(size=size) as pilot:
        await ready(pilot, "Spin deadlock")
        await pilot.press("d")
        await until(pilot, lambda: "Both ranks wait" in screen(pilot))
        await pilot.press("end")
        await until(pilot, lambda: "gpu.spin-deadlock" in screen(pilot))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen), what="help over a dialog")
        await pilot.press("question_mark", "d")
        await until(pilot, lambda: len(app.screen_stack) == 1)


async def test_with_nothing_wrong_d_is_the_notes_or_the_engines() -> None:
    app, watch = console("well")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(pilot, lambda: "config.variable-unread" in screen(pilot))
        await pilot.press("escape")
        app.publish(replace(watch.state, findings=()))
        await until(pilot, lambda: "✓ nothing wrong" in screen(pilot))
        await pilot.press("d")
        await until(pilot, lambda: "vllm/vllm-openai" in screen(pilot))


@over("theme", THEMES)
def test_the_verdict_is_a_bar_in_its_severitys_colour(theme: Theme) -> None:
    """Its whole width, and reversed where there is no colour; what is only quiet has none."""
    clock = clock_of_pictures()
    for no_color in (False, True):
        styles = _tones(theme.name, tuple(theme.variables[name] for name in DARK_VARIABLES), Color(0, 0, 0), no_color)
        for picture, tone in (("deadlock", "bar-critical"), ("suspicion", "bar-warning"), ("well", "")):
            pane = VerdictPane(clock)
            pane._fleet = pictures.PICTURES[picture](clock)
            runs = pane.draw(120, 4)[0].runs
            assert {run_tone.removesuffix("-bold") for _, run_tone in runs if tone} == ({tone} if tone else set())
            if tone:
                strong = Color.parse(theme.variables["strong" if no_color else tone.replace("bar", "severity")])
                assert styles[tone].bgcolor == strong.rich_color
                assert sum(cell_len(text) for text, _ in runs) == 120


def test_a_note_stands_where_nothing_wrong_would(clock: ManualClock) -> None:
    note = finding("a.note", severity=Severity.INFO, title="13 requests wait", brief="KV cache 99 %")
    fleet = replace(pictures.well(clock), findings=(note, finding("b.note", severity=Severity.INFO)))
    (line,) = verdict(clock, fleet, width=80)
    assert line.startswith(" • 13 requests wait  KV cache 99 %")
    assert line.endswith("2 notes  A all")
    pane = VerdictPane(clock)
    pane._fleet = fleet
    assert (pane.first, pane.fixable) == (None, note)


async def test_the_list_is_walked_and_opened() -> None:
    app, _ = console("many")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("A")
        await until(pilot, lambda: app.console_screen.view == "findings")
        await pilot.press("j", "j", "enter")
        await until(pilot, lambda: "ib_write_bw" in screen(pilot))
        assert isinstance(app.screen, FindingScreen)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.console_screen.view == "overview")


async def test_the_list_is_filtered_by_a_regular_expression() -> None:
    app, _ = console("many")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("A")
        pane = app.console_screen.findings
        await until(pilot, lambda: len(pane.rows) > 2)
        every = len(pane.rows)
        await pilot.press("slash", *"warning.*apart|memory[.]apart", "enter")
        await until(pilot, lambda: [row.finding.rule for row in pane.rows] == ["memory.apart"])
        assert f"1 of {every}" in screen(pilot)
        assert pane.has_focus
        await pilot.press("slash", *"zzz")
        await until(pilot, lambda: "No finding matches the filter" in screen(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: len(pane.rows) == every)
        assert app.console_screen.view == "findings", "Esc ended the filter alone"


async def test_the_list_opens_on_the_worst_open_one_and_leaves_what_is_resolved() -> None:
    app, _ = console("many")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("A", "a", "j", "escape", "A")
        pane = app.console_screen.findings
        await until(pilot, lambda: app.console_screen.view == "findings" and pane.selected is not None)
        assert pane.selected is not None
        assert pane.selected.standing is AttentionState.OPEN
        assert pane.selected.finding.rule == "memory.apart", "what is acknowledged is behind it"
        fleet = app.console_screen.fleet
        over = [replace(one, phase=Phase.RESOLVED) if one.rule == "memory.apart" else one for one in fleet.findings]
        pane.show(replace(fleet, findings=tuple(over)))
        assert pane.selected.standing is AttentionState.OPEN
        pane.action_move(99)
        assert pane.selected.standing is AttentionState.RESOLVED
        pane.refill()
        assert pane.selected.standing is AttentionState.RESOLVED, "the operator went there"


def test_a_cause_keeps_its_consequences_in_each_order_and_what_is_over_stays_last() -> None:
    found = [
        replace(finding("a"), nodes=("spark2",), since_wall_s=10.0),
        replace(finding("a.next", "a"), nodes=("spark2",), since_wall_s=99.0),
        replace(finding("b"), nodes=("spark1",), since_wall_s=20.0),
        replace(finding("over"), phase=Phase.RESOLVED, since_wall_s=50.0, nodes=("spark1",)),
    ]
    shown = rows(found, is_open)

    def order(by: Order) -> list[str]:
        return [row.finding.rule for row in in_order(shown, by)]

    assert order(Order.WORST) == ["a", "a.next", "b", "over"]
    assert order(Order.NEWEST) == ["b", "a", "a.next", "over"]
    assert order(Order.NODE) == ["b", "a", "a.next", "over"]


async def test_the_list_is_sorted_and_says_so() -> None:
    app, _ = console("many")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("A")
        await until(pilot, lambda: app.console_screen.view == "findings")
        await pilot.press("S")
        await until(pilot, lambda: "newest first" in screen(pilot))
        await pilot.press("S")
        await until(pilot, lambda: "by node" in screen(pilot))
        nodes = [row.finding.nodes for row in app.console_screen.findings.rows if not row.stem]
        assert nodes == sorted(nodes)
        await pilot.press("S")
        await until(pilot, lambda: "by node" not in screen(pilot))


async def test_acknowledging_dims_and_snoozing_hides() -> None:
    app, _ = console("many")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("A", "a")
        await until(pilot, lambda: "acknowledged" in screen(pilot))
        shown = app.console_screen.findings._rows
        assert [row.standing for row in shown[:4]] == [AttentionState.ACKNOWLEDGED] * 3 + [AttentionState.OPEN]
        assert app.console_screen.verdict.first is not None
        assert app.console_screen.verdict.first.rule == "memory.apart"
        await pilot.press("a")
        await until(pilot, lambda: "acknowledged" not in screen(pilot))
        await pilot.press("z")
        await until(pilot, lambda: "3 snoozed" in screen(pilot))
        assert "Clients of" not in screen(pilot)
        await pilot.press("u")
        await until(pilot, lambda: "Clients of" in screen(pilot))


async def test_an_open_finding_follows_the_pictures() -> None:
    clock = clock_of_pictures()
    app, watch = console("deadlock", clock=clock)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(pilot, lambda: "Both ranks wait" in screen(pilot))
        over = replace(watch.state.findings[0], phase=Phase.RESOLVED, resolved_wall_s=clock.wall() - 60)
        app.publish(replace(watch.state, findings=(over,)))
        await until(pilot, lambda: "resolved 1 min ago" in screen(pilot))


async def test_a_finding_leads_to_its_log() -> None:
    app, _ = console("deadlock")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, FindingScreen))
        await pilot.press("l")
        await until(pilot, lambda: app.console_screen.view == "log" and len(app.screen_stack) == 1)


async def test_the_list_leads_to_the_log_of_its_finding() -> None:
    app, _ = console("deadlock")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("A", "l")
        await until(pilot, lambda: app.console_screen.view in ("log", "kernel"))


async def test_the_keys_of_findings_stand_in_their_view_and_can_be_clicked() -> None:
    app, _ = console("many")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert "snooze" not in screen(pilot)
        await pilot.press("A")
        await until(pilot, lambda: "z snooze" in screen(pilot))
        line = screen(pilot).splitlines()[-1]
        await pilot.click(KeyLine, offset=(line.index("a acknowledge") + 3, 0))
        await until(pilot, lambda: "  acknowledged" in screen(pilot))
        await pilot.press("1")
        app.console_screen.perform(next(one for one in COMMANDS if one.id == "snooze"))
        await until(pilot, lambda: app.console_screen.view == "findings")
        assert "snoozed" not in screen(pilot), "what is hidden is seen first"


async def test_a_finding_is_copied_without_secrets() -> None:
    app, watch = console("deadlock")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        bad = replace(watch.state.findings[0], explanation="started with --api-key sk-abcdefghijklmnopqrstuvwx")
        app.publish(replace(watch.state, findings=(bad,)))
        await pilot.press("d")
        await until(pilot, lambda: "started with" in screen(pilot))
        await pilot.press("y")
        await until(pilot, lambda: "started with" in app.clipboard)
        assert "sk-abc" not in app.clipboard


async def test_the_same_findings_again_paint_nothing() -> None:
    app, watch = console("many")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("A")
        await until(pilot, lambda: app.console_screen.view == "findings")
        await pilot.pause()
        board = app.console_screen
        app.publish(replace(watch.state, monotonic_s=watch.state.monotonic_s + 1))  # hidden panes settle
        await until(pilot, lambda: board.fleet.monotonic_s > watch.state.monotonic_s)
        painted: list[object] = []
        for widget in (board.findings, board.verdict):
            widget.refresh = lambda *regions, **_: painted.append(regions)  # type: ignore[method-assign, assignment]
        again = tuple(replace(one) for one in watch.state.findings)
        app.publish(replace(watch.state, findings=again))
        await until(pilot, lambda: board.fleet.findings is again)
        assert painted == []
        later = tuple(replace(one, brief=f"{one.brief}!") for one in again)
        app.publish(replace(watch.state, findings=later))
        await until(pilot, lambda: painted)


async def test_hostile_findings_are_shown_as_they_are() -> None:
    nasty = "[/][b]x[@click=app.quit]y[/red"
    app, watch = console("deadlock")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        bad = replace(watch.state.findings[0], title=nasty, explanation=nasty, brief=nasty, subject=nasty)
        app.publish(replace(watch.state, findings=(bad,)))
        await until(pilot, lambda: nasty in screen(pilot))
        await pilot.press("A", "a", "z", "u", "d", "y")
        await until(pilot, lambda: nasty in screen(pilot))
        assert app.is_running
