"""The commands that watch: the console, demo, status."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.commands import BY_NAME
from sparktop.cli.composition import connectors, distinct, monitor, own_rules, proven_path, session
from sparktop.cli.options import HOST_HELP, add_timeout, parser, settings
from sparktop.config import Config, state_home
from sparktop.errors import UsageError
from sparktop.transport.targets import parse_target

if TYPE_CHECKING:
    from sparktop.cli.session import Session
    from sparktop.observe.watch import Publish, Watch
    from sparktop.operate.run.operating import Operating
    from sparktop.transport.base import Connector, Prompter
    from sparktop.ui.shell import ShellArgv

    Start = Callable[[Publish, Prompter], Awaitable[Watch]]


INCIDENTS = ("memory-spike", "spin-deadlock", "restart-loop")
"""The scenarios to see first."""
_GREETING = f"A healthy demo. For an incident: sparktop demo {INCIDENTS[0]} (or {', '.join(INCIDENTS[1:])}; --list)"


def console(words: list[str]) -> int:
    """`sparktop HOST...`."""
    options = console_arguments().parse_args(words)
    config = settings(options)
    _refuse_mistyped(options.hosts, config)
    if not config.hosts:
        from sparktop.cli.no_host import no_host

        raise no_host("sparktop", config, options.config)
    if not sys.stdout.isatty():
        return _snapshot(config, as_json=False, watch=False, timeout_s=15.0)
    names = distinct(config.hosts)
    ssh_config = Path(config.ssh_config).expanduser() if config.ssh_config else None
    sessions: list[Session] = []

    async def start(publish: Publish, prompter: Prompter) -> Watch:
        from sparktop.transport.early import EarlyConnector

        # In threads: importing asyncssh and the rules takes longer than the first paint.
        links = await asyncio.to_thread(connectors, names, prompter, config.ssh_config)
        begun = [EarlyConnector(link) for link in links]
        try:
            sessions.append(await asyncio.to_thread(lambda: session(begun, publish, config, own=own_rules())))
        except BaseException:
            await asyncio.gather(*(link.abandon() for link in begun))
            raise
        return sessions[0]

    async def shell(node: str, container_id: str) -> list[str]:
        from sparktop.transport.shell import shell_argv

        return await shell_argv(
            parse_target(node),
            container_id=container_id,
            docker_socket=config.docker_sockets.get(node, ""),
            config=ssh_config,
        )

    return _run_app(start, names, config, operating=lambda: sessions[0].operations_in_background(), shell=shell)


def console_arguments() -> ArgumentParser:
    """The arguments of `sparktop HOST...`."""
    argument_parser = parser("console", "sparktop [options] HOST [HOST ...]")
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=HOST_HELP)
    _add_theme(argument_parser)
    return argument_parser


def _refuse_mistyped(hosts: Sequence[str], config: Config) -> None:
    """Refuse a first word that is nearly a command and names no host.

    Raises:
        UsageError: with the command that was likely meant.
    """
    from difflib import get_close_matches

    word = hosts[0] if hosts else ""
    meant = get_close_matches(word.lower(), [*BY_NAME, "help"], n=1, cutoff=0.75)
    if not meant or word in BY_NAME:  # a host named like a command stands after `--`
        return
    from sparktop.transport.ssh.config import is_known

    if not asyncio.run(is_known(word, Path(config.ssh_config).expanduser() if config.ssh_config else None)):
        raise UsageError(
            f"there is no command {word!r}, and no host of that name is known",
            hint=f"sparktop {meant[0]} · if it is a host: sparktop {word}. or user@{word}",
        )


def demo(words: list[str]) -> int:
    """`sparktop demo`."""
    options = demo_arguments().parse_args(words)
    from sparktop.sim.scenario import scenario as scenarios

    if options.list_scenarios:
        for name, title in scenarios.available():
            print(f"{name:22}  {title}")
        return 0
    config = settings(options)
    scenario = scenarios.load(options.scenario or "healthy")
    if not sys.stdout.isatty():
        raise UsageError("sparktop demo needs a terminal", hint="run it without a pipe or file")
    names = tuple(node.name for node in scenario.nodes)
    sessions: list[Session] = []

    async def start(publish: Publish, _: Prompter) -> Watch:
        from sparktop.sim.server import simulated_watch

        def make(links: Sequence[Connector]) -> Session:
            sessions.append(session(links, publish, config, is_demo=True))
            return sessions[0]

        return await simulated_watch(scenario, make)

    return _run_app(
        start,
        names,
        config,
        title=f"demo: {scenario.title}",
        is_demo=True,
        operating=lambda: sessions[0].operations_in_background(),
        greeting="" if options.scenario else _GREETING,
    )


def demo_arguments() -> ArgumentParser:
    """The arguments of `sparktop demo`."""
    argument_parser = parser("demo", "sparktop demo [options] [SCENARIO]")
    argument_parser.add_argument(
        "scenario", nargs="?", default="", metavar="SCENARIO", help="the incident to play (default healthy)"
    )
    argument_parser.add_argument("--list", action="store_true", dest="list_scenarios", help="list the incidents")
    _add_theme(argument_parser)
    return argument_parser


def _add_theme(argument_parser: ArgumentParser) -> None:
    argument_parser.add_argument(
        "--theme", metavar="THEME", help="dark, light, or any theme of Textual's; a wrong name lists them"
    )


def status(words: list[str]) -> int:
    """`sparktop status`."""
    options = status_arguments().parse_args(words)
    config = settings(options)
    if not config.hosts:
        from sparktop.cli.no_host import no_host

        raise no_host("sparktop status", config, options.config)
    return _snapshot(config, as_json=options.as_json, watch=options.watch, timeout_s=options.timeout)


def status_arguments() -> ArgumentParser:
    """The arguments of `sparktop status`."""
    argument_parser = parser("status", "sparktop status [options] HOST [HOST ...]")
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=HOST_HELP)
    argument_parser.add_argument(
        "--json", action="store_true", dest="as_json", help="print JSON; with --watch one object a line"
    )
    argument_parser.add_argument(
        "--watch", action="store_true", help="print a snapshot every interval until interrupted"
    )
    add_timeout(argument_parser, default_s=15.0)
    return argument_parser


def _snapshot(config: Config, *, as_json: bool, watch: bool, timeout_s: float) -> int:
    from sparktop.headless.status import status as tell
    from sparktop.headless.terminal import TerminalPrompter

    links = connectors(distinct(config.hosts), TerminalPrompter(), config.ssh_config)
    rules = own_rules()

    def make(publish: Publish) -> Watch:
        return monitor(links, publish, config, own=rules)

    return asyncio.run(tell(make, as_json=as_json, watch=watch, timeout_s=timeout_s, interval_s=config.interval_s))


def _run_app(
    start: Start,
    names: tuple[str, ...],
    config: Config,
    *,
    operating: Callable[[], Awaitable[Operating]],
    shell: ShellArgv | None = None,
    greeting: str = "",
    title: str = "",
    is_demo: bool = False,
) -> int:
    from sparktop.cli.interpreter import prepare_for_console

    prepare_for_console()
    from sparktop.clock import SystemClock
    from sparktop.text.ascii import wants_ascii
    from sparktop.ui.app import SparktopApp
    from sparktop.ui.attention import Attention
    from sparktop.ui.notify import NotifyOptions

    clock = SystemClock()
    app = SparktopApp(
        start=start,
        node_names=names,
        clock=clock,
        title=title,
        read_only=config.read_only,
        protected=frozenset(config.protected),
        operating=operating,
        shell=shell,
        greeting=greeting,
        theme=config.theme,
        is_ascii=wants_ascii(os.environ),
        notifying=NotifyOptions(channels=config.notify, command=config.notify_command),
        attention=Attention(clock, None if is_demo else state_home() / "acknowledged.json"),
        proven=proven_path(is_demo=is_demo),
    )
    exit_code = app.run()
    return 1 if exit_code is None else exit_code  # None: it ended by a fault, which it has printed
