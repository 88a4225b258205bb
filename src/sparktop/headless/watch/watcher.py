"""Watches until interrupted, and announces each incident when it begins, gets worse and is resolved."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from pathlib import Path

from sparktop.clock import Clock, SystemClock
from sparktop.config import MessageKind, Watching
from sparktop.diagnose.findings import families
from sparktop.diagnose.incidents import Incidents
from sparktop.documents.attention import Attention
from sparktop.documents.finding import headline
from sparktop.documents.finding_tree import AttentionState
from sparktop.headless.look import MakeWatch, looking
from sparktop.headless.terminal import draw, say
from sparktop.headless.watch import kept as keeping
from sparktop.headless.watch.kept import Kept
from sparktop.headless.watch.message import Message, of_news
from sparktop.headless.watch.outbox import Outbox
from sparktop.headless.watch.targets import Send, sender
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, LinkState
from sparktop.text.lines import Line
from sparktop.text.units import day_time, duration

TICK_S = 1.0
ALIVE_S = 30.0
"""How often the time is kept at which the watcher last ran."""
DOWN_S = 180.0
"""A longer gap is announced: the watcher was killed, or its machine was off or asleep."""
GATHER_S = 10.0
"""A new incident waits for its cause, and for what follows from it."""
AWAY_S = 60.0
"""A host that doesn't answer for this long is an incident."""
SETTLED_S = 180.0
"""A host is live for this long before what an earlier watcher announced counts as resolved: rules look back."""
AWAY, ALL_AWAY = "watch.host-away", "watch.all-hosts-away"


async def watch(
    make: MakeWatch, watching: Watching, folder: Path, *, clock: Clock | None = None, marks: Attention | None = None
) -> int:
    """Watch until interrupted or stopped (SIGTERM); `folder` is where the watcher keeps its state.

    Raises:
        ConfigError: a target can't be right.
        UsageError: another watcher runs.
        SparktopError: what ended the watch.
    """
    sends = {target.name: sender(target) for target in watching.targets}
    if not sends:
        say("no [watch.target.NAME] in the configuration: messages are only printed")
    with keeping.only_watcher(folder):
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        async with looking(make) as look:
            watcher = Watcher(watching, sends, folder / "watch.json", {*look.names}, clock or SystemClock(), marks)
            sending = asyncio.create_task(watcher.outbox.run())
            try:
                while not stopping.is_set():
                    done, _ = await asyncio.wait(
                        (look.running, sending), timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()
                    watcher.see(look.state)
                return 0
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                watcher.keep()


async def try_targets(watching: Watching) -> int:
    """Send each target a test message, print what came back, and return 1 where one didn't take it.

    Raises:
        ConfigError: a target can't be right.
    """
    sends = {target.name: sender(target) for target in watching.targets}
    message = Message(
        kind=MessageKind.TEST,
        title="A test by `sparktop watch --test`: messages arrive here",
        wall_s=SystemClock().wall(),
    )
    outcomes = await asyncio.gather(*(send(message) for send in sends.values()))
    for name, outcome in zip(sends, outcomes, strict=True):
        print(f"{name}: {outcome.problem or f'ok, {outcome.answer}'}", flush=True)
    return int(any(outcome.problem for outcome in outcomes))


class Watcher:
    """What is announced of each picture; the outbox sends it."""

    def __init__(
        self,
        watching: Watching,
        sends: Mapping[str, Send],
        file: Path,
        nodes: Set[str],
        clock: Clock,
        marks: Attention | None = None,
    ) -> None:
        """`file` is what earlier watchers kept; nothing is carried over of hosts that aren't among `nodes`."""
        self._watching = watching
        self._marks = marks
        self._clock = clock
        self._file = file
        earlier = keeping.read(file)
        self._alive_wall_s = earlier.alive_wall_s
        self._heartbeat_wall_s = earlier.heartbeat_wall_s
        self._kept_wall_s = 0.0
        self._has_complained = False
        carried = [one for one in earlier.incidents if not one.root.nodes or not nodes.isdisjoint(one.root.nodes)]
        self._started_s = clock.monotonic()
        self._live_s: dict[str, float] = {}
        """Host -> since when it is live; monotonic."""
        self._silent_s: dict[str, float] = {}
        """Host -> since when it isn't."""
        self._incidents = Incidents(watching.least, gather_s=GATHER_S, carried=carried)
        self.outbox = Outbox(watching, sends, earlier, self.keep)

    def see(self, state: FleetState) -> None:
        """Take the newest picture: announce what changed, and keep it."""
        now_s, wall_s = self._clock.monotonic(), self._clock.wall()
        before = len(self._incidents.open)
        self.outbox.release(wall_s)
        messages = [] if (gap := self._gap(wall_s)) is None else [gap]
        for node in state.nodes:
            is_live = node.link.state is LinkState.LIVE
            now_in, before_in = (self._live_s, self._silent_s) if is_live else (self._silent_s, self._live_s)
            now_in.setdefault(node.name, now_s)
            before_in.pop(node.name, None)
        findings = (*state.findings, *away(state, self._silent_s, now_s))
        news = self._incidents.update(self._unseen(findings), now_s=now_s, unsettled=self._unsettled(state, now_s))
        messages += [of_news(one, wall_s) for one in news]
        if (beat := self._heartbeat(state, wall_s)) is not None:
            messages.append(beat)
        for message in messages:
            draw((Line.of(f"{day_time(wall_s)} {message.text.splitlines()[0]}"),), sys.stdout)
            self.outbox.add(message)
        self._alive_wall_s = wall_s
        if messages or before != len(self._incidents.open) or not 0 <= wall_s - self._kept_wall_s < ALIVE_S:
            self.keep()

    def _unseen(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Without what a person acknowledged or snoozed before it was announced, and what follows from that."""
        marks = self._marks
        if marks is None:
            return findings
        marks.refresh()
        marks.follow(findings)
        announced = {key for one in self._incidents.open for key in one.keys}
        kept = [
            family
            for family in families(findings)
            if marks.standing(family[0]) in (AttentionState.OPEN, AttentionState.RESOLVED)
            or any(finding.key in announced for finding in family)
        ]
        return tuple(chain.from_iterable(kept))

    def _gap(self, wall_s: float) -> Message | None:
        """That the watcher itself was down since it last ran."""
        gap_s = wall_s - self._alive_wall_s
        if not self._alive_wall_s or gap_s < DOWN_S:
            return None
        incidents = self._incidents.open
        still = f"Unresolved then: {'; '.join(headline((one.root,)) for one in incidents[:5])}" if incidents else ""
        return Message(
            kind=MessageKind.DOWN,
            title=f"▲ sparktop watch was down from {day_time(self._alive_wall_s)} to {day_time(wall_s)} "
            f"({duration(gap_s)}): nothing was seen in that time",
            lines=(still,) if still else (),
            wall_s=wall_s,
        )

    def _unsettled(self, state: FleetState, now_s: float) -> frozenset[str]:
        """The hosts of which not all findings can be known yet."""
        return frozenset(node.name for node in state.nodes if now_s - self._live_s.get(node.name, now_s) < SETTLED_S)

    def _heartbeat(self, state: FleetState, wall_s: float) -> Message | None:
        every_s = self._watching.heartbeat_s
        is_early = self._clock.monotonic() - self._started_s < GATHER_S
        if not every_s or is_early or 0 <= wall_s - self._heartbeat_wall_s < every_s:
            return None
        self._heartbeat_wall_s = wall_s
        live = sum(node.link.state is LinkState.LIVE for node in state.nodes)
        incidents = self._incidents.open
        count = f"{len(incidents)} incident{'s' if len(incidents) > 1 else ''}" if incidents else "no incident"
        return Message(
            kind=MessageKind.HEARTBEAT,
            title=f"• sparktop watches: {live} of {len(state.nodes)} hosts live, {count}",
            lines=tuple(headline((one.root,)) for one in incidents[:10]),
            wall_s=wall_s,
            detail={"hosts": len(state.nodes), "live": live, "incidents": len(incidents)},
        )

    def keep(self) -> None:
        """Write what the next watcher needs to know; say it once where that fails."""
        outbox = self.outbox
        self._kept_wall_s = self._clock.wall()
        kept = Kept(
            alive_wall_s=self._alive_wall_s,
            heartbeat_wall_s=self._heartbeat_wall_s,
            incidents=self._incidents.open,
            queues={name: tuple(queue) for name, queue in outbox.queues.items()},
            held=tuple(outbox.held),
            sent_wall_s=tuple(outbox.sent_wall_s),
        )
        try:
            keeping.write(self._file, kept)
        except OSError as error:
            if not self._has_complained:
                say(f"{self._file} can't be written: {error.strerror or error}; a restart would announce again")
            self._has_complained = True


def away(state: FleetState, silent_s: Mapping[str, float], now_s: float) -> Iterator[Finding]:
    """A finding for each host that hasn't answered for AWAY_S, and their cause where no host answers at all.

    One that a console reboots is none: the run says so, and ends where the host doesn't come back.

    Args:
        silent_s: host -> since when it hasn't answered.
    """
    rebooting = {one.node for one in state.interventions if one.is_reboot and one.is_under_way}
    gone = {name for name, since_s in silent_s.items() if now_s - since_s >= AWAY_S} - rebooting
    is_all = bool(gone) and len(silent_s) == len(state.nodes) > 1
    if is_all:
        title = "No host answers: check the watcher's own network first"
        yield Finding(rule=ALL_AWAY, severity=Severity.CRITICAL, title=title, nodes=tuple(silent_s))
    for node in state.nodes:
        if node.name in gone:
            notice = next((one for one in state.notices if one.node == node.name), None)
            yield Finding(
                rule=AWAY,
                severity=Severity.CRITICAL if notice is None else notice.severity,
                title=f"{node.name} doesn't answer",
                nodes=(node.name,),
                explanation=node.link.trouble if notice is None else notice.text,
                caused_by=ALL_AWAY if is_all else None,
                since_wall_s=node.link.since_wall_s or None,
            )
