"""The composition root: the one place that builds what watches and what acts, from the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.config import Config, state_home
from sparktop.errors import ConfigError

if TYPE_CHECKING:
    from sparktop.diagnose.ownrules import OwnRules
    from sparktop.observe.watch import Publish, Watch
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


def monitor(
    connectors: Sequence[Connector],
    publish: Publish,
    config: Config,
    *,
    own: OwnRules | None = None,
    learns: bool = True,
) -> Watch:
    """`own` are the operator's rules; `learns` keeps what is normal on these machines, a simulated one has none."""
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
