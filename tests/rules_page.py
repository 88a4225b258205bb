"""The pages of all rules, docs/rules.md and docs/rules/*.md, from their cards: `make readme` writes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.rule_symptoms import SYMPTOMS, Symptom, symptom_of

from sparktop.diagnose.catalogue import cards
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Severity

DOCS = Path(__file__).resolve().parents[1] / "docs"
INDEX = DOCS / "rules.md"
FOLDER = DOCS / "rules"
SEEN_IN = {
    RuleKind.LIVE: ("While watching", "By the console and `sparktop status`, in every sample of the watched nodes."),
    RuleKind.LOG: ("In logs", "In the logs of running engines, and by `sparktop explain` in any text."),
    RuleKind.KERNEL: (
        "In the kernel log",
        "On every node whose kernel log can be read, and by `sparktop explain`.",
    ),
    RuleKind.DOCUMENT: (
        "In documents",
        "By `sparktop explain` in what docker, nvidia-smi and an engine's API print; exit codes also live.",
    ),
    RuleKind.LINT: (
        "In launch configurations",
        "By `sparktop lint` in files; a rule that can be certain also checks running engines.",
    ),
}
_WORST_FIRST = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def pages() -> dict[Path, str]:
    """Every page with its text; rules that no symptom takes are left out, and a test says so."""
    shown = grouped(cards())
    return {INDEX: _index(shown)} | {FOLDER / f"{one.slug}.md": _page(one, mine) for one, mine in shown.items()}


def grouped(rules: Sequence[Rule]) -> dict[Symptom, list[Rule]]:
    """The rules by symptom, in the order of SYMPTOMS."""
    return {one: [card for card in rules if symptom_of(card.id) is one] for one in SYMPTOMS}


def _index(shown: Mapping[Symptom, Sequence[Rule]]) -> str:
    total = sum(map(len, shown.values()))
    lines = [
        "# What sparktop knows",
        "",
        f"{total} rules, by what you see. `sparktop rules show ID` prints one in full: signals, examples, remedies.",
        "The rules themselves make these pages (`make readme`).",
        "",
        "| what you see | rules | critical | |",
        "| --- | ---: | ---: | --- |",
    ]
    for symptom, rules in shown.items():
        critical = sum(card.severity is Severity.CRITICAL for card in rules)
        link = f"[{symptom.title}]({FOLDER.name}/{symptom.slug}.md)"
        lines.append(f"| {link} | {len(rules)} | {critical} | {symptom.says} |")
    counts = Counter(card.kind for rules in shown.values() for card in rules)
    lines += ["", "Where sparktop looks:", ""]
    lines += [f"- **{heading}**, {counts[kind]} rules. {said}" for kind, (heading, said) in SEEN_IN.items()]
    lines += [
        "",
        "Critical: it stops the engine or the machine. The worst a rule can say is shown; a finding may say less.",
        "Your own rules: [operating](operating.md#your-own-rules).",
    ]
    return "\n".join(lines) + "\n"


def _page(symptom: Symptom, rules: Sequence[Rule]) -> str:
    kinds = [kind for kind in SEEN_IN if any(card.kind is kind for card in rules)]
    lines = [f"# {symptom.title}", "", symptom.says, "", f"[All symptoms](../{INDEX.name}) · {len(rules)} rules"]
    for kind in kinds:
        heading, said = SEEN_IN[kind]
        mine = sorted((card for card in rules if card.kind is kind), key=_order)
        lines += ["", f"## {heading}", "", said, "", *_table(mine)]
    return "\n".join(lines) + "\n"


def _order(card: Rule) -> list[object]:
    """The worst first, then by name, numbers as numbers: Xid 13 before Xid 119."""
    parts = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", card.id)]
    return [_WORST_FIRST.index(card.severity), *parts]


def _table(shown: Sequence[Rule]) -> Iterator[str]:
    """A row a rule; the scope and the sources that most of them share are said once above them."""
    rows = [(card, card.scope, "; ".join(card.sources)) for card in shown]
    scope, sources = _usual([row[1] for row in rows]), _usual([row[2] for row in rows])
    if scope or sources:
        said = [f"holds for *{_cell(scope)}*"] if scope else []
        said += [f"sources *{_cell(sources)}*"] if sources else []
        yield from (f"Where a cell is empty: {', '.join(said)}.", "")
    yield "| what it says | at worst | rule | holds for | sources |"
    yield "| --- | --- | --- | --- | --- |"
    for card, own_scope, own_sources in rows:
        cells = [_cell(card.title), card.severity.value, f"`{card.id}`"]
        cells.append("" if own_scope == scope else _cell(own_scope))
        cells.append("" if own_sources == sources else _cell(own_sources) or "–")
        yield f"| {' | '.join(cells)} |"


def _usual(texts: Sequence[str]) -> str:
    """What more than half of at least four say; else empty."""
    text, count = Counter(texts).most_common(1)[0]
    return text if count > max(2, len(texts) / 2) and len(texts) > 3 else ""


def _cell(text: str) -> str:
    """Text that a table's cell can hold; what stands between backticks is left as it is but for the bar."""
    parts = re.split(r"(`[^`]*`)", text)
    safe = [part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts]
    return "".join(safe).replace("|", "\\|").replace("\n", " ")


def write() -> None:
    """Write every page, and remove those that no symptom has any more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for path in set(FOLDER.glob("*.md")) - set(made):
        path.unlink()
    for path, text in made.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
