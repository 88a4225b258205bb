"""The command palette's source: the registry, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from sparktop.ui.commands import COMMANDS, Command, key_name
from sparktop.ui.screens.console import ConsoleScreen


class ConsoleCommands(Provider):
    """Commands of the console, found by their titles and descriptions."""

    def _commands(self) -> Iterator[tuple[Command, ConsoleScreen]]:
        screen = self.screen
        if isinstance(screen, ConsoleScreen):
            for command in COMMANDS:
                if command.in_palette and not (command.changes and screen.is_read_only):
                    yield command, screen

    async def discover(self) -> Hits:
        for command, screen in self._commands():
            yield DiscoveryHit(_title(command), partial(screen.perform, command), help=command.description)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command, screen in self._commands():
            text = f"{command.title} {command.description}"
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, _title(command), partial(screen.perform, command), text=text, help=command.description)


def _title(command: Command) -> Content:
    return Content(f"{command.title}  ({key_name(command.keys[0])})")
