"""Run a recipe's `post_exec`: shell commands in the engine's container, once it serves."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparktop.dataclass import dataclass
from sparktop.masking import mask_text
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

    def commands(self) -> tuple[str, ...]:
        """In one line each, as bash takes it."""
        return tuple(f"{shlex.join(_argv(self.container))} {_quoted(mask_text(hook))}" for hook in self.hooks)


def post_exec(container: str, hooks: Sequence[str]) -> PostExec:
    """The act, as sparkrun runs them."""
    return PostExec(
        container=container,
        hooks=tuple(hooks),
        operations=tuple(
            Command(
                argv=(*_argv(container), hook),
                limit_s=LIMIT_S,
                otherwise=f"post_exec {number} failed",
            )
            for number, hook in enumerate(hooks, 1)
        ),
    )


def _argv(container: str) -> tuple[str, ...]:
    return ("docker", "exec", "--user", "0", container, "bash", "-c")


def _quoted(text: str) -> str:
    if "\n" not in text:
        return shlex.quote(text)
    escaped = text.strip("\n").replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"$'{escaped}'"
