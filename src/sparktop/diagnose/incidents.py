"""Which incidents began, got worse or were resolved since the last picture: what the console and `watch` announce.

An incident is a root with all that follows from it (`diagnose.findings.families`); it is over once none of them fires.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import families
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, FindingKey, Phase, is_of_other_nodes


class Change(StrEnum):
    """What became of an incident."""

    NEW = "new"
    WORSE = "worse"
    """Its severity rose, or its cause was found."""
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A root and its consequences, as last seen."""

    id: str
    root: Finding
    consequences: tuple[Finding, ...] = ()
    keys: frozenset[FindingKey] = frozenset()
    """The findings that are no news in it."""
    severity: Severity
    """The worst that was announced."""
    announced: Finding | None = None
    """The root that it was announced by; None: not announced yet."""
    first_s: float = 0.0
    is_carried: bool = False
    """An earlier process announced it, and its nodes are not settled yet."""


class News(NamedTuple):
    """One change to announce."""

    change: Change
    incident: Incident


class Incidents:
    """Follows the incidents from picture to picture."""

    def __init__(self, least: Severity, *, gather_s: float = 0.0, carried: Iterable[Incident] = ()) -> None:
        """`least` is the least severity that counts; a new incident is announced after `gather_s`, as its cause may
        fire after it, and if it is over by then only where it is critical; `carried` are those that an earlier
        process announced."""
        self._least = least
        self._gather_s = gather_s
        self._open = [replace(incident, is_carried=True) for incident in carried]
        self.firing: frozenset[FindingKey] = frozenset()

    @property
    def open(self) -> tuple[Incident, ...]:
        """Those that were announced and aren't resolved."""
        return tuple(incident for incident in self._open if incident.announced is not None)

    def update(
        self, findings: Sequence[Finding], *, now_s: float = 0.0, unsettled: Set[str] = frozenset()
    ) -> tuple[News, ...]:
        """What to announce of this picture, worst first, the resolved ones last.

        Args:
            unsettled: nodes of which not all findings can be known yet: what is carried isn't resolved there.
        """
        firing = [one for one in findings if one.phase is Phase.FIRING and one.severity.weight >= self._least.weight]
        self.firing = frozenset(finding.key for finding in firing)
        waiting = {one.id for one in self._open if one.is_carried and not unsettled.isdisjoint(one.root.nodes)}
        before = [replace(one, is_carried=one.id in waiting) for one in self._open]
        seen: dict[str, Incident] = {}
        news: dict[str, News] = {}
        over = {one.id: one for one in before}
        for family in families(firing):
            earlier = [one for one in before if _belongs(family, one)]
            known = next((one for one in earlier if one.announced is not None), earlier[0] if earlier else None)
            incident, change = self._continued(known, seen, family, now_s)
            seen[incident.id] = incident
            for one in earlier:
                over.pop(one.id, None)
            if change is not None:
                news[incident.id] = News(change, incident)
        gone = [one for one in over.values() if not one.is_carried]
        self._open = [*seen.values(), *(one for one in over.values() if one.is_carried)]
        # Over before it was announced: only a critical one is still worth a message.
        short = [one for one in gone if one.announced is None and one.severity is Severity.CRITICAL]
        ended = [one for one in gone if one.announced is not None or one in short]
        return (
            *news.values(),
            *(News(Change.NEW, one) for one in short),
            *(News(Change.RESOLVED, one) for one in ended),
        )

    def _continued(
        self, known: Incident | None, seen: Mapping[str, Incident], family: Sequence[Finding], now_s: float
    ) -> tuple[Incident, Change | None]:
        """The incident that this family is of, and what to announce of it."""
        root, *consequences = family
        severity = max((one.severity for one in family), key=lambda one: one.weight)
        keys = frozenset(finding.key for finding in family)
        if known is None:
            known = Incident(id=secrets.token_hex(8), root=root, keys=keys, severity=severity, first_s=now_s)
        is_new_cause = root.key not in known.keys and not is_of_other_nodes(root.key, known.root.key)
        if (part := seen.get(known.id)) is not None:  # its root is over, and what followed from that falls apart
            known, keys, root, consequences = part, keys | part.keys, part.root, [*part.consequences, *family]
        is_worse = severity.weight > known.severity.weight
        change = None
        if known.announced is None:
            change = Change.NEW if now_s - known.first_s >= self._gather_s else None
        elif is_worse or is_new_cause:
            change = Change.WORSE
        incident = replace(
            known,
            root=root,
            consequences=tuple(consequences),
            keys=keys | known.keys if known.is_carried else keys,
            severity=severity if is_worse else known.severity,
            announced=root if change is not None else known.announced,
        )
        return incident, change


def _belongs(family: Sequence[Finding], incident: Incident) -> bool:
    return any(finding.key in incident.keys or is_of_other_nodes(finding.key, incident.root.key) for finding in family)
