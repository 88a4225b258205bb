"""Run in a pseudo-terminal by test_hostile_text: every log widget and dialog with text that attacks the terminal.

With the argument "raw" the text is not sanitised, which shows that the test would see an attack that got through.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from tests.ui import launches, operating
from tests.ui.log_stage import Feed, Stage

from sparktop import sanitise
from sparktop.clock import ManualClock
from sparktop.diagnose.kernel import line
from sparktop.model.change import Change
from sparktop.model.event import Advice, KernelEvent, Severity
from sparktop.model.fleet import FleetState, Link, NodeView
from sparktop.model.request import Request
from sparktop.model.telemetry import Collector, CollectorState, LogLine
from sparktop.observe.log_ring import LineRing
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import RunState
from sparktop.text.lines import Line
from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.ui.dialogs.dialog import Choice, ChooseScreen
from sparktop.ui.dialogs.prompts import NamedSecret
from sparktop.ui.panes.kernel import KernelPane
from sparktop.ui.panes.log import LogPane
from sparktop.ui.prompter import ConsolePrompter
from sparktop.ui.screens.change import ChangeScreen
from sparktop.ui.screens.launch import LaunchScreen
from sparktop.ui.screens.launch_draft import first_draft
from sparktop.ui.screens.recipes import RecipesScreen
from sparktop.ui.screens.review import RefusalScreen, ReviewScreen
from sparktop.ui.screens.run import RunScreen, leaving

PAYLOADS = (
    b"osc52 \x1b]52;c;UFdORUQ=\x07 end",
    b"osc52 by C1 \x9d52;c;UFdORUQ=\x9c end",
    "osc52 by C1 in UTF-8 \x9d52;c;UFdORUQ=\x9c end".encode(),
    b"osc8 \x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\ end",
    b"title \x1b]0;PWNED\x07 end",
    b"clear \x1b[2J\x1b[H\x1b[31mred\x1b[0m end",
    b'dcs \x1bP$q"p\x1b\\ apc \x1b_PWNED\x1b\\ end',
    b"unterminated \x1b]52;c;UFdORUQ=",
    b"bell \x07 backspace \x08\x08 return \rback form \x0c end",
    "bidi \u202egnp.exe\u202c \u2066isolate\u2069 zero\u200bwidth \u2028 end".encode(),
    b"[/x] closes nothing",
    b"[link=https://evil.example]link[/link] [bold red]markup[/]",
    b"[@click=app.bell]click[/] $(reboot) `id` %s {0} \\[esc]",
    b"broken utf-8 \xff\xfe\xc3( end",
    b"x" * 9000 + b"\x1b]52;c;UFdORUQ=\x07",
)
IS_RAW = "raw" in sys.argv


def clean(raw: bytes) -> str:
    """As ingestion does it."""
    return raw.decode("utf-8", "replace") if IS_RAW else sanitise.line(raw)


def hostile_name(raw: bytes) -> str:
    return raw.decode("utf-8", "replace") if IS_RAW else sanitise.name(raw)


def events() -> tuple[KernelEvent, ...]:
    xid = b"NVRM: Xid (PCI:000f:01:00): 43, pid=214, name=[/x]\x1b]52;c;UFdORUQ=\x07, Ch 00000008"
    found = line.read(LogLine(text=clean(xid), wall_s=1.0, boot_s=1.0))
    made = [
        KernelEvent(
            kind="nvrm",
            severity=Severity.CRITICAL,
            title=clean(payload)[:60],
            text=clean(payload),
            process=hostile_name(payload),
            container=hostile_name(payload),
            advice=(Advice(source="test", meaning=clean(payload), remedy=clean(payload)),),
        )
        for payload in PAYLOADS
    ]
    return (*([found] if found else []), *made)


class HostileWatch:
    """Only what the kernel pane asks."""

    def __init__(self) -> None:
        self.ring = LineRing()
        self.ring.extend(LogLine(text=clean(payload), wall_s=1.0, priority=3) for payload in PAYLOADS)

    def kernel_lines(self, node: str) -> LineRing:
        return self.ring


class HostileApp(Stage):
    """Shows one thing after the other and leaves."""

    def __init__(self) -> None:
        self.log_pane, self.kernel = LogPane(), KernelPane()
        super().__init__(self.log_pane, self.kernel)

    def on_ready(self) -> None:
        self.run_worker(self._play())

    async def _play(self) -> None:
        feed = Feed(title=hostile_name(PAYLOADS[0]), status=clean(PAYLOADS[3]))
        empty = Feed(title=hostile_name(PAYLOADS[1]), status=clean(PAYLOADS[0]))
        feed.ring.extend(LogLine(text=clean(payload)) for payload in PAYLOADS)
        why = Collector(name="kernel", state=CollectorState.DENIED, detail=clean(PAYLOADS[0]))
        nodes = tuple(
            NodeView(name=name, link=Link(), kernel_events=events(), kernel_source=clean(PAYLOADS[10]))
            for name in ("spark1", "[/x]")
        )
        blind = NodeView(name="spark3", link=Link(), collectors={"kernel": why})
        self.kernel.attach(HostileWatch())  # type: ignore[arg-type]
        self.kernel.show(FleetState(nodes=(*nodes, blind)))
        for shown in (empty, feed):
            self.log_pane.show(shown)
            await self._look()
        if IS_RAW:
            self.exit()
            return
        for action in ("wrap", "times", "pause", "first"):
            self.log_pane.focus()
            await self.run_action(action, self.log_pane)
            await self._look()
        await self._press("slash", "left_square_bracket", "slash", "enter", "n", "n", "escape", "right", "right")
        self.kernel.focus()
        for _ in range(3):
            await self._press("d", "pagedown", "escape", "k")
        await self._press("a", "a", "a", "a")
        self.notify(clean(PAYLOADS[10]), markup=False)
        prompter = ConsolePrompter(self)
        question = HostKeyQuestion(
            host=hostile_name(PAYLOADS[0]),
            algorithm=hostile_name(PAYLOADS[3]),
            fingerprint=clean(PAYLOADS[10]),
            known_hosts_path=Path("[/x]"),
            same_key_hosts=(hostile_name(PAYLOADS[11]),),
        )
        await self._asked(lambda: prompter.host_key(question))
        secret = SecretQuestion(host=hostile_name(PAYLOADS[0]), prompt=clean(PAYLOADS[0] + PAYLOADS[11]))
        await self._asked(lambda: prompter.secret(secret))
        await self._asked(lambda: prompter.sudo(hostile_name(PAYLOADS[0]), 2))
        await self._act()
        self.exit()

    async def _act(self) -> None:
        """Each screen of acting, with a plan, a refusal and a run whose every text attacks."""
        plan = operating.hostile(Request(action="x", nodes=(operating.HOSTILE,), target=operating.HOSTILE))
        execution = operating.FakeExecution(plan, lambda _: None)
        execution.at(0, operating.HOSTILE, 0.5)
        under_way = execution.run
        execution.end(RunState.FAILED, 0, message=operating.HOSTILE, hint=operating.HOSTILE, can_go_back=True,
                      evidence_path=operating.HOSTILE, after={operating.HOSTILE: {"x": operating.HOSTILE}})  # fmt: skip
        texts = [clean(payload) for payload in PAYLOADS]
        choices = [Choice(label=Line.of(text), notes=(Line.of(text),), value=text) for text in texts]
        refusal = Refusal(request=plan.request, reason=operating.HOSTILE, remedies=(operating.HOSTILE,))
        clock, nothing = ManualClock(), lambda: None
        fleet = FleetState(nodes=(NodeView(name=texts[0][:20], link=Link()), NodeView(name="spark1", link=Link())))
        draft = first_draft(launches.HOSTILE_RECIPE, fleet)

        def nowhere(node: str, engine: str) -> bool:
            return False

        async def planned(request: Request) -> Plan:
            return launches.hostile(request)

        for screen in (
            ReviewScreen(plan, settings="options"),
            RefusalScreen(refusal, title=texts[0][:80]),
            RunScreen(under_way, clock, abort=nothing, logs=nowhere),
            RunScreen(execution.run, clock, abort=nothing, logs=nowhere),
            ChooseScreen(texts[1][:80], choices, intro=(Line.of(texts[3]),)),
            ChangeScreen(texts[3][:80], Change(environment={"A": texts[0]}), intro=texts),
            leaving((under_way,)),
            RecipesScreen(launches.HOSTILE_SHELF, fleet=fleet, fits={}),
            LaunchScreen(draft, plan=planned, picture=lambda: fleet, clock=clock, secrets={texts[1]: texts[3]}),
            NamedSecret(texts[0], use=texts[0]),
        ):
            self.push_screen(screen)
            await self._look()
            await self._press("pagedown", "end", "escape")

    async def _asked(self, ask: Callable[[], object]) -> None:
        task = asyncio.ensure_future(ask())  # type: ignore[call-overload]
        await self._look()
        await self._press("down", "escape")
        await task

    async def _press(self, *keys: str) -> None:
        for key in keys:
            self.simulate_key(key)
            await self._look()

    async def _look(self) -> None:
        """Until what has changed is on the terminal."""
        await asyncio.sleep(0.12)


if __name__ == "__main__":
    app = HostileApp()
    app.run()
    sys.exit(app.return_code or 0)
