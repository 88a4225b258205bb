"""From `L` to a plan that is to be run: the list of recipes, the launch that is chosen, its review."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from sparktop.clock import Clock
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan
from sparktop.model.prospect import Fit
from sparktop.model.recipe import Order, Recipe

if TYPE_CHECKING:
    from sparktop.recipe.problems import Problem
    from sparktop.ui.panes.recipe_rows import Shelved
    from sparktop.ui.screens.launch import LaunchScreen
    from sparktop.ui.screens.launch_draft import Draft
    from sparktop.ui.screens.launch_planning import Answering


@dataclass(slots=True, kw_only=True)
class Launching:
    """What the key L does; what was seen of recipes in this session is remembered."""

    ask: Callable[[Screen[Any]], Awaitable[Any]]
    picture: Callable[[], FleetState]
    plan: Answering
    clock: Clock
    shelf: Callable[[], tuple[Shelved, ...]] = lambda: shelved()
    unread: Callable[[], tuple[str, ...]] = lambda: unread_folders()
    fits: dict[str, Fit] = field(default_factory=dict)
    """By recipe id: the last verdict."""
    last: str = ""
    drafts: dict[str, Draft] = field(default_factory=dict, repr=False)
    """What was chosen of a recipe; no secret is kept."""

    async def choose(self, *, at: str, is_read_only: bool) -> Plan | None:
        """The plan that was reviewed and is to be run; `at` is the node where the operator is."""
        from sparktop.ui.screens.launch_draft import begun
        from sparktop.ui.screens.recipes import RecipesScreen

        known, lacking = await asyncio.to_thread(lambda: (self.shelf(), self.unread()))
        while True:
            recipe: Recipe | None = await self.ask(
                RecipesScreen(
                    known,
                    fleet=self.picture(),
                    fits=self.fits,
                    at=self.last,
                    is_read_only=is_read_only,
                    unread=lacking,
                )
            )
            if recipe is None:
                return None
            self.last = recipe.id
            draft = self._kept(recipe) or begun(recipe, self.picture(), at=at)
            if (plan := await self._launch(draft)) is not None:
                return plan

    async def anew(self, order: Order, nodes: tuple[str, ...]) -> Plan | None:
        """The same order again, to be changed or reviewed."""
        from sparktop.ui.screens.launch_draft import Draft

        stops = {engine: True for _, engine in order.stops}
        return await self._launch(Draft(recipe=order.recipe, nodes=nodes, values=order.values, decided=stops))

    def _kept(self, recipe: Recipe) -> Draft | None:
        """What was chosen of it before, of the file as it is now: it may have been mended since."""
        kept = self.drafts.get(recipe.path)
        fits = kept is not None and recipe.min_nodes <= len(kept.nodes) <= (recipe.max_nodes or len(kept.nodes))
        return replace(kept, recipe=recipe) if kept is not None and fits else None

    async def _launch(self, draft: Draft) -> Plan | None:
        from sparktop.recipe import ownsecrets
        from sparktop.ui.screens.launch import LaunchScreen

        found = await asyncio.to_thread(ownsecrets.held, draft.recipe)
        draft = replace(
            draft,
            secrets=dict(found.values),
            secret_problems=found.problems,
            hub=os.environ.get("HF_ENDPOINT", "").rstrip("/"),
        )
        screen = LaunchScreen(
            draft,
            plan=self.plan,
            picture=self.picture,
            clock=self.clock,
            secrets=found.sources,
        )
        plan: Plan | None = await self.ask(screen)
        self._remember(screen)
        if plan is not None:
            kept = self.drafts[draft.recipe.path]  # a launch that fails is tried again; what runs then is asked anew
            self.drafts[draft.recipe.path] = replace(kept, decided={})
            self.fits.clear()  # the nodes will not be as they were when it was looked at
        return plan

    def _remember(self, screen: LaunchScreen) -> None:
        draft, answer = screen.draft, screen.planning.answer
        self.drafts[draft.recipe.path] = replace(draft, secrets={})
        if answer is not None and answer.prospect is not None and answer.prospect.budget is not None:
            self.fits[draft.recipe.id] = answer.prospect.budget.fit


def shelved() -> tuple[Shelved, ...]:
    """What is on the shelf, as the list shows it."""
    from sparktop.recipe import shelf
    from sparktop.ui.panes.recipe_rows import Shelved

    return tuple(
        Shelved(
            id=one.id,
            path=one.path,
            origin="shipped" if one.origin is shelf.Origin.SHIPPED else "yours",
            recipe=one.recipe,
            problems=tuple(_at_its_line(problem) for problem in one.reading.problems if problem.is_error),
            notes=(
                *((f"it stands in for {one.covers}",) if one.covers else ()),
                *(_at_its_line(problem) for problem in one.reading.problems if not problem.is_error),
            ),
        )
        for one in shelf.entries()
    )


def unread_folders() -> tuple[str, ...]:
    """Folders of recipes that can't be looked into, and why."""
    from sparktop.recipe import shelf

    return shelf.unread()


def _at_its_line(problem: Problem) -> str:
    """Named by the file alone: its folder stands in the detail."""
    return str(replace(problem, file=Path(problem.file).name))
