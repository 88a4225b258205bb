"""What is made of the one registry of commands: bindings, the names of keys, the README's table."""

from __future__ import annotations

from collections.abc import Iterator

from textual.binding import Binding, BindingType

from sparktop.ui.registry import COMMANDS, Command

__all__ = ["COMMANDS", "Command", "bindings", "by_group", "key_name", "keys_text", "readme_table"]

PLAIN_KEYS = {
    "question_mark": "?",
    "slash": "/",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "colon": ":",
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "home": "Home",
    "end": "End",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}


def bindings(scope: str) -> list[BindingType]:
    """The bindings of one widget, screen or app; the footer is drawn from the registry, so none shows itself."""
    return [
        Binding(",".join(command.keys), command.action, command.title, show=False, id=f"{scope}.{command.id}")
        for command in COMMANDS
        if scope in command.scopes
    ]


def by_group() -> Iterator[tuple[str, list[Command]]]:
    """Groups in the order of their first command, each with its commands: help, README."""
    groups: dict[str, list[Command]] = {}
    for command in COMMANDS:
        groups.setdefault(command.group, []).append(command)
    yield from groups.items()


def key_name(key: str) -> str:
    """How a key is written for people: `question_mark` is `?`, `ctrl+p` is `Ctrl+P`."""
    if key in PLAIN_KEYS:
        return PLAIN_KEYS[key]
    if "+" in key:
        return "+".join(part.capitalize() if len(part) > 1 else part.upper() for part in key.split("+"))
    return key.upper() if len(key) > 1 else key


def keys_text(command: Command) -> str:
    """All keys of a command: "?, F1"."""
    return ", ".join(key_name(key) for key in command.keys)


def readme_table() -> str:
    """The table of keys as Markdown, between the README's markers."""
    rows = ["| | keys | |", "| --- | --- | --- |"]
    for group, commands in by_group():
        for number, command in enumerate(commands):
            keys = " ".join(f"`{key_name(key)}`" for key in command.keys)
            rows.append(f"| {'' if number else f'**{group}**'} | {keys} | **{command.title}.** {command.description} |")
    return "\n".join(rows) + "\n"
