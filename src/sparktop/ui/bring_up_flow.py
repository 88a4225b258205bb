"""What the key B does: look at the Sparks chapter by chapter; ends with a request to plan, or with none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from sparktop.clock import Clock
from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState

if TYPE_CHECKING:
    from sparktop.model.bringup import Chapter, CheckResult, Key
    from sparktop.model.request import Request
    from sparktop.operate.run.operating import Operating


@dataclass(slots=True, kw_only=True)
class BringUpFlow:
    """Opens the page, keeps its rows while the console runs, and what was proven in a file."""

    ask: Callable[[Screen[Any]], Awaitable[Any]]
    picture: Callable[[], FleetState]
    clock: Clock
    kept: Path | None
    """The file of what is proven; None: it is forgotten with the console."""
    rows: dict[Key, CheckResult] = field(default_factory=dict)
    at: Key | None = None
    """The row whose remedy was chosen last."""
    hides_passed: bool = False
    has_acted: bool = False
    """A remedy was planned since the page was open: it may change more rows than its own, so all are looked at again
    but those whose basis is the same."""

    async def choose(self, operating: Operating, *, moves_on: bool) -> Request | None:
        """The request that fixes what the operator chose; None: they left. The page opens at the row that was chosen
        last, or, if it `moves_on`, at the next problem after it."""
        from sparktop.bringup.catalogue import CARDS
        from sparktop.model.bringup import Chapter
        from sparktop.model.request import Request
        from sparktop.ui.screens.bring_up import BringUpScreen

        screen = BringUpScreen(
            self._looking(operating),
            titles={card.id: card.title for card in CARDS},
            hosts=[view.name for view in self.picture().nodes],
            rows=self.rows,
            stale=[card.id for card in CARDS if self.has_acted or card.measured_by or card.chapter is Chapter.ENDPOINT],
            also_proven=not self.has_acted,
            at=self.at,
            moves_on=moves_on,
            hides_passed=self.hides_passed,
            clock=self.clock,
            changes=partial(operating.changes, [view.name for view in self.picture().nodes]),
        )
        answer = await self.ask(screen)
        self.rows, self.hides_passed = screen.rows, screen.hides_passed
        self.at = screen.table.selected.key if answer is not None and screen.table.selected is not None else None
        self.has_acted = answer is not None
        if answer is None:
            return None
        remedy, row = answer
        return Request(action=remedy.action, nodes=row.nodes, target=row.subject, options=dict(remedy.options))

    def _looking(
        self, operating: Operating
    ) -> Callable[[Collection[str], bool], AsyncIterator[tuple[Chapter, tuple[CheckResult, ...]]]]:
        async def looking(
            checks: Collection[str], also_proven: bool
        ) -> AsyncIterator[tuple[Chapter, tuple[CheckResult, ...]]]:
            from sparktop.bringup.catalogue import CARDS
            from sparktop.bringup.kept import ResultFile
            from sparktop.bringup.looking import look

            kept = ResultFile(self.kept) if self.kept is not None else None
            cards = [card for card in CARDS if not checks or card.id in checks]
            proven = kept.read() if kept is not None else {}
            async for chapter, rows in look(
                cards, self.picture, operating.ask, kept=proven, now_wall_s=self.clock.wall, again=also_proven
            ):
                yield chapter, rows
                if kept is not None:
                    kept.keep(rows)

        return looking
