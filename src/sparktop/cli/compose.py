"""The composition root: the one place that builds what watches and what acts, from the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.config import Config, state_home
from sparktop.errors import ConfigError

if TYPE_CHECKING:
    from sparktop.cli.session import Session
    from sparktop.diagnose.ownrules import OwnRules
    from sparktop.observe.monitor import Monitor
    from sparktop.observe.watch import Connections, Publish
    from sparktop.transport.base import Connector, Prompter


def own_rules() -> OwnRules | None:
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


def distinct(hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts in order, each once.

    Raises:
        UsageError: one of them can't be meant; said before anything is drawn.
    """
    from sparktop.transport.targets import parse_target

    return tuple(parse_target(host).name for host in dict.fromkeys(hosts))


def connectors(names: Sequence[str], prompter: Prompter, ssh_config: str) -> list[Connector]:
    """One for each node, by what kind of target its name is."""
    from sparktop.transport.hostkeys import SeenHosts
    from sparktop.transport.targets import connector_for

    seen = SeenHosts()
    config = Path(ssh_config).expanduser() if ssh_config else None
    return [connector_for(name, prompter, seen, config=config) for name in names]


def session(
    connectors: Sequence[Connector],
    publish: Publish,
    config: Config,
    *,
    own: OwnRules | None = None,
    is_demo: bool = False,
    asks_more: bool = False,
) -> Session:
    """What watches, and what acts through its connections; reading only, it refuses what changes a Spark.

    `asks_more`: reading only, it asks the nodes more than it watches all the same, for evidence.
    A demo learns nothing for later, and its audit and evidence stand apart from those of real machines.
    """
    from sparktop.cli.session import Session, seen_by
    from sparktop.operate.audit import Audit
    from sparktop.operate.lines import Lines
    from sparktop.operate.operations import Operations

    folder = state_home() / "demo" if is_demo else state_home()
    lines = Lines(read_only=config.read_only and not asks_more, docker_sockets=config.docker_sockets)
    operations = Operations(
        picture=lambda: watch.state,
        lines=lines,
        read_only=config.read_only,
        protected=config.protected,
        audit=Audit(folder / "audit.jsonl"),
        tell=lambda node, words: watch.tell(node, words),
        evidence_folder=folder / "evidence",
        recalls=not is_demo,
    )
    seen = seen_by(publish, operations.see)
    watch = monitor(connectors, seen, config, own=own, learns=not is_demo, connections=lines)
    return Session(watch, operations, lines)


def monitor(
    connectors: Sequence[Connector],
    publish: Publish,
    config: Config,
    *,
    own: OwnRules | None = None,
    learns: bool = True,
    connections: Connections | None = None,
) -> Monitor:
    """What watches. `own` are the operator's rules; `learns` keeps what is normal on these machines; `connections`
    has a share of each connection.
    """
    from sparktop.observe.monitor import Monitor

    baselines = state_home() / "baselines.json" if learns else None
    if own is None:
        return Monitor(
            connectors,
            publish=publish,
            interval_s=config.interval_s,
            baselines=baselines,
            connections=connections,
            docker_sockets=config.docker_sockets,
        )
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
        connections=connections,
        docker_sockets=config.docker_sockets,
    )
