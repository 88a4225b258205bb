"""The composition root: builds the Watch and the operations from the configuration."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.config import Config, state_home
from sparktop.errors import ConfigError, UsageError
from sparktop.transport.targets import parse_target

if TYPE_CHECKING:
    from sparktop.cli.session import Session
    from sparktop.diagnose.catalogue import OwnRules
    from sparktop.headless.invocation import Invocation
    from sparktop.model.fleet import FleetState
    from sparktop.observe.history import Past
    from sparktop.observe.intake import Tape
    from sparktop.observe.watch import Publish, Watch
    from sparktop.operate.operations import Operations
    from sparktop.operate.run.operating import KeepMeasured, Operating
    from sparktop.operate.runner.connections import RunnerConnections
    from sparktop.operate.step.run import Run
    from sparktop.transport.base import Connector, Prompter
    from sparktop.transport.ssh.host_keys import SeenHosts


PAST_REACHES_S = 6 * 3600.0
"""How far back a console's charts reach into earlier recordings."""


def prepare_for_console() -> None:
    """Set the interpreter up for a quick start and a prompt event loop; before the console's modules are imported."""
    # Collecting garbage while modules are imported takes a tenth of the start. The app enables it again.
    gc.disable()
    # Threads that import or read logs give the event loop its turn sooner than after 5 ms.
    sys.setswitchinterval(0.001)
    # Textual paints on a grid of so many times a second, and after a pause may leave one out: at its 60, what a key
    # changes waits up to 33 ms for its paint. Little is painted more often, as a pane paints only what changed.
    os.environ.setdefault("TEXTUAL_FPS", "250")


def own_rules() -> OwnRules:
    """The operator's own rules, with the problems in them."""
    from sparktop.config import user_rule_files
    from sparktop.diagnose.catalogue import OwnRules, read_own

    try:
        return read_own(user_rule_files())
    except ConfigError as error:
        return OwnRules(problems=(error,))


def distinct(hosts: Sequence[str]) -> tuple[str, ...]:
    """The names of the hosts in order, each once.

    Raises:
        UsageError: a host is not valid.
    """
    return tuple(parse_target(host).name for host in dict.fromkeys(hosts))


def once_each(hosts: Sequence[str]) -> None:
    """Refuse a host that is named twice."""
    if len(distinct(hosts)) < len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise UsageError(f"{twice} is named twice", hint="name each Spark once; the first is the head")


def connectors(names: Sequence[str], prompter: Prompter, ssh_config: str) -> list[Connector]:
    """A connector for each node."""
    from sparktop.transport.ssh.host_keys import SeenHosts

    seen_hosts = SeenHosts()
    config = Path(ssh_config).expanduser() if ssh_config else None
    return [connector_for(name, prompter, seen_hosts, config=config) for name in names]


def watch_for_command(config: Config, *, records: bool = False) -> Callable[[Publish], Watch]:
    """What makes the Watch of a command that only watches; `records`: it is kept, as a console's."""
    from sparktop.headless.terminal import TerminalPrompter

    links = connectors(distinct(config.hosts), TerminalPrompter(), config.ssh_config)
    rules = own_rules()
    return lambda publish: session(links, publish, config, own=rules, records=records)


def invocation(config: Config, options: argparse.Namespace, *, asks_more: bool = False) -> Invocation:
    """How a command that plans and runs was called, from its options."""
    from sparktop.headless.invocation import Invocation
    from sparktop.headless.terminal import TerminalPrompter

    prompter = TerminalPrompter()
    links = connectors(distinct(config.hosts), prompter, config.ssh_config)
    rules = own_rules()

    def make(publish: Publish) -> tuple[Watch, Operating]:
        made = session(links, publish, config, own=rules, asks_more=asks_more)
        return made, made.late.built()

    return Invocation(
        make=make,
        secret=prompter.sudo,
        is_dry=getattr(options, "dry_run", False),
        is_agreed=getattr(options, "yes", False),
        as_json=options.json,
        timeout_s=options.timeout,
        has_terminal=sys.stdin.isatty() and sys.stderr.isatty(),
    )


def _state_folder(*, is_demo: bool) -> Path:
    """Where a session keeps its audit, its evidence and what was proven."""
    return state_home() / "demo" if is_demo else state_home()


def recordings_path(config: Config, *, is_demo: bool = False) -> Path | None:
    """The folder of what consoles record; None where they are not to."""
    return _state_folder(is_demo=is_demo) / "recordings" if config.record else None


def proven_path(*, is_demo: bool) -> Path:
    """The file of what bring-ups have proven."""
    return _state_folder(is_demo=is_demo) / "bringup.json"


def keep_measured(path: Path) -> KeepMeasured:
    """What keeps the bring-up rows that an ended run has measured, in this file."""

    def keep(run: Run, picture: FleetState) -> str:
        from sparktop.bringup.catalogue import measured
        from sparktop.bringup.kept import ResultFile
        from sparktop.clock import SystemClock

        try:
            ResultFile(path).keep(measured(run, picture, now_wall_s=SystemClock().wall()))
        except ConfigError as error:
            return f"{error.message}: what was measured is not kept"
        return ""

    return keep


def session(
    connectors: Sequence[Connector],
    publish: Publish,
    config: Config,
    *,
    own: OwnRules | None = None,
    is_demo: bool = False,
    asks_more: bool = False,
    records: bool = False,
) -> Session:
    """A session of a Watch, and of operations once they are wanted; when read-only, it refuses to change a Spark.

    `own`: the operator's rules. `asks_more`: when read-only, it may still read more from the nodes than the Watch does,
    for evidence. `records`: what is received is kept, unless the configuration says otherwise.
    A demo keeps no baselines, and its audit, its evidence and what it proves are in a folder of their own.
    """
    from sparktop.cli.session import LazyOperations, Session, publish_after
    from sparktop.diagnose.catalogue import live_rules
    from sparktop.diagnose.logs.rule import shipped
    from sparktop.observe.monitor import Monitor
    from sparktop.operate.audit.interventions import Interventions

    folder = _state_folder(is_demo=is_demo)
    home = recordings_path(config, is_demo=is_demo) if records else None

    def build() -> tuple[RunnerConnections, Operations]:
        from sparktop.operate.audit_file import Audit
        from sparktop.operate.operations import Operations
        from sparktop.operate.runner.connections import RunnerConnections

        lines = RunnerConnections(read_only=config.read_only and not asks_more, docker_sockets=config.docker_sockets)
        return lines, Operations(
            picture=lambda: watch.state,
            lines=lines,
            read_only=config.read_only,
            protected=config.protected,
            audit=Audit(folder / "audit.jsonl"),
            tell=lambda node, words: watch.tell(node, words),
            evidence_folder=folder / "evidence",
            keep_measured=keep_measured(proven_path(is_demo=is_demo)),
            recalls=not is_demo,
            connectors=connectors,
        )

    late = LazyOperations(build)
    watch = Monitor(
        connectors,
        publish=publish_after(publish, late.see),
        interval_s=config.interval_s,
        rules=live_rules(own.lint if own else ()),
        log_rules=lambda: (*shipped(), *(own.log if own else ())),
        baselines=None if is_demo else state_home() / "baselines.json",
        remarks=own.remarks if own else (),
        connections=late,
        docker_sockets=config.docker_sockets,
        canary_every_s=config.canary_every_s,
        interventions=Interventions(folder / "audit.jsonl"),
        tape=(lambda node: _tape(node, config, home)) if home is not None else lambda _: None,
        past=partial(_past, home, time.time()) if home is not None else lambda _: None,
    )
    return Session(watch, late)


def _tape(node: str, config: Config, home: Path) -> Tape:
    from sparktop import __version__
    from sparktop.observe.replay.recorder import Recorder
    from sparktop.record.writer import Limits, TapeWriter

    limits = Limits(days=config.record_days, total_bytes=int(config.record_gib * (1 << 30)))
    return Recorder(TapeWriter(node, limits=limits, product=__version__, home=home))


def _past(home: Path, until_s: float, node: str) -> Past | None:
    from sparktop.observe.replay.past import past_of
    from sparktop.record.reader import recent
    from sparktop.record.tape import folder_of

    return past_of(recent(folder_of(node, home), until_s - PAST_REACHES_S, until_s))


def connector_for(text: str, prompter: Prompter, seen: SeenHosts, *, config: Path | None = None) -> Connector:
    """The connector for a host as typed; asyncssh is imported only for a remote one.

    Raises:
        UsageError: the host is not valid.
    """
    target = parse_target(text)
    if target.kind == "local":
        from sparktop.transport.local import LocalConnector

        return LocalConnector(name=target.name)
    from sparktop.transport.lean import import_lean

    import_lean("asyncssh")
    from sparktop.transport.ssh.connector import SshConnector

    return SshConnector(target, prompter=prompter, seen=seen, config=config)
