"""A container as the words of `docker run`, whole, with its secrets by their names alone. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace

from sparktop.recipe import labels
from sparktop.recipe.docker import body
from sparktop.recipe.dockerline import docker_run
from sparktop.recipe.rendered import ContainerSpec
from sparktop.recipe.secretnames import is_secret


def run_words(container: ContainerSpec, *, is_detached: bool = True) -> list[str]:
    """The words of `docker run`; a secret is named alone, and taken from the environment of who runs it."""
    bare = without_secrets(container)
    made = body(bare)
    made["Env"] = [name if name in bare.secret_names else f"{name}={value}" for name, value in bare.environment.items()]
    words = shlex.split(docker_run(container.name, made, mask=False))
    return words if is_detached else [word for word in words if word != "--detach"]


def run_line(container: ContainerSpec, *, is_folded: bool = False) -> str:
    """The words as a line for a shell; folded: an option a line."""
    words = run_words(container)
    if not is_folded:
        return shlex.join(words)
    head = next(at for at in range(5, len(words)) if not words[at].startswith("--"))
    rows = [shlex.join(words[:5]), *(shlex.quote(word) for word in words[5:head])]
    rows += [f"{shlex.quote(words[head])}", *_command_rows(words[head + 1 :])]
    return " \\\n  ".join(rows)


def lasting(container: ContainerSpec) -> ContainerSpec:
    """The specification for a file that is used again: without what differs after a reboot, and without our labels.

    NCCL finds the GID's index by itself; interfaces and HCAs keep their names (facts/gb10.md section 5). By our labels
    a container would be taken for one that `sparktop launch` has started.
    """
    gone = {"NCCL_IB_GID_INDEX"} & set(container.detected_names)
    return replace(
        container,
        environment={name: value for name, value in container.environment.items() if name not in gone},
        labels={name: value for name, value in container.labels.items() if not name.startswith(labels.OURS)},
    )


def without_secrets(container: ContainerSpec) -> ContainerSpec:
    """The specification with its secrets' values taken out; their names stay in `secret_names`."""
    names = {name for name, value in container.environment.items() if is_secret(name, value)}
    names |= set(container.secret_names)
    environment = {name: "" if name in names else value for name, value in container.environment.items()}
    return replace(container, environment=environment, secret_names=tuple(sorted(names)))


def _command_rows(words: Iterable[str]) -> list[str]:
    """A flag with its values a row; what has several lines stands alone."""
    rows: list[str] = []
    is_open = False
    for word in words:
        is_alone = "\n" in word
        if is_open and not is_alone and not word.startswith("-"):
            rows[-1] += f" {shlex.quote(word)}"
        else:
            rows.append(shlex.quote(word))
        is_open = not is_alone
    return rows
