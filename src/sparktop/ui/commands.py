"""The table of the console's commands (keys, titles, help), and the bindings and texts made from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from textual.binding import Binding, BindingType
from textual.keys import format_key

from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of the console: its keys, the action they run, and its help texts."""

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
    """Who binds it: "app", "console" (the screen), "findings", "node", "engines", "log", "kernel", "processes",
    "events"; "replay" binds its own before all others."""
    footer: str = ""
    """The word in the footer line; empty: not in the footer."""
    footer_in: tuple[str, ...] = ()
    """The views whose footer shows it; empty: all."""
    in_palette: bool = True
    changes: bool = False
    """Whether it can change a Spark: through a review, or by hand in a shell; never in a read-only console."""

    def action_in(self, scope: str) -> str:
        """Its action as this scope binds it: the console has the shown log do what is a log's."""
        return f"on_log('{self.action}')" if scope == "console" and "log" in self.scopes else self.action


def _row(id: str, keys: str, title: str, scopes: str, description: str, **rest: Any) -> Command:  # noqa: A002
    """A command without its group; several keys, scopes or views are separated by spaces. The action is the id's."""
    rest["footer_in"] = tuple(rest.get("footer_in", "").split())
    rest = {"action": id.replace("-", "_")} | rest
    return Command(
        id=id, keys=tuple(keys.split()), title=title, scopes=tuple(scopes.split()), description=description,
        group="", **rest,
    )  # fmt: skip


def _group(name: str, *commands: Command) -> tuple[Command, ...]:
    return tuple(replace(command, group=name) for command in commands)


# fmt: off
COMMANDS: tuple[Command, ...] = (
    *_group("General",
        _row("help", "question_mark f1", "Help", "app",
             "All keys, and what the signs on the screen mean.", footer="help"),
        _row("quit", "q ctrl+q", "Quit", "app", "Quit; nothing stays on the nodes.", footer="quit"),
        _row("suspend", "ctrl+z", "Suspend", "app",
             "Stop sparktop and give the terminal back to your shell; `fg` continues it.", action="suspend_process",
             in_palette=False),
        _row("palette", "ctrl+p colon", "Command palette", "app",
             "Find a command by typing.", action="command_palette", in_palette=False),
        _row("theme", "t", "Dark or light", "app",
             "Switch between the dark and the light theme; in a log, t shows times.", action="toggle_theme"),
        _row("choose-theme", "T", "Choose a theme", "app", "Choose a theme by its name."),
        _row("export", "e", "Export", "console",
             "Write the state of all nodes, with what is wrong, as text to a file on this machine."),
        _row("faster", "plus equals_sign", "Sample faster", "app", "Halve the sampling interval of all nodes.",
             action="change_interval(0.5)"),
        _row("slower", "minus", "Sample slower", "app", "Double the sampling interval of all nodes.",
             action="change_interval(2.0)"),
        _row("window", "h", "Graph window", "console",
             "How far back the charts reach: as far as they began, 2 min, 10 min, 1 h, the whole session."),
        _row("retry", "r", "Reconnect now", "console",
             "Reconnect now to every node that is not live."),
    ),
    *_group("Views",
        _row("overview", "1", "Overview", "console", "Everything at once.", action="view('overview')", footer="all"),
        _row("nodes", "2", "Nodes", "console",
             "The nodes on the whole screen: memory, GPU, host.", action="view('nodes')", footer="nodes"),
        _row("engines", "3", "Engines", "console",
             "The inference servers on the whole screen.", action="view('engines')", footer="engines"),
        _row("log", "4", "Log", "console",
             "The selected engine's log on the whole screen.", action="view('log')", footer="log"),
        _row("kernel", "5", "Kernel", "console",
             "The kernel's events on the whole screen.", action="view('kernel')", footer="kernel"),
        _row("findings", "A 6", "Findings", "console",
             "What is wrong, as a tree: causes, what follows from them, what was resolved lately.",
             action="view('findings')", footer="findings"),
        _row("processes", "7", "Processes", "console",
             "The processes that hold GPU memory or RAM, the largest first.",
             action="view('processes')", footer="processes", footer_in="nodes processes"),
        _row("events", "8", "What happened", "console",
             "One stream on one clock: link, boots, kernel, engines, actions, findings.",
             action="view('events')", footer="happened", footer_in="events"),
        _row("back", "escape", "Back", "console", "Close what is open, then return to the overview.", in_palette=False),
    ),
    *_group("Acting",
        _row("fix", "f", "Fix", "console",
             "Fix the selected finding, else the first of the top line; you see the plan first.", footer="fix"),
        _row("actions", "x", "Actions", "console",
             "Every action on the selected engine, process or node, then on the rest; what can't be done now says why.",
             footer="actions", footer_in="overview nodes engines"),
        _row("shell", "s", "Shell", "console",
             "A shell in the selected engine's container, or on the node of what else is selected; exit comes back.",
             footer="shell", footer_in="nodes engines processes", changes=True),
        _row("launch", "L", "Launch", "console",
             "Choose a recipe, see whether it fits and what blocks it, then launch it on one node or several.",
             footer="launch", footer_in="overview nodes engines"),
        _row("bring-up", "B", "Bring-up", "console",
             "Check new Sparks chapter by chapter: what is wrong, why, and what to do.",
             footer="bring-up", footer_in="nodes"),
        _row("restart", "R", "Safe restart", "console",
             "Stop the selected engine, wait until its memory is free, start it, and send it one request.",
             action="act('safe-restart')", footer="restart", footer_in="overview engines", changes=True),
        _row("drop-caches", "D", "Drop caches", "console",
             "Write dirty pages to disk and drop the page cache, on the selected node or on both.",
             action="act('drop-caches')", footer="drop caches", footer_in="overview nodes", changes=True),
        _row("guard", "M", "Memory guard", "console",
             "Kill the engine if memory drops below a limit; if that guard is armed, disarm it.",
             action="act('guard')", footer="guard", footer_in="overview nodes engines", changes=True),
        _row("replay", "v", "Replay", "console",
             "What was recorded of the selected node, from two minutes before it was last lost, else from ten minutes "
             "ago; q comes back.", action="replay"),
        _row("forward", "F", "Forward a port", "console",
             "Open a port of this machine that leads to the selected engine, as long as the console runs; again closes "
             "it."),
        _row("runs", "o", "Last run", "console", "Open the run under way, or the last one; several are listed."),
    ),
    *_group("Views",
        _row("maximise", "m", "Maximise", "console",
             "Give the focused pane the whole screen, or take it back.",
             footer="max", footer_in="overview nodes engines log kernel"),
    ),
    *_group("Moving",
        _row("next-pane", "tab", "Next pane", "console", "Move to the next pane.",
             action="step_pane(1)", in_palette=False),
        _row("previous-pane", "shift+tab", "Previous pane", "console", "Move to the pane before.",
             action="step_pane(-1)", in_palette=False),
        _row("next-node", "right_square_bracket right", "Next node", "console",
             "Select the next node; on a narrow screen it is the one shown.", action="step_node(1)"),
        _row("previous-node", "left_square_bracket left", "Previous node", "console",
             "Select the node before; on a narrow screen it is the one shown.", action="step_node(-1)"),
        _row("down", "j down", "Down", "findings engines log kernel processes events",
             "Next finding, engine, line, event or process.", action="move(1)", in_palette=False),
        _row("up", "k up", "Up", "findings engines log kernel processes events", "The one before.",
             action="move(-1)", in_palette=False),
        _row("page-down", "pagedown", "Page down", "findings log kernel processes events",
             "One screen of lines on.", action="page(1)", in_palette=False),
        _row("page-up", "pageup", "Page up", "findings log kernel processes events",
             "One screen of lines back.", action="page(-1)", in_palette=False),
        _row("first", "home g", "First", "findings engines log kernel processes events",
             "To the oldest line.", in_palette=False),
        _row("last", "end G", "Last", "findings engines log kernel processes events",
             "To the newest line, and follow.", in_palette=False),
    ),
    *_group("Findings, engines, kernel",
        _row("details", "d", "Details", "kernel processes events console",
             "Why, on what evidence and what to do: of the selected finding or event, else of the first line that "
             "tells of a finding; with nothing wrong, of the selected engine.", footer="details"),
        _row("open", "enter", "Open", "node findings engines kernel processes events",
             "All details of the selected line; the selected node on the whole screen.", in_palette=False),
        _row("sort", "S", "Sort", "findings engines processes",
             "Sort by the next figure: tokens, KV cache, memory, time; findings by age or node. Then as at first.",
             in_palette=False),
        _row("filter", "slash", "Filter", "findings engines processes events",
             "Show only rows with each typed word, a regular expression; engines in their own view.", in_palette=False),
        _row("acknowledge", "a", "Acknowledge", "findings",
             "Hide the selected finding from the top line, keep it in the list.",
             footer="acknowledge", footer_in="findings"),
        _row("snooze", "z", "Snooze", "findings",
             "Hide the selected finding for an hour; it is still counted.", footer="snooze", footer_in="findings"),
        _row("wake", "u", "Unsnooze", "findings", "Show all snoozed findings again."),
        _row("logs", "l", "Engine's log", "console",
             "Follow the log of the selected engine; of a selected finding, the log that its evidence is from."),
    ),
    *_group("Replay",
        _row("replay-pause", "space", "Play or pause", "replay", "Play the recording, or pause it.", in_palette=False),
        _row("replay-back", "comma", "Back", "replay", "Ten seconds back.", action="replay_step(-10)",
             in_palette=False),
        _row("replay-on", "full_stop", "On", "replay", "Ten seconds on.", action="replay_step(10)", in_palette=False),
        _row("replay-slower", "less_than_sign", "Slower", "replay", "Play slower.", action="replay_speed(-1)",
             in_palette=False),
        _row("replay-faster", "greater_than_sign", "Faster", "replay", "Play faster, up to 240 times.",
             action="replay_speed(1)", in_palette=False),
        _row("replay-next", "right_curly_bracket", "Next finding", "replay",
             "To where the next problem was found, or the next node lost.", action="replay_mark(1)",
             in_palette=False),
        _row("replay-previous", "left_curly_bracket", "Finding before", "replay",
             "To where the problem before was found.", action="replay_mark(-1)", in_palette=False),
    ),
    *_group("Log",
        _row("search", "slash", "Search the log", "log kernel console",
             "Find a regular expression in the log, or filter kernel events; a capital letter makes case matter.",
             footer="search", footer_in="overview log kernel"),
        _row("next-match", "n", "Next match", "log kernel", "The next line that matches the search.", in_palette=False),
        _row("previous-match", "N", "Previous match", "log kernel",
             "The line before that matches the search.", in_palette=False),
        _row("pause", "space", "Pause or follow", "log kernel console",
             "Pause the log, or follow its newest line; no line is lost while it is paused.",
             footer="pause", footer_in="overview log kernel"),
        _row("wrap", "w", "Wrap lines", "log kernel console", "Break long log lines, or cut them at the edge."),
        _row("times", "t", "Show times", "log kernel",
             "Show the time of each line, where the log has the focus.", in_palette=False),
        _row("heads", "p", "Whole lines", "log",
             "Show each line as the engine wrote it, with its process, time and source file, or fold them away.",
             in_palette=False),
        _row("routine", "z", "Unfold", "log console",
             "Show an engine's statistics lines, health probes and scrapes in its log too, or only count them."),
        _row("previous", "b", "Earlier container", "log console",
             "The log of the container that had this engine's name before a relaunch, or this one's again.",
             in_palette=False),
        _row("raw", "a", "All kernel lines", "kernel",
             "Cycle: the events that matter, then each node's whole kernel log.", in_palette=False),
        _row("copy", "y c", "Copy", "findings node engines log kernel processes events",
             "Copy the focused pane's selected line or text to the clipboard; in a dialog, what it says.",
             in_palette=False),
        _row("save-log", "ctrl+s", "Save the log", "log kernel console",
             "Write the log, as far as it is kept here, to a file on this machine.", action="save"),
    ),
)
# fmt: on
"""In the order of the footer, the palette and the help."""


_KEY_NAMES = {"enter": "Enter", "pageup": "PgUp", "pagedown": "PgDn"}
"""Where Textual writes a sign or no capitals."""


def bindings(scope: str, *, priority: bool = False) -> list[BindingType]:
    """The Textual bindings of one scope; hidden, as the footer is drawn from COMMANDS."""
    return [
        Binding(
            ",".join(command.keys), command.action_in(scope), show=False, priority=priority, id=f"{scope}.{command.id}"
        )
        for command in COMMANDS
        if scope in command.scopes
    ]


def bound(**keys_of: str) -> list[BindingType]:
    """The bindings of a covering screen, action to its keys: close="escape,q". Hidden, as each screen writes its
    own hints."""
    return [Binding(keys, action, show=False) for action, keys in keys_of.items()]


def by_group() -> Iterator[tuple[str, list[Command]]]:
    """(group, its commands), in the order of each group's first command."""
    groups: dict[str, list[Command]] = {}
    for command in COMMANDS:
        groups.setdefault(command.group, []).append(command)
    yield from groups.items()


def key_name(key: str) -> str:
    """How a key is written for people: `question_mark` is `?`, `ctrl+p` is `Ctrl+P`."""
    if key in _KEY_NAMES:
        return _KEY_NAMES[key]
    name = key if "+" in key else format_key(key)
    return "+".join(part.capitalize() for part in name.split("+")) if len(name) > 1 else name


def keys_text(command: Command) -> str:
    """All keys of a command: "?, F1"."""
    return ", ".join(key_name(key) for key in command.keys)


def readme_table() -> str:
    """The README's Markdown table of keys and titles, one row per group; a replay shows its own."""
    rows = ["| | keys |", "| --- | --- |"]
    for group, commands in by_group():
        if all(command.scopes == ("replay",) for command in commands):
            continue
        named = (f"{' '.join(f'`{key_name(key)}`' for key in command.keys)} {command.title}" for command in commands)
        rows.append(f"| **{group}** | {' · '.join(named)} |")
    return "\n".join(rows) + "\n"
