"""The page of one kernel event."""

from __future__ import annotations

from sparktop.diagnose.kernel.incident import counted
from sparktop.documents.events import EventRow
from sparktop.text.lines import Line
from sparktop.text.units import clock_time
from sparktop.ui.dialogs.page import DetailsScreen, Section


def details(row: EventRow) -> DetailsScreen:
    """The page of one event: facts, what each source says about it, and the kernel's own line."""
    return DetailsScreen(row.event.headline, _sections(row))


def _sections(row: EventRow) -> tuple[Section, ...]:
    event = row.event
    facts = [("node", row.node), ("severity", str(event.severity))]
    facts.append(("last", _time_text(row.wall_s, event.last_boot_s)))
    if event.count > 1:
        facts.append(("first", _time_text(event.first_wall_s, event.first_boot_s)))
        facts.append(("count", counted(event)))
    if event.process or event.pid is not None:
        pid = f"pid {event.pid}" if event.pid is not None else ""
        facts.append(("process", "  ".join(text for text in (event.process or "", pid) if text)))
    if event.container or event.container_id:
        short_id = event.container_id[:12] if event.container_id else ""
        facts.append(("container", "  ".join(text for text in (event.container or "", short_id) if text)))
    if event.follows is not None:
        facts.append(("follows", f"Xid {event.follows}, which came first: look at that first"))
    advice_sections = tuple(
        Section(
            heading=advice.source,
            paragraphs=(
                Line.of(advice.meaning),
                *((Line.of(("What to do: ", "strong"), (advice.remedy, "strong")),) if advice.remedy else ()),
            ),
        )
        for advice in event.advice
    )
    if not advice_sections:
        advice_sections = (Section(heading="No known meaning", paragraphs=(Line.of("It is shown as it came."),)),)
    raw = Section(heading="As the kernel wrote it", paragraphs=(Line.of(event.text),))
    return (Section(heading="What happened", facts=tuple(facts)), *advice_sections, raw)


def _time_text(wall_s: float | None, boot_s: float | None) -> str:
    texts = [clock_time(wall_s)] if wall_s is not None else []
    if boot_s is not None:
        texts.append(f"{boot_s:,.1f} s after boot")
    return ", ".join(texts) or "not stamped"
