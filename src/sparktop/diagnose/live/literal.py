"""A change of a launch, read from the lines in which a lint says what to take out and what to put in.

Of what runs a lint shows words and not a file's lines: "- --performance-mode throughput", "+ VLLM_X=1". Where all of a
remedy's steps are such words of the engine's own command line or environment, they are what a relaunch changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparktop.model.change import Change

_FLAG = re.compile(r"(--[a-z][a-z0-9-]*)(?: (.*))?")
_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
_OPTIONS = frozenset(
    (
        *("--cap-add", "--device", "--env", "--entrypoint", "--gpus", "--ipc", "--memory", "--mount", "--name"),
        *("--network", "--pid", "--privileged", "--publish", "--restart", "--rm", "--runtime", "--security-opt"),
        *("--shm-size", "--ulimit", "--user", "--volume"),
    )
)
"""Docker's, not the engine's: they are said in its API's words, if at all."""


def change_of(steps: Sequence[str]) -> Change | None:
    """What the steps would change; None where one of them is anything else."""
    environment: dict[str, str | None] = {}
    flags: dict[str, str | None] = {}
    for sign, words in sorted((step[:2], step[2:].strip()) for step in steps)[::-1]:  # "- " before "+ "
        flag, variable = _FLAG.fullmatch(words), _VARIABLE.fullmatch(words)
        if sign not in ("- ", "+ ") or (flag is None and variable is None):
            return None
        if flag is not None and flag[1] in _OPTIONS:
            return None
        if flag is not None:
            flags[flag[1]] = None if sign == "- " else flag[2] or ""
        elif variable is not None:
            environment[variable[1]] = None if sign == "- " else variable[2]
    return Change(environment=environment, flags=flags) if environment or flags else None
