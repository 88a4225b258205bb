"""What a node's ports hear by LLDP: lldpd comes with DGX OS (dgx-spark-ota-update-meta 26.03.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparktop import sanitise
from sparktop.bounds import json_of
from sparktop.checks.fabric import Heard, Wiring, wiring_of
from sparktop.model.fleet import FleetState
from sparktop.model.survey import Output, Survey


def neighbours_question(node: str) -> Output:
    return Output(node=node, argv=("lldpctl", "-f", "json0"))


def parse_neighbours(text: str | None) -> Mapping[str, Heard] | None:
    """What each interface hears, of lldpctl's json0; None: no such JSON."""
    try:
        raw: Any = json_of(text or "")
    except ValueError:
        return None
    found: dict[str, Heard] = {}
    for lldp in items(raw, "lldp"):
        for interface in items(lldp, "interface"):
            name = interface.get("name")
            chassis = next(iter(items(interface, "chassis")), {})
            port = next(iter(items(interface, "port")), {})
            if isinstance(name, str):
                end = _value(port, "descr") or _value(port, "id")
                found[name] = Heard(machine=sanitise.name(_value(chassis, "name")), port=sanitise.name(end))
    return found if isinstance(raw, dict) else None


def items(raw: Any, key: str) -> list[dict[str, Any]]:
    """The objects of a list in JSON; none where it is another shape."""
    value = raw.get(key) if isinstance(raw, dict) else None
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _value(raw: Any, key: str) -> str:
    return str(next(iter(items(raw, key)), {}).get("value") or "")


def wiring(picture: FleetState, survey: Survey, nodes: tuple[str, ...]) -> Wiring:
    """The cables between these nodes, by what each of them hears."""
    heard: dict[str, Mapping[str, Heard] | None] = {}
    for node in nodes:
        heard[node] = parse_neighbours(survey.text(neighbours_question(node)))
    views = [view for node in nodes if (view := picture.node(node)) is not None]
    return wiring_of(heard, {view.name: view.facts.hostname for view in views if view.facts is not None})
