"""What the key L does: choose a recipe, set up its launch, review it; ends with a plan to run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace
from typing import Any

from textual.screen import Screen

from sparktop import faults
from sparktop.clock import Clock
from sparktop.dataclass import dataclass
from sparktop.documents.recipe import Group, RecipeRow, adopted_row, given_row, in_order, recipe_row
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit
from sparktop.model.recipe import Order, Recipe
from sparktop.operate.launch.launches_here import launches_here
from sparktop.operate.run.operating import Operating
from sparktop.operate.step.plan import Plan
from sparktop.recipe import operator_secrets
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.read.shelf import entries, entries_of_file, unreadable_folders
from sparktop.ui.screens.launch import LaunchScreen, Planner
from sparktop.ui.screens.launch_draft import Draft, first_draft
from sparktop.ui.screens.recipes import RecipesScreen


def shelved(fleet: FleetState) -> tuple[RecipeRow, ...]:
    """All recipe files, as the list shows them."""
    return in_order(tuple(map(recipe_row, entries())), fleet)


async def found_here(fleet: FleetState, operating: Operating) -> tuple[RecipeRow, ...]:
    """The containers that run an engine, and the compose files beside them, as the list shows them."""
    found = await launches_here(fleet, operating.ask)
    return tuple(adopted_row(one.adopted, Group.RUNNING if one.is_running else Group.FILES, one.node) for one in found)


def given_rows(files: Sequence[str]) -> tuple[RecipeRow, ...]:
    """What these files launch, as the list shows it."""
    return tuple(given_row(entry) for file in files for entry in entries_of_file(file))


@dataclass(slots=True, kw_only=True)
class LaunchFlow:
    """Leads from the list of recipes to a reviewed plan; keeps this session's drafts and verdicts."""

    ask: Callable[[Screen[Any]], Awaitable[Any]]
    picture: Callable[[], FleetState]
    plan: Planner
    clock: Clock
    here: Callable[[FleetState], Awaitable[tuple[RecipeRow, ...]]]
    """What is there on the nodes to be launched beside recipes."""
    given: tuple[str, ...] = ()
    """Files that the console was started with."""
    shelf: Callable[[FleetState], tuple[RecipeRow, ...]] = shelved
    unread: Callable[[], tuple[str, ...]] = unreadable_folders
    fits: dict[str, Fit] = field(default_factory=dict)
    """Recipe id -> the last verdict on whether it fits."""
    last: str = ""
    """Id of the recipe chosen last."""
    _found: tuple[RecipeRow, ...] | None = field(default=None, repr=False)
    """What is there on the nodes; None: not asked yet since the list was opened."""
    drafts: dict[str, Draft] = field(default_factory=dict, repr=False)
    """Recipe path and id -> what was chosen for its launch, without secrets."""

    async def choose(self, *, at: str, why_not: str) -> Plan | None:
        """The reviewed plan to run, None when the operator left; `at` is the selected node, `why_not` says why nothing
        can be launched (empty: it can)."""
        recipes, unread = await asyncio.to_thread(
            lambda: ((*given_rows(self.given), *self.shelf(self.picture())), self.unread())
        )
        self._found = () if why_not else None
        while True:
            screen = RecipesScreen(
                (*(self._found or ()), *recipes),
                fleet=self.picture(),
                fits=self.fits,
                at=self.last,
                why_not=why_not,
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
            if (plan := await self._launch(draft, row.adopted)) is not None:
                return plan

    async def _look(self, screen: RecipesScreen) -> None:
        """Add what is there on the nodes to the list, once they have told."""
        if self._found is None:
            try:
                self._found = await self.here(self.picture())
            except Exception as error:  # noqa: BLE001 - the recipes are listed all the same
                screen.say(faults.report("the list of what runs here", error))
            screen.add(self._found or ())

    async def anew(self, order: Order, nodes: tuple[str, ...]) -> Plan | None:
        """Open the launch of an earlier order again; the reviewed plan to run, or None."""
        stops = {engine: True for _, engine in order.stops}
        return await self._launch(Draft(order=order, nodes=nodes, decided=stops))

    def _earlier_draft(self, recipe: Recipe) -> Draft | None:
        """The earlier draft of this recipe, with the recipe file as it is now; None where it doesn't apply any more."""
        draft = self.drafts.get(f"{recipe.path}#{recipe.id}")
        fits = draft is not None and recipe.min_nodes <= len(draft.nodes) <= (recipe.max_nodes or len(draft.nodes))
        return replace(draft, order=replace(draft.order, recipe=recipe)) if draft is not None and fits else None

    async def _launch(self, draft: Draft, adopted: Adopted | None = None) -> Plan | None:
        """`adopted`: the launch of somebody else's that it is, with its secrets."""
        secrets = await asyncio.to_thread(operator_secrets.read_secrets, draft.recipe)
        if adopted is not None:
            secrets = adopted.secrets_over(secrets)
        order = replace(draft.order, secrets=secrets.values, secret_problems=secrets.problems)
        if hub := os.environ.get("HF_ENDPOINT", "").rstrip("/"):
            order = replace(order, hub=hub)
        draft = replace(draft, order=order)
        screen = LaunchScreen(
            draft,
            plan=self.plan,
            picture=self.picture,
            clock=self.clock,
            secrets=secrets.sources,
        )
        plan: Plan | None = await self.ask(screen)
        draft, answer = screen.draft, screen.answer
        # The draft stays for another try; after a launch what to stop is decided again, as other engines may run then.
        decided = draft.decided if plan is None else {}
        order = replace(draft.order, secrets={})
        self.drafts[f"{draft.recipe.path}#{draft.recipe.id}"] = replace(draft, order=order, decided=decided)
        if plan is not None:
            self.fits.clear()  # the launch changes the nodes that the verdicts are about
        elif answer is not None and answer.prospect is not None and answer.prospect.budget is not None:
            self.fits[draft.recipe.id] = answer.prospect.budget.fit
        return plan
