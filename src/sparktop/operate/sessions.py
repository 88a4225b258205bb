"""Who is logged in on a node: logind's sessions, and `who`. What is asked, and how the answers are read; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparktop import sanitise
from sparktop.operate.machine import said
from sparktop.operate.survey import Ask, Output, Survey

SESSIONS_AT_MOST = 20
_SESSION_ID = re.compile(r"[A-Za-z0-9]{1,32}")
_SHOWN = ("Id", "Name", "User", "Type", "Class", "State", "Remote", "Seat")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphicalSession:
    """A session with a screen."""

    user: str
    user_id: int | None
    kind: str
    """x11, wayland, mir; empty where logind doesn't say."""
    is_greeter: bool = False


def _list_ask(node: str) -> Output:
    return Output(node=node, argv=("loginctl", "list-sessions", "--no-legend", "--no-pager"))


def _show_ask(node: str, survey: Survey) -> Output | None:
    text = survey.value(_list_ask(node))
    if not isinstance(text, str):
        return None
    ids = [words[0] for line in text.splitlines() if (words := line.split()) and _SESSION_ID.fullmatch(words[0])]
    if not ids:
        return None
    shown = [part for name in _SHOWN for part in ("-p", name)]
    return Output(node=node, argv=("loginctl", "show-session", *shown, *ids[:SESSIONS_AT_MOST]))


def session_asks(node: str, survey: Survey) -> tuple[Ask, ...]:
    """Two rounds: which sessions there are, then what each is."""
    second = _show_ask(node, survey)
    return (_list_ask(node), second) if second is not None else (_list_ask(node),)


def graphical(survey: Survey, node: str) -> tuple[GraphicalSession, ...]:
    """The sessions with a screen, the login screen's own too; empty where logind couldn't be asked."""
    second = _show_ask(node, survey)
    text = survey.value(second) if second is not None else None
    if not isinstance(text, str):
        return ()
    found = []
    for block in re.split(r"\n\s*\n", text):
        row = said(block)
        if row.get("Type") in ("x11", "wayland", "mir") and row.get("State") != "closing":
            user_id = row.get("User", "")
            found.append(
                GraphicalSession(
                    user=sanitise.name(row.get("Name", "")),
                    user_id=int(user_id) if user_id.isascii() and user_id.isdecimal() else None,
                    kind=row["Type"],
                    is_greeter=row.get("Class") == "greeter",
                )
            )
    return tuple(found)


def who_ask(node: str) -> Output:
    return Output(node=node, argv=("who", "-u"))


def logged_in(survey: Survey, node: str) -> tuple[str, ...] | None:
    """Lines of `who`, our own login among them; None where it couldn't be asked."""
    text = survey.value(who_ask(node))
    if not isinstance(text, str):
        return None
    return tuple(" ".join(sanitise.line(line, limit=160).split()) for line in text.splitlines() if line.strip())[:12]


def inhibitors_ask(node: str) -> Output:
    return Output(node=node, argv=("systemd-inhibit", "--list", "--no-legend", "--no-pager"))


def inhibitors(survey: Survey, node: str) -> tuple[str, ...]:
    """Who has asked that the machine be not shut down."""
    text = survey.value(inhibitors_ask(node))
    if not isinstance(text, str):
        return ()
    lines = [" ".join(sanitise.line(line, limit=160).split()) for line in text.splitlines()]
    return tuple(line for line in lines if "shutdown" in line and line.endswith("block"))[:6]
