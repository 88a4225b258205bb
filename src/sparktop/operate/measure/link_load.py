"""Loads the cable between two nodes and reads what it carried; the RDMA ports' own counters bear witness.

Both nodes' programs answer questions of this connection: the runner ends them when nobody waits for the answer any
more, when the connection is lost, and when their time is over. Nothing of a measurement outlives it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from sparktop.checks.link import BOTH_HEALTHY_GBPS, HALF_HEALTHY_GBPS, LATENCY_HEALTHY_US
from sparktop.dataclass import dataclass
from sparktop.model.survey import Answer, FileText, Output, Question
from sparktop.operate.acts.operation_text import joined
from sparktop.operate.measure import perftest
from sparktop.operate.measure.busy import busy_reason
from sparktop.operate.measure.perftest import (
    BandwidthReading,
    Half,
    LatencyReading,
    Load,
    parse_bandwidth,
    parse_latency,
)
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.run_context import Picture, Progress
from sparktop.operate.step.step_result import RequestResult, StepResult

COUNTERS = "/sys/class/infiniband"
WORD_BYTES = 4
"""port_xmit_data and port_rcv_data count words of 4 bytes."""
NO_PROGRAM = 127
KILLED = (124, 137)
"""Exit codes of `timeout` where the time was over."""
LOOK_S = 0.2
LAST_S = 10.0
"""How long a server may take to end after its client has."""
_TIME = re.compile(r"\btime[=<]([\d.]+) ms")


class _Unmeasured(Exception):
    """Why there is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    near: NodeLine
    far: NodeLine


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLink(Load, Act):
    """Loads the cable for some seconds, from the step's node to another one; what both nodes run for it ends with
    it."""

    changes: ClassVar[bool] = True

    peer: str

    async def perform(self, hands: Hands) -> StepResult:
        async def load(line: NodeLine, progress: Progress) -> RequestResult:
            return await measure_link(line, await hands.line(self.peer), hands.picture, self, progress=progress)

        return await hands.ask(load)

    def text(self) -> Iterator[str]:
        for number, half in enumerate(self.halves):
            yield joined(perftest.ping_argv(half))
            yield f"on {self.peer}: {joined(perftest.server_argv(self, half, number))}"
            yield joined(perftest.client_argv(self, half, number))


async def measure_link(
    line: NodeLine, peer_line: NodeLine, picture: Picture, act: MeasureLink, *, progress: Progress
) -> RequestResult:
    """Measure once; raises LinkLost where a connection ends meanwhile."""
    for node in (line.node, peer_line.node):
        if reason := busy_reason(picture().node(node), node):
            return RequestResult(ok=False, detail=f"{reason}: nothing was measured")
    ends = _Ends(near=line, far=peer_line)
    try:
        rtt_ms = await _reached(ends, act)
        before = await _counted(ends, act.halves)
        progress(f"{' and '.join(half.device for half in act.halves)} to {act.peer}, {act.seconds} s", None)
        said = await _loaded(ends, act)
        after = await _counted(ends, act.halves)
    except _Unmeasured as unmeasured:
        return RequestResult(ok=False, detail=str(unmeasured))
    if act.is_latency:
        return latency_result(act, parse_latency(said[0]), rtt_ms=rtt_ms)
    return bandwidth_result(act, [parse_bandwidth(text) for text in said], _grown(before, after), rtt_ms=rtt_ms)


# --- the steps of a measurement


async def _reached(ends: _Ends, act: MeasureLink) -> float | None:
    """The shortest time of a whole packet there and back, ms; None where the node has no ping."""
    times: list[float] = []
    for half in act.halves:
        question = Output(node=ends.near.node, argv=perftest.ping_argv(half), limit_s=10.0)
        answer = (await ends.near.ask([question]))[question]
        if answer.code not in (None, 0, NO_PROGRAM):
            size = f"packets of {half.mtu} bytes" if half.mtu is not None else "packets"
            raise _Unmeasured(f"{size} from {half.ip} don't reach {half.peer_ip}: {answer.problem or 'none came back'}")
        times += [float(time) for time in _TIME.findall(answer.text or "")]
    return min(times, default=None)


async def _loaded(ends: _Ends, act: MeasureLink) -> list[str]:
    """What the clients print, in the order of the halves."""
    await _require_free_ports(ends.far, act)
    limit_s = perftest.limit_s(act) + 5.0
    servers = [
        Output(node=ends.far.node, argv=perftest.server_argv(act, half, number), limit_s=limit_s)
        for number, half in enumerate(act.halves)
    ]
    clients = [
        Output(node=ends.near.node, argv=perftest.client_argv(act, half, number), limit_s=limit_s)
        for number, half in enumerate(act.halves)
    ]
    serving = asyncio.ensure_future(ends.far.ask(servers))
    sending: asyncio.Future[Mapping[Question, Answer]] | None = None
    try:
        await _until_listening(ends.far, act, serving, servers)
        sending = asyncio.ensure_future(ends.near.ask(clients))
        await asyncio.wait({serving, sending}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()  # raises where the connection to the servers is gone: their clients would wait for nothing
        answers = await sending
        failed = next((answer for answer in answers.values() if answer.problem), None)
        await asyncio.wait({serving}, timeout=LAST_S if failed is None else LOOK_S)
        if failed is not None:
            served = serving.result().values() if serving.done() else ()
            own = ((ends.far.node, answer) for answer in served if answer.problem)
            said = [(node, _why(answer, act)) for node, answer in (*own, (ends.near.node, failed))]
            # Who says no more than that the other end was gone doesn't know why.
            node, why = next((one for one in said if not perftest.LOST_PEER.search(one[1])), said[0])
            raise _Unmeasured(f"on {node}: {why}")
        return [answers[client].text or "" for client in clients]
    finally:
        pending = {future for future in (serving, sending) if future is not None}
        for future in pending:
            future.cancel()
        await asyncio.wait(pending)


async def _require_free_ports(far: NodeLine, act: MeasureLink) -> None:
    for number, listens in enumerate(await _listening(far, act)):
        if listens:
            raise _Unmeasured(f"another program listens on port {perftest.FIRST_PORT + number} of {far.node}")


async def _until_listening(
    far: NodeLine, act: MeasureLink, serving: asyncio.Future[Mapping[Question, Answer]], servers: Sequence[Output]
) -> None:
    """Wait until all servers listen.

    Raises:
        _Unmeasured: one ended before, or none listens in time.
    """
    try:
        async with asyncio.timeout(perftest.START_S):
            while not all(await _listening(far, act)):
                if serving.done():
                    answer = next((one for one in serving.result().values() if one.problem), Answer())
                    raise _Unmeasured(f"on {far.node}: {_why(answer, act)}")
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise _Unmeasured(
            f"{servers[0].argv[4]} on {far.node} did not listen within {perftest.START_S:.0f} s"
        ) from None


async def _listening(far: NodeLine, act: MeasureLink) -> list[bool]:
    """Whether anybody listens on each half's port."""
    questions = [Output(node=far.node, argv=perftest.listens_argv(number)) for number in range(len(act.halves))]
    answers = await far.ask(questions)
    for question in questions:
        if answers[question].value is None and answers[question].problem:
            raise _Unmeasured(f"who listens on {far.node} is not known: {answers[question].problem}")
    return [bool((answers[question].text or "").strip()) for question in questions]


def _why(answer: Answer, act: MeasureLink) -> str:
    """Why a program of perftest failed: its own words, else how it ended."""
    program = perftest.LATENCY if act.is_latency else perftest.BANDWIDTH
    if answer.code == NO_PROGRAM:
        return f"{program} is missing: apt install {perftest.PACKAGE}"
    if answer.code in KILLED or answer.code is None:
        return f"{program} did not end within {perftest.limit_s(act)} s, and was killed"
    reading: BandwidthReading | LatencyReading = (parse_latency if act.is_latency else parse_bandwidth)(
        f"{answer.text or ''}\n{answer.problem.partition(': ')[2]}"
    )
    return reading.problem or answer.problem


# --- the witness


async def _counted(ends: _Ends, halves: Sequence[Half]) -> dict[str, tuple[int | None, ...]]:
    """Bytes sent by the near ports and received by the far ones, since boot; None where a counter can't be read."""
    near = [_counter(ends.near.node, half.device, "port_xmit_data") for half in halves]
    far = [_counter(ends.far.node, half.peer_device, "port_rcv_data") for half in halves]
    answers = {**await ends.near.ask(near), **await ends.far.ask(far)}
    return {
        "sent": tuple(_bytes(answers[question]) for question in near),
        "received": tuple(_bytes(answers[question]) for question in far),
    }


def _counter(node: str, device: str, name: str) -> FileText:
    return FileText(node=node, path=f"{COUNTERS}/{device}/ports/1/counters/{name}", limit_bytes=64)


def _bytes(answer: Answer) -> int | None:
    text = (answer.text or "").strip()
    return int(text) * WORD_BYTES if text.isascii() and text.isdecimal() else None


def _grown(before: Mapping[str, Sequence[int | None]], after: Mapping[str, Sequence[int | None]]) -> int | None:
    """Bytes that both ends have counted meanwhile, the lower sum; None where neither end's counters were read."""
    sums = []
    for side, starts in before.items():
        pairs = list(zip(starts, after[side], strict=True))
        if all(start is not None and end is not None and end >= start for start, end in pairs):
            sums.append(sum((end or 0) - (start or 0) for start, end in pairs))
    return min(sums, default=None)


# --- the result

COUNTED = "counted_percent"
"""Of the bytes that the programs report, what the RDMA ports have counted."""
PATH_MTU = "path_mtu"


def name_of(act: MeasureLink) -> str:
    """The beginning of its figures' names; of one run no two are the same on one node."""
    if act.is_latency:
        return "latency"
    return act.halves[0].device if len(act.halves) == 1 else f"both_halves_{act.halves[0].device}"


def bandwidth_result(
    act: MeasureLink, readings: Sequence[BandwidthReading], counted_bytes: int | None, *, rtt_ms: float | None
) -> RequestResult:
    """The sum of all halves, or why one has no figure."""
    problem = next((reading.problem for reading in readings if reading.gbps is None), "")
    if problem or not readings:
        return RequestResult(ok=False, detail=f"nothing was measured: {problem or 'there is no half'}")
    gbps = sum(reading.gbps or 0.0 for reading in readings)
    name = name_of(act)
    figures: dict[str, float | str] = {f"{name}_gbps": round(gbps, 2)}
    if mtus := [reading.mtu_bytes for reading in readings if reading.mtu_bytes is not None]:
        figures[f"{name}_{PATH_MTU}"] = min(mtus)
    transferred_bytes = sum(reading.transferred_bytes for reading in readings)
    if counted_bytes is not None and transferred_bytes:
        figures[f"{name}_{COUNTED}"] = round(100 * counted_bytes / transferred_bytes, 1)
    if rtt_ms is not None:
        figures["rtt_ms"] = rtt_ms
    healthy = BOTH_HEALTHY_GBPS if len(readings) > 1 else HALF_HEALTHY_GBPS
    return RequestResult(ok=True, detail=f"{gbps:.1f} Gb/s {_beside(healthy)}", figures=figures)


def latency_result(act: MeasureLink, reading: LatencyReading, *, rtt_ms: float | None) -> RequestResult:
    """The time of a small message, or why there is none."""
    if reading.typical_us is None:
        return RequestResult(ok=False, detail=f"nothing was measured: {reading.problem}")
    name = name_of(act)
    figures: dict[str, float | str] = {f"{name}_us": reading.typical_us, f"{name}_bytes": reading.message_bytes}
    if reading.p99_us is not None:
        figures[f"{name}_p99_us"] = reading.p99_us
    if rtt_ms is not None:
        figures["rtt_ms"] = rtt_ms
    detail = f"{reading.typical_us:.2f} µs {_beside(LATENCY_HEALTHY_US)}"
    return RequestResult(ok=True, detail=detail, figures=figures)


def _beside(healthy: tuple[float, float]) -> str:
    """ "(healthy 109 to 112)"; whether the figure is, the page's check judges."""
    return f"(healthy {healthy[0]:g} to {healthy[1]:g})"
