"""The page of all rules, from their cards: `make readme` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sparktop.diagnose.catalogue import cards
from sparktop.diagnose.rule import Rule, RuleKind

PAGE = Path(__file__).resolve().parents[1] / ".github" / "rules.md"
HEADINGS = {
    RuleKind.LIVE: (
        "While watching",
        "Looked for in every picture of one or two nodes, by the console and `sparktop status`.",
    ),
    RuleKind.LOG: (
        "In logs",
        "Looked for in the logs of running engines, and by `sparktop explain` in any text.",
    ),
    RuleKind.KERNEL: (
        "In the kernel log",
        "Looked for on every node whose kernel log can be read, and by `sparktop explain`.",
    ),
    RuleKind.DOCUMENT: (
        "In documents",
        "Looked for by `sparktop explain` in what docker, nvidia-smi and an engine's API print; endings also live.",
    ),
    RuleKind.LINT: (
        "In launch configurations",
        "Looked for by `sparktop lint` in files; those that can be certain of it also in engines that run.",
    ),
}


def page() -> str:
    """All rules as Markdown, kind by kind, in the order of their names."""
    known = cards()
    lines = [
        "# What sparktop knows",
        "",
        f"{len(known)} rules. `sparktop rules show ID` tells all of one: its signals, examples, words and remedies.",
        "This page is made of the rules themselves (`make readme`).",
        "",
        " · ".join(f"[{heading}](#{heading.lower().replace(' ', '-')})" for heading, _ in HEADINGS.values()),
    ]
    for kind, (heading, said) in HEADINGS.items():
        mine = sorted((card for card in known if card.kind is kind), key=_order)
        lines += ["", f"## {heading}", "", f"{said} {len(mine)} rules.", "", *_table(mine)]
    return "\n".join(lines) + "\n"


def _order(card: Rule) -> list[object]:
    """By name, numbers as numbers: Xid 13 before Xid 119."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", card.id)]


def _table(shown: Iterable[Rule]) -> list[str]:
    rows = ["| rule | at worst | what it says | holds for | sources |", "| --- | --- | --- | --- | --- |"]
    for card in shown:
        cells = (f"`{card.id}`", card.severity.value, *map(_cell, (card.title, card.scope, "; ".join(card.sources))))
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _cell(text: str) -> str:
    """Text that a table's cell can hold; what stands between backticks is left as it is but for the bar."""
    parts = re.split(r"(`[^`]*`)", text)
    safe = [part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts]
    return "".join(safe).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
