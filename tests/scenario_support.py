"""Plays a scenario of the simulator into the rules without a second of real time.

    stage = Stage("spin-deadlock")
    for picture in stage.play(until_s=90):
        ...                             # picture.findings, as the console would have them
    stage.first("gpu.spin-deadlock")    # the second at which it was first shown, or None

Nothing is made up on the way: the simulated probe's lines go through `wire.decode` into a `NodeState`, the simulated
Docker Engine's answers and log frames through `container_of` and `lines_from_chunk` into the product's `Followers`, an
engine's /metrics text through its scrape, and every sample gives a picture to `Diagnosis`. Only waiting is left out:
the clock is moved to whatever is due next. Faults of the line are what they do to samples: silence, a stale link
after three seconds, and what TCP told three seconds later. Beyond the end of a scenario that restarts the machines boot
anew, which is the one remedy that a scenario can't hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from sparktop.clock import ManualClock
from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.diagnose.logs.rule import shipped
from sparktop.diagnose.notices import notices
from sparktop.diagnose.rule import LiveRule
from sparktop.model.engine import Container, Containers, EndpointState, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import Contact, FleetState, Intervention, LinkState, LoginMethod, Reach
from sparktop.model.telemetry import LogLine
from sparktop.observe import followers as following
from sparktop.observe.engines.engine_book import EngineBook
from sparktop.observe.followers import Followers
from sparktop.observe.intake import Intake, Tape
from sparktop.observe.node_state import NodeState
from sparktop.observe.received import Contacted, Linked, Listed, Logged, Looked, Probed
from sparktop.sim.reaction.acts import Act, with_act
from sparktop.sim.scenario.scenario import Scenario, load
from sparktop.sim.scenario.script import Fault, FaultKind, NodeScript, Repeat
from sparktop.sim.services import docker_api, engine_api
from sparktop.sim.services.http import HttpRequest
from sparktop.sim.services.probe_session import Talk
from sparktop.sim.spark.spark import Spark
from sparktop.transport.docker.inspection import container_of
from sparktop.transport.docker.log_frames import Frames, SplitState, lines_from_chunk
from sparktop.transport.endpoint import Reply
from sparktop.wire.framing import sequence_of

EVERY_S = {"containers": 3.0, "engines": 1.0, "metrics": 2.0, "log": 0.5}
"""As the followers have it."""
STALE_AFTER_S = 3.0
REACH_TAKES_S = 3.0
REACHES = {
    FaultKind.NO_ROUTE: Reach.NO_HOST,
    FaultKind.STARVED: Reach.SSH_SILENT,
    FaultKind.REFUSED: Reach.NO_SSHD,
    FaultKind.RESET: Reach.ANSWERS,
}


_loaded = cache(load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A finding as it was first shown."""

    at_s: float
    finding: Finding


class Stage:
    """One showing of a scenario, from its second 0."""

    def __init__(
        self,
        scenario: str | Scenario,
        *,
        rules: Sequence[LiveRule] | None = None,
        interval_s: float = 1.0,
        begin_s: float = 0.0,
        unhurried: float = 1.0,
        tapes: Mapping[str, Tape] = MappingProxyType({}),
        **book: Any,
    ) -> None:
        """One showing after another, from second 0.

        Args:
            begin_s: when the console connects, and with it where its samples fall.
            unhurried: everything but samples comes so many times rarer; for playing hours.
            tapes: by node, what keeps all that is received of it.
            book: more keywords for every NodeState.
        """
        self.tapes = tapes
        self.unhurried = unhurried
        self.scenario = _loaded(scenario) if isinstance(scenario, str) else scenario
        self._held: int | None = None
        """The showing in which something was done: there is none after it."""
        self.clock = ManualClock()
        self.began_s = self.clock.monotonic()
        self.diagnosis = Diagnosis(live_rules() if rules is None else rules)
        self.nodes = [_Node(self, script, interval_s, begin_s, book) for script in self.scenario.nodes]
        self.picture = FleetState()
        self.interventions: Callable[[], tuple[Intervention, ...]] = tuple
        """What consoles have stopped; an operator at the stage sets it."""
        self.saw: Callable[[FleetState], None] = lambda picture: None
        """Is given every picture."""
        self.shown: list[Shown] = []
        self._known: set[tuple[object, ...]] = set()

    @property
    def t(self) -> float:
        """The second since the scenario began; beyond its length it is another showing's."""
        return self.clock.monotonic() - self.began_s

    def play(self, until_s: float | None = None) -> Iterator[FleetState]:
        """A picture for every sample, up to the scenario's end or `until_s`; may be called again to go on."""
        end_s = self.scenario.length_s if until_s is None else until_s
        while self.t < end_s - 1e-9:
            due_s = min(node.due_s for node in self.nodes)
            self.clock.advance(max(0.0, min(due_s, end_s) - self.t))
            if any([node.act() for node in self.nodes]):  # noqa: C419 - every node acts
                yield self._publish()

    def showing(self) -> tuple[int, float]:
        """Which showing it is, and the second of it."""
        if self._held is not None:
            return self._held, self.t - self._held * self.scenario.length_s
        if self.scenario.repeat is not Repeat.RESTART:
            return 0, self.t
        showing = max(0, int((self.t - 1e-6) // self.scenario.length_s))  # its last second belongs to it
        return showing, self.t - showing * self.scenario.length_s

    def do(self, act: Act, node: str = "spark1") -> Stage:
        """Something is done to a node now, as the runner, Docker or the guard would do it."""
        showing, t = self.showing()
        if self.scenario.repeat is Repeat.RESTART:
            self._held = showing
        self.scenario = with_act(self.scenario, node, t, act)
        return self

    def spark(self, node: str) -> tuple[Spark, float]:
        """A node as it is, and the second of its boot."""
        return next(one for one in self.nodes if one.name == node).moment()

    def run(self, until_s: float | None = None) -> Stage:
        """Play to the end; then ask `first`, `shown`, `picture`."""
        for _ in self.play(until_s):
            pass
        return self

    def first(self, rule: str, **wanted: object) -> float | None:
        """The second at which a rule's finding was first shown so: first(rule, confidence=Confidence.CONFIRMED)."""
        for one in self.shown:
            if one.finding.rule == rule and all(getattr(one.finding, key) == value for key, value in wanted.items()):
                return one.at_s
        return None

    def firing(self, rule: str = "") -> list[Finding]:
        """What fires in the newest picture."""
        return [one for one in self.picture.findings if one.phase is Phase.FIRING and rule in ("", one.rule)]

    def alarms(self) -> list[str]:
        """All that was ever shown at warning or above, with its second, for a test's message."""
        return [
            f"{one.at_s:.0f} s: {one.finding.rule} {one.finding.nodes} {one.finding.brief or one.finding.title}"
            for one in self.shown
            if one.finding.severity is not Severity.INFO
        ]

    def _publish(self) -> FleetState:
        views = tuple(node.book.view() for node in self.nodes)
        picture = FleetState(
            nodes=views,
            wall_s=self.clock.wall(),
            monotonic_s=self.clock.monotonic(),
            notices=notices(views),
            findings=self.picture.findings,
            interventions=self.interventions(),
        )
        findings = self.diagnosis.update(picture)
        for one in findings:
            mark = (*one.key, one.severity, one.confidence, one.phase)
            if mark not in self._known:
                self._known.add(mark)
                if one.phase is Phase.FIRING:
                    self.shown.append(Shown(at_s=self.t, finding=one))
        self.picture = replace(picture, findings=findings, rules_watching=self.diagnosis.watching)
        self.saw(self.picture)
        return self.picture


@dataclass(slots=True)
class _Log:
    """How far one container's log has been read."""

    until_s: float
    started_wall_s: float | None
    frames: Frames = field(default_factory=Frames)
    states: dict[int, SplitState] = field(default_factory=dict)
    last_stream: int = -1

    def lines(self, data: bytes) -> list[LogLine]:
        found: list[LogLine] = []
        for stream, payload in self.frames.feed(data):
            state = self.states.get(stream) or SplitState()
            if stream != self.last_stream and state.replacing:
                state = replace(state, replacing=False)
            state, lines = lines_from_chunk(state, payload, stamped=True)
            self.states[stream] = state
            self.last_stream = stream if lines else self.last_stream
            found += lines
        return found


class _Node:
    """One simulated Spark, and the product's book of it."""

    def __init__(
        self, stage: Stage, script: NodeScript, interval_s: float, begin_s: float, more: dict[str, Any]
    ) -> None:
        self._stage = stage
        self.name = script.name
        self._interval_s = interval_s
        self._began_wall_s = stage.clock.wall()
        self.spark = Spark(stage.scenario, script, showing=0, began_wall_s=self._began_wall_s)
        self._showing = 0
        self.book = NodeState(script.name, clock=stage.clock, changed=lambda _: None, **more)
        login = LoginMethod.PASSWORD if script.machine.needs_password else LoginMethod.KEY
        host_key = f"ssh-ed25519 AAAAC3Nza{''.join(filter(str.isalnum, script.machine.hostname))}"
        contact = Contact(host="127.0.0.1", answered="127.0.0.1", login=login, host_key=host_key)
        self.intake = Intake(self.book, EngineBook(self.book, rules=shipped), stage.tapes.get(script.name))
        self.followers = Followers(self.intake)
        self.intake.take(Contacted(contact=contact))
        self._talk: Talk | None = None
        self._logs: dict[str, _Log] = {}
        self._boxes: dict[bytes, Container] = {}
        self._due = {"talk": 0.0, "containers": 0.3, "engines": 0.6, "metrics": 0.7, "log": 0.25}
        self._due = {name: due + begin_s for name, due in self._due.items()}
        self._silent_since_s: float | None = None
        self._told = 0
        self._shift = 0.0
        """From the showing's seconds to the stage's."""

    @property
    def due_s(self) -> float:
        return min(self._due.values())

    def act(self) -> bool:
        """Do what is due; True when a picture is to be made of it."""
        now = self._stage.t
        spark, t = self.moment()
        if spark.boot_id != self.spark.boot_id:
            self._reboot(spark)
        elif spark is not self.spark:
            self.spark = spark
            if self._talk is not None:
                self._talk.spark = spark
        self._shift = now - t
        fault = self._fault(t)
        if fault is not None and fault.kind is not FaultKind.SLOW:
            return self._hear_nothing(t, fault)
        if self._silent_since_s is not None:
            self._return(t)
        sampled = False
        for what in [name for name, due in self._due.items() if due <= now + 1e-9]:
            if what == "talk":
                sampled = self._listen(t)
                continue
            self._due[what] = now + EVERY_S[what] * self._stage.unhurried
            getattr(self, f"_{what}")(t)
        return sampled

    def moment(self) -> tuple[Spark, float]:
        """The node as it is, and the second of its boot."""
        showing, t = self._stage.showing()
        script = next(node for node in self._stage.scenario.nodes if node.name == self.name).at(t)
        t -= script.began_s
        is_same = script is self.spark.script and self.spark.scenario is self._stage.scenario
        if is_same and showing == self._showing:
            return self.spark, t
        began_wall_s = self._began_wall_s + showing * self._stage.scenario.length_s + script.began_s
        self._showing = showing
        return Spark(self._stage.scenario, script, showing=showing, began_wall_s=began_wall_s), t

    def _reboot(self, spark: Spark) -> None:
        """The connection ends: the machine has booted anew, or another showing begins."""
        self.spark = spark
        self._talk, self._silent_since_s = None, None
        self._logs.clear()
        self._due = dict.fromkeys(self._due, self._stage.t)
        self.intake.take(Linked(state=LinkState.LOST, reason="the connection ended"))

    def hear(self, words: Mapping[str, object]) -> bool:
        """The console's words for the probe; False where there is none to hear them."""
        if self._talk is None or self._silent_since_s is not None:
            return False
        self._talk.spark = self.moment()[0]
        self._talk.hear(json.dumps(words).encode() + b"\n", self._stage.clock.monotonic())
        return True

    # The line

    def _fault(self, t: float) -> Fault | None:
        looped = t % self._stage.scenario.length_s if self._stage.scenario.repeat is Repeat.LOOP else t
        faults = self.spark.script.faults
        return next((one for one in faults if one.start_s <= (t if one.once else looped) < one.end_s), None)

    def _hear_nothing(self, t: float, fault: Fault) -> bool:
        if self._silent_since_s is None:
            self._silent_since_s, self._told = t, 0
        silent_s = t - self._silent_since_s
        for name in self._due:
            self._due[name] = self._stage.t + 0.5
        if self._told == 0 and silent_s >= STALE_AFTER_S:
            self._told = 1
            self.intake.take(Linked(state=LinkState.STALE, reason="samples stopped; the connection is still open"))
            return True
        if self._told == 1 and silent_s >= STALE_AFTER_S + REACH_TAKES_S:
            self._told = 2
            reach = REACHES[fault.kind]
            self.intake.take(Linked(state=LinkState.STALE, reason="samples stopped; as TCP tells", reach=reach))
            return True
        return self._told > 0

    def _return(self, t: float) -> None:
        if t - (self._silent_since_s or 0.0) > 20.0:
            self._talk = None  # the console has started another probe meanwhile
        self._silent_since_s = None

    def _listen(self, t: float) -> bool:
        now_s = self._stage.clock.monotonic()
        data = b""
        if self._talk is None:
            self._talk = Talk(
                self.spark, interval_s=self._interval_s, digest="0" * 8, began_s=t, now_s=now_s,
                react=lambda act: (self._stage.do(act, self.name), None)[1],
            )  # fmt: skip
            data = self._talk.opening()
        self._talk.hear(b'{"beat":1}\n', now_s)
        data += self._talk.advance(t, now_s)
        sampled = False
        for line in data.splitlines():
            self.intake.take(Probed.of(line))
            sampled = sampled or b'"kind":"sample"' in line
            self._talk.hear(json.dumps({"ack": sequence_of(line) or 0}).encode() + b"\n", now_s)
        self._due["talk"] = self._shift + max(self._talk.due_s, t + 0.01)
        return sampled

    # The Docker Engine and the engines' own figures

    def _ask_docker(self, path: str, **query: str) -> Any:
        spark, t = self.spark, self._stage.t - self._shift

        request = HttpRequest(method="GET", path=path, query=query)
        return _finished(docker_api.answer(_StillMachine(spark, t), request))

    def _containers(self, t: float) -> None:
        rows = json.loads(self._ask_docker("/containers/json", all="1").body)
        found = [self._ask_docker(f"/containers/{row['Id']}/json").body for row in rows]
        for body in found:
            if body not in self._boxes:
                self._boxes[body] = container_of(json.loads(body))
        containers = Containers(containers=tuple(self._boxes[body] for body in found), available=True, detail="")
        self.intake.take(Listed(containers=containers, age_s=0.0))

    def _engines(self, t: float) -> None:
        self.intake.take(Looked())

    def _log(self, t: float) -> None:
        for engine in self.book.view().engines:
            feed, box = self.intake.engines.feed(engine.key), engine.container
            if feed is None or box is None:
                continue
            log = self._logs.get(engine.key)
            if log is None:
                log = self._logs[engine.key] = _Log(until_s=-1e9, started_wall_s=box.started_wall_s)
            query = {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": "1000" if log.until_s < -1e8 else "all"}
            if log.until_s > -1e8:
                query["since"] = f"{self.spark.wall_s(log.until_s):.6f}"
            reply = self._ask_docker(f"/containers/{box.container_id}/logs", **query)
            log.until_s = t
            for lines in [log.lines(chunk) for chunk in _drained(reply.stream)]:
                is_read = not lines or self.intake.take(Logged(key=engine.key, lines=tuple(lines)))
                while not is_read:  # a busy machine may not read all of them in one frame
                    is_read = self.intake.engines.logged(engine.key, ())

    def _metrics(self, t: float) -> None:
        for engine in self.book.view().engines:
            if engine.endpoint is None or engine.state is EngineState.EXITED or not following._can_be_asked(engine):
                continue
            client = _Endpoint(self.spark, engine.endpoint.port, t)
            self.intake.take(_finished(self.followers._scrape(client, engine)))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _StillMachine:
    """A node at one second: nothing is done to it."""

    spark: Spark
    t: float

    def moment(self) -> tuple[Spark, float]:
        return self.spark, self.t

    async def rest(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")

    def react(self, act: Act) -> None:
        raise AssertionError("nothing here is changed")


class _Endpoint:
    """An engine's endpoint at one second."""

    def __init__(self, spark: Spark, port: int, t: float) -> None:
        self._spark, self._port, self._t = spark, port, t

    async def get(self, path: str) -> Reply:
        engine = self._spark.engine_at(self._port, self._t)
        if engine is None:
            return Reply(state=EndpointState.REFUSED, detail="nothing answers (yet)")
        answer = engine_api.answer(self._spark, engine, self._t, HttpRequest(method="GET", path=path, query={}))
        state = EndpointState.OK if answer.status == 200 else EndpointState.NO_METRICS
        return Reply(state=state, body=answer.body)


def _finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


def _drained(stream: Any) -> Iterator[bytes]:
    """What an asynchronous generator that waits for nothing gives."""
    while True:
        try:
            stream.__anext__().send(None)
        except StopIteration as one:
            yield one.value
        except StopAsyncIteration:
            return
