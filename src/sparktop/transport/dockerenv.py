"""What a container was given by its environment, labels and command, with the values of secrets hidden, wherever they
stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sparktop import sanitise

MaskArgv = Callable[[Iterable[str]], Sequence[str]]
"""An argument list with the values of secrets replaced; sparktop.probe.remote.mask_argv is the one there is."""

MAX_VARIABLES = 200
MAX_LABELS = 64
_KNOWN_BY_VALUE = 8
"""Of secrets shorter than this only the variable is masked: "true" would blot out half a command line."""


class Secrets:
    """A container's environment, and the values in it and in its command that may be seen nowhere else either."""

    def __init__(self, mask: MaskArgv, environment: Sequence[str], argv: Sequence[str] = ()) -> None:
        self._mask = mask
        self._values: list[str] = []
        self.environment: list[str] = []
        """NAME=value, masked."""
        for pair in environment[:MAX_VARIABLES]:
            name, _, value = pair.partition("=")
            masked = self.pair(name, value)
            if masked != pair and masked == f"{name}=<masked>" and len(value) >= _KNOWN_BY_VALUE:
                self._values.append(value)
            self.environment.append(masked)
        for word, masked in zip(argv, mask(argv), strict=True):
            told = masked.removesuffix("<masked>")
            if masked != word and told != masked and word.startswith(told) and len(word) - len(told) >= _KNOWN_BY_VALUE:
                self._values.append(word[len(told) :])
        self._values.sort(key=len, reverse=True)
        self.environment = [self.hide(pair) for pair in self.environment]

    def pair(self, name: str, value: str) -> str:
        """NAME=value as a flag's value is masked: all of it, spaces and commas too, where the name is a secret's."""
        if name.upper().endswith(("KEY", "KEYS")):
            return f"{name}=<masked>"
        return self._mask([f"--{name}={value}"])[0][2:]

    def hide(self, text: str) -> str:
        """The text without any value known to be a secret: an argument may repeat what a variable holds."""
        for value in self._values:
            text = text.replace(value, "<masked>")
        return text


def described(labels: Any, secrets: Secrets) -> dict[str, str]:
    """Docker's labels, at most 64, masked."""
    found: dict[str, str] = {}
    for name, value in list(labels.items())[:MAX_LABELS] if isinstance(labels, dict) else ():
        masked = secrets.hide(secrets.pair(str(name), str(value)))
        found[sanitise.name(str(name))] = sanitise.line(masked[len(str(name)) + 1 :], limit=400)
    return found
