"""The pane of one node: memory first, then the GPU, then the host; stale figures are faded and say how old they are."""

from __future__ import annotations

from rich.cells import cell_len
from textual import events
from textual.message import Message

from sparktop.clock import Clock
from sparktop.model.fleet import LinkState, NodeView
from sparktop.ui.commands import bindings
from sparktop.ui.format import gib, percent, watts
from sparktop.ui.panes.link_text import SIGNS
from sparktop.ui.panes.node_lines import node_body
from sparktop.ui.widgets.ink import Line, LineWidget, framed


class NodePane(LineWidget, can_focus=True):
    """One node. On a narrow screen the others stand in its frame's title, and clicking one selects it."""

    BINDINGS = bindings("node")

    class OtherWanted(Message):
        """Another node's name in the frame was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.node_name = name

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(classes="pane")
        self.node_name = name
        self._clock = clock
        self._view: NodeView | None = None
        self._others: tuple[NodeView, ...] = ()

    @property
    def view(self) -> NodeView | None:
        return self._view

    def show(self, view: NodeView, others: tuple[NodeView, ...] = ()) -> None:
        """Show this picture of the node; `others` are the nodes that have no pane on the screen now."""
        if view is self._view and others == self._others:
            return
        self._view, self._others = view, others
        self.redraw()

    def tick(self) -> None:
        """A second has passed: what runs down or grows old is drawn again; a live node's next sample does it anyway."""
        if self._view is not None and self._view.link.state is not LinkState.LIVE:
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self._view
        tone = "frame-focus" if self.has_focus else "frame"
        body = (
            [] if view is None else node_body(view, width=width - 4, height=height - 2, now_s=self._clock.monotonic())
        )
        return framed(
            body,
            width=width,
            height=height,
            title=Line.of((self.node_name, "title")),
            right=Line(tuple(run for tab in self._tabs(width) for run in tab.runs))
            if self._others
            else self._release(),
            tone=tone,
        )

    def _release(self) -> Line:
        view = self._view
        if view is None or view.facts is None:
            return Line()
        gpu = view.first_gpu
        driver = view.facts.driver_version or (gpu.driver_version if gpu else None)
        release = f"DGX OS {view.facts.dgx_release}" if view.facts.dgx_release else view.facts.os_name or ""
        return Line.of((" · ".join(text for text in (release, driver) if text), "quiet"))

    def _tabs(self, width: int) -> list[Line]:
        """The other nodes in a few words each, shorter where there is no room."""
        room = width - 10 - cell_len(self.node_name)
        lines = [Line.of(("│ ", "faint")) + _brief(view) + Line.of(" ") for view in self._others]
        if sum(line.width for line in lines) <= room:
            return lines
        lines = [Line.of(("│ ", "faint")) + _brief(view, short=True) + Line.of(" ") for view in self._others]
        return [line.cut(room // len(lines)) for line in lines]

    def on_click(self, event: events.Click) -> None:
        """In the frame's upper edge another node's words select it; they end three cells before its right corner."""
        if event.y or not self._others:
            return
        width = self.size.width
        tabs = self._tabs(width)
        start = width - 3 - sum(tab.width for tab in tabs)
        for view, tab in zip(self._others, tabs, strict=True):
            if start <= event.x < start + tab.width:
                self.post_message(self.OtherWanted(view.name))
            start += tab.width

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.text())
        self.app.notify(f"{self.node_name}: copied as text", markup=False)


def _brief(view: NodeView, *, short: bool = False) -> Line:
    """Another node in a few words: its link, and its figures while they are of now."""
    glyph, tone = SIGNS[view.link.state]
    line = Line.of((view.name, ""), " ", (glyph, tone))
    if view.link.state is not LinkState.LIVE:
        return line + Line.of((f" {view.link.state}", tone))
    if view.sample is not None:
        line += Line.of((f" {gib(view.sample.memory.available_bytes)} GiB", ""))
    gpu = view.first_gpu
    if gpu is not None and not short:
        line += Line.of((f" {percent(gpu.utilisation_percent)} {watts(gpu.power_w)}", "quiet"))
    return line
