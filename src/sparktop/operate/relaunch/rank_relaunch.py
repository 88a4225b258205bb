"""One rank that comes up with a change: what every kind of relaunch has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.cmdline.engine_flag_edits import FlagChange
from sparktop.dataclass import dataclass
from sparktop.model.request import Request
from sparktop.operate.container import lifecycle
from sparktop.operate.plan.running_starter import RunningStarter
from sparktop.operate.plan.start_steps import with_rollback
from sparktop.operate.relaunch import relaunch_text
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.operate.secrets.masking import secrets_of
from sparktop.operate.step.plan import Difference, Step
from sparktop.text.units import span


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRelaunch(RunningStarter):
    """A rank with its change; subclasses say how it is written and started."""

    rank_change: RankChange
    flags: tuple[FlagChange, ...] = ()
    """Changed flags of the engine."""

    @property
    def api_key(self) -> str:
        change, container = self.rank_change.change, self.rank.container
        key = change.flags.get("--api-key") or change.environment.get("VLLM_API_KEY")
        return key or (container.api_key if container is not None else "")

    @property
    def evidence_name(self) -> str:
        """The name under which evidence of it is collected."""
        return self.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the new container."""
        return {}

    @property
    def policy(self) -> Mapping[str, Any]:
        """Restart policy of the new container, set once it has served; empty: that is another's task."""
        return {}

    @property
    def is_made_again(self) -> bool:
        """Whether it may be relaunched without a change, as nothing else can start it again."""
        return False

    def guard_load(self) -> Iterator[Step]:
        yield from self._guard(serving=False)

    def await_ready(self) -> Iterator[Step]:
        yield with_rollback(self._ready())

    def on_ready(self) -> Iterator[Step]:
        if lifecycle.is_policy(self.policy):
            yield lifecycle.policy_on(self.node, self.mark, self.new_name, self.policy)

    def remove_old(self) -> Iterator[Step]:
        """At the very end, where the operator asked for it."""
        yield from ()

    # what the review says

    def differences(self) -> Iterator[Difference]:
        """What the change makes different from the running engine."""
        yield from relaunch_text.change_differences(self.rank_change, self.flags)

    def file_differences(self) -> Iterator[Difference]:
        """Lines of the file that the change is written to."""
        yield from ()

    def with_labels(self, ranks: Sequence[RankRelaunch], differences: Sequence[Difference]) -> RankRelaunch:
        """The same, its labels updated for the change on all ranks."""
        return self

    def effect(self, request: Request, others: Sequence[RankRelaunch] = ()) -> str:
        """What the review says will happen; `others` are relaunched with it."""
        took = f" Its last load took {span(self.load_s)}." if self.load_s is not None else ""
        until, kept = self._until(), self._what_stays(request, others)
        return f"{self.name} is down until {until}.{took}{relaunch_text.proof(request)} {kept}."

    def _until(self) -> str:
        return "the new one has loaded"

    def _what_stays(self, request: Request, others: Sequence[RankRelaunch]) -> str:
        raise NotImplementedError

    def warnings(self) -> Iterator[str]:
        """What is lost, and what else takes effect."""
        yield from self.rank_change.notes

    @property
    def is_sudo_lasting(self) -> bool:
        """Whether the lines for sudo are worth showing: they would apply again."""
        return True

    def typed_start(self) -> Iterator[str]:
        """What starts it with the change, by hand."""
        raise NotImplementedError

    def secrets(self) -> Iterator[str]:
        """Exact values that must never be shown."""
        yield from secrets_of(self.rank_change.config, self.rank_change.change.environment)
