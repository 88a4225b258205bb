"""The commands over what was recorded: replay, events, report."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.composition import own_rules
from sparktop.cli.options import add_theme, parser, settings
from sparktop.config import state_home
from sparktop.dataclass import dataclass
from sparktop.errors import UsageError
from sparktop.record.reader import entries, files_from, heading_of, span
from sparktop.record.tape import folder_of, recordings
from sparktop.text.units import day_time, size
from sparktop.text.units import span as lasting

if TYPE_CHECKING:
    from sparktop.observe.replay.replay import Replay
    from sparktop.observe.watch import Publish, Watch
    from sparktop.transport.base import Prompter

LEAD_S = 600.0
"""How long before a moment a replay begins: rules go by what lasted."""
WHAT_HELP = "a host, whose newest recording it is; or the file of a recording, as another console wrote it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taped:
    """Recordings to be played together, by node."""

    files: dict[str, tuple[Path, ...]]
    begin_s: float
    end_s: float

    def replay(self, at_s: float) -> Replay:
        """A replay that begins some time before a moment."""
        from sparktop.diagnose.catalogue import live_rules
        from sparktop.diagnose.logs.rule import shipped
        from sparktop.observe.replay.replay import Replay

        own = own_rules()
        parts = {node: files_from(files, at_s - LEAD_S) for node, files in self.files.items()}
        return Replay(
            {node: entries(files) for node, files in parts.items()},
            begin_s=min(span(files)[0] for files in parts.values()),
            rules=live_rules(own.lint),
            log_rules=lambda: (*shipped(), *own.log),
        )


def replay(words: list[str]) -> int:
    """`sparktop replay`."""
    options = replay_arguments().parse_args(words)
    config = settings(options)
    if not options.what:
        return _list()
    if not sys.stdout.isatty():
        raise UsageError("sparktop replay needs a terminal", hint="sparktop events prints what happened as JSON lines")
    at_s = moment(options.at, time.time()) if options.at else None
    taped = find(options.what, at_s)
    if at_s is not None and not taped.begin_s <= at_s <= taped.end_s:
        raise UsageError(
            f"nothing was recorded at {day_time(at_s)}",
            hint=f"this recording is from {day_time(taped.begin_s)} to {day_time(taped.end_s)}",
        )
    from sparktop.cli.interpreter import prepare_for_console

    prepare_for_console()
    from sparktop.observe.replay.player import Player
    from sparktop.text.ascii import wants_ascii
    from sparktop.ui.replay import ReplayApp

    receivers: list[Publish] = []
    player = Player(
        taped.replay,
        begin_s=taped.begin_s,
        end_s=taped.end_s,
        at_s=taped.begin_s if at_s is None else at_s,
        publish=lambda state: receivers[0](state),
    )

    async def start(publish: Publish, _: Prompter) -> Watch:
        receivers.append(publish)
        return player

    app = ReplayApp(
        player,
        start=start,
        node_names=tuple(taped.files),
        title="replay: ",
        theme=config.theme,
        is_ascii=wants_ascii(os.environ),
    )
    exit_code = app.run()
    return 1 if exit_code is None else exit_code


def replay_arguments() -> ArgumentParser:
    """The arguments of `sparktop replay`."""
    argument_parser = parser("replay", "sparktop replay [options] [FILE|HOST ...]")
    argument_parser.add_argument(
        "what", nargs="*", metavar="FILE|HOST", help=f"{WHAT_HELP}; none lists what was recorded"
    )
    argument_parser.add_argument(
        "--at", metavar="TIME", default="", help="begin there: 03:12, 2026-11-29 03:12, or 2h for two hours ago"
    )
    add_theme(argument_parser)
    return argument_parser


def events(words: list[str]) -> int:
    """`sparktop events`."""
    options = events_arguments().parse_args(words)
    settings(options)
    now_s = time.time()
    since_s = moment(options.since, now_s) if options.since else None
    taped = find(options.what, since_s)
    from sparktop.headless.events import events as tell

    begin_s = taped.begin_s if since_s is None else since_s
    return tell(taped.replay(begin_s), since_s=begin_s)


def events_arguments() -> ArgumentParser:
    """The arguments of `sparktop events`."""
    argument_parser = parser("events", "sparktop events [options] FILE|HOST [FILE|HOST ...]")
    argument_parser.add_argument("what", nargs="+", metavar="FILE|HOST", help=WHAT_HELP)
    argument_parser.add_argument("--since", metavar="TIME", default="", help="what is older is left out: 03:12, 2h")
    return argument_parser


def report(words: list[str]) -> int:
    """`sparktop report`."""
    options = report_arguments().parse_args(words)
    settings(options)
    now_s = time.time()
    since_s = moment(options.since, now_s) if options.since else None
    until_s = moment(options.until, now_s) if options.until else float("inf")
    taped = find(options.what, since_s)
    begin_s = taped.begin_s if since_s is None else since_s
    if until_s <= begin_s:
        raise UsageError(f"{day_time(until_s)} is not after {day_time(begin_s)}", hint="--since TIME --until TIME")
    from sparktop.headless.report.report import report as write

    return write(taped.replay(begin_s), since_s=begin_s, until_s=until_s, out=options.out)


def report_arguments() -> ArgumentParser:
    """The arguments of `sparktop report`."""
    argument_parser = parser("report", "sparktop report [options] FILE|HOST [FILE|HOST ...] -o FILE")
    argument_parser.add_argument("what", nargs="+", metavar="FILE|HOST", help=WHAT_HELP)
    argument_parser.add_argument("--since", metavar="TIME", default="", help="where it begins: 03:12, 2h")
    argument_parser.add_argument("--until", metavar="TIME", default="", help="where it ends (default: at the end)")
    argument_parser.add_argument(
        "-o", dest="out", type=Path, metavar="FILE", required=True, help="FILE.html or FILE.md; - prints Markdown"
    )
    return argument_parser


def find(what: Sequence[str], at_s: float | None) -> Taped:
    """The recordings that are meant: each host's newest that had begun by a moment.

    Raises:
        UsageError: there is none, or it can't be read.
    """
    found: dict[str, tuple[Path, ...]] = {}
    for word in what:
        path = Path(word)
        if path.is_file():
            found[heading_of(path).host] = (path,)
            continue
        kept = recordings(path if path.is_dir() else _folder(word))
        begun = [one for one in kept if at_s is None or heading_of(one.files[0]).at_s <= at_s]
        if not kept:
            raise UsageError(f"nothing of {word} was recorded", hint="`sparktop replay` lists what was")
        chosen = (begun or list(kept))[-1]
        found[chosen.host] = chosen.files
    spans = [span(files) for files in found.values()]
    return Taped(files=found, begin_s=min(begin_s for begin_s, _ in spans), end_s=max(end_s for _, end_s in spans))


def moment(text: str, now_s: float) -> float:
    """A moment as it is typed: a time of the last day, a date with a time, or how long ago.

    Raises:
        UsageError: it is none of these.
    """
    now = datetime.fromtimestamp(now_s)
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    try:
        if text[-1:] in units and text[:-1].replace(".", "", 1).isdecimal():
            return (now - timedelta(**{units[text[-1]]: float(text[:-1])})).timestamp()
        if len(text) <= len("03:12:44"):
            then = datetime.combine(now.date(), datetime.strptime(text, _shape(text)).time())
            return (then if then <= now else then - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        hint = "03:12, 2026-11-29 03:12, or 2h for two hours ago"
        raise UsageError(f"{text!r} is no time", hint=hint) from None


def _shape(text: str) -> str:
    return "%H:%M:%S" if text.count(":") == 2 else "%H:%M"


def _homes() -> tuple[Path, ...]:
    return state_home() / "recordings", state_home() / "demo" / "recordings"


def _folder(host: str) -> Path:
    """A host's folder; a demo's where no host of that name was recorded."""
    folders = [folder_of(host, home) for home in _homes()]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def _list() -> int:
    rows = []
    for home in _homes():
        for folder in sorted(home.iterdir()) if home.is_dir() else ():
            for recording in recordings(folder):
                begin_s, end_s = span(recording.files)
                stored = sum(file.stat().st_size for file in recording.files)
                demo = "  a demo" if home.parent.name == "demo" else ""
                told = f"{day_time(begin_s)}  {lasting(end_s - begin_s):>9}  {size(stored):>9}{demo}"
                rows.append(f"{recording.host:16}  {told}")
    print("\n".join(rows) or "nothing was recorded: a console keeps what it sees while it runs")
    return 0
