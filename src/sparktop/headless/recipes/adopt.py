"""`sparktop recipes adopt`: prints the recipe of a launch file or a running container, or saves it."""

from __future__ import annotations

import os
import shlex

from sparktop import sanitise
from sparktop.config import shown
from sparktop.errors import ConfigError, UsageError
from sparktop.files import write_private
from sparktop.headless.act import MakeSession, OutputOptions, check_links, watched
from sparktop.headless.launch import adopted_container
from sparktop.headless.terminal import say
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.read.shelf import launchable, own_folder


def adopt_file(name: str, *, saves: bool) -> int:
    """Print or save the recipe of what this file starts.

    Raises:
        ConfigError: a value isn't known; the message names its line.
        UsageError: there is no such file, or it is a recipe.
    """
    entry = launchable(name)
    if entry.adopted is None:
        raise UsageError(f"{sanitise.line(name)} is a recipe already", hint=f"sparktop launch {shlex.quote(name)} HOST")
    return _put(entry.adopted, saves=saves)


async def adopt_container(make: MakeSession, name: str, *, output: OutputOptions, saves: bool) -> int:
    """Print or save the recipe of a container as it runs."""
    async with watched(make, output) as (watch, operating, _):
        check_links(watch.state)
        adopted = await adopted_container(operating, name, watch.state)
    return _put(adopted, saves=saves)


def _put(adopted: Adopted, *, saves: bool) -> int:
    recipe = adopted.reading.recipe
    assert recipe is not None  # its errors were raised
    for risk in recipe.risks:
        say(f"· {sanitise.line(risk)}")
    if names := ", ".join(adopted.secrets):
        them = "them" if "," in names else "it"
        say(f"· secret, so not written: {names}; set {them} in your environment or a .env file")
    if not saves:
        print(adopted.text, end="")
        return 0
    path = own_folder() / f"{recipe.id}.yaml"
    if os.path.lexists(path):
        hint = "move it away, or print the recipe: without --save"
        raise UsageError(f"{shown(path)} is there already, and stays as it is", hint=hint)
    try:
        write_private(path, adopted.text)
    except OSError as error:
        raise ConfigError(f"{shown(path)} can't be written: {error.strerror}") from error
    say(f"saved in {shown(path)}: sparktop launch {shlex.quote(recipe.id)} HOST")
    return 0
