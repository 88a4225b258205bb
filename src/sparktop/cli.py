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
from sparktop.errors import ConfigError, SparktopError, UsageError

if TYPE_CHECKING:
    from sparktop.diagnose.ownrules import OwnRules
    from sparktop.observe.watch import Publish, Watch
    from sparktop.transport.base import Connector, Prompter

    Start = Callable[[Publish, Prompter], Awaitable[Watch]]

INTERRUPTED = 130
_EPILOG = """\
commands:
  sparktop HOST [HOST ...]       the console; HOST is an ssh alias, user@host[:port], or `local`
  sparktop demo                  the console on two simulated Sparks, no hardware needed
  sparktop status HOST...        one snapshot as text or JSON, or a stream of them
  sparktop lint FILE...          compose files, docker run scripts, units, recipes: what is known to go wrong
  sparktop rules list|show ID    every rule; `rules check` tries your own, in $XDG_CONFIG_HOME/sparktop/rules/*.toml
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
        def make() -> Watch:
            connectors = _connectors(names, prompter, config.ssh_config)
            return _monitor(connectors, publish, config, own=_own_rules())

        # In a thread: importing asyncssh and the rules takes longer than painting the first screen did.
        return await asyncio.to_thread(make)

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
            print(f"{name:22}  {title}")
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

    own = _own_rules()
    rules = (*shipped(), *own.strict().log) if own is not None else shipped()
    return explain(options.files, rules, as_json=options.as_json)


def _lint(words: list[str]) -> int:
    parser = _parser("sparktop lint [options] FILE [FILE ...]")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a launch configuration; - is standard input")
    parser.add_argument("--json", action="store_true", dest="as_json", help="JSON")
    options = parser.parse_args(words)
    _settings(options)
    from sparktop.headless.lint import lint

    own = _own_rules()
    return lint(options.files, as_json=options.as_json, own=own.strict().lint if own is not None else ())


def _rules(words: list[str]) -> int:
    parser = _parser("sparktop rules list [--json] | show ID | check [FILE ...]")
    parser.add_argument("what", choices=("list", "show", "check"), help="what to do")
    parser.add_argument("names", nargs="*", metavar="ID|FILE", help="the rule to show; the files to check")
    parser.add_argument("--json", action="store_true", dest="as_json", help="the list as JSON")
    options = parser.parse_args(words)
    from sparktop.config import read_rule_file, user_rule_files
    from sparktop.diagnose.ownrules import read_own
    from sparktop.headless.rules import check_files, list_rules, show_rule

    if options.what == "check":
        given = [(name, read_rule_file(Path(name))) for name in options.names]
        return check_files(given or user_rule_files())
    own = read_own(user_rule_files()).strict()
    if options.what == "list":
        if options.names:
            raise UsageError("rules list takes no name", hint=f"sparktop rules show {options.names[0]}")
        return list_rules(own, as_json=options.as_json)
    if len(options.names) != 1:
        raise UsageError("which rule?", hint="sparktop rules show gpu.spin-deadlock · sparktop rules list")
    return show_rule(options.names[0], own)


def _own_rules() -> OwnRules | None:
    """The operator's own rules, what is wrong with them included; None where there are none."""
    from sparktop.config import user_rule_files

    try:
        files = user_rule_files()
        if not files:
            return None
        from sparktop.diagnose.ownrules import OwnRules, read_own

        return read_own(files)
    except ConfigError as error:
        from sparktop.diagnose.ownrules import OwnRules

        return OwnRules(problems=(error,))


def _snapshot(config: Config, *, as_json: bool, watch: bool, timeout_s: float) -> int:

    from sparktop.headless.prompts import TerminalPrompter
    from sparktop.headless.status import status

    names = _distinct(config.hosts)
    connectors = _connectors(names, TerminalPrompter(), config.ssh_config)
    own = _own_rules()

    def make(publish: Publish) -> Watch:
        return _monitor(connectors, publish, config, own=own)

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


def _monitor(
    connectors: Sequence[Connector],
    publish: Publish,
    config: Config,
    *,
    own: OwnRules | None = None,
    learns: bool = True,
) -> Watch:
    """`own` are the operator's rules; `learns` keeps what is normal on these machines, a simulated one has none."""
    from sparktop.config import state_home
    from sparktop.observe.monitor import Monitor

    baselines = state_home() / "baselines.json" if learns else None
    if own is None:
        return Monitor(connectors, publish=publish, interval_s=config.interval_s, baselines=baselines)
    from sparktop.diagnose.catalogue import live_rules
    from sparktop.diagnose.logs.rules import shipped

    return Monitor(
        connectors,
        publish=publish,
        interval_s=config.interval_s,
        rules=live_rules(own.lint),
        log_rules=lambda: (*shipped(), *own.log),
        baselines=baselines,
        remarks=own.remarks,
    )


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


_COMMANDS = {"console": _console, "demo": _demo, "status": _status, "explain": _explain, "lint": _lint, "rules": _rules}
