"""The inference servers of all nodes as a table with one selected row, and what is known of that one."""

from __future__ import annotations

from textual import events
from textual.message import Message

from sparktop.model.engine import Engine
from sparktop.model.fleet import FleetState, LinkState
from sparktop.recipe.labels import starter_words
from sparktop.ui.commands import bindings
from sparktop.ui.format import clock_time, count, latency, size, speed
from sparktop.ui.panes.engine_columns import Row, choose, heading, no_figures, stall_of, table_row
from sparktop.ui.widgets.ink import BLANK, Line, LineWidget, wrapped

MAX_DETAIL_LINES = 12


class EnginePane(LineWidget, can_focus=True):
    """A heading, a row an engine, and below them the selected engine's details when they are open."""

    BINDINGS = bindings("engines")

    class Selected(Message):
        """Another engine is the selected one now; `node` and `key` are empty when there is none."""

        def __init__(self, node: str, key: str) -> None:
            super().__init__()
            self.node = node
            self.key = key

    class DetailsWanted(Message):
        """The operator opened or closed the details."""

    def __init__(self) -> None:
        super().__init__(id="engines")
        self._fleet = FleetState()
        self._rows: tuple[Row, ...] = ()
        self._selected = 0
        self._top = 0
        self._details = False

    @property
    def selected(self) -> Row | None:
        """The row the cursor is on."""
        return self._rows[self._selected] if self._rows else None

    @property
    def wanted_lines(self) -> int:
        """Heading and rows, without details."""
        return 1 + max(1, len(self._rows))

    def detail_lines(self, width: int) -> int:
        """How many lines the selected engine's details want in a pane of this width."""
        return min(MAX_DETAIL_LINES, len(details(self.selected.engine, width - 4))) if self.selected else 0

    def set_details(self, is_open: bool) -> None:
        """Open or close the selected engine's details."""
        if is_open != self._details:
            self._details = is_open
            self.redraw()

    def show(self, fleet: FleetState) -> None:
        """Show the engines of this picture; the cursor stays on its engine."""
        before = self.selected
        self._fleet = fleet
        self._rows = tuple(
            Row(
                node=view.name,
                engine=engine,
                is_old=view.link.state in (LinkState.LOST, LinkState.REFUSED),
                stalled=stall_of(engine, view.name, fleet.findings),
            )
            for view in fleet.nodes
            for engine in view.engines
        )
        self._selected = self._find(before)
        self._tell(before)
        self.redraw()

    def _find(self, before: Row | None) -> int:
        if before is None or not self._rows:
            return 0
        same = [i for i, row in enumerate(self._rows) if (row.node, row.engine.key) == (before.node, before.engine.key)]
        heir = [
            i for i, row in enumerate(self._rows) if (row.node, row.engine.name) == (before.node, before.engine.name)
        ]
        return (same or heir or [min(self._selected, len(self._rows) - 1)])[0]

    def _tell(self, before: Row | None) -> None:
        now = self.selected
        was = (before.node, before.engine.key) if before else None
        if (now and (now.node, now.engine.key)) != was:
            self.post_message(self.Selected(now.node if now else "", now.engine.key if now else ""))

    def find(self, node: str, name: str) -> bool:
        """Put the cursor on an engine by its name; False where there is none."""
        at = next((i for i, row in enumerate(self._rows) if (row.node, row.engine.name) == (node, name)), None)
        if at is not None:
            self.select(at)
        return at is not None

    def select(self, index: int) -> None:
        """Put the cursor on a row, as far as there is one."""
        before = self.selected
        self._selected = max(0, min(len(self._rows) - 1, index))
        self._tell(before)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        inner = width - 2
        if not self._rows:
            return [self._nothing(inner), *([BLANK] * (height - 1))]
        columns = choose(self._rows, inner, nodes=len(self._fleet.nodes))
        room = min(len(self._rows), max(1, height - 1 - (min(4, height // 2) if self._details else 0)))
        self._top = max(0, min(self._top, self._selected, len(self._rows) - room))
        self._top = max(self._top, self._selected - room + 1)
        lines = [Line.of(" ") + heading(columns, len(self._rows) - room)]
        for index in range(self._top, self._top + room):
            line = Line.of(" ") + table_row(self._rows[index], columns)
            lines.append(self._cursor(line, width) if index == self._selected else line)
        if self._details and (row := self.selected):
            lines += [Line.of("   ") + line for line in details(row.engine, width - 4)]
        return lines[:height]

    def _cursor(self, line: Line, width: int) -> Line:
        """The selected row: a mark at its left edge, and while the pane has the focus a background as well."""
        mark = Line.of(("▌", "frame-focus" if self.has_focus else "frame"))
        rest = Line((("", ""), *line.runs)).fit(width)
        body = Line(((rest.runs[1][0][1:], rest.runs[1][1]), *rest.runs[2:]))
        return mark + (body.on("cursor") if self.has_focus else body)

    def _nothing(self, width: int) -> Line:
        blind = [view for view in self._fleet.nodes if view.sample is not None and not view.containers.available]
        text = " no inference server found: L launches one"
        if not self._fleet.nodes or all(view.sample is None for view in self._fleet.nodes):
            return Line.of((" engines: waiting for the nodes", "quiet"))
        if blind:
            reason = blind[0].containers.detail
            text += f"; containers of {', '.join(view.name for view in blind)} can't be read: {reason}"
        return Line.of((text, "quiet")).cut(width)

    def on_click(self, event: events.Click) -> None:
        index = self._top + event.y - 1
        if event.y >= 1 and index < len(self._rows):
            was = self._selected
            self.select(index)
            if was == index and event.chain == 2:
                self.action_open()

    def action_down(self) -> None:
        self.select(self._selected + 1)

    def action_up(self) -> None:
        self.select(self._selected - 1)

    def action_first(self) -> None:
        self.select(0)

    def action_last(self) -> None:
        self.select(len(self._rows) - 1)

    def action_open(self) -> None:
        self.post_message(self.DetailsWanted())

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.text())
        self.app.notify("engines: copied as text", markup=False)


def details(engine: Engine, width: int) -> list[Line]:
    """All that is known of one engine: image, container, endpoint, command line, latencies."""
    box = engine.container
    pairs: list[tuple[str, str]] = [
        ("engine", " · ".join(text for text in (f"{engine.kind} {engine.version or ''}".strip(), engine.model) if text))
    ]
    if box is not None:
        image = box.image + (f"  ({box.image_id[:19]})" if box.image_id else "")
        pairs += [("image", image), ("container", _container(engine))]
        if starter := starter_words(box.labels):
            pairs.append(("started by", starter))
    elif engine.pids:
        pairs.append(("process", f"pid {', '.join(map(str, engine.pids[:6]))}, in no container that can be read"))
    if engine.endpoint is not None:
        where = f"http://{engine.endpoint.host}:{engine.endpoint.port}  {engine.endpoint.state}"
        pairs.append(("endpoint", where + (f": {engine.endpoint.detail}" if engine.endpoint.detail else "")))
    elif why := no_figures(engine):
        pairs.append(("endpoint", why))
    argv = engine.argv or (box.argv if box else ())
    if argv:
        pairs.append(("command", " ".join(argv)))
    if engine.rates is not None:
        pairs.append(("figures", _figures(engine)))
    if engine.exit_detail:
        pairs.append(("ended", engine.exit_detail))
    lines: list[Line] = []
    for label, text in pairs:
        parts = wrapped(text, max(8, width - 11), "", 4)
        lines += [
            Line.of(((label if index == 0 else "").ljust(11), "quiet")) + part for index, part in enumerate(parts)
        ]
    return lines


def _container(engine: Engine) -> str:
    box = engine.container
    assert box is not None
    parts = [box.name, box.container_id[:12], "removed" if box.is_gone else box.status]
    if box.exit_code is not None and box.status == "exited":
        parts.append(f"exit code {box.exit_code}")
    if box.oom_killed:
        parts.append("killed by the kernel for memory")
    if box.started_wall_s is not None:
        parts.append(f"started {clock_time(box.started_wall_s)}")
    parts.append(f"restart policy {box.restart_policy or 'none'}, {box.restart_count} restarts")
    if box.network_mode:
        parts.append(f"network {box.network_mode}")
    if box.auto_remove:
        parts.append("removed when it ends (--rm)")
    return " · ".join(part for part in parts if part)


def _figures(engine: Engine) -> str:
    rates, metrics = engine.rates, engine.metrics
    assert rates is not None
    span = "since it started" if rates.lifetime_latency else "lately"
    parts = [
        f"{speed(rates.generation_tokens_per_s)} tok/s out, {speed(rates.prompt_tokens_per_s)} tok/s in",
        f"first token {latency(rates.ttft_p50_s)}, between tokens {latency(rates.itl_p50_s)} ({span}, median)",
    ]
    if metrics is not None:
        parts.append(f"{count(metrics.preemptions)} preemptions")
    if engine.gpu_bytes is not None:
        parts.append(f"{size(engine.gpu_bytes)} of GPU memory")
    return " · ".join(parts)
