"""The command line: argument parsing, and the one place that builds objects.

Nothing heavy is imported here before it is needed: the console must paint before it knows SSH.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop import __version__
from sparktop.config import Config, check_interval, load, state_home
from sparktop.errors import SparktopError, UsageError

if TYPE_CHECKING:
    from sparktop.observe.watch import Publish, Watch
    from sparktop.transport.base import Connector, Prompter

    Start = Callable[[Publish, Prompter], Awaitable[Watch]]

INTERRUPTED = 130
_EPILOG = """\
commands:
  sparktop HOST [HOST ...]       the console; HOST is an ssh alias, user@host[:port], or `local`
  sparktop demo                  the console on two simulated Sparks, no hardware needed
  sparktop status HOST...        one snapshot as text or JSON, or a stream of them
  sparktop explain [FILE|-]      what a log says: of an engine, the kernel, docker, nvidia-smi

exit codes: 0 nothing wrong, 1 findings at warning or above, 2 usage or configuration, 3 unreachable, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command the arguments name; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words[0] if words and words[0] in _COMMANDS else "console"
    try:
        return _COMMANDS[command](words[1:] if words and words[0] == command else words)
    except SparktopError as error:
        print(f"sparktop: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # `sparktop status | head`: who reads has read enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser(usage: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparktop",
        usage=usage,
        description="An operations console for NVIDIA DGX Sparks.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help="another configuration file")
    parser.add_argument("--interval", type=float, help="seconds between samples, 0.25 to 60 (default 1)")
    parser.add_argument("--read-only", "--readonly", action="store_true", help="refuse everything that changes a Spark")
    parser.add_argument("--no-color", action="store_true", help="as the NO_COLOR environment variable")
    parser.add_argument("-F", "--ssh-config", help="another file than ~/.ssh/config")
    parser.add_argument("--version", action="version", version=f"sparktop {__version__}")
    return parser


def _settings(options: argparse.Namespace) -> Config:
    """The configuration with the command line's word over it."""
    config = load(options.config)
    if options.no_color:
        os.environ["NO_COLOR"] = "1"
    interval_s = config.interval_s if options.interval is None else check_interval(options.interval)
    return Config(
        hosts=tuple(getattr(options, "hosts", ())) or config.hosts,
        interval_s=interval_s,
        theme=getattr(options, "theme", None) or config.theme,
        read_only=options.read_only or config.read_only,
        ssh_config=options.ssh_config or config.ssh_config,
        notify=config.notify,
        notify_command=config.notify_command,
    )


def _console(words: list[str]) -> int:
    parser = _parser("sparktop [options] HOST [HOST ...]")
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="an ssh alias, user@host[:port], or `local`")
    parser.add_argument("--theme", help="sparktop-dark, sparktop-light, or any theme of Textual's")
    config = _settings(parser.parse_args(words))
    if not config.hosts:
        raise UsageError(
            "which Spark?", hint="sparktop spark1 spark2 · sparktop local · or, without any: sparktop demo"
        )
    if not sys.stdout.isatty():
        return _snapshot(config, as_json=False, watch=False, timeout_s=15.0)
    names = _distinct(config.hosts)

    async def start(publish: Publish, prompter: Prompter) -> Watch:
        # In a thread: importing asyncssh takes longer than painting the first screen did.
        connectors = await asyncio.to_thread(_connectors, names, prompter, config.ssh_config)
        return _monitor(connectors, publish, config)

    return _run_app(start, names, config)


def _demo(words: list[str]) -> int:
    parser = _parser("sparktop demo [options]")
    parser.add_argument("--scenario", default="healthy", help="which incident to play (see --list)")
    parser.add_argument("--list", action="store_true", dest="list_scenarios", help="list the scenarios")
    parser.add_argument("--theme", help="sparktop-dark, sparktop-light, or any theme of Textual's")
    options = parser.parse_args(words)
    from sparktop.sim import scenario as scenarios

    if options.list_scenarios:
        for name, title in scenarios.available():
            print(f"{name:18} {title}")
        return 0
    config = _settings(options)
    scenario = scenarios.load(options.scenario)
    names = tuple(node.name for node in scenario.nodes)

    async def start(publish: Publish, _: Prompter) -> Watch:
        from sparktop.sim.watch import simulated_watch

        return await simulated_watch(scenario, lambda connectors: _monitor(connectors, publish, config, learns=False))

    return _run_app(start, names, config, title=f"demo: {scenario.title}", is_demo=True)


def _status(words: list[str]) -> int:
    parser = _parser("sparktop status [options] HOST [HOST ...]")
    parser.add_argument("hosts", nargs="*", metavar="HOST")
    parser.add_argument("--json", action="store_true", dest="as_json", help="JSON; with --watch one object a line")
    parser.add_argument("--watch", action="store_true", help="a snapshot every interval until interrupted")
    parser.add_argument("--timeout", type=float, default=15.0, help="seconds to wait for an answer (default 15)")
    options = parser.parse_args(words)
    config = _settings(options)
    if not config.hosts:
        raise UsageError("which Spark?", hint="sparktop status spark1 spark2 · sparktop status local")
    return _snapshot(config, as_json=options.as_json, watch=options.watch, timeout_s=options.timeout)


def _explain(words: list[str]) -> int:
    parser = _parser("sparktop explain [options] [FILE ...]")
    parser.add_argument("files", nargs="*", metavar="FILE", help="a text of any kind; - or nothing is standard input")
    parser.add_argument("--json", action="store_true", dest="as_json", help="findings as JSON")
    options = parser.parse_args(words)
    _settings(options)
    from sparktop.diagnose.logs.rules import shipped
    from sparktop.headless.explain import explain

    return explain(options.files, shipped(), as_json=options.as_json)


def _snapshot(config: Config, *, as_json: bool, watch: bool, timeout_s: float) -> int:

    from sparktop.headless.prompts import TerminalPrompter
    from sparktop.headless.status import status

    names = _distinct(config.hosts)
    connectors = _connectors(names, TerminalPrompter(), config.ssh_config)

    def make(publish: Publish) -> Watch:
        return _monitor(connectors, publish, config)

    return asyncio.run(status(make, as_json=as_json, watch=watch, timeout_s=timeout_s, interval_s=config.interval_s))


def _distinct(hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts in order, each once.

    Raises:
        UsageError: one of them can't be meant; said before anything is drawn.
    """
    from sparktop.transport.targets import parse_target

    return tuple(parse_target(host).name for host in dict.fromkeys(hosts))


def _connectors(names: Sequence[str], prompter: Prompter, ssh_config: str) -> list[Connector]:
    from sparktop.transport.hostkeys import SeenHosts
    from sparktop.transport.targets import connector_for

    seen = SeenHosts()
    config = Path(ssh_config).expanduser() if ssh_config else None
    return [connector_for(name, prompter, seen, config=config) for name in names]


def _monitor(connectors: Sequence[Connector], publish: Publish, config: Config, *, learns: bool = True) -> Watch:
    """`learns` keeps what is normal on these machines; a simulated one has none."""
    from sparktop.config import state_home
    from sparktop.observe.monitor import Monitor

    baselines = state_home() / "baselines.json" if learns else None
    return Monitor(connectors, publish=publish, interval_s=config.interval_s, baselines=baselines)


def _run_app(start: Start, names: tuple[str, ...], config: Config, title: str = "", *, is_demo: bool = False) -> int:
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
        theme=config.theme,
        notifying=Notifying(channels=config.notify, command=config.notify_command),
        attention=Attention(clock, None if is_demo else state_home() / "acknowledged.json"),
    )
    return app.run() or 0


_COMMANDS = {"console": _console, "demo": _demo, "status": _status, "explain": _explain}
