"""What one command is; `registry` has them all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing the operator can do: the keys that do it and the words that explain it."""

    id: str
    keys: tuple[str, ...]
    """Textual's key names; the first is the one shown."""
    title: str
    """Two or three words: help, palette."""
    description: str
    """One sentence."""
    group: str
    action: str
    """A Textual action, run on the widget, screen or app that holds the binding."""
    scopes: tuple[str, ...]
    """Who binds it: "app", "console" (the screen), "findings", "node", "engines", "log", "kernel"."""
    footer: str = ""
    """The word in the bottom line; empty keeps it out of there."""
    footer_in: tuple[str, ...] = ()
    """The views in whose bottom line it is; empty: in all."""
    in_palette: bool = True
    changes: bool = False
    """Whether it leads to a change of a Spark: through a review, and not in a read-only console."""
