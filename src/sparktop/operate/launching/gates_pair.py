"""Gates of two nodes that are to be one: as much memory on each, and the same software. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.fleet import NodeView
from sparktop.model.prospect import Gate, SliceKind
from sparktop.operate.launching.gates_node import loaded_driver
from sparktop.operate.launching.looked import GIB, Looked, passed, unknown, warned

_UPDATE = "update the older node in the DGX Dashboard (localhost:11000), then: sparktop act reboot {}"


def gates(looked: Looked) -> Iterator[Gate]:
    """equal-memory and same-driver; nothing on one node."""
    if len(looked.nodes) == 2:
        yield _memory(looked)
        yield _software(looked)


def _memory(looked: Looked) -> Gate:
    """Available, with what is agreed to be stopped (facts/engines.md MEM-09)."""
    sizes: dict[str, float] = {}
    for node in looked.nodes:
        view = looked.view(node)
        if view is None or view.sample is None:
            return unknown("equal-memory", "", f"how much memory {node} has available is not known yet")
        sizes[node] = (view.sample.memory.available_bytes + _going(looked, node)) / GIB
    poorer, richer = sorted(sizes, key=lambda node: sizes[node])
    apart, limit = sizes[richer] - sizes[poorer], looked.order.recipe.requires.equal_memory_gib
    each = ", ".join(f"{size:.1f} GiB on {node}" for node, size in sizes.items())
    if apart <= limit:
        return passed("equal-memory", "", f"{each} available, {apart:.1f} apart")
    return warned(
        "equal-memory",
        "",
        f"{each} available: {apart:.1f} GiB apart, more than {limit:g}; the share is that of the poorer, and one rank "
        "loads later than the other",
        f"sparktop act drop-caches {poorer}; or stop what runs beside it on {poorer}: --stop ENGINE",
    )


def _going(looked: Looked, node: str) -> int:
    budget = next((one for one in looked.budget.nodes if one.node == node), None) if looked.budget else None
    return sum(part.size_bytes for part in budget.before if part.kind is SliceKind.GOING) if budget else 0


def _software(looked: Looked) -> Gate:
    views = [view for node in looked.nodes if (view := looked.view(node)) is not None and view.facts is not None]
    if len(views) < 2:
        known = {view.name for view in views}
        return unknown("same-driver", "", f"nothing is known of {next(n for n in looked.nodes if n not in known)} yet")
    told = {
        "driver": [loaded_driver(view) for view in views],
        "kernel": [_kernel(view) for view in views],
        "DGX OS": [_release(view) for view in views],
    }
    unread = [what for what, values in told.items() if not all(values) and what == "driver"]
    differ = {what: values for what, values in told.items() if all(values) and len(set(values)) > 1}
    said = "; ".join(
        f"{what} {' and '.join(f'{value} on {view.name}' for value, view in zip(values, views, strict=True))}"
        for what, values in differ.items()
    )
    if "driver" in differ or "kernel" in differ:
        older = min(views, key=lambda view: _numbers(loaded_driver(view), _kernel(view)))
        return warned("same-driver", "", f"{said}: each brings its own faults", _UPDATE.format(older.name))
    if unread:
        return unknown("same-driver", "", "which driver each has is not known")
    alike = ", ".join(f"{what} {values[0]}" for what, values in told.items() if values[0] and what not in differ)
    return passed("same-driver", "", f"{alike} on both{f'; {said}, which harms nothing by itself' if said else ''}")


def _kernel(view: NodeView) -> str:
    return view.facts.kernel if view.facts else ""


def _release(view: NodeView) -> str:
    return (view.facts.dgx_release or "") if view.facts else ""


def _numbers(*texts: str) -> list[list[int]]:
    return [[int(part) for part in text.replace("-", ".").split(".") if part.isdecimal()] for text in texts]
