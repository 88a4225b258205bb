"""Each model that a launch wants: which nodes have it whole, which lack it, and how it could come there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.model.recipe import Order
from sparktop.operate.launching import fetchways
from sparktop.operate.launching.looked import Model, models_of, own_model
from sparktop.operate.launching.seats import disks, hub
from sparktop.operate.survey import Output, Survey
from sparktop.recipe.models import Disk, Found, Hub
from sparktop.recipe.moremodels import parameter_of
from sparktop.recipe.rendered import Seat


class Wanted:
    """A model, the launch's own unless told otherwise: who has it, who lacks it."""

    def __init__(self, order: Order, seats: Sequence[Seat], survey: Survey, model: Model | None = None) -> None:
        self.order, self.seats, self.survey = order, seats, survey
        self.one = model or own_model(order)
        self.model, self.given = self.one.name, self.one.revision
        self.revision = self.given or "main"
        self.called = f"{self.model}@{self.given[:12]}" if self.given else self.model
        self.disks: Mapping[str, Disk] = disks([seat.node for seat in seats], survey)
        self.found = {node: disk.find(self.model, self.given) for node, disk in self.disks.items()}
        whole = [seat for seat in seats if (one := self.found.get(seat.node)) is not None and one.is_complete]
        self.source: Seat | None = whole[0] if whole else None
        first = self.found[whole[0].node] if whole else None
        # A node that couldn't be asked is no node that lacks it: its gate says that it isn't known.
        self.lacking = tuple(
            seat
            for seat in seats
            if seat.node in self.disks
            and (seat not in whole or (first is not None and self._is_other(self.found[seat.node], first)))
        )

    @staticmethod
    def _is_other(one: Found | None, first: Found) -> bool:
        """Two ranks that hold two states of one branch would answer from different weights."""
        return one is not None and bool(one.revision and first.revision) and one.revision != first.revision

    @property
    def hub(self) -> Hub | None:
        return hub(self.order, [seat.node for seat in self.seats], self.survey, self.one)

    @property
    def remedy(self) -> str:
        """How another is launched in its place."""
        if not self.one.is_more:
            return "--set model=ORG/NAME"
        name = parameter_of(self.order, self.model)
        return f"--set {name}=ORG/NAME" if name else "in the recipe, runtime_config: sparktop: models: - ORG/NAME"

    def user_for(self, target: Seat, source: Seat) -> str:
        """Of the source, where it isn't the same as ssh would take by itself."""
        there = self.survey.privileges(source.node)
        here = self.survey.privileges(target.node)
        return there.user if there is not None and (here is None or there.user != here.user) else ""

    def reach_ask(self, target: Seat, source: Seat) -> Output | None:
        return fetchways.reach_ask(target.node, source.fabric_ip, self.user_for(target, source))

    def why_no_copy(self, target: Seat, source: Seat) -> str:
        """Empty where it can be copied."""
        if not source.fabric_ip or (ask := self.reach_ask(target, source)) is None:
            return f"no address of {source.node} on the link is known"
        if not fetchways.has_rsync(self.survey.value(fetchways.rsync_ask(target.node))):
            return f"{target.node} has no rsync of 3.2.3 or later"
        said = self.survey.value(ask)
        if not fetchways.has_rsync(said):
            why = self.survey.problem(ask)
            return f"{target.node} can't copy from {source.node} by ssh" + (f": {why}" if why else "")
        return ""

    def way(self, seat: Seat) -> fetchways.Way | None:
        """How a node can download it."""
        privileges = self.survey.privileges(seat.node)
        has_docker = privileges is not None and (privileges.docker == "open" or privileges.is_root)
        return fetchways.way_of(self.disks[seat.node], self.survey, has_docker=has_docker)

    def there_bytes(self, seat: Seat) -> int:
        """What a node has of it."""
        found = self.found[seat.node]
        return (found.folder_bytes or found.size_bytes) if found is not None else 0

    @property
    def size_bytes(self) -> int | None:
        """Of the model when it is whole."""
        if self.source is not None and (found := self.found[self.source.node]) is not None:
            return found.size_bytes
        return fetchways.coming_bytes(self.hub)


def all_wanted(order: Order, seats: Sequence[Seat], survey: Survey) -> tuple[Wanted, ...]:
    """Every model that a launch loads, its own first."""
    return tuple(Wanted(order, seats, survey, model) for model in models_of(order))
