"""What earlier runs still owe a container or a node: the restart policy, the run and the guard that they took from it.

By the audit, run after run: a step that took something owes it until a later step, or a later run, has given it back.
A run that was done owes nothing of what it was to change: what is off then is meant to be off. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.model.engine import RESTARTING_POLICIES
from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.operation import DockerCall
from sparktop.model.survey import Survey, Unrestored
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit.interrupted_runs import FORGOTTEN_S
from sparktop.operate.audit.plan_codec import decoded_steps
from sparktop.operate.audit_file import NEW, STOPPING_ACTIONS, container_call
from sparktop.operate.container.inspected import inspected
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import RunState
from sparktop.operate.step.step_result import StepState
from sparktop.sanitise import items, line, mapping, name

_ID = re.compile(r"[0-9a-f]{64}")
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligations:
    """What is owed, as far as the audit tells."""

    containers: Mapping[str, Unrestored]
    """By container id."""
    guards: Mapping[str, GuardOrder]
    """By node: the guard that was armed there before."""


def obligations(entries: Sequence[Entry], *, is_under_way: Callable[[str], bool], now_wall_s: float) -> Obligations:
    """What the runs of these entries owe, oldest run first."""
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        if isinstance(run_id := entry.get("run"), str):
            runs.setdefault(run_id, []).append(entry)
    containers: dict[str, Unrestored] = {}
    guards: dict[str, GuardOrder] = {}
    for run_id, run_entries in runs.items():
        intent = next((entry for entry in run_entries if entry["kind"] == "intent"), None)
        is_old = now_wall_s - run_entries[-1]["wall_s"] >= FORGOTTEN_S
        if intent is not None and not is_old and not is_under_way(run_id):
            run = _AuditedRun(intent, run_entries)
            run.settle_containers(containers)
            run.settle_guards(guards)
    owed = {key: value for key, value in containers.items() if value.policy or value.was_running}
    return Obligations(containers=owed, guards=guards)


def guards_to_restore(owed: Obligations, picture: FleetState) -> Mapping[str, GuardState]:
    """The owed guards whose container is still there, on nodes where no guard is armed now."""
    guards: dict[str, GuardState] = {}
    for node, order in owed.guards.items():
        view = picture.node(node)
        is_armed = view is not None and view.guard is not None and view.guard.phase is GuardPhase.ARMED
        listed = view.containers.containers if view is not None and not is_armed else ()
        if any(container.container_id == order.container_id for container in listed):
            guards[node] = GuardState(
                phase=GuardPhase.ARMED,
                container_id=order.container_id,
                container_name=order.container_name,
                floor_bytes=order.floor_bytes,
                empty_within_s=order.empty_within_s,
                stay_s=order.stay_s,
            )
    return guards


def owed_notes(plan: Plan, survey: Survey) -> Iterator[str]:
    """What the plan carries over from earlier runs, and nobody has given back since, in sentences for its review."""
    calls = [
        (step.node, operation)
        for step in (*plan.steps, *plan.rollback)
        if isinstance(step.act, Remote)
        for operation in step.act.operations
        if isinstance(operation, DockerCall)
    ]
    for container_id, debt in survey.owed.items():
        node = next((node for node, call in calls if f"/containers/{container_id}/" in call.path), None)
        if node is None:
            continue
        now = inspected(node, container_id, survey)
        gives_back = any((call.body or {}).get("RestartPolicy", {}).get("Name") == debt.policy for _, call in calls)
        is_off = bool(debt.policy) and (now is None or now.policy_now == "no")
        if is_off and gives_back:
            yield f'"{debt.title}" left its restart policy off: this plan sets it to {debt.policy} again.'
        elif is_off:
            yield f'"{debt.title}" left its restart policy off: it was {debt.policy}, and this plan leaves it off.'
        if debt.was_running and (now is None or not now.running):
            yield f'"{debt.title}" left it stopped: the rollback of this plan starts it again.'
        if debt.evidence_path:
            yield f'Its log from before "{debt.title}" is in {debt.evidence_path}.'


class _AuditedRun:
    """One run, by its entries."""

    def __init__(self, intent: Entry, entries: Sequence[Entry]) -> None:
        self._title = line(str(intent.get("title") or ""), limit=200)
        self._action = intent.get("action")
        self._steps = _dicts(intent.get("steps"))
        self._way_back = _dicts(intent.get("way_back"))
        self._kept = decoded_steps(intent.get("kept"))
        ended = [entry for entry in entries if entry["kind"] == "step"]
        self._states = {
            str(entry.get("step")): str(StepState.SKIPPED if entry.get("untouched") is True else entry.get("state"))
            for entry in ended
        }
        """How the steps ended; one that failed and changed nothing is as good as skipped."""
        self._new_ids = {
            str(entry.get("node")): new_id
            for entry in ended
            if _ID.fullmatch(new_id := str(mapping(entry.get("saved")).get("NEW")))
        }
        evidence = [str(entry["evidence"]) for entry in ended if entry.get("evidence")]
        self._evidence = line(evidence[-1], limit=400) if evidence else ""
        end = next((entry for entry in entries if entry["kind"] == "end"), None)
        self._end_state = str(end.get("state")) if end is not None else ""
        self._was_left = end is None or end.get("left") is True

    def settle_containers(self, owed: dict[str, Unrestored]) -> None:
        """Add what it owes, and remove what it has given back."""
        if self._end_state == RunState.REFUSED:
            return
        policies = self._policies()
        if self._end_state == RunState.DONE:
            for container_id in {found for _, found, _, _ in self._calls((*self._steps, *self._way_back))}:
                before = owed.get(container_id)
                if before is not None:
                    given = container_id in policies
                    owed[container_id] = replace(before, was_running=False, policy="" if given else before.policy)
            return
        if self._action in STOPPING_ACTIONS:
            return
        for container_id in self._new_ids.values():
            if container_id in policies:
                self._owe(owed, container_id, policies[container_id])
        for step, state in self._begun():
            for _, container_id, verb, call in self._calls((step,)):
                policy = _policy(call)
                if verb == "update" and policy == ("no", 0) and container_id in policies:
                    self._owe(owed, container_id, policies[container_id])
                elif verb == "update" and state == StepState.DONE and container_id in owed:
                    owed[container_id] = replace(owed[container_id], policy="", retries=0)
                elif verb in ("stop", "kill") and container_id not in self._new_ids.values():
                    self._owe(owed, container_id, was_running=True)
                elif verb == "start" and state == StepState.DONE and container_id in owed:
                    owed[container_id] = replace(owed[container_id], was_running=False)

    def settle_guards(self, owed: dict[str, GuardOrder]) -> None:
        """The guard that it replaced and has not restored, on each node."""
        orders: dict[str, list[str]] = {}
        for step in self._steps:
            if step.get("act") == GuardOrder.__name__:
                orders.setdefault(str(step.get("node")), []).append(self._states.get(str(step.get("step")), ""))
        for node, states in orders.items():
            if self._action == "guard" or states[-1] == StepState.DONE:
                owed.pop(node, None)
                continue
            before = [step.act for step in self._kept if step.node == node and isinstance(step.act, GuardOrder)]
            armed = next((act for act in before if _ID.fullmatch(act.container_id)), None)
            if StepState.DONE in states and armed is not None:
                owed[node] = armed

    def _owe(
        self,
        owed: dict[str, Unrestored],
        container_id: str,
        policy: tuple[str, int] = ("", 0),
        *,
        was_running: bool = False,
    ) -> None:
        before = owed.get(container_id, Unrestored(title=self._title))
        owed[container_id] = replace(
            before,
            title=self._title,
            policy=policy[0] or before.policy,
            retries=policy[1] if policy[0] else before.retries,
            was_running=was_running or before.was_running,
            evidence_path=self._evidence or before.evidence_path,
        )

    def _begun(self) -> Iterator[tuple[Entry, str]]:
        """The steps that were begun, with how they ended; those of the way back last."""
        is_cut = not self._was_left
        for step in self._steps:
            state = self._states.get(str(step.get("step")))
            if state is None and not is_cut:  # under way when the console went: the node completes it
                is_cut, state = True, StepState.UNKNOWN
            if state is not None and state != StepState.SKIPPED:
                yield step, state
        for step in self._way_back:
            step_id = str(step.get("step"))
            state = self._states.get(f"back-{step_id}") or (
                self._states.get(step_id) if all(step_id != str(other.get("step")) for other in self._steps) else None
            )
            if state is not None and state != StepState.SKIPPED:
                yield step, state

    def _policies(self) -> Mapping[str, tuple[str, int]]:
        """Container id -> the restart policy that it has before and after the run."""
        calls = self._calls((*self._steps, *self._way_back), with_undo=True)
        found = ((container_id, _policy(call)) for _, container_id, verb, call in calls if verb == "update")
        return {container_id: policy for container_id, policy in found if policy[0] in RESTARTING_POLICIES}

    def _calls(self, steps: Sequence[Entry], *, with_undo: bool = False) -> Iterator[tuple[str, str, str, Entry]]:
        """(node, container id, verb, call) of the Docker calls on containers that are known by their id."""
        for step in steps:
            node = str(step.get("node"))
            undo = _dicts(step.get("undo")) if with_undo else ()
            for call in (*_dicts(step.get("operations")), *undo):
                container_id, verb = container_call(call) or ("", "")
                if container_id == NEW:
                    container_id = self._new_ids.get(node, "")
                if container_id:
                    yield node, container_id, verb, call


def _policy(call: Entry) -> tuple[str, int]:
    body = mapping(mapping(call.get("body")).get("RestartPolicy"))
    retries = body.get("MaximumRetryCount")
    is_count = isinstance(retries, int) and not isinstance(retries, bool) and retries > 0
    return name(str(body.get("Name") or "")), int(retries) if is_count and retries is not None else 0


def _dicts(value: object) -> tuple[Entry, ...]:
    return tuple(item for item in items(value) if isinstance(item, Mapping))
