"""A service's command and variables with a change, as its drop-in will have them. Pure.

A secret is never written there: a drop-in can be read by everybody on the machine, and `systemctl cat` shows it. Where
the change or the command that would be copied holds one, directions are given instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.operate import dropin, rundocker, unitwords
from sparktop.operate.changing import Changing
from sparktop.operate.commandline import changed
from sparktop.operate.flags import CannotEdit, Changed
from sparktop.operate.knownsecrets import secret_words, secrets_of
from sparktop.operate.unitplace import NotHere, Place
from sparktop.probe.remote import mask_text
from sparktop.recipe.secretnames import is_secret

_ENV = "/usr/bin/env"
_FILLED = re.compile(rf"{unitwords.LIVE}(?:\{{\w+\}}|\w+)")
MIN_SECRET_CHARS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEdit:
    """The drop-in and what of the flags it changes."""

    text: str = field(repr=False)
    flags: tuple[Changed, ...] = ()


def edited(one: Changing, found: Place) -> UnitEdit:
    """The drop-in with the change.

    Raises:
        CannotEdit: the command can't be changed safely.
        NotHere: a secret would have to be written.
        Unreadable: the command is not one that systemd would run.
    """
    change = one.change
    for name, value in change.environment.items():
        if value is not None and is_secret(name, value):
            raise _secret(f"{name} is a secret, and everybody can read a drop-in", found)
    prefix, rest = unitwords.prefix(found.service.command)
    if "@" in prefix:
        raise CannotEdit("it names its program another way than its file (ExecStart=@)")
    fills = ":" not in prefix
    words = unitwords.split(rest, fills=fills)
    if not words:
        raise CannotEdit("it has no words")
    environment: dict[str, str | None] = {
        **dict.fromkeys(dropin.unset(found.before)), **dropin.variables(found.before)
    }  # fmt: skip
    if rundocker.starts(words):
        words, flags = rundocker.edited(
            words,
            environment=change.environment,
            flags=change.flags,
            options=change.options,
            image=change.image,
            inspect=one.raw,
        )
    else:
        words, flags = _native(one, words)
        if found.service.has_environment_file and change.environment:
            # what a file sets wins over Environment=, and nothing over env's own
            words = [_ENV, *_given(change.environment), *words]
        else:
            environment |= change.environment
    _refuse_open(words, bool(change.flags))
    texts = [*words, *(f"{name}={value}" for name, value in environment.items() if value is not None)]
    if _holds_secret(texts, secrets_of(one.raw.get("Config") or {})):
        raise _secret("its command holds a secret, which a drop-in would repeat for everybody to read", found)
    text = dropin.written(prefix + unitwords.joined(words, fills=fills), environment)
    return UnitEdit(text=text, flags=flags)


def _native(one: Changing, words: list[str]) -> tuple[list[str], tuple[Changed, ...]]:
    """The engine's own command, or a shell's text with it."""
    change = one.change
    if one.part.box is not None and (change.environment or change.options or change.image):
        raise CannotEdit("a shell's text starts its container, where only the engine's flags can be changed safely")
    if change.image or change.options:
        raise CannotEdit("it runs in no container: there is no image and no container option to set")
    made = changed((), words, change.flags, change.environment)
    return list(made.command), made.flags


def _given(environment: Mapping[str, str | None]) -> list[str]:
    unset = [word for name, value in environment.items() if value is None for word in ("-u", name)]
    return [*unset, *(f"{name}={value}" for name, value in environment.items() if value is not None)]


def _holds_secret(texts: list[str], known: Sequence[str]) -> bool:
    """What systemd fills in from the service's environment is none."""
    bare = [_FILLED.sub("", text) for text in texts]
    return any(secret_words(bare)) or any(
        mask_text(text) != text or any(len(one) >= MIN_SECRET_CHARS and one in text for one in known) for text in bare
    )


def _refuse_open(words: list[str], has_flags: bool) -> None:
    loose = next((word for word in words if unitwords.is_open(word)), None)
    if loose is not None and has_flags:
        raise CannotEdit(
            f"part of its words come from {unitwords.shown(loose)}: nobody can tell from here what they are"
        )


def _secret(why: str, found: Place) -> NotHere:
    folder = found.path.rpartition("/")[0]
    return NotHere(
        why,
        f"put it into a file of root's, mode 0600, named by EnvironmentFile= in {folder}/secrets.conf; for a "
        "container: --env-file in the command",
        "then relaunch without it",
    )
