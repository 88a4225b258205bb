"""The commands that watch: the console, demo, status, check, exporter, watch, serve."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.commands import BY_NAME
from sparktop.cli.composition import (
    connectors,
    distinct,
    own_rules,
    prepare_for_console,
    proven_path,
    recordings_path,
    session,
    watch_for_command,
)
from sparktop.cli.options import (
    HOSTS,
    THEME,
    ExitCode,
    address_of,
    argument,
    listen,
    settings,
    takes,
    timeout,
)
from sparktop.clock import SystemClock
from sparktop.config import Config, config_home, shown, state_home
from sparktop.errors import UsageError, nearest
from sparktop.model.event import Severity
from sparktop.transport.lean import import_lean
from sparktop.transport.targets import parse_target
from sparktop.ui.setup import Setup

if TYPE_CHECKING:
    import asyncio

    from sparktop.cli.session import Session
    from sparktop.documents.attention import Attention
    from sparktop.observe.watch import Publish, Watch
    from sparktop.transport.base import Connector, Prompter
else:
    import_lean("hmac")
    asyncio = import_lean("asyncio")


INCIDENTS = ("memory-spike", "spin-deadlock", "restart-loop")
"""The scenarios to see first."""
MAX_OFFERED = 6
"""Of one kind."""
_GREETING = f"A healthy demo. For an incident: sparktop demo {INCIDENTS[0]} (or {', '.join(INCIDENTS[1:])}; --list)"


@takes(
    HOSTS,
    argument("--no-record", "keep nothing of what is seen for `sparktop replay`"),
    argument("--file", "list this compose file or script under L", "FILE", repeats=True),
    THEME,
)
def console(options: Namespace) -> ExitCode:
    config = _watched(options, "sparktop")
    _refuse_mistyped(options.hosts, config)
    if not (sys.stdout.isatty() or _is_in_browser()):
        if options.file:
            raise UsageError(
                "--file lists a file in the console, which needs a terminal", hint="sparktop launch FILE HOST"
            )
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

    setup = Setup(
        start=start,
        node_names=names,
        clock=SystemClock(),
        operating=lambda: sessions[0].late.in_background(),
        shell=shell,
        files=_launch_files(options.file),
    )
    return _run_app(setup, config)


def _launch_files(names: Sequence[str]) -> tuple[str, ...]:
    """The files to be listed by L, read once so that a mistake is told before the console opens."""
    if names:
        from sparktop.recipe.read.shelf import entries_of_file

        for name in names:
            entries_of_file(name)
    return tuple(names)


def _refuse_mistyped(hosts: Sequence[str], config: Config) -> None:
    """Refuse a first word that is nearly a command and names no host.

    Raises:
        UsageError: with the command that was likely meant.
    """
    word = hosts[0] if hosts else ""
    meant = nearest(word.lower(), [*BY_NAME, "help"], least=0.75)
    if not meant or word in BY_NAME:  # a host named like a command stands after `--`
        return
    from sparktop.transport.ssh.config import is_known

    if not asyncio.run(is_known(word, Path(config.ssh_config).expanduser() if config.ssh_config else None)):
        raise UsageError(
            f"there is no command {word!r}, and no host of that name is known",
            hint=f"sparktop {meant} · if it is a host: sparktop {word}. or user@{word}",
        )


@takes(
    argument("scenario", "the incident to play (default healthy)", "SCENARIO", nargs="?", default=""),
    argument("--list", "list the incidents"),
    THEME,
)
def demo(options: Namespace) -> int:
    from sparktop.sim.scenario import scenario as scenarios

    if options.list:
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

    setup = Setup(
        start=start,
        node_names=names,
        clock=SystemClock(),
        title=f"demo: {scenario.title}",
        operating=lambda: sessions[0].late.in_background(),
    )
    return _run_app(setup, config, greeting="" if options.scenario else _GREETING, is_demo=True)


@takes(
    HOSTS,
    argument("--json", "print JSON; with --watch one object a line"),
    argument("--watch", "print a snapshot every interval until interrupted"),
    timeout(15.0),
)
def status(options: Namespace) -> ExitCode:
    config = _watched(options, "sparktop status")
    return _snapshot(config, as_json=options.json, watch=options.watch, timeout_s=options.timeout)


def _snapshot(config: Config, *, as_json: bool, watch: bool, timeout_s: float) -> ExitCode:
    from sparktop.headless.status import status as tell

    make = watch_for_command(config)
    return tell(make, as_json=as_json, watch=watch, timeout_s=timeout_s, interval_s=config.interval_s)


def _watched(options: Namespace, command: str) -> Config:
    """The settings of a command that needs a host, which is typed after `command`.

    Raises:
        UsageError: there is none; it has the command lines for those that can be found.
    """
    config = settings(options)
    if config.hosts:
        return config
    rows = [*_offers(command, Path(config.ssh_config).expanduser() if config.ssh_config else None)]
    width = max(len(typed) for typed, _ in rows)
    file = shown(options.config or config_home() / "config.toml")
    raise UsageError(
        f"no host is given, and `hosts` is not set in {file}",
        hint="\n  ".join(["type one of these:", *(f"  {typed:{width}}  {meaning}" for typed, meaning in rows)]),
    )


def _offers(command: str, ssh_config: Path | None) -> Iterator[tuple[str, str]]:
    """(command line, what it watches)"""
    from sparktop.transport.mdns import announced_hosts
    from sparktop.transport.ssh.aliases import aliases

    for hosts, meaning in (
        (aliases(ssh_config), "ssh alias"),
        (asyncio.run(announced_hosts()), "announced on this network (mDNS)"),
    ):
        usable = sorted(filter(_is_usable, hosts), key=lambda host: "spark" not in host.lower())
        yield from ((f"{command} {host}", meaning) for host in usable[:MAX_OFFERED])
        if len(usable) > MAX_OFFERED:
            yield f"{command} ...", f"{meaning}, {len(usable) - MAX_OFFERED} more"
    yield f"{command} local", "this machine, if it is a Spark"
    yield "sparktop demo", "simulated Sparks, no hardware needed"


def _is_usable(host: str) -> bool:
    try:
        parse_target(host)
    except UsageError:
        return False
    return True


@takes(
    HOSTS,
    argument(
        "--fail-on",
        "the least severity that counts (default warning)",
        choices=[str(severity) for severity in Severity],
        default=str(Severity.WARNING),
    ),
    timeout(15.0),
)
def check(options: Namespace) -> ExitCode:
    config = _watched(options, "sparktop check")
    from sparktop.headless.status import check as tell

    return tell(watch_for_command(config), Severity(options.fail_on), timeout_s=options.timeout)


@takes(
    HOSTS,
    listen("127.0.0.1:9948", "who can reach it can read it"),
)
def exporter(options: Namespace) -> ExitCode:
    config = _watched(options, "sparktop exporter")
    from sparktop.headless.exporter import exporter as carry_out

    address, port = address_of(options.listen)
    return carry_out(watch_for_command(config), address, port)


@takes(
    HOSTS,
    argument(
        "--test", "send each target one test message, and print what came back", against=("--install", "--remove")
    ),
    argument("--install", "print the user service (systemd, launchd) that runs this"),
    argument("--yes", "with --install: write the service and start it"),
    argument("--remove", "stop that service and remove it", against=("--install",)),
)
def watch(options: Namespace) -> ExitCode:
    if options.yes and not options.install:
        raise UsageError("--yes goes with --install")
    if options.test:
        from sparktop.headless.watch.watcher import try_targets

        targets = settings(options).watch
        if not targets.targets:
            raise UsageError("no [watch.target.NAME] in the configuration", hint="docs/watching.md shows one of each")
        return try_targets(targets)
    if options.remove:
        from sparktop.headless.watch import install

        return install.remove(install.service(()))
    config = _watched(options, "sparktop watch")
    if options.install:
        from sparktop.headless.watch import install
        from sparktop.headless.watch.targets import sender

        for target in config.watch.targets:
            sender(target)  # refuses here what the service would end by
        return install.install(install.service(_again(options, config, "watch")), is_agreed=options.yes)
    from sparktop.headless.watch.watcher import watch as carry_out

    make = watch_for_command(config, records=True)
    return carry_out(make, config.watch, state_home(), marks=_marks(is_demo=False))


def _again(options: Namespace, config: Config, *command: str) -> list[str]:
    """The command line of another process that watches the same hosts with the same options."""
    given = (
        ("--config", options.config and options.config.expanduser().resolve()),
        ("--ssh-config", options.ssh_config and Path(options.ssh_config).expanduser().resolve()),
        ("--interval", options.interval),
    )
    words = [str(word) for name, value in given if value for word in (name, value)]
    return [sys.executable, "-m", "sparktop", *command, *words, "--", *distinct(config.hosts)]


@takes(
    HOSTS,
    listen("127.0.0.1:9949", "who has the address with its token can use it"),
    argument(
        "--writable", "let the page change a Spark; without it the console is read-only", against=("--read-only",)
    ),
)
def serve(options: Namespace) -> ExitCode:
    from sparktop.headless import browser

    browser.need_extra()
    config = _watched(options, "sparktop serve")
    address, port = address_of(options.listen)
    argv = _again(options, config, *(() if options.writable else ("--read-only",)))
    return browser.serve(argv, f"sparktop {' '.join(distinct(config.hosts))}", address, port)


def _is_in_browser() -> bool:
    """Whether `sparktop serve` has started this console for a page."""
    return os.environ.get("TEXTUAL_DRIVER") == "textual.drivers.web_driver:WebDriver"


def _marks(*, is_demo: bool) -> Attention:
    """What consoles of this machine have acknowledged; a demo's are its own."""
    from sparktop.documents.attention import Attention

    return Attention(SystemClock(), None if is_demo else state_home() / "acknowledged.json")


def _run_app(setup: Setup, config: Config, *, greeting: str = "", is_demo: bool = False) -> int:
    """Run the console until it ends; its exit code."""
    prepare_for_console()
    from sparktop.text.ascii import wants_ascii

    import_lean("textual.app")
    from sparktop.ui.app import SparktopApp
    from sparktop.ui.notify import NotifyOptions

    setup = replace(
        setup,
        read_only=config.read_only,
        protected=frozenset(config.protected),
        attention=_marks(is_demo=is_demo),
        proven=proven_path(is_demo=is_demo),
        recordings=recordings_path(config, is_demo=is_demo),
    )
    app = SparktopApp(
        setup,
        greeting=greeting,
        theme=config.theme,
        notifying=NotifyOptions(channels=config.notify, command=config.notify_command),
        is_ascii=wants_ascii(os.environ),
        is_in_browser=_is_in_browser(),
    )
    exit_code = app.run()
    return 1 if exit_code is None else exit_code  # None: it ended by a fault, which it has printed
