"""What the key L does: choose a recipe, set up its launch, review it; ends with a plan to run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from sparktop import faults
from sparktop.clock import Clock
from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState

if TYPE_CHECKING:
    from sparktop.documents.recipe import RecipeRow
    from sparktop.model.prospect import Fit
    from sparktop.model.recipe import Order, Recipe
    from sparktop.operate.run.operating import Operating
    from sparktop.operate.step.plan import Plan
    from sparktop.ui.screens.launch_draft import Draft
    from sparktop.ui.screens.launch_planning import Planner
    from sparktop.ui.screens.recipes import RecipesScreen


async def _nothing_here(fleet: FleetState) -> tuple[RecipeRow, ...]:
    return ()


@dataclass(slots=True, kw_only=True)
class LaunchFlow:
    """Leads from the list of recipes to a reviewed plan; keeps this session's drafts and verdicts."""

    ask: Callable[[Screen[Any]], Awaitable[Any]]
    picture: Callable[[], FleetState]
    plan: Planner
    clock: Clock
    shelf: Callable[[FleetState], tuple[RecipeRow, ...]] = lambda fleet: shelved(fleet)
    unread: Callable[[], tuple[str, ...]] = lambda: unread_folders()
    here: Callable[[FleetState], Awaitable[tuple[RecipeRow, ...]]] = _nothing_here
    """What is there on the nodes to be launched beside recipes."""
    fits: dict[str, Fit] = field(default_factory=dict)
    """Recipe id -> the last verdict on whether it fits."""
    last: str = ""
    """Id of the recipe chosen last."""
    _found: tuple[RecipeRow, ...] | None = field(default=None, repr=False)
    """What is there on the nodes; None: not asked yet since the list was opened."""
    drafts: dict[str, Draft] = field(default_factory=dict, repr=False)
    """Recipe path and id -> what was chosen for its launch, without secrets."""

    async def choose(self, *, at: str, is_read_only: bool) -> Plan | None:
        """The reviewed plan to run, None when the operator left; `at` is the selected node."""
        from sparktop.ui.screens.launch_draft import first_draft
        from sparktop.ui.screens.recipes import RecipesScreen

        recipes, unread = await asyncio.to_thread(lambda: (self.shelf(self.picture()), self.unread()))
        self._found = () if is_read_only else None
        while True:
            screen = RecipesScreen(
                (*(self._found or ()), *recipes),
                fleet=self.picture(),
                fits=self.fits,
                at=self.last,
                is_read_only=is_read_only,
                unread=unread,
            )
            looking = asyncio.ensure_future(self._look(screen))
            row: RecipeRow | None = await self.ask(screen)
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            if row is None or row.recipe is None:
                return None
            self.last = row.id
            draft = self._earlier_draft(row.recipe) or first_draft(row.recipe, self.picture(), at=row.node or at)
            if (plan := await self._launch(draft, row.secrets)) is not None:
                return plan

    async def _look(self, screen: RecipesScreen) -> None:
        """Add what is there on the nodes to the list, once they have told."""
        if self._found is None:
            try:
                self._found = await self.here(self.picture())
            except Exception as error:  # noqa: BLE001 - the recipes are listed all the same
                screen.say(faults.named("the list of what runs here", error))
            screen.add(self._found or ())

    async def anew(self, order: Order, nodes: tuple[str, ...]) -> Plan | None:
        """Open the launch of an earlier order again; the reviewed plan to run, or None."""
        from sparktop.ui.screens.launch_draft import Draft

        stops = {engine: True for _, engine in order.stops}
        return await self._launch(Draft(recipe=order.recipe, nodes=nodes, values=order.values, decided=stops))

    def _earlier_draft(self, recipe: Recipe) -> Draft | None:
        """The earlier draft of this recipe, with the recipe file as it is now; None where it doesn't apply any more."""
        draft = self.drafts.get(f"{recipe.path}#{recipe.id}")
        fits = draft is not None and recipe.min_nodes <= len(draft.nodes) <= (recipe.max_nodes or len(draft.nodes))
        return replace(draft, recipe=recipe) if draft is not None and fits else None

    async def _launch(self, draft: Draft, held: Mapping[str, str] = MappingProxyType({})) -> Plan | None:
        """`held`: secrets that what is launched has; the operator's own win."""
        from sparktop.recipe import operator_secrets
        from sparktop.ui.screens.launch import LaunchScreen

        secrets = await asyncio.to_thread(operator_secrets.read_secrets, draft.recipe)
        draft = replace(
            draft,
            secrets={**held, **secrets.values},
            secret_problems=secrets.problems,
            hub=os.environ.get("HF_ENDPOINT", "").rstrip("/"),
        )
        screen = LaunchScreen(
            draft,
            plan=self.plan,
            picture=self.picture,
            clock=self.clock,
            secrets=secrets.sources,
        )
        plan: Plan | None = await self.ask(screen)
        draft, answer = screen.draft, screen.planning.answer
        # The draft stays for another try; after a launch what to stop is decided again, as other engines may run then.
        decided = draft.decided if plan is None else {}
        self.drafts[f"{draft.recipe.path}#{draft.recipe.id}"] = replace(draft, secrets={}, decided=decided)
        if plan is not None:
            self.fits.clear()  # the launch changes the nodes that the verdicts are about
        elif answer is not None and answer.prospect is not None and answer.prospect.budget is not None:
            self.fits[draft.recipe.id] = answer.prospect.budget.fit
        return plan


async def found_here(fleet: FleetState, operating: Operating) -> tuple[RecipeRow, ...]:
    """The containers that run an engine, and the compose files beside them, as the list shows them."""
    from sparktop.documents.recipe import Group, adopted_row
    from sparktop.operate.launch.launches_here import launches_here

    found = await launches_here(fleet, operating.ask)
    return tuple(adopted_row(one.adopted, Group.RUNNING if one.is_running else Group.FILES, one.node) for one in found)


def shelved(fleet: FleetState) -> tuple[RecipeRow, ...]:
    """All recipe files, as the list shows them."""
    from sparktop.documents.recipe import in_order, recipe_row
    from sparktop.recipe.read import shelf

    return in_order(tuple(map(recipe_row, shelf.entries())), fleet)


def unread_folders() -> tuple[str, ...]:
    """Recipe folders that can't be read, each with the reason."""
    from sparktop.recipe.read import shelf

    return shelf.unreadable_folders()
