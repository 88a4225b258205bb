"""The commands over what was recorded: replay, events, report."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.composition import own_rules, prepare_for_console
from sparktop.cli.options import THEME, argument, settings, takes
from sparktop.config import state_home
from sparktop.dataclass import dataclass
from sparktop.errors import UsageError
from sparktop.record.reader import entries, heading_of, span
from sparktop.record.tape import folder_of, recordings
from sparktop.record.window import Piece, chosen, holes, played, shared
from sparktop.text.units import day_time, size
from sparktop.text.units import span as lasting

if TYPE_CHECKING:
    from sparktop.model.event import Event
    from sparktop.observe.replay.replay import Replay
    from sparktop.observe.watch import Publish, Watch
    from sparktop.transport.base import Prompter

LEAD_S = 600.0
"""How long before a moment a replay begins: rules go by what lasted."""
WHAT_HELP = (
    "a host: its newest recording, or with a time all of its recordings from then on; or the file of a recording, as "
    "another console wrote it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taped:
    """Recordings to be played together, by node."""

    pieces: dict[str, tuple[Piece, ...]]
    notes: tuple[str, ...]
    """What is said of them: what is missing at their beginning, and where one console's is shown of two."""

    @property
    def begin_s(self) -> float:
        """Of the first."""
        return min(pieces[0].begin_s for pieces in self.pieces.values())

    @property
    def end_s(self) -> float:
        """Of the last."""
        return max(pieces[-1].end_s for pieces in self.pieces.values())

    @property
    def holes(self) -> tuple[tuple[float, float], ...]:
        """(From, until) of where nothing of any node was recorded."""
        common, *others = (holes(pieces) for pieces in self.pieces.values())
        for other in others:
            both = ((max(one[0], two[0]), min(one[1], two[1])) for one in common for two in other)
            common = tuple((from_s, until_s) for from_s, until_s in both if from_s < until_s)
        return common

    def replay(self, at_s: float) -> Replay:
        """A replay that begins some time before a moment."""
        from sparktop.diagnose.catalogue import live_rules
        from sparktop.diagnose.logs.rule import shipped
        from sparktop.observe.replay.replay import Replay

        own = own_rules()
        tapes = {node: played(pieces, at_s - LEAD_S) for node, pieces in self.pieces.items()}
        return Replay(
            {node: entries for node, (_, entries) in tapes.items()},
            begin_s=min(begin_s for begin_s, _ in tapes.values()),
            rules=live_rules(own.lint),
            log_rules=lambda: (*shipped(), *own.log),
        )

    def told(self) -> list[Event] | None:
        """What consoles told as they recorded, oldest first; None where one of them kept none, as older ones do."""
        from sparktop.observe.received import Told
        from sparktop.observe.replay.recorder import unpacked

        found: set[Event] = set()  # an event of two nodes is on both tapes
        for piece in [piece for pieces in self.pieces.values() for piece in pieces]:
            kept = [unpacked(entry) for entry in entries(piece.files) if entry.kind == "told"]
            events = [event for one in kept if isinstance(one, Told) for event in one.events]
            if not events:
                return None
            found.update(event for event in events if piece.begin_s <= event.at_s <= piece.end_s)
        return sorted(found, key=lambda event: event.at_s)


@takes(
    argument("what", f"{WHAT_HELP}; none lists what was recorded", "FILE|HOST", nargs="*"),
    argument("--at", "begin there: 03:12, 2026-11-29 03:12, or 2h for two hours ago", "TIME"),
    THEME,
)
def replay(options: Namespace) -> int:
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
            hint=f"it was from {day_time(taped.begin_s)} to {day_time(taped.end_s)}",
        )
    prepare_for_console()
    from sparktop.observe.replay.player import Player
    from sparktop.text.ascii import wants_ascii
    from sparktop.ui.replay import ReplayApp
    from sparktop.ui.setup import Setup

    receivers: list[Publish] = []
    player = Player(
        taped.replay,
        begin_s=taped.begin_s,
        end_s=taped.end_s,
        at_s=taped.begin_s if at_s is None else at_s,
        holes=taped.holes,
        told=taped.told,
        publish=lambda state: receivers[0](state),
    )

    async def start(publish: Publish, _: Prompter) -> Watch:
        receivers.append(publish)
        return player

    app = ReplayApp(
        player,
        Setup(start=start, node_names=tuple(taped.pieces), clock=player, title="replay: "),
        greeting="; ".join(taped.notes),
        theme=config.theme,
        is_ascii=wants_ascii(os.environ),
    )
    exit_code = app.run()
    return 1 if exit_code is None else exit_code


@takes(
    argument("what", WHAT_HELP, "FILE|HOST", nargs="+"),
    argument("--since", "what is older is left out: 03:12, 2h", "TIME"),
)
def events(options: Namespace) -> int:
    settings(options)
    now_s = time.time()
    since_s = moment(options.since, now_s) if options.since else None
    taped = find(options.what, since_s)
    for note in taped.notes:
        print(f"sparktop: {note}", file=sys.stderr)
    begin_s = taped.begin_s if since_s is None else since_s
    for picture in taped.replay(begin_s).play(seen=False):
        for event in picture.news if picture.wall_s >= begin_s else ():
            print(json.dumps(asdict(event) | {"at_s": round(event.at_s, 3)}, ensure_ascii=False))
    return 0


@takes(
    argument("what", WHAT_HELP, "FILE|HOST", nargs="+"),
    argument("--since", "where it begins: 03:12, 2h", "TIME"),
    argument("--until", "where it ends (default: at the end)", "TIME"),
    argument(
        "-o", "FILE.html or FILE.md; - prints Markdown", "FILE", dest="out", type=Path, required=True, default=None
    ),
)
def report(options: Namespace) -> int:
    settings(options)
    now_s = time.time()
    since_s = moment(options.since, now_s) if options.since else None
    until_s = moment(options.until, now_s) if options.until else float("inf")
    taped = find(options.what, since_s, until_s)
    begin_s = taped.begin_s if since_s is None else since_s
    if until_s <= begin_s:
        raise UsageError(f"{day_time(until_s)} is not after {day_time(begin_s)}", hint="--since TIME --until TIME")
    from sparktop.headless.report.page import report as write

    return write(taped.replay(begin_s), since_s=begin_s, until_s=until_s, out=options.out, notes=taped.notes)


def find(what: Sequence[str], since_s: float | None, until_s: float = float("inf")) -> Taped:
    """The recordings that are meant: of each host all that overlap a window; its newest where that has no beginning.

    Raises:
        UsageError: there is none, or it can't be read.
    """
    found: dict[str, tuple[Piece, ...]] = {}
    notes: list[str] = []
    for word in what:
        path = Path(word)
        if path.is_file():
            found[heading_of(path).host] = (Piece.whole((path,)),)
            continue
        kept = recordings(path if path.is_dir() else _folder(word))
        if not kept:
            raise UsageError(f"nothing of {word} was recorded", hint="`sparktop replay` lists what was")
        host, wholes = kept[0].host, []
        for one in kept:
            try:
                wholes.append(Piece.whole(one.files))
            except UsageError as error:  # cut short as it began, or of a later version
                if len(kept) == 1:
                    raise
                notes.append(error.message)
        if not wholes:
            raise UsageError(f"nothing of {word} can be read: {notes[-1]}")
        if since_s is None:
            found[host] = (([one for one in wholes if one.begin_s <= until_s] or wholes)[-1],)
            continue
        found[host] = pieces = chosen(wholes, since_s, until_s) or (wholes[-1],)
        if since_s < pieces[0].begin_s <= until_s:
            notes.append(f"nothing of {host} was recorded from {day_time(since_s)} to {day_time(pieces[0].begin_s)}")
        if (both := shared(wholes, since_s, until_s)) is not None:
            at_once = f"{host} was recorded twice at once between {day_time(both[0])} and {day_time(both[1])}"
            notes.append(f"{at_once}: the recording that covers more is shown")
    return Taped(pieces=found, notes=tuple(notes))


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
