"""The commands that watch: the console, demo, status, check, exporter, watch, serve."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.commands import BY_NAME
from sparktop.cli.composition import (
    connectors,
    distinct,
    own_rules,
    proven_path,
    recordings_path,
    session,
    watch_for_command,
)
from sparktop.cli.options import HOST_HELP, add_listen, add_theme, add_timeout, address_of, parser, settings
from sparktop.config import Config, state_home
from sparktop.errors import UsageError
from sparktop.model.event import Severity
from sparktop.transport.targets import parse_target

if TYPE_CHECKING:
    from sparktop.cli.session import Session
    from sparktop.observe.watch import Publish, Watch
    from sparktop.operate.run.operating import Operating
    from sparktop.transport.base import Connector, Prompter
    from sparktop.ui.attention import Attention
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
    if not (sys.stdout.isatty() or _is_in_browser()):
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
            sessions.append(
                await asyncio.to_thread(lambda: session(begun, publish, config, own=own_rules(), records=True))
            )
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
    argument_parser.add_argument(
        "--no-record", action="store_true", help="keep nothing of what is seen for `sparktop replay`"
    )
    add_theme(argument_parser)
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
            sessions.append(session(links, publish, config, is_demo=True, records=True))
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
    add_theme(argument_parser)
    return argument_parser


def status(words: list[str]) -> int:
    """`sparktop status`."""
    options = status_arguments().parse_args(words)
    return _snapshot(_watched(options), as_json=options.as_json, watch=options.watch, timeout_s=options.timeout)


def status_arguments() -> ArgumentParser:
    """The arguments of `sparktop status`."""
    argument_parser = _hosts_parser("status")
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

    make = watch_for_command(config)
    return asyncio.run(tell(make, as_json=as_json, watch=watch, timeout_s=timeout_s, interval_s=config.interval_s))


def _watched(options: Namespace) -> Config:
    """The settings of a command that needs a host.

    Raises:
        UsageError: there is none; it lists those that can be found.
    """
    config = settings(options)
    if not config.hosts:
        from sparktop.cli.no_host import no_host

        raise no_host(f"sparktop {options.command}", config, options.config)
    return config


def check(words: list[str]) -> int:
    """`sparktop check`."""
    options = check_arguments().parse_args(words)
    config = _watched(options)
    from sparktop.headless.check import check as tell

    return asyncio.run(tell(watch_for_command(config), Severity(options.fail_on), timeout_s=options.timeout))


def check_arguments() -> ArgumentParser:
    """The arguments of `sparktop check`."""
    argument_parser = _hosts_parser("check")
    argument_parser.add_argument(
        "--fail-on",
        choices=[str(severity) for severity in Severity],
        default=str(Severity.WARNING),
        help="the least severity that counts (default warning)",
    )
    add_timeout(argument_parser, default_s=15.0)
    return argument_parser


def exporter(words: list[str]) -> int:
    """`sparktop exporter`."""
    options = exporter_arguments().parse_args(words)
    config = _watched(options)
    from sparktop.headless.exporter.server import exporter as carry_out

    address, port = address_of(options.listen)
    return asyncio.run(carry_out(watch_for_command(config), address, port))


def exporter_arguments() -> ArgumentParser:
    """The arguments of `sparktop exporter`."""
    argument_parser = _hosts_parser("exporter")
    add_listen(argument_parser, "127.0.0.1:9948", "who can reach it can read it")
    return argument_parser


def watch(words: list[str]) -> int:
    """`sparktop watch`."""
    options = watch_arguments().parse_args(words)
    if options.install + options.remove + options.test > 1:
        raise UsageError("--install, --remove and --test can't be used together")
    if options.yes and not options.install:
        raise UsageError("--yes goes with --install")
    if options.test:
        from sparktop.headless.watch.watcher import try_targets

        targets = settings(options).watch
        if not targets.targets:
            raise UsageError("no [watch.target.NAME] in the configuration", hint="docs/watching.md shows one of each")
        return asyncio.run(try_targets(targets))
    if options.remove:
        from sparktop.headless.watch import install

        return install.remove(install.service(()))
    config = _watched(options)
    if options.install:
        from sparktop.headless.watch import install
        from sparktop.headless.watch.targets import sender

        for target in config.watch.targets:
            sender(target)  # refuses here what the service would end by
        return install.install(install.service(_again(options, config, "watch")), is_agreed=options.yes)
    from sparktop.headless.watch.watcher import watch as carry_out

    make = watch_for_command(config, records=True)
    return asyncio.run(carry_out(make, config.watch, state_home(), marks=_marks(is_demo=False)))


def _again(options: Namespace, config: Config, *command: str) -> list[str]:
    """The command line of another process that watches the same hosts with the same options."""
    given = (
        ("--config", options.config and options.config.expanduser().resolve()),
        ("--ssh-config", options.ssh_config and Path(options.ssh_config).expanduser().resolve()),
        ("--interval", options.interval),
    )
    words = [str(word) for name, value in given if value for word in (name, value)]
    return [sys.executable, "-m", "sparktop", *command, *words, "--", *distinct(config.hosts)]


def watch_arguments() -> ArgumentParser:
    """The arguments of `sparktop watch`."""
    argument_parser = _hosts_parser("watch")
    argument_parser.add_argument(
        "--test", action="store_true", help="send each target one test message, and print what came back"
    )
    argument_parser.add_argument(
        "--install", action="store_true", help="print the user service (systemd, launchd) that runs this"
    )
    argument_parser.add_argument("--yes", action="store_true", help="with --install: write the service and start it")
    argument_parser.add_argument("--remove", action="store_true", help="stop that service and remove it")
    return argument_parser


def serve(words: list[str]) -> int:
    """`sparktop serve`."""
    options = serve_arguments().parse_args(words)
    if options.writable and options.read_only:
        raise UsageError("--writable and --read-only can't be used together")
    from sparktop.headless.serve import browser

    browser.need_extra()
    config = _watched(options)
    address, port = address_of(options.listen)
    argv = _again(options, config, *(() if options.writable else ("--read-only",)))
    return asyncio.run(browser.serve(argv, f"sparktop {' '.join(distinct(config.hosts))}", address, port))


def serve_arguments() -> ArgumentParser:
    """The arguments of `sparktop serve`."""
    argument_parser = _hosts_parser("serve")
    add_listen(argument_parser, "127.0.0.1:9949", "who has the address with its token can use it")
    argument_parser.add_argument(
        "--writable", action="store_true", help="let the page change a Spark; without it the console is read-only"
    )
    return argument_parser


def _is_in_browser() -> bool:
    """Whether `sparktop serve` has started this console for a page."""
    return os.environ.get("TEXTUAL_DRIVER") == "textual.drivers.web_driver:WebDriver"


def _marks(*, is_demo: bool) -> Attention:
    """What consoles of this machine have acknowledged; a demo's are its own."""
    from sparktop.clock import SystemClock
    from sparktop.ui.attention import Attention

    return Attention(SystemClock(), None if is_demo else state_home() / "acknowledged.json")


def _hosts_parser(command: str) -> ArgumentParser:
    argument_parser = parser(command, f"sparktop {command} [options] HOST [HOST ...]")
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=HOST_HELP)
    argument_parser.set_defaults(command=command)
    return argument_parser


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
        attention=_marks(is_demo=is_demo),
        proven=proven_path(is_demo=is_demo),
        recordings=recordings_path(config, is_demo=is_demo),
        is_in_browser=_is_in_browser(),
    )
    exit_code = app.run()
    return 1 if exit_code is None else exit_code  # None: it ended by a fault, which it has printed
