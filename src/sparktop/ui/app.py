"""The Textual app: shows the console, runs the watch, and holds the app-wide commands."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual._context import active_message_pump
from textual.actions import ActionError, ActionParseResult, SkipAction
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import Screen

from sparktop import faults
from sparktop.config import INTERVAL_LIMITS_S, resource_dir
from sparktop.errors import SparktopError
from sparktop.model.fleet import FleetState
from sparktop.observe.watch import Watch
from sparktop.transport.threads import in_thread
from sparktop.ui.commands import COMMANDS, Command, bindings, key_name
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.drivers.terminal import TerminalDriver
from sparktop.ui.notify import Notifier, NotifyOptions
from sparktop.ui.session_runs import SessionRuns
from sparktop.ui.setup import Setup
from sparktop.ui.strips import free_undivided_strips
from sparktop.ui.theme import DARK, LIGHT, THEMES, AsciiFilter, named_theme, variable_defaults

if TYPE_CHECKING:
    from sparktop.ui.action_flow import ActionFlow
    from sparktop.ui.prompter import ConsolePrompter


class ConsoleCommands(Provider):
    """The console's commands for Textual's command palette, found by title and description."""

    def _commands(self) -> Iterator[tuple[Command, ConsoleScreen]]:
        screen = self.screen
        if isinstance(screen, ConsoleScreen):
            for command in COMMANDS:
                if command.in_palette and not (command.changes and screen.is_read_only):
                    yield command, screen

    async def discover(self) -> Hits:
        for command, screen in self._commands():
            yield DiscoveryHit(_title(command), partial(screen.perform, command), help=command.description)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command, screen in self._commands():
            text = f"{command.title} {command.description}"
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, _title(command), partial(screen.perform, command), text=text, help=command.description)


def _title(command: Command) -> Content:
    return Content(f"{command.title}  ({key_name(command.keys[0])})")


FIGURES_FIRST_S = 0.5
"""How long the panes below the figures wait for the first of them: importing and mounting them takes the time of a
login."""


SETTLED_S = 4.0
"""After this time all modules are imported and all permanent widgets are mounted."""


def _freeze_permanent_objects() -> None:
    """Exclude permanent objects from later garbage collections: walking them delayed keys by about 60 ms each time."""
    gc.collect()
    gc.freeze()
    gc.enable()  # the command line may have disabled it for the start
    gc.set_threshold(15_000, 20, 50)  # more than a batch of log lines: each takes the place of an older one
    import ctypes

    with suppress(AttributeError):  # glibc's alone: what imports and a log's past have freed goes back, some 3 MB
        ctypes.CDLL(None).malloc_trim(0)


def _page_driver() -> type[Driver]:
    from sparktop.ui.drivers.page import PageDriver

    return PageDriver


class Published(Message):
    """A new fleet state is waiting; several that arrive together are drawn once."""


class SparktopApp(App[int]):
    """Runs the console screen with a Watch.

    Returns the exit code: 0, or the error's own when watching could not start or ended.
    """

    CSS_PATH = sorted(resource_dir("styles").glob("*.tcss"))
    BINDINGS = bindings("app")
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ConsoleCommands}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    TITLE = "sparktop"

    def __init__(
        self,
        setup: Setup,
        *,
        greeting: str = "",
        theme: str = DARK.name,
        notifying: NotifyOptions | None = None,
        is_ascii: bool = False,
        is_in_browser: bool = False,
    ) -> None:
        """`greeting` is shown at the start; `is_ascii`: the terminal shows no more than ASCII; `is_in_browser`: Textual
        draws it in a page.

        Raises:
            ConfigError: there is no such theme.
        """
        free_undivided_strips()
        super().__init__(driver_class=_page_driver() if is_in_browser else TerminalDriver)
        for shipped_theme in THEMES:
            self.register_theme(shipped_theme)
        self.theme = named_theme(theme, self.available_themes)
        self._filters_of_ours = (AsciiFilter(),) if is_ascii else ()
        self.animation_level = "none"
        self._setup, self._greeting = setup, greeting
        self._state: FleetState | None = None
        self._waiting = False
        self._has_figures = asyncio.Event()
        self._exit_code = 0
        self.watch_running: Watch | None = None
        self.console_screen = ConsoleScreen(setup)
        self._first_picture_wall_s: float | None = None
        self._imported: set[str] = set()
        """The actions whose planners are imported, or about to be."""
        self._importing: asyncio.Future[None] | None = None
        self._prompter: ConsolePrompter | None = None
        self.session_runs = SessionRuns(
            self.console_screen.show_runs, is_read_only=setup.read_only, refusal=setup.refusal
        )
        self.console_screen.session_runs = self.session_runs
        self.console_screen.acting = lambda: self.acting
        self._notifier = Notifier(
            self,
            notifying or NotifyOptions(),
            self.console_screen.attention,
            lambda: self.session_runs.under_way,
            self.console_screen.has_line_of,
        )

    @cached_property
    def acting(self) -> ActionFlow:
        """What the action keys do; imported with the first of them."""
        from sparktop.ui.action_flow import ActionFlow

        console = self.console_screen
        return ActionFlow(
            self,
            self._setup,
            self.session_runs,
            picture=lambda: console.fleet,
            ask_sudo=self._ask_sudo,
            show_log=console.show_log,
            glance=console.glance,
        )

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._filters_of_ours]

    def get_default_screen(self) -> Screen[None]:
        return self.console_screen

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """None of Textual's own: the registry is the one list of commands."""
        return ()

    def on_mount(self) -> None:
        self.set_interval(1.0, self.console_screen.tick)
        self.call_after_refresh(self._start_watch)
        if self._greeting:
            self.notify(self._greeting, markup=False, timeout=8)

    def _start_watch(self) -> None:
        gc.freeze()  # else each collection walks the first paint's objects while the rest is imported
        self.set_timer(10 * SETTLED_S, gc.enable)  # where a question waits for its answer, watching begins late
        self.run_worker(self._observe(), name="watch", exit_on_error=False)
        self.run_worker(self._complete(), name="complete", exit_on_error=False)

    async def _complete(self) -> None:
        """Mount the rest of the console once figures are shown, or while they let wait for themselves."""
        await self._figures_first()
        await self.console_screen.complete()

    async def _figures_first(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIGURES_FIRST_S):
                await self._has_figures.wait()

    async def _operate(self) -> None:
        """Enable what acts, once figures are shown or let wait for themselves."""
        await self._figures_first()
        if self._setup.operating is not None:
            try:
                await self.session_runs.attach(await self._setup.operating(), lambda: self.console_screen.fleet)
            except Exception as error:  # noqa: BLE001 - the console watches all the same
                self.notify(faults.report("what acts on the nodes", error), severity="error", markup=False)

    async def _observe(self) -> None:
        """Build the Watch and run it; on an error show it and keep the last fleet state on the screen."""
        from sparktop.ui.prompter import ConsolePrompter  # not needed for the first paint

        try:
            self._prompter = ConsolePrompter(self)
            watch = await self._setup.start(self.publish, self._prompter)
            gc.freeze()
            self.watch_running = watch
            self.console_screen.attach(watch)
            self.run_worker(self._operate(), name="operate", exit_on_error=False)
            self.set_timer(SETTLED_S, _freeze_permanent_objects)
            await watch.run()
        except SparktopError as error:
            self._exit_code = error.exit_code
            self.console_screen.fail(f"watching has stopped: {error.message}{f' · {error.hint}' if error.hint else ''}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the operator must see that the picture is dead
            self._exit_code = 1
            self.log.error(error)
            text = f"a fault in sparktop stopped watching: {type(error).__name__}: {error} · q, then start again"
            self.console_screen.fail(text)
        finally:
            gc.enable()

    def publish(self, state: FleetState) -> None:
        """Take a new fleet state; called on the event loop, from any task."""
        self._state = state
        if not self._waiting:
            self._waiting = True
            self.post_message(Published())

    def on_published(self) -> None:
        self._waiting = False
        if self._state is not None:
            state = self._state
            self.console_screen.show(state)
            if not self._has_figures.is_set() and any(view.sample is not None for view in state.nodes):
                self.call_after_refresh(self._has_figures.set)
            self.console_screen.contain("runs", lambda: self.session_runs.see(state))
            self.console_screen.contain("notifications", lambda: self._notifier.follow(state))
            self._import_acting(state)

    def _import_acting(self, state: FleetState) -> None:
        """Import what the action keys do and what plans an alarm's remedies, in a thread as the alarm begins: on a busy
        laptop it takes seconds, in which the key would stand still and no sample would be read. What stood before can
        wait for its key; the first figures can't."""
        if self._first_picture_wall_s is None:
            self._first_picture_wall_s = state.wall_s
        alarms = [finding for finding in state.findings if finding.is_alarm_since(self._first_picture_wall_s)]
        names = {remedy.action or "" for alarm in alarms for remedy in alarm.remedies} - self._imported
        if names:
            self._imported |= names
            self._importing = asyncio.ensure_future(in_thread(import_planners, names))

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action as Textual does; a fault in it is told and leaves the console standing."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except (SkipAction, ActionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a key does, the console goes on watching
            self.notify(faults.report(f"the key's action {action}", error), severity="error", markup=False)
            return True

    def pop_screen(self) -> AwaitComplete:
        """Pop the current screen; not for a screen that isn't on top: of two keys that arrive in one read, the second
        would dismiss its dialog again, and end the console or close the screen below (Textual's own palette as well).
        """
        node = active_message_pump.get(None)
        while node is not None and not isinstance(node, Screen):
            node = node._parent
        if len(self.screen_stack) <= 1 or node not in (None, self.screen):
            return AwaitComplete()
        return super().pop_screen()

    def _fatal_error(self) -> None:
        """End with two lines. Textual prints a traceback with every local variable: a secret just typed is one."""
        error = sys.exc_info()[1] or RuntimeError("unknown")
        self.bell()
        self.panic(Text(f"{faults.report('the console, which ended', error)}\n{faults.place()}"))

    def on_unmount(self) -> None:
        self._notifier.leave()

    # Commands of the scope "app"

    async def action_quit(self) -> None:
        """Quit; with a run under way, ask first."""
        under_way = self.session_runs.under_way
        if not under_way:
            self.exit(self._exit_code)
            return
        from sparktop.ui.screens.run import leaving

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
            self.push_screen(HelpScreen(read_only=self.session_runs.is_read_only, is_of_recipes=is_of_recipes))

    def action_toggle_theme(self) -> None:
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    def action_choose_theme(self) -> None:
        self.search_themes()

    def action_change_interval(self, factor: float) -> None:
        """Multiply the sampling interval of all nodes by this factor, within its limits."""
        watch = self.watch_running
        if watch is None:
            return
        low, high = INTERVAL_LIMITS_S
        seconds = min(high, max(low, watch.interval_s * factor))
        watch.set_interval(seconds)
        self.notify(f"a sample every {seconds:g} s", markup=False, timeout=3)


def import_planners(names: Iterable[str]) -> None:
    """Import what the action keys do, and what plans the actions of these names."""
    from sparktop.operate.actions import action, planner_of
    from sparktop.ui import action_flow  # noqa: F401 - only imported

    for chosen in map(action, names):
        with suppress(ImportError):  # planning tells what is missing
            if chosen is not None:
                planner_of(chosen)
