"""The commands that watch: the console, the demo, status."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from sparktop.cli.compose import connectors, distinct, monitor, own_rules, session
from sparktop.cli.options import parser, settings
from sparktop.config import Config, state_home
from sparktop.errors import UsageError

if TYPE_CHECKING:
    from sparktop.cli.session import Session
    from sparktop.observe.watch import Publish, Watch
    from sparktop.operate.operating import Operating
    from sparktop.transport.base import Connector, Prompter

    Start = Callable[[Publish, Prompter], Awaitable[Watch]]


def console(words: list[str]) -> int:
    """`sparktop HOST...`."""
    made = parser("sparktop [options] HOST [HOST ...]")
    made.add_argument("hosts", nargs="*", metavar="HOST", help="an ssh alias, user@host[:port], or `local`")
    made.add_argument("--theme", help="sparktop-dark, sparktop-light, or any theme of Textual's")
    config = settings(made.parse_args(words))
    if not config.hosts:
        raise UsageError(
            "which Spark?", hint="sparktop spark1 spark2 · sparktop local · or, without any: sparktop demo"
        )
    if not sys.stdout.isatty():
        return _snapshot(config, as_json=False, watch=False, timeout_s=15.0)
    names = distinct(config.hosts)
    made_session: list[Session] = []

    async def start(publish: Publish, prompter: Prompter) -> Watch:
        def make() -> Session:
            return session(connectors(names, prompter, config.ssh_config), publish, config, own=own_rules())

        # In a thread: importing asyncssh and the rules takes longer than painting the first screen did.
        made_session.append(await asyncio.to_thread(make))
        return made_session[0]

    return _run_app(start, names, config, operating=lambda: made_session[0].operations if made_session else None)


def demo(words: list[str]) -> int:
    """`sparktop demo`."""
    made = parser("sparktop demo [options]")
    made.add_argument("--scenario", default="healthy", help="which incident to play (see --list)")
    made.add_argument("--list", action="store_true", dest="list_scenarios", help="list the scenarios")
    made.add_argument("--theme", help="sparktop-dark, sparktop-light, or any theme of Textual's")
    options = made.parse_args(words)
    from sparktop.sim import scenario as scenarios

    if options.list_scenarios:
        for name, title in scenarios.available():
            print(f"{name:22}  {title}")
        return 0
    config = settings(options)
    scenario = scenarios.load(options.scenario)
    if not sys.stdout.isatty():
        raise UsageError(
            "the demo is a console, and its output is no terminal", hint="run `sparktop demo` without a pipe or file"
        )
    names = tuple(node.name for node in scenario.nodes)
    made_session: list[Session] = []

    async def start(publish: Publish, _: Prompter) -> Watch:
        from sparktop.sim.watch import simulated_watch

        def make(links: Sequence[Connector]) -> Session:
            made_session.append(session(links, publish, config, is_demo=True))
            return made_session[0]

        return await simulated_watch(scenario, make)

    return _run_app(
        start,
        names,
        config,
        title=f"demo: {scenario.title}",
        is_demo=True,
        operating=lambda: made_session[0].operations if made_session else None,
    )


def status(words: list[str]) -> int:
    """`sparktop status`."""
    made = parser("sparktop status [options] HOST [HOST ...]")
    made.add_argument("hosts", nargs="*", metavar="HOST")
    made.add_argument("--json", action="store_true", dest="as_json", help="JSON; with --watch one object a line")
    made.add_argument("--watch", action="store_true", help="a snapshot every interval until interrupted")
    made.add_argument("--timeout", type=float, default=15.0, help="seconds to wait for an answer (default 15)")
    options = made.parse_args(words)
    config = settings(options)
    if not config.hosts:
        raise UsageError("which Spark?", hint="sparktop status spark1 spark2 · sparktop status local")
    return _snapshot(config, as_json=options.as_json, watch=options.watch, timeout_s=options.timeout)


def _snapshot(config: Config, *, as_json: bool, watch: bool, timeout_s: float) -> int:
    from sparktop.headless.prompts import TerminalPrompter
    from sparktop.headless.status import status as tell

    links = connectors(distinct(config.hosts), TerminalPrompter(), config.ssh_config)
    own = own_rules()

    def make(publish: Publish) -> Watch:
        return monitor(links, publish, config, own=own)

    return asyncio.run(tell(make, as_json=as_json, watch=watch, timeout_s=timeout_s, interval_s=config.interval_s))


def _run_app(
    start: Start,
    names: tuple[str, ...],
    config: Config,
    *,
    operating: Callable[[], Operating | None],
    title: str = "",
    is_demo: bool = False,
) -> int:
    from sparktop.clock import SystemClock
    from sparktop.ui.app import SparktopApp
    from sparktop.ui.attention import Attention
    from sparktop.ui.notify import Notifying

    clock = SystemClock()
    app = SparktopApp(
        start=start,
        node_names=names,
        clock=clock,
        title=title,
        read_only=config.read_only,
        protected=frozenset(config.protected),
        operating=operating,
        theme=config.theme,
        notifying=Notifying(channels=config.notify, command=config.notify_command),
        attention=Attention(clock, None if is_demo else state_home() / "acknowledged.json"),
    )
    return app.run() or 0
