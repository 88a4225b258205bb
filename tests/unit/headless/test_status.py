"""A snapshot as text and JSON: names of the model, honest gaps, exit codes."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
from tests.pictures_support import process
from tests.support import engine_of
from tests.table import over

from sparktop.documents.finding import pages
from sparktop.documents.snapshot import snapshot_lines
from sparktop.headless.look import HELD_S, has_looked_at_desktop, looking
from sparktop.headless.status import as_data, exit_code, status
from sparktop.headless.terminal import drawn
from sparktop.model.engine import NOT_ASKED, Containers, EngineKind, EngineRates, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, Forward, Link, LinkState, NodeView
from sparktop.model.telemetry import GapReason, Gpu, GpuReading, Memory, ProcessTable, Sample
from sparktop.observe.log_ring import LineRing
from sparktop.observe.watch import LogFeed, Publish
from sparktop.text.lines import UNCUT, plain

GIB = 1024**3


def view(name: str = "spark1", state: LinkState = LinkState.LIVE, **changes: object) -> NodeView:
    memory = Memory(total_bytes=122 * GIB, available_bytes=50 * GIB, free_bytes=40 * GIB, cached_bytes=8 * GIB)
    gpu = Gpu(
        name="NVIDIA GB10",
        utilisation_percent=96,
        power_w=31.5,
        gaps={"memory_total_bytes": GapReason.NOT_SUPPORTED, "sm_clock_mhz": GapReason.NO_PERMISSION},
    )
    values: dict[str, object] = {
        "name": name,
        "link": Link(state=state, reason="samples come"),
        "sample": Sample(sequence=1, boot_s=100.0, wall_s=1.0, interval_s=1.0, memory=memory),
        "sample_at_s": 10.0,
        "gpu": GpuReading(boot_s=100.0, gpus=(gpu,)),
        "processes": ProcessTable(boot_s=100.0, processes=(), total_count=3),
        "containers": Containers(available=True, detail=""),
    }
    return NodeView(**(values | changes))  # type: ignore[arg-type]


class StillWatch:
    """A watch that publishes one picture and stands."""

    def __init__(self, state: FleetState, publish: Publish) -> None:
        self.state = state
        self.interval_s = 1.0
        self._publish = publish

    async def run(self) -> None:
        self._publish(self.state)
        await asyncio.Event().wait()

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        return None

    def kernel_lines(self, node: str) -> LineRing:
        return LineRing()

    def set_interval(self, seconds: float) -> None: ...

    def retry_now(self, node: str) -> None: ...

    async def forward(self, node: str, engine: str, port: int = 0) -> Forward:
        raise AssertionError

    async def end_forward(self, node: str, engine: str) -> None: ...

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        return False


def printed(
    out: io.StringIO, state: FleetState, *, as_json: bool, watch: bool = False, kind: type[StillWatch] = StillWatch
) -> int:
    made = status(lambda publish: kind(state, publish), as_json=as_json, watch=watch, timeout_s=0.2, interval_s=0.01)
    with redirect_stdout(out):
        return asyncio.run(made)


def snapshot(state: FleetState, *, as_json: bool, kind: type[StillWatch] = StillWatch) -> tuple[int, str]:
    out = io.StringIO()
    return printed(out, state, as_json=as_json, kind=kind), out.getvalue()


def as_text(state: FleetState, *, is_snapshot: bool = False) -> str:
    return plain(snapshot_lines(state, UNCUT, is_one_look=is_snapshot))


def test_json_has_the_models_names() -> None:
    code, text = snapshot(FleetState(nodes=(view(),), wall_s=5.0, monotonic_s=10.5), as_json=True)
    data = json.loads(text)
    (node,) = data["nodes"]
    assert code == 0
    assert data["version"] == 1
    assert node["name"] == "spark1"
    assert node["link"] == "live"
    assert node["memory"]["available_bytes"] == 50 * GIB
    assert node["memory"]["used_bytes"] == 72 * GIB
    assert node["age_s"] == 0.5
    assert node["gpus"][0]["memory_total_bytes"] is None
    assert node["gpus"][0]["gaps"]["memory_total_bytes"] == "not supported"


def test_text_says_why_a_value_is_missing() -> None:
    _, text = snapshot(FleetState(nodes=(view(),), monotonic_s=10.5), as_json=False)
    assert "available 50.0 GiB of 122.0" in text
    assert "n/a (no permission)" in text
    assert " 0 MHz" not in text


def test_an_unreachable_node_is_three() -> None:
    lost = view(state=LinkState.CONNECTING, sample=None, link=Link(state=LinkState.CONNECTING, reason="no answer"))
    code, text = snapshot(FleetState(nodes=(lost,)), as_json=False)
    assert code == 3
    assert "no answer" in text
    assert exit_code(FleetState(nodes=(view(), lost))) == 3


def test_everything_in_the_picture_can_be_written() -> None:
    rates = EngineRates(itl_p50_s=0.02, of_life=frozenset(("itl_p50_s",)))
    engine = engine_of(key="a", kind=EngineKind.VLLM, name="vllm", state=EngineState.READY, rates=rates)
    state = FleetState(nodes=(view(engines=(engine,)), view("spark2", LinkState.STALE)))
    written = json.loads(json.dumps(as_data(state)))["nodes"]
    assert written[0]["engines"][0]["rates"]["of_life"] == ["itl_p50_s"]
    assert written[1]["link"] == "stale"
    assert "◌ stale" in as_text(state)


FINDING = Finding(
    rule="gpu.spin-deadlock",
    severity=Severity.CRITICAL,
    title="Spin deadlock",
    explanation="Both wait.",
    evidence=tuple(Evidence(source="spark1 nvml", text=f"sample {n}") for n in range(4)),
    remedies=(Remedy(title="Restart both"), Remedy(title="Pray")),
    references=("field report 003",),
    nodes=("spark1",),
    brief="96 % SM at 15 W",
    since_wall_s=100.0,
)


def test_findings_come_first_and_in_short() -> None:
    child = replace(FINDING, rule="a.b", title="Clients wait", caused_by=FINDING.rule, severity=Severity.WARNING)
    state = FleetState(nodes=(view(),), findings=(FINDING, child), rules_watching=58, wall_s=221.0)
    text = as_text(state, is_snapshot=True)
    lines = text.splitlines()
    assert lines[0].split() == ["✖", "Spin", "deadlock", "96", "%", "SM", "at", "15", "W", "2", "min"]
    assert "  rule gpu.spin-deadlock" in lines
    assert any(line.startswith("└ ▲ Clients wait") for line in lines)
    assert "96 % SM at 15 W" in text
    assert "sample 1" in text
    assert "sample 2" not in text
    assert "Restart both" in text
    assert "Pray" not in text
    assert "--watch" in text
    assert "--watch" not in as_text(state)


class LateWatch(StillWatch):
    """A watch whose second picture, a moment later, tells what had to stand for a second."""

    async def run(self) -> None:
        self._publish(self.state)
        await asyncio.sleep(0)
        self.state = replace(self.state, monotonic_s=self.state.monotonic_s + HELD_S, findings=(FINDING,))
        await super().run()


def test_a_snapshot_looks_until_the_kernel_log_has_spoken() -> None:
    state = FleetState(nodes=(view(),), monotonic_s=10.5)
    code, text = snapshot(state, as_json=False, kind=LateWatch)
    assert code == 1
    assert "Spin deadlock" in text


async def test_a_node_that_is_only_slow_is_waited_for_until_it_has_answered_in_full() -> None:
    """An emulated machine: its samples stopped for seconds before its GPU and its engines were known."""
    slow = StillWatch(FleetState(nodes=(view(state=LinkState.STALE, gpu=None),)), lambda _: None)
    async with looking(lambda _: slow) as look:
        waiting = asyncio.create_task(look.settle(30.0, settle_s=30.0, held_s=0.0))
        for state in (view(gpu=None), view()):
            await asyncio.sleep(0)
            assert not waiting.done()
            slow.state = FleetState(nodes=(state,))
            look.fresh.set()
        await waiting


def test_a_desktop_is_looked_at_once_its_process_was_seen() -> None:
    shell = process(700, "gnome-shell", 0.1)
    table = ProcessTable(boot_s=1.0, processes=(shell,), total_count=1)
    assert has_looked_at_desktop(view())
    assert not has_looked_at_desktop(replace(view(), processes=table, desktop=None))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_stream_waits_for_the_next_picture_and_raises_what_ends_the_watch() -> None:
    class ThreePictures(StillWatch):
        async def run(self) -> None:
            for wall_s in (1.0, 2.0, 3.0):
                self.state = replace(lost, wall_s=wall_s)
                self._publish(self.state)
                await asyncio.sleep(0.15)
            raise ConnectionError("the watch has ended")

    connecting, lost = (
        FleetState(nodes=(view(state=state, sample=None),), wall_s=0.0, monotonic_s=11.0)
        for state in (LinkState.CONNECTING, LinkState.LOST)
    )
    out = io.StringIO()
    with pytest.raises(ConnectionError, match="the watch has ended"):
        printed(out, connecting, as_json=True, watch=True, kind=ThreePictures)
    assert [json.loads(line)["wall_s"] for line in out.getvalue().splitlines()] == [1.0, 2.0, 3.0]


def test_a_terminal_gets_lines_broken_under_their_indentation(monkeypatch: pytest.MonkeyPatch) -> None:
    long = replace(
        FINDING, explanation="Both wait. " * 20, remedies=(Remedy(title="Do", steps=("docker stop x " * 12,)),)
    )
    lines = [line.plain for line in pages([long], 60)]
    assert max(len(line) for line in lines if "docker" not in line) <= 60
    assert any(line.endswith("    " + "docker stop x " * 12) for line in lines), "a command is one line, to be copied"
    assert all(line.startswith("  ") for line in lines[1:] if line)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert drawn(pages([long], 60), Terminal()).startswith("\x1b[1;31m✖ \x1b[0m\x1b[1mSpin deadlock")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in drawn(pages([long], 60), Terminal())
    assert "\x1b" not in drawn(pages([long], UNCUT), io.StringIO())


def test_nothing_wrong_says_who_looked() -> None:
    state = FleetState(nodes=(view(), view("spark2", LinkState.LOST)), rules_watching=58)
    assert as_text(state).splitlines()[0] == "✓ nothing wrong on spark1 that 58 rules could see"


def test_findings_have_the_shared_shape() -> None:
    data = as_data(FleetState(nodes=(view(),), findings=(FINDING,), rules_watching=58))
    (found,) = data["findings"]
    assert (found["rule"], found["severity"], found["confidence"]) == ("gpu.spin-deadlock", "critical", "confirmed")
    assert len(found["evidence"]) == 4
    assert found["remedies"][0] == {"title": "Restart both", "steps": [], "action": None}
    assert data["rules_watching"] == 58
    assert json.dumps(data)


@over(
    "finding, state, code",
    [
        (FINDING, LinkState.LIVE, 1),
        (replace(FINDING, severity=Severity.WARNING), LinkState.LIVE, 1),
        (replace(FINDING, severity=Severity.INFO), LinkState.LIVE, 0),
        (replace(FINDING, phase=Phase.RESOLVED), LinkState.LIVE, 0),
        (FINDING, LinkState.LOST, 3),
    ],
)
def test_exit_codes(finding: Finding, state: LinkState, code: int) -> None:
    assert exit_code(FleetState(nodes=(view(state=state),), findings=(finding,))) == code


@pytest.mark.parametrize(
    ("containers", "says", "code"),
    [
        (NOT_ASKED, "the Docker Engine has not answered yet", 1),
        (Containers(detail="its answer has more than 8,388,608 bytes"), "its answer has more", 1),
        (Containers(detail="no Docker Engine here", is_absent=True), "", 0),
        (Containers(available=True), "", 0),
    ],
)
def test_containers_that_could_not_be_asked_for_are_said_and_are_one(
    containers: Containers, says: str, code: int
) -> None:
    state = FleetState(nodes=(view(containers=containers),), rules_watching=61)
    assert exit_code(state) == code
    assert says in as_text(state)
    assert ("nothing wrong" in as_text(state)) is (says == "")
