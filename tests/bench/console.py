"""The real console for the bench, built as the command line builds it, with up to four things added at its edges.

    python -m tests.bench.console CONFIG HOST... [--interval S] [--gpu] [--stamp] [--flood ring|pump] [--late]

--gpu: the probe is sent a stand-in for nvidia-ml-py that answers as on a GB10, with figures that move.
--stamp: each picture's node says `t<boot_s of its sample>` where its operating system's name stands, so that a reader
of the terminal knows which sample it sees.
--flood: each node has an engine whose log gets 100,000 lines/s from SIGUSR1 on, until SIGUSR2. `ring`: 5,000 lines
every 50 ms into the feed's ring, all of them. `pump`: a thread hands them to the Docker follower's own pump, one record
each, and the feed reads them with all rules.
--late: a task that sleeps 1 ms again and again notes how late it woke at worst, at SIGUSR1.
Notes of how many lines came and how large the process is go to the file named by BENCH_NOTES, as JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.support import engine_of

from sparktop.cli import composition
from sparktop.cli.composition import prepare_for_console
from sparktop.clock import SystemClock
from sparktop.config import Config
from sparktop.diagnose.logs.rule import shipped
from sparktop.model.engine import EngineKind, EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import HostFacts, LogLine
from sparktop.observe.engines.engine_log import Feed
from sparktop.observe.watch import ForwardingWatch, LogFeed, Publish, Watch
from sparktop.transport.base import Prompter

ENGINE = engine_of(key="bench", kind=EngineKind.VLLM, name="vllm-bench", state=EngineState.SERVING)
LINES_PER_S = 100_000
BATCH_S = 0.05
LINE = "(EngineCore_DP0 pid=214) INFO 11-20 02:14:02 [worker.py:352] step %d took 31.2 ms, %d tokens"


def note(**fields: object) -> None:
    """Tell the bench."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with open(os.environ["BENCH_NOTES"], "a") as file:
        file.write(json.dumps(fields | {"at_s": time.monotonic(), "resident_mb": resident / 1e6}) + "\n")


class Flood:
    """A source of lines for one feed."""

    def __init__(self, feed: Feed, kind: str) -> None:
        self._feed = feed
        self._kind = kind
        self._on = threading.Event()
        self._sent = 0
        self._noted = 0

    def start(self) -> None:
        note(event="flood", lines=self._feed.ring.end)
        self._on.set()
        if self._kind == "pump":
            self._start_pump()
        else:
            self._task = asyncio.get_running_loop().create_task(self._fill_ring())

    def stop(self) -> None:
        self._on.clear()
        note(event="stopped", lines=self._feed.ring.end, sent=self._sent)

    def _say(self) -> None:
        if self._sent // 1_000_000 > self._noted:
            self._noted = self._sent // 1_000_000
            note(event="million", lines=self._feed.ring.end, sent=self._sent)

    async def _fill_ring(self) -> None:
        begun = time.monotonic()
        while self._on.is_set():
            await asyncio.sleep(max(0.0, begun + self._sent / LINES_PER_S + BATCH_S - time.monotonic()))
            numbers = range(self._sent, self._sent + int(LINES_PER_S * BATCH_S))
            self._feed.ring.extend([LogLine(text=LINE % (number, number * 7 % 4096)) for number in numbers])
            self._sent += len(numbers)
            self._say()

    def _start_pump(self) -> None:
        from sparktop.masking import mask_text
        from sparktop.transport.docker.log_follower import Pump

        pump = Pump(lambda batch: self._feed.accept(batch), mask=mask_text, stamped=False)

        def read() -> None:
            begun = time.monotonic()
            while self._on.is_set():
                due = int((time.monotonic() - begun) * LINES_PER_S) - self._sent
                for number in range(self._sent, self._sent + due):
                    pump.put(1, (LINE % (number, number * 7 % 4096)).encode() + b"\n")
                self._sent += due
                self._say()
                time.sleep(0.005)

        threading.Thread(target=read, daemon=True).start()


class FloodedWatch(ForwardingWatch):
    """A Watch whose engines' logs are the flood's."""

    def __init__(self, watch: Watch, feed: Feed) -> None:
        super().__init__(watch)
        self._feed = feed

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        return self._feed


async def late() -> None:
    """How long the loop was held up at worst, from now to SIGUSR1."""
    worst_s = 0.0
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: note(event="late", late_s=worst_s))
    while True:
        began_s = time.perf_counter()
        await asyncio.sleep(0.001)
        worst_s = max(worst_s, time.perf_counter() - began_s - 0.001)


def stamped(view: NodeView) -> NodeView:
    if view.sample is None or view.facts is None:
        return view
    facts: HostFacts = replace(view.facts, os_name=f"t{view.sample.boot_s:.4f}", dgx_release=None)
    return replace(view, facts=facts)


def moving_gb10() -> str:
    """The tests' GB10, with power and load that change, so that a second costs the screen what it would."""
    from tests.nvml_stand_ins import GB10_NVML

    source = GB10_NVML.format(hold="")
    source = source.replace("return 38250", "return 36000 + time.time_ns() // 1000 % 4000")
    return source.replace("gpu=96", "gpu=90 + time.time_ns() // 1000 % 9")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("hosts", nargs="+")
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--stamp", action="store_true")
    parser.add_argument("--flood", choices=("ring", "pump"))
    parser.add_argument("--late", action="store_true")
    options = parser.parse_args()
    config = Config(hosts=tuple(options.hosts), interval_s=options.interval, ssh_config=options.config)
    feed = Feed("vllm-bench", EngineKind.VLLM, shipped() if options.flood else ())
    feed.status = "docker logs"

    kept: list[asyncio.Task[None]] = []

    async def start(publish: Publish, prompter: Prompter) -> Watch:
        if options.gpu:
            from sparktop.probe import bundle

            bundle.launch = partial(bundle.launch, nvml_source=moving_gb10())
        if options.late:
            kept.append(asyncio.create_task(late()))

        def dressed(state: FleetState) -> None:
            nodes = state.nodes
            if options.flood:
                engine = replace(ENGINE, log=feed.facts())
                nodes = tuple(replace(view, engines=(engine,)) for view in nodes)
            if options.stamp:
                nodes = tuple(stamped(view) for view in nodes)
            publish(replace(state, nodes=nodes))

        def make() -> Watch:
            connectors = composition.connectors(config.hosts, prompter, config.ssh_config)
            return composition.session(connectors, dressed if options.flood or options.stamp else publish, config)

        watch = await asyncio.to_thread(make)
        if not options.flood:
            return watch
        flood = Flood(feed, options.flood)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, flood.start)
        loop.add_signal_handler(signal.SIGUSR2, flood.stop)
        return FloodedWatch(watch, feed)

    prepare_for_console()
    from sparktop.ui.app import SparktopApp
    from sparktop.ui.setup import Setup

    SparktopApp(Setup(start=start, node_names=config.hosts, clock=SystemClock())).run()


if __name__ == "__main__":
    main()
