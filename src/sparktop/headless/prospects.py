"""What a launch would find, as data and as plain words: budget, gates, what is on disk, what is fetched. Masked."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from sparktop.model.prospect import Budget, Gate, GateState, NodeBudget, OnDisk, Prospect, Slice
from sparktop.operate.wording import masked
from sparktop.recipe.picture import lines as drawn

GATE_MARKS = {GateState.PASSED: "✓", GateState.WARNED: "▲", GateState.FAILED: "✖", GateState.UNKNOWN: "?"}
WIDEST = 100
GB = 10**9
DISKS_AT_MOST = 8


def prospect_data(prospect: Prospect, secrets: Sequence[str] = ()) -> dict[str, Any]:
    """JSON-ready; sizes in bytes."""

    def said(text: str) -> str:
        return masked(text, secrets)

    return {
        "recipe": prospect.recipe_id,
        "title": said(prospect.title),
        "nodes": list(prospect.nodes),
        "values": {name: said(value) for name, value in prospect.values.items()},
        "budget": _budget(prospect.budget, secrets) if prospect.budget is not None else None,
        "gates": [
            {
                "name": one.name,
                "node": one.node or None,
                "state": str(one.state),
                "detail": said(one.detail),
                "remedy": said(one.remedy) or None,
            }
            for one in prospect.gates
        ],
        "on_disk": [
            {
                "name": said(one.name),
                "path": said(one.path),
                "nodes": list(one.nodes),
                "size_bytes": one.size_bytes,
                "quantisation": one.quantisation or None,
                "is_complete": one.is_complete,
                "is_wanted": one.is_wanted,
                "note": said(one.note) or None,
            }
            for one in prospect.on_disk
        ],
        "fetches": [said(one) for one in prospect.fetches],
        "risks": [said(one) for one in prospect.risks],
    }


def _budget(budget: Budget, secrets: Sequence[str]) -> dict[str, Any]:
    return {
        "fit": str(budget.fit),
        "sentence": masked(budget.sentence, secrets),
        "share": budget.share,
        "share_source": budget.share_source or None,
        "context_tokens": budget.context_tokens,
        "cache_tokens": budget.cache_tokens,
        "levers": [masked(one, secrets) for one in budget.levers],
        "unknowns": [masked(one, secrets) for one in budget.unknowns],
        "nodes": [_node(one) for one in budget.nodes],
    }


def _node(node: NodeBudget) -> dict[str, Any]:
    def slices(found: Sequence[Slice]) -> list[dict[str, Any]]:
        return [{"kind": str(one.kind), "label": masked(one.label), "size_bytes": one.size_bytes} for one in found]

    return {
        "node": node.node,
        "fit": str(node.fit),
        "sentence": masked(node.sentence),
        "total_bytes": node.total_bytes,
        "available_bytes": node.available_bytes,
        "left_bytes": node.left_bytes,
        "before": slices(node.before),
        "after": slices(node.after),
    }


def prospect_text(prospect: Prospect, secrets: Sequence[str] = ()) -> list[str]:
    """For a terminal, a heading before each part."""
    out: list[str] = []
    if prospect.budget is not None:
        out += ["", "memory", *(f"  {masked(line, secrets)}".rstrip() for line in drawn(prospect.budget, width() - 2))]
    if prospect.on_disk:
        out += ["", "on disk", *_disks(prospect.on_disk, secrets)]
    if prospect.fetches:
        out += ["", "to be fetched"]
        out += [line for one in prospect.fetches for line in prose(masked(one, secrets), 2)]
    if prospect.gates:
        out += ["", "gates", *(line for gate in prospect.gates for line in _gate(gate, secrets))]
    return out


def _disks(found: Sequence[OnDisk], secrets: Sequence[str]) -> Iterator[str]:
    for one in found[:DISKS_AT_MOST]:
        size = f"{one.size_bytes / GB:.1f} GB"
        kind = f", {one.quantisation}" if one.quantisation else ""
        mark = "✓" if one.is_wanted and one.is_complete else " "
        yield from prose(f"{mark} {masked(one.name, secrets)} ({size}{kind}): {masked(one.note, secrets)}", 2)
    if len(found) > DISKS_AT_MOST:
        yield f"    and {len(found) - DISKS_AT_MOST} more"


def _gate(gate: Gate, secrets: Sequence[str]) -> Iterator[str]:
    where = f" on {gate.node}" if gate.node else ""
    yield from prose(f"{GATE_MARKS[gate.state]} {gate.name}{where}: {masked(gate.detail, secrets)}", 2)
    if gate.remedy and gate.state is not GateState.PASSED:
        yield f"      → {masked(gate.remedy, secrets)}"


def width() -> int:
    """Columns that a line may have: a terminal that is narrower would break in the middle of words."""
    return max(40, min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDEST)


def prose(text: str, indent: int) -> list[str]:
    """Wrapped, what follows the first line indented; words are never broken."""
    return textwrap.wrap(
        text, width(), initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
