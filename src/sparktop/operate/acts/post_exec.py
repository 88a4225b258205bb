"""Run a recipe's `post_exec`: shell commands in the engine's container, once it serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.dataclass import dataclass
from sparktop.model.operation import Command
from sparktop.operate.acts.patch_image import script_lines
from sparktop.operate.acts.remote import Remote

LIMIT_S = 600.0
"""Of one command, as sparkrun has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostExec(Remote):
    """The commands in their order, up to the first that fails."""

    container: str
    hooks: tuple[str, ...]

    def text(self) -> Iterator[str]:
        yield f"in {self.container}, as root, by bash:"
        for number, hook in enumerate(self.hooks, 1):
            yield f"post_exec {number}:"
            yield from (f"  {line}" for line in script_lines(hook.encode(), is_run=True))


def post_exec(container: str, hooks: Sequence[str]) -> PostExec:
    """The act, as sparkrun runs them."""
    return PostExec(
        container=container,
        hooks=tuple(hooks),
        operations=tuple(
            Command(
                argv=("docker", "exec", "--user", "0", container, "bash", "-c", hook),
                limit_s=LIMIT_S,
                otherwise=f"post_exec {number} failed",
            )
            for number, hook in enumerate(hooks, 1)
        ),
    )
