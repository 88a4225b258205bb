"""The values in a container's settings that must be seen nowhere, by the names they have there. Pure.

Names and patterns are the probe's (`probe.remote`); what is found here is masked wherever it turns up later, as exact
values (facts/reliability.md section 3.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparktop.probe.remote import MASK, mask_argv, mask_text
from sparktop.recipe.secretnames import is_secret


def secrets_of(config: Mapping[str, Any], more: Mapping[str, str | None] | None = None) -> tuple[str, ...]:
    """Of a container's Config (as inspect and creation have it) and of variables that are to be set."""
    found = [*_of_pairs(_pairs(_items(config.get("Env")))), *_of_pairs((more or {}).items())]
    for key in ("Entrypoint", "Cmd"):
        found += secret_words([str(word) for word in _items(config.get(key))])
    labels = config.get("Labels")
    found += _of_pairs((str(key), str(value)) for key, value in labels.items()) if isinstance(labels, Mapping) else ()
    return tuple(dict.fromkeys(value for value in found if value.strip()))


def secret_words(argv: Sequence[str]) -> list[str]:
    """Arguments, or what follows their "=", that are masked whole."""
    found = []
    for word, masked in zip(argv, mask_argv(argv), strict=True):
        if masked == MASK:
            found.append(word)
        elif masked.endswith(f"={MASK}") and word.startswith(masked.removesuffix(MASK)):
            found.append(word[len(masked) - len(MASK) :])
    return found


def shown_value(name: str, value: str | None) -> str | None:
    """A variable's or flag's value fit to be shown."""
    if value is None:
        return None
    if is_secret(name.lstrip("-"), value):
        return MASK
    return mask_text(value)


def _of_pairs(pairs: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    for name, value in pairs:
        if value is not None and is_secret(name, value):
            yield value


def _pairs(items: Iterable[object]) -> Iterator[tuple[str, str]]:
    for item in items:
        name, _, value = str(item).partition("=")
        yield name, value


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
