"""The state of one node: collects messages and link changes, and makes frozen views of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktop.clock import Clock
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.kernel.incident import IncidentGrouper
from sparktop.engines.labels import name_set_aside
from sparktop.model.engine import NOT_ASKED, Containers, Engine, figures_of
from sparktop.model.fleet import (
    Contact,
    Earlier,
    Intervention,
    LastSeen,
    Ledger,
    Link,
    LinkChange,
    LinkState,
    NodeView,
    Reach,
)
from sparktop.model.guard import GuardState
from sparktop.model.telemetry import (
    YOUNG_BOOT_S,
    Collector,
    DesktopReading,
    EngineMoment,
    Garbled,
    GpuReading,
    Hello,
    HostFacts,
    KernelLines,
    LogLine,
    Memory,
    Message,
    NetworkReading,
    PreviousBoot,
    ProcessTable,
    Sample,
)
from sparktop.observe.baseline import BaselineFile, BaselineLearner
from sparktop.observe.contained import Contained
from sparktop.observe.frames import FRAME_S, FrameReader, Later
from sparktop.observe.history import (
    WINDOW_S,
    AbsenceWatch,
    GrowthWatch,
    History,
    Past,
    Placement,
    rdma_rate,
    remembering,
    swap_rate,
    trend,
)
from sparktop.observe.log_ring import LineRing
from sparktop.observe.memory_ledger import bandwidth, ledger, level

LINK_CHANGES_KEPT = 50
PROBE_SETTLES_S = 3.0
MAX_COLLECTORS = 32
"""The probe has six; the names come from the node."""
UNREAD_KERNEL_LINES = 20_000
"""As many as the probe sends at its start; a Spark that sends more loses the oldest, which the pane shows unread."""


class NodeState:
    """The mutable state of one node; `view()` is its frozen picture."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        changed: Callable[[bool], None],
        baselines: BaselineFile | None = None,
        contained: Contained | None = None,
        later: Later | None = None,
    ) -> None:
        """`changed(urgent)` is called after each change; a sample is urgent. `baselines`: the stored baselines.
        `contained` takes the faults in this node's data. `later` has kernel lines read a frame at a time; without it
        they are read at once."""
        self.name = name
        self._contained = contained or Contained(clock)
        self._baseline_learner = BaselineLearner(baselines)
        self.clock = clock
        self._changed = changed
        self._link = Link(since_s=clock.monotonic(), since_wall_s=clock.wall())
        self._link_changes: deque[LinkChange] = deque(maxlen=LINK_CHANGES_KEPT)
        self._placement = Placement()
        self._facts: HostFacts | None = None
        self._sample: Sample | None = None
        self._sample_at_s: float | None = None
        self.last_sample_arrived_s: float | None = None
        """When the newest sample arrived, on the operator's monotonic clock."""
        self._cpu_busy_percent: float | None = None
        self._probe_cpu_percent: float | None = None
        self._probe_since_boot_s: float | None = None
        self.gpu_reading: GpuReading | None = None
        self.process_table: ProcessTable | None = None
        self._collectors: dict[str, Collector] = {}
        self._counted: tuple[tuple[object, ...], Ledger] | None = None
        self._available = History()
        self._utilisation = History()
        self._power = History()
        self._sm_clock = History()
        self._tokens = History()
        self._engine_histories: dict[str, History] = {}
        self._network: NetworkReading | None = None
        self._rdma_bytes_per_s: float | None = None
        self._swap_bytes_per_s: float | None = None
        self._growth = GrowthWatch()
        self._desktop: DesktopReading | None = None
        self._guard: GuardState | None = None
        self._previous_boot: PreviousBoot | None = None
        self._awaits_previous_boot = False
        self._last_seen: LastSeen | None = None
        self._absences = AbsenceWatch()
        self.kernel_lines = LineRing()
        self._kernel_source = ""
        self._last_kernel_boot_s = -1.0
        self._incidents = IncidentGrouper()
        self._later = later
        self._kernel_rules = FrameReader[LogLine](self._read_kernel_line, most_unread=UNREAD_KERNEL_LINES)
        self._reads_later = False
        self._garbled = 0
        self.known_containers = NOT_ASKED
        self._containers_at_s: float | None = None
        self._engines: tuple[Engine, ...] = ()
        self._has_looked_for_engines = False
        self._warnings: tuple[str, ...] = ()
        self.interventions: tuple[Intervention, ...] = ()
        """What consoles had stopped there, by a tape."""
        self._view: NodeView | None = None
        self._last_view = NodeView(name=name, link=self._link)

    def fault(self, where: str, error: BaseException) -> str:
        """Contain a fault of sparktop's own in this node's data; returns its text."""
        text = self._contained.add(self.name, where, error)
        self._notify(False)
        return text

    # Called by the supervisor.

    def link(
        self,
        state: LinkState,
        reason: str,
        *,
        hint: str = "",
        reach: Reach = Reach.UNTESTED,
        attempt: int = 0,
        next_attempt_s: float | None = None,
    ) -> None:
        """Set the link state; a change of state or reachability is kept in the history."""
        old = self._link
        now_s, wall_s = self.clock.monotonic(), self.clock.wall()
        moved = old.state is not state
        if state in (LinkState.LOST, LinkState.STALE):
            self._absences.missed(reach, now_s)
        if reach is Reach.UNTESTED and state in (LinkState.LOST, LinkState.STALE) and old.state is not LinkState.LIVE:
            reach = old.reach  # the last test of the host stands until there is a new one
        self._link = Link(
            state=state,
            since_s=now_s if moved else old.since_s,
            since_wall_s=wall_s if moved else old.since_wall_s,
            reason=reason,
            hint=hint,
            reach=reach,
            was_gone=state is not LinkState.LIVE and (old.was_gone or reach is Reach.NO_HOST),
            attempt=attempt,
            next_attempt_s=next_attempt_s,
            host_key_fingerprint=old.host_key_fingerprint,
            contact=old.contact,
        )
        if moved or reach is not old.reach:
            self._link_changes.append(LinkChange(wall_s=wall_s, state=state, text=reason))
        self._notify(moved)

    def contact(self, contact: Contact) -> None:
        """Set what the newest attempt to connect met, and what the newest login was accepted by."""
        if contact != self._link.contact:
            self._link = replace(self._link, contact=contact)
            self._notify(False)

    def connection(self, fingerprint: str | None, warnings: Sequence[str]) -> None:
        """Set the host key the node presented on this connection, and the connection's warnings."""
        self._link = replace(self._link, host_key_fingerprint=fingerprint)
        self._warnings = tuple(warnings)
        self._view = None

    def message(self, message: Message, arrived_s: float) -> None:
        """Process one message of the probe."""
        try:
            self._take(message, arrived_s)
        except Exception as error:  # noqa: BLE001 - one message's fault must not end the node's watch
            self.fault(f"{type(message).__name__} message", error)

    def _take(self, message: Message, arrived_s: float) -> None:
        match message:
            case Sample():
                self._take_sample(message, arrived_s)
            case GpuReading():
                self._take_gpu(message)
            case ProcessTable():
                self.process_table = message
            case KernelLines():
                self._take_kernel_lines(message)
            case NetworkReading():
                self._take_network(message)
            case DesktopReading():
                self._desktop = message
            case Hello():
                self._take_hello(message)
            case HostFacts():
                self._facts = message
            case GuardState():
                self._guard = message
            case PreviousBoot():
                self._previous_boot, self._awaits_previous_boot = message, False
            case Collector():
                if message.name in self._collectors or len(self._collectors) < MAX_COLLECTORS:
                    self._collectors[message.name] = message
            case Garbled():
                self._garbled += 1
            case _:
                return
        self._notify(isinstance(message, Sample | GuardState))

    def asks_previous_boot(self) -> bool:
        """Whether to ask the probe how the boot before this one ended: once a boot, of a young or unknown one."""
        facts, sample = self._facts, self._sample
        if facts is not None and sample is not None and self._previous_boot is None:
            is_known = self._baseline_learner.last_boot(facts)[0] == facts.boot_id
            self._awaits_previous_boot = sample.boot_s < YOUNG_BOOT_S or not is_known
        return self._awaits_previous_boot

    def remember(self, past: Past) -> None:
        """Take what earlier sessions recorded, so that the charts reach back."""
        lead_s = self.clock.monotonic() - self.clock.wall()
        for history, points in (
            (self._available, past.available),
            (self._utilisation, past.utilisation),
            (self._power, past.power),
            (self._tokens, past.tokens),
        ):
            history.remember([(wall_s + lead_s, value) for wall_s, value in points])
        self._notify(False)

    # Called by the followers.

    def containers(self, containers: Containers, asked_s: float | None = None) -> None:
        """Set the containers that the Docker Engine listed last; `asked_s`: when it was asked, monotonic clock."""
        is_news = self._containers_at_s is None or containers != self.known_containers
        self.known_containers = containers
        self._containers_at_s = self.clock.monotonic() if asked_s is None else asked_s
        if is_news:
            self._notify(False)
        else:
            self._view = None  # the next picture has the time of this answer

    @property
    def can_look_for_engines(self) -> bool:
        """Whether there is a table of processes, and Docker has answered."""
        return self.process_table is not None and self._containers_at_s is not None

    def engines(self, engines: tuple[Engine, ...], *, has_looked: bool = True) -> None:
        """Set the engines as discovered and scraped last; `has_looked`: all that they are found in was there."""
        self._engines = engines
        self._has_looked_for_engines |= has_looked
        self._notify(False)

    # Read by followers and views.

    @property
    def wall_s(self) -> float | None:
        """The node's wall clock now, which Docker's timestamps and log stamps use."""
        if self._sample is None or self._sample_at_s is None:
            return None
        return self._sample.wall_s + max(0.0, self.clock.monotonic() - self._sample_at_s)

    def wall_of(self, boot_s: float) -> float:
        """The node's wall clock at a moment of its boot clock; 0 before its first sample."""
        return self._sample.wall_s - (self._sample.boot_s - boot_s) if self._sample else 0.0

    @property
    def memory_stall_percent(self) -> float:
        """PSI memory full avg10 of the newest sample; 0 where the kernel has none."""
        pressure = self._sample.memory_pressure if self._sample else None
        return pressure.full_avg10 if pressure else 0.0

    def view(self) -> NodeView:
        """The frozen picture of the node; the same object while nothing has changed, so nobody redraws it."""
        if self._view is None:
            try:
                self._view = self._last_view = self._new_view()
            except Exception as error:  # noqa: BLE001 - the other node's picture is made all the same
                self._contained.add(self.name, "picture", error)
                self._view = replace(self._last_view, link=self._link, warnings=self._warnings)
        return self._view

    def _ledger(self, memory: Memory) -> Ledger:
        """Who holds this memory; counted once for the same readings."""
        readings = (memory, self.process_table, self.gpu_reading, self._engines)
        if self._counted is None or any(old is not new for old, new in zip(self._counted[0], readings, strict=True)):
            self._counted = (readings, ledger(*readings))
        return self._counted[1]

    def _notify(self, urgent: bool) -> None:
        self._view = None
        self._changed(urgent)

    def _new_view(self) -> NodeView:
        sample = self._sample
        names = {c.container_id: name_set_aside(c.name) or c.name for c in self.known_containers.containers}
        gpu = self.gpu_reading.gpus[0] if self.gpu_reading and self.gpu_reading.gpus else None
        view = NodeView(
            name=self.name,
            link=self._link,
            link_history=tuple(self._link_changes),
            facts=self._facts,
            sample=sample,
            sample_at_s=self._sample_at_s,
            gpu=self.gpu_reading,
            processes=self.process_table,
            containers=self.known_containers,
            containers_at_s=self._containers_at_s,
            engines=self._engines,
            has_looked_for_engines=self._has_looked_for_engines,
            collectors=dict(self._collectors),
            ledger=self._ledger(sample.memory) if sample else None,
            growing=self._growth.growing(self._engines),
            trend=trend(self._available.recent(WINDOW_S)),
            cpu_busy_percent=self._cpu_busy_percent,
            probe_cpu_percent=self._probe_cpu_percent,
            bandwidth=bandwidth(gpu, self._engines),
            available_history=self._available.series(),
            utilisation_history=self._utilisation.series(),
            power_history=self._power.series(),
            clock_history=self._sm_clock.series(),
            token_history=self._tokens.series(),
            engine_histories={key: history.series() for key, history in self._engine_histories.items()},
            earlier=Earlier(
                available=self._available.earlier(),
                utilisation=self._utilisation.earlier(),
                power=self._power.earlier(),
                tokens=self._tokens.earlier(),
            ),
            network=self._network,
            swap_bytes_per_s=self._swap_bytes_per_s,
            rdma_bytes_per_s=self._rdma_bytes_per_s,
            desktop=self._desktop,
            kernel_source=self._kernel_source,
            kernel_events=tuple(kernel_line.with_container(event, names) for event in self._incidents.events),
            guard=self._guard,
            previous_boot=self._previous_boot,
            awaits_previous_boot=self._awaits_previous_boot,
            last_seen=self._last_seen,
            absence=self._absences.newest,
            garbled_count=self._garbled,
            warnings=self._warnings,
        )
        return replace(view, baseline=self._baseline_learner.saw(view))

    # One method per message.

    def _take_hello(self, hello: Hello) -> None:
        earlier_boot, seen_wall_s = self._baseline_learner.last_boot(hello.facts)
        if self._facts is None and earlier_boot not in ("", hello.facts.boot_id):
            self._last_seen = LastSeen(boot_id=earlier_boot, wall_s=seen_wall_s)
        if self._placement.boot(hello.facts.boot_id):
            if self._facts is not None and self._sample is not None:
                self._last_seen = LastSeen(
                    boot_id=self._facts.boot_id,
                    wall_s=self._sample.wall_s,
                    available_bytes=self._sample.memory.available_bytes,
                    total_bytes=self._sample.memory.total_bytes,
                    stall_percent=self.memory_stall_percent,
                )
            self._previous_boot, self._absences = None, AbsenceWatch()
            self._link_changes.append(
                LinkChange(wall_s=self.clock.wall(), state=self._link.state, text="the node has rebooted")
            )
            self._incidents = IncidentGrouper()
            self._kernel_rules.clear()
            self._last_kernel_boot_s = -1.0
            self.process_table = self.gpu_reading = None
            self._network = self._desktop = self._rdma_bytes_per_s = None
            self._growth = GrowthWatch()
            for history in (
                self._available,
                self._utilisation,
                self._power,
                self._sm_clock,
                self._tokens,
                *self._engine_histories.values(),
            ):
                history.cut()
        self._facts = hello.facts
        if self._guard is not None and not self._guard.has_acted:
            self._guard = None  # it ended with its probe; the new probe reports a running one
        self._probe_since_boot_s = None
        self._collectors.clear()
        self._kernel_source = ""

    def _take_sample(self, sample: Sample, arrived_s: float) -> None:
        before = self._sample
        self._sample = sample
        self._absences.saw(sample, arrived_s)
        if self._probe_since_boot_s is None:
            self._probe_since_boot_s = sample.boot_s
        self.last_sample_arrived_s = arrived_s
        placed_s = self._placement.place(sample.boot_s, arrived_s)
        self._sample_at_s = placed_s
        available = float(sample.memory.available_bytes)
        if self._has_looked_for_engines and self.process_table is not None:  # before, who holds the rest isn't known
            available = level(sample.memory, self._ledger(sample.memory))
        self._available.add(placed_s, available, expected_s=sample.interval_s)
        rates = [engine.rates.generation_tokens_per_s for engine in self._engines if engine.rates is not None]
        known = [rate for rate in rates if rate is not None]
        if known:
            self._tokens.add(placed_s, sum(known), expected_s=sample.interval_s)
        old = self._engine_histories
        asked = [engine for engine in self._engines if engine.metrics is not None or engine.key in old]
        self._engine_histories = {engine.key: old.get(engine.key) or History() for engine in asked}
        for engine in asked:
            moment = EngineMoment(figures_of(engine)) if engine.metrics is not None else None
            self._engine_histories[engine.key].add(placed_s, moment, expected_s=sample.interval_s)
        if before is not None:
            self._compare(before, sample)
        if self._link.state is not LinkState.LIVE:
            gap_s = self.clock.monotonic() - self._link.since_s
            previous_state = self._link.state
            text = (
                "live" if previous_state is LinkState.CONNECTING else f"live again after {gap_s:.0f} s {previous_state}"
            )
            self.link(LinkState.LIVE, text)

    def _compare(self, before: Sample, sample: Sample) -> None:
        """Compute shares and rates from the counters of two samples of one boot and one probe."""
        elapsed_s = sample.boot_s - before.boot_s
        if elapsed_s <= 0:
            self._cpu_busy_percent = self._probe_cpu_percent = self._swap_bytes_per_s = None
            return
        self._swap_bytes_per_s = swap_rate(before, sample)
        if (
            sample.cpu_total_ticks is not None
            and sample.cpu_busy_ticks is not None
            and before.cpu_total_ticks is not None
            and before.cpu_busy_ticks is not None
            and sample.cpu_total_ticks > before.cpu_total_ticks
        ):
            busy = sample.cpu_busy_ticks - before.cpu_busy_ticks
            self._cpu_busy_percent = max(0.0, 100.0 * busy / (sample.cpu_total_ticks - before.cpu_total_ticks))
        if sample.probe_cpu_s is not None and before.probe_cpu_s is not None:
            spent_s = sample.probe_cpu_s - before.probe_cpu_s
            started_s = self._probe_since_boot_s
            settled = started_s is not None and sample.boot_s - started_s > PROBE_SETTLES_S
            if spent_s >= 0 and settled:  # a new probe's counter starts at 0, and its startup is no running cost
                percent = 100.0 * spent_s / elapsed_s
                # The scanner works every few seconds: smoothed, so that the header shows the average cost.
                smoothed = self._probe_cpu_percent
                self._probe_cpu_percent = (
                    percent if smoothed is None else smoothed + (percent - smoothed) * min(1.0, elapsed_s / 20.0)
                )

    def _take_gpu(self, reading: GpuReading) -> None:
        self.gpu_reading = reading
        at_s = self._placement.at(reading.boot_s)
        if at_s is None or not reading.gpus:
            return
        expected_s = self._sample.interval_s if self._sample else 1.0
        self._growth.saw(at_s, reading)
        self._utilisation.add(at_s, reading.gpus[0].utilisation_percent, expected_s=expected_s)
        self._power.add(at_s, reading.gpus[0].power_w, expected_s=expected_s)
        self._sm_clock.add(at_s, reading.gpus[0].sm_clock_mhz, expected_s=expected_s)

    def _take_network(self, reading: NetworkReading) -> None:
        before = self._network
        if before is not None:
            reading = remembering(before, reading)
        self._network = reading
        self._rdma_bytes_per_s = rdma_rate(before, reading) if before else None

    def _take_kernel_lines(self, batch: KernelLines) -> None:
        self._kernel_source = batch.source
        # A new probe sends the kernel log from boot again: keep only new lines.
        fresh = [line for line in batch.lines if line.boot_s is None or line.boot_s > self._last_kernel_boot_s]
        if not fresh:
            return
        self.kernel_lines.extend(fresh)
        for line in fresh:
            if line.boot_s is not None:
                self._last_kernel_boot_s = max(self._last_kernel_boot_s, line.boot_s)
        self._kernel_rules.add(fresh)
        if not self._reads_later:
            self._read_kernel_lines()

    def _read_kernel_lines(self) -> None:
        """Read for a frame, and the rest between what else the loop has to do."""
        is_read = self._reads_later = False
        while not is_read and not self._reads_later:
            try:
                is_read = self._kernel_rules.read_frame()
            except Exception as error:  # noqa: BLE001 - the next lines are read
                self.fault("kernel lines", error)
            if not is_read and self._later is not None:
                self._reads_later = True
                self._later(FRAME_S, self._read_kernel_lines)
        self._notify(False)

    def _read_kernel_line(self, line: LogLine) -> None:
        if (event := kernel_line.read(line)) is not None:
            self._incidents.add(event)
