"""The one registry of what the operator can do: bindings, the palette, the help and the README's table all read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textual.binding import Binding, BindingType

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
    in_palette: bool = True


COMMANDS: tuple[Command, ...] = (
    Command(
        id="help",
        keys=("question_mark", "f1"),
        title="Help",
        description="All keys, and what the signs on the screen mean.",
        group="General",
        action="help",
        scopes=("app",),
        footer="help",
    ),
    Command(
        id="quit",
        keys=("q", "ctrl+q"),
        title="Quit",
        description="Leave; nothing stays behind on the nodes.",
        group="General",
        action="quit",
        scopes=("app",),
        footer="quit",
    ),
    Command(
        id="palette",
        keys=("ctrl+p", "colon"),
        title="Command palette",
        description="Find a command by typing.",
        group="General",
        action="command_palette",
        scopes=("app",),
        in_palette=False,
    ),
    Command(
        id="theme",
        keys=("t",),
        title="Dark or light",
        description="Switch between the dark and the light theme.",
        group="General",
        action="toggle_theme",
        scopes=("app",),
    ),
    Command(
        id="faster",
        keys=("plus", "equals_sign"),
        title="Sample faster",
        description="Halve the sampling interval of all nodes.",
        group="General",
        action="faster",
        scopes=("app",),
    ),
    Command(
        id="slower",
        keys=("minus",),
        title="Sample slower",
        description="Double the sampling interval of all nodes.",
        group="General",
        action="slower",
        scopes=("app",),
    ),
    Command(
        id="retry",
        keys=("r",),
        title="Reconnect now",
        description="Try every node that is not live again now, instead of waiting for its next attempt.",
        group="General",
        action="retry",
        scopes=("console",),
    ),
    Command(
        id="overview",
        keys=("1",),
        title="Overview",
        description="Everything at once.",
        group="Views",
        action="view('overview')",
        scopes=("console",),
        footer="all",
    ),
    Command(
        id="nodes",
        keys=("2",),
        title="Nodes",
        description="The nodes on the whole screen: memory, GPU, host.",
        group="Views",
        action="view('nodes')",
        scopes=("console",),
        footer="nodes",
    ),
    Command(
        id="engines",
        keys=("3",),
        title="Engines",
        description="The inference servers on the whole screen.",
        group="Views",
        action="view('engines')",
        scopes=("console",),
        footer="engines",
    ),
    Command(
        id="log",
        keys=("4",),
        title="Log",
        description="The selected engine's log on the whole screen.",
        group="Views",
        action="view('log')",
        scopes=("console",),
        footer="log",
    ),
    Command(
        id="kernel",
        keys=("5",),
        title="Kernel",
        description="The kernel's events on the whole screen.",
        group="Views",
        action="view('kernel')",
        scopes=("console",),
        footer="kernel",
    ),
    Command(
        id="findings",
        keys=("A", "6"),
        title="Findings",
        description="What is wrong, as a tree: causes, what follows from them, what was resolved lately.",
        group="Views",
        action="view('findings')",
        scopes=("console",),
        footer="findings",
    ),
    Command(
        id="back",
        keys=("escape",),
        title="Back",
        description="Close what is open, then return to the overview.",
        group="Views",
        action="back",
        scopes=("console",),
        in_palette=False,
    ),
    Command(
        id="maximise",
        keys=("m",),
        title="Maximise",
        description="Give the focused pane the whole screen, or take it back.",
        group="Views",
        action="maximise",
        scopes=("console",),
        footer="max",
    ),
    Command(
        id="next-pane",
        keys=("tab",),
        title="Next pane",
        description="Move to the next pane.",
        group="Moving",
        action="next_pane",
        scopes=("console",),
        in_palette=False,
    ),
    Command(
        id="previous-pane",
        keys=("shift+tab",),
        title="Previous pane",
        description="Move to the pane before.",
        group="Moving",
        action="previous_pane",
        scopes=("console",),
        in_palette=False,
    ),
    Command(
        id="next-node",
        keys=("right_square_bracket", "right"),
        title="Next node",
        description="Select the next node; on a narrow screen it is the one shown.",
        group="Moving",
        action="next_node",
        scopes=("console",),
    ),
    Command(
        id="previous-node",
        keys=("left_square_bracket", "left"),
        title="Previous node",
        description="Select the node before; on a narrow screen it is the one shown.",
        group="Moving",
        action="previous_node",
        scopes=("console",),
    ),
    Command(
        id="down",
        keys=("j", "down"),
        title="Down",
        description="Next finding, engine, line or event.",
        group="Moving",
        action="down",
        scopes=("findings", "engines", "log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="up",
        keys=("k", "up"),
        title="Up",
        description="Finding, engine, line or event before.",
        group="Moving",
        action="up",
        scopes=("findings", "engines", "log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="page-down",
        keys=("pagedown",),
        title="Page down",
        description="One screen of lines on.",
        group="Moving",
        action="page_down",
        scopes=("findings", "log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="page-up",
        keys=("pageup",),
        title="Page up",
        description="One screen of lines back.",
        group="Moving",
        action="page_up",
        scopes=("findings", "log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="first",
        keys=("home",),
        title="First",
        description="To the oldest line.",
        group="Moving",
        action="first",
        scopes=("findings", "engines", "log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="last",
        keys=("end",),
        title="Last",
        description="To the newest line, and follow.",
        group="Moving",
        action="last",
        scopes=("findings", "engines", "log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="details",
        keys=("d",),
        title="Details",
        description="Why, on what evidence, what to do: of the selected finding or kernel event; else of the verdict's "
        "first line; with nothing wrong, of the selected engine.",
        group="Findings, engines, kernel",
        action="details",
        scopes=("findings", "kernel", "console"),
        footer="details",
    ),
    Command(
        id="open",
        keys=("enter",),
        title="Open",
        description="All that is known of what the cursor is on.",
        group="Findings, engines, kernel",
        action="open",
        scopes=("findings", "engines", "kernel"),
        in_palette=False,
    ),
    Command(
        id="acknowledge",
        keys=("a",),
        title="Acknowledge",
        description="The selected finding is known, with what follows from it: it leaves the verdict, not the list.",
        group="Findings, engines, kernel",
        action="acknowledge",
        scopes=("findings",),
        in_palette=False,
    ),
    Command(
        id="snooze",
        keys=("z",),
        title="Snooze",
        description="Hide the selected finding for an hour; it is still counted.",
        group="Findings, engines, kernel",
        action="snooze",
        scopes=("findings",),
        in_palette=False,
    ),
    Command(
        id="wake",
        keys=("u",),
        title="Unsnooze",
        description="Show all snoozed findings again.",
        group="Findings, engines, kernel",
        action="wake",
        scopes=("findings",),
        in_palette=False,
    ),
    Command(
        id="logs",
        keys=("l",),
        title="Engine's log",
        description="Follow the log of the selected engine.",
        group="Findings, engines, kernel",
        action="logs",
        scopes=("console",),
    ),
    Command(
        id="search",
        keys=("slash",),
        title="Search the log",
        description="Find text in the log; a regular expression where it is one.",
        group="Log",
        action="search",
        scopes=("log", "kernel", "console"),
        footer="search",
    ),
    Command(
        id="next-match",
        keys=("n",),
        title="Next match",
        description="The next line that matches the search.",
        group="Log",
        action="next_match",
        scopes=("log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="previous-match",
        keys=("N",),
        title="Previous match",
        description="The line before that matches the search.",
        group="Log",
        action="previous_match",
        scopes=("log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="pause",
        keys=("space",),
        title="Pause or follow",
        description="Hold the log still, or follow its newest line; nothing is lost while it is held.",
        group="Log",
        action="pause",
        scopes=("log", "kernel", "console"),
        footer="pause",
    ),
    Command(
        id="wrap",
        keys=("w",),
        title="Wrap lines",
        description="Break long log lines, or cut them at the edge.",
        group="Log",
        action="wrap",
        scopes=("log", "kernel", "console"),
    ),
    Command(
        id="times",
        keys=("s",),
        title="Show times",
        description="Put the time of each line before it, where it is known.",
        group="Log",
        action="times",
        scopes=("log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="raw",
        keys=("a",),
        title="All kernel lines",
        description="Go round: the events that matter, then each node's whole kernel log.",
        group="Log",
        action="raw",
        scopes=("kernel",),
        in_palette=False,
    ),
    Command(
        id="copy",
        keys=("y", "c"),
        title="Copy",
        description="Copy the focused pane's selected line or text to the clipboard.",
        group="Log",
        action="copy",
        scopes=("findings", "node", "engines", "log", "kernel"),
        in_palette=False,
    ),
    Command(
        id="save-log",
        keys=("ctrl+s",),
        title="Save the log",
        description="Write the log, as far as it is held here, to a file on this machine.",
        group="Log",
        action="save",
        scopes=("log", "kernel", "console"),
    ),
)


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
