"""Carries out the operations of a Remote step on the tests' Docker Engine, as the runner does: for tests of plans.

`fails_at` makes the operation of that index fail as if Docker had refused it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tests.integration.dockerd import Dockerd

from sparktop.model.operation import DockerCall, Expect
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import Plan, Step


def value_at(data: Any, path: str) -> Any:
    head, _, rest = path.partition(".")
    found = data.get(head) if isinstance(data, dict) else None
    return value_at(found, rest) if rest else found


@dataclass
class Hands:
    """One run."""

    docker: Dockerd
    saved: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def get(self, path: str) -> Any:
        api = self.docker.api
        answer = api.request("GET", f"{api.base_url}/v{api._version}{path}", timeout=30)
        return answer.json() if answer.status_code == 200 else None

    def perform(self, step: Step, *, fails_at: int = -1) -> bool:
        """Whether it was done; undone where it wasn't."""
        assert isinstance(step.act, Remote)
        act = step.act.filled(self.saved)
        if act is None:
            return True
        assert isinstance(act, Remote)
        for index, one in enumerate(act.operations):
            problem = "it was made to fail" if index == fails_at else self._done(one)
            if problem:
                self.problems.append(f"{step.id}: {problem}")
                for back in act.undo:
                    if "{" not in self._said(getattr(back, "path", "")):
                        self.problems += [f"undo: {told}" for told in [self._done(back)] if told]
                return False
        return True

    def remote_steps(self, plan: Plan, *, back: bool = False) -> list[Step]:
        return [step for step in (plan.rollback if back else plan.steps) if isinstance(step.act, Remote)]

    def _said(self, text: str) -> str:
        for name, value in self.saved.items():
            text = text.replace("{" + name + "}", value)
        return text

    def _done(self, one: object) -> str:
        if isinstance(one, Expect):
            until = time.monotonic() + one.within_s
            while True:
                answer = self.get(self._said(one.path))
                if answer is not None and all(value_at(answer, key) == want for key, want in one.equals.items()):
                    return ""
                if time.monotonic() >= until:
                    return one.otherwise or f"{one.path} does not say {one.equals}"
                time.sleep(0.05)
        if isinstance(one, DockerCall) and one.only_where is not None and self._done(one.only_where):
            return ""
        if isinstance(one, DockerCall):
            api = self.docker.api
            body = {
                key: self._said(value) if isinstance(value, str) else value for key, value in (one.body or {}).items()
            }
            until = time.monotonic() + (one.again_s or 0.0)
            while True:
                answer = api.request(
                    one.method,
                    f"{api.base_url}/v{api._version}{self._said(one.path)}",
                    params=dict(one.query),
                    json=body if one.body is not None else None,
                    timeout=one.limit_s + 5,
                )
                if answer.status_code != 500 or time.monotonic() >= until:
                    break
                time.sleep(0.05)
            if answer.status_code not in one.accepts:
                return f"{one.method} {one.path}: {answer.status_code} {answer.text[:200]}"
            if one.saves:
                self.saved[one.saves] = answer.json()["Id"]
            return ""
        return f"not for these hands: {one}"
