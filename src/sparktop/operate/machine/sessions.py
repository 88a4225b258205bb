"""Who is logged in on a node, from logind and `who`: the questions and how their answers are read. Pure."""

from __future__ import annotations

import re

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.survey import Output, Question, Survey
from sparktop.operate.plan.common_steps import key_values

SESSIONS_AT_MOST = 20
_SESSION_ID = re.compile(r"[A-Za-z0-9]{1,32}")
_SHOWN = ("Id", "Name", "User", "Type", "Class", "State", "Remote", "Seat")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphicalSession:
    """A graphical session."""

    user: str
    user_id: int | None
    kind: str
    """x11, wayland, mir; empty where logind doesn't say."""
    is_greeter: bool = False


def _list_question(node: str) -> Output:
    return Output(node=node, argv=("loginctl", "list-sessions", "--no-legend", "--no-pager"))


def _show_question(node: str, survey: Survey) -> Output | None:
    text = survey.text(_list_question(node)) or ""
    ids = [words[0] for line in text.splitlines() if (words := line.split()) and _SESSION_ID.fullmatch(words[0])]
    if not ids:
        return None
    shown = [word for name in _SHOWN for word in ("-p", name)]
    return Output(node=node, argv=("loginctl", "show-session", *shown, *ids[:SESSIONS_AT_MOST]))


def session_questions(node: str, survey: Survey) -> tuple[Question, ...]:
    """The questions, in two rounds: which sessions there are, then what each is."""
    show_question = _show_question(node, survey)
    return (_list_question(node), show_question) if show_question is not None else (_list_question(node),)


def graphical(survey: Survey, node: str) -> tuple[GraphicalSession, ...]:
    """The graphical sessions, with the login screen's own; empty where logind couldn't be asked."""
    show_question = _show_question(node, survey)
    text = (survey.text(show_question) if show_question is not None else None) or ""
    sessions = []
    for block in re.split(r"\n\s*\n", text):
        row = key_values(block)
        if row.get("Type") in ("x11", "wayland", "mir") and row.get("State") != "closing":
            user_id = row.get("User", "")
            sessions.append(
                GraphicalSession(
                    user=sanitise.name(row.get("Name", "")),
                    user_id=int(user_id) if user_id.isascii() and user_id.isdecimal() else None,
                    kind=row["Type"],
                    is_greeter=row.get("Class") == "greeter",
                )
            )
    return tuple(sessions)


def who_question(node: str) -> Output:
    return Output(node=node, argv=("who", "-u"))


def logged_in(survey: Survey, node: str) -> tuple[str, ...] | None:
    """Who is logged in, where from and since when, our own login among them; None where it couldn't be asked."""
    text = survey.text(who_question(node))
    if text is None:
        return None
    return tuple(
        _login(" ".join(sanitise.line(line, limit=160).split())) for line in text.splitlines() if line.strip()
    )[:12]


_LOGIN = re.compile(r"(?P<user>\S+) (?P<line>\S+) (?P<since>\d{4}-\d\d-\d\d \d\d:\d\d)(?:.* \((?P<host>[^()]+)\))?")


def _login(line: str) -> str:
    """A line of `who -u` in words; in another locale's form as it is."""
    row = _LOGIN.match(line)
    if row is None:
        return line
    host = row["host"] or ""
    is_here = row["line"].startswith(":") or host.startswith(":")
    place = "on the desktop" if is_here else f"from {host}" if host else f"on {row['line']}"
    return f"{row['user']} {place} since {row['since']}"


def inhibitors_question(node: str) -> Output:
    return Output(node=node, argv=("systemd-inhibit", "--list", "--no-legend", "--no-pager"))


def inhibitors(survey: Survey, node: str) -> tuple[str, ...]:
    """Who has asked to block a shutdown."""
    text = survey.text(inhibitors_question(node)) or ""
    lines = [" ".join(sanitise.line(line, limit=160).split()) for line in text.splitlines()]
    return tuple(line for line in lines if "shutdown" in line and line.endswith("block"))[:6]
