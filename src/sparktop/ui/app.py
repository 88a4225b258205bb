"""The console's app: paints first, then starts the watching, and hands each picture to the screen."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.command import Provider
from textual.message import Message
from textual.screen import Screen

from sparktop.clock import Clock
from sparktop.config import INTERVAL_LIMITS_S, resource_dir
from sparktop.errors import SparktopError
from sparktop.model.fleet import FleetState
from sparktop.observe.watch import Publish, Watch
from sparktop.ui.acting import Acting
from sparktop.ui.attention import Attention
from sparktop.ui.commands import bindings
from sparktop.ui.notify import Notifier, Notifying
from sparktop.ui.palette import ConsoleCommands
from sparktop.ui.screens.console import ConsoleScreen
from sparktop.ui.theme import DARK, LIGHT, THEMES, variable_defaults

if TYPE_CHECKING:
    from sparktop.operate.operating import Operating
    from sparktop.transport.base import Prompter
    from sparktop.ui.screens.prompts import ConsolePrompter

Start = Callable[[Publish, "Prompter"], Awaitable[Watch]]
"""Builds the watching; run only after the first paint, because what it imports takes time."""


SETTLED_S = 4.0
"""By then everything that is imported and composed for good is there."""


def _spare_the_collector() -> None:
    """Leave what stays for good out of later collections: walking it held keys up by some 60 ms at a time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 20, 50)  # log lines by the thousand are no reason to look for cycles


class Published(Message):
    """A new picture waits; several that come at once are drawn once."""


class SparktopApp(App[int]):
    """Composes the console with a Watch; what is shown and how is the panes' business.

    Its result is the exit code of design.md: 0, or 3 when the watching could not be started.
    """

    CSS_PATH = sorted(resource_dir("styles").glob("*.tcss"))
    BINDINGS = bindings("app")
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ConsoleCommands}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    TITLE = "sparktop"

    def __init__(
        self,
        *,
        start: Start,
        node_names: tuple[str, ...],
        clock: Clock,
        title: str = "",
        read_only: bool = False,
        protected: frozenset[str] = frozenset(),
        operating: Callable[[], Operating | None] = lambda: None,
        theme: str = DARK.name,
        notifying: Notifying | None = None,
        attention: Attention | None = None,
    ) -> None:
        """`operating` is asked for what acts once the watching stands; `attention` remembers what is acknowledged."""
        super().__init__()
        for own in THEMES:
            self.register_theme(own)
        self.theme = theme if theme in self.available_themes else DARK.name
        self.animation_level = "none"
        self._start = start
        self._clock = clock
        self._state: FleetState | None = None
        self._waiting = False
        self._exit_code = 0
        self.watch_running: Watch | None = None
        attention = attention or Attention(clock)
        self.console_screen = ConsoleScreen(
            node_names=node_names,
            clock=clock,
            title=title,
            read_only=read_only,
            protected=protected,
            attention=attention,
        )
        self._operating = operating
        self._prompter: ConsolePrompter | None = None
        self.acting = Acting(
            self,
            clock,
            is_read_only=read_only,
            picture=lambda: self.console_screen.fleet,
            changed=self.console_screen.show_runs,
            ask_sudo=self._ask_sudo,
        )
        self.acting.show_log = self.console_screen.show_log
        self.console_screen.acting = self.acting
        self._notifier = Notifier(self, notifying or Notifying(), attention, lambda: self.acting.under_way)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def get_default_screen(self) -> Screen[None]:
        return self.console_screen

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """None of Textual's own: the registry is the one list of commands."""
        return ()

    def on_mount(self) -> None:
        self.set_interval(1.0, self._tick)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        gc.freeze()  # what the first paint needed; else it is walked again and again while the rest is imported
        self.run_worker(self._observe(), name="watch", exit_on_error=False)

    async def _observe(self) -> None:
        """Start the watching and run it to its end; a fault ends it visibly, with the last picture left standing."""
        from sparktop.ui.screens.prompts import ConsolePrompter  # not needed for the first paint

        try:
            self._prompter = ConsolePrompter(self)
            starting = asyncio.ensure_future(self._start(self.publish, self._prompter))
            await self.console_screen.complete()
            watch = await starting
            gc.freeze()
            self.watch_running = watch
            self.console_screen.attach(watch)
            self.acting.attach(self._operating())
            self.set_timer(SETTLED_S, _spare_the_collector)
            await watch.run()
        except SparktopError as error:
            self._exit_code = error.exit_code
            self.console_screen.fail(f"watching has ended: {error.message}{f' · {error.hint}' if error.hint else ''}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the operator must see that the picture is dead
            self._exit_code = 1
            self.log.error(error)
            text = f"watching has ended by a fault in sparktop: {type(error).__name__}: {error} · q and start again"
            self.console_screen.fail(text)

    def publish(self, state: FleetState) -> None:
        """Take a new picture; called on the event loop, from any task."""
        self._state = state
        if not self._waiting:
            self._waiting = True
            self.post_message(Published())

    def on_published(self) -> None:
        self._waiting = False
        if self._state is not None:
            self.console_screen.show(self._state)
            self.acting.see(self._state)
            self._notifier.follow(self._state)

    def on_unmount(self) -> None:
        self._notifier.leave()

    def _tick(self) -> None:
        self.console_screen.tick()

    # Commands of the scope "app"

    async def action_quit(self) -> None:
        """Leave; with a run under way only when that is meant."""
        under_way = self.acting.under_way
        if not under_way:
            self.exit(self._exit_code)
            return
        from sparktop.ui.screens.leave import leaving

        def decided(is_agreed: bool | None) -> None:
            if is_agreed:
                self.exit(self._exit_code)

        self.push_screen(leaving(under_way), decided)

    async def _ask_sudo(self, node: str, wrong_count: int) -> str | None:
        return None if self._prompter is None else await self._prompter.sudo(node, wrong_count)

    def action_help(self) -> None:
        from sparktop.ui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            is_of_recipes = self.screen.id in ("recipes-screen", "launch-screen")
            self.push_screen(HelpScreen(read_only=self.acting.is_read_only, is_of_recipes=is_of_recipes))

    def action_toggle_theme(self) -> None:
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    def action_faster(self) -> None:
        self._set_interval(0.5)

    def action_slower(self) -> None:
        self._set_interval(2.0)

    def _set_interval(self, factor: float) -> None:
        watch = self.watch_running
        if watch is None:
            return
        low, high = INTERVAL_LIMITS_S
        seconds = min(high, max(low, watch.interval_s * factor))
        watch.set_interval(seconds)
        self.notify(f"a sample every {seconds:g} s", markup=False, timeout=3)
