"""What is announced, as text and as each kind of target takes it. Pure.

A text from a node is data: it is bounded, and where a target knows markup or mentions, escaped.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from sparktop import sanitise
from sparktop.config import MessageKind, Target, TargetKind
from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import as_data
from sparktop.diagnose.incidents import Change, News
from sparktop.documents.finding import headline
from sparktop.documents.finding_tree import SIGNS
from sparktop.model.event import Severity
from sparktop.text.units import day_time, duration

TITLE_CHARS, LINE_CHARS, TEXT_CHARS = 200, 400, 1500
MAX_LINES, MOST_ITEMS = 40, 5
_MARKUP = re.compile(r"([^\w\s])", re.ASCII)
_PRIORITY = {"critical": 5, "warning": 4}
"""ntfy's, of what begins or gets worse; all else has 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; of a kind and with texts that any target can show."""

    kind: MessageKind
    title: str
    lines: tuple[str, ...] = ()
    severity: str = ""
    """Of an incident."""
    wall_s: float
    incident: str = ""
    """The same in all messages of one incident."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """For programs: the root as JSON data, and the titles of what follows from it."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    """The same each time it is sent."""

    @property
    def text(self) -> str:
        """All lines, bounded."""
        lines = [sanitise.line(line, limit=LINE_CHARS) for line in (self.title, *self.lines[:MAX_LINES])]
        text = "\n".join(line for line in lines if line)
        return text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…"


def of_news(news: News, wall_s: float) -> Message:
    """The message of a change."""
    change, incident = news
    is_over = change is Change.RESOLVED
    root = (incident.announced if is_over else None) or incident.root
    sign = "✔" if is_over else SIGNS[incident.severity][0]
    others = [headline((one,)) for one in incident.consequences]
    lasted_s = None if root.since_wall_s is None else max(0.0, wall_s - root.since_wall_s)
    since = f"since {day_time(root.since_wall_s)}" if root.since_wall_s is not None else ""
    if is_over:
        lines = (f"after {duration(lasted_s)}" if lasted_s is not None else "",)
    else:
        more = f"; {len(others) - 3} more" if others[3:] else ""
        follows = f"It also causes: {'; '.join(others[:3])}{more}" if others else ""
        remedy = f"Next: {root.remedies[0].title}" if root.remedies else ""
        lines = (root.figures, root.explanation, follows, remedy, since)  # type: ignore[assignment]
    return Message(
        kind=MessageKind(change.value),
        title=sanitise.line(f"{sign} {change}: {headline((root,))}", limit=TITLE_CHARS),
        lines=tuple(line for line in lines if line),
        severity=str(incident.severity),
        wall_s=wall_s,
        incident=incident.id,
        detail={"finding": _bounded(as_data(root)), "consequences": _bounded(others)},
    )


def _bounded(value: Any) -> Any:
    """JSON data with its texts bounded, and the first few of each list: a queue holds many messages."""
    if isinstance(value, str):
        return sanitise.line(value, limit=LINE_CHARS)
    if isinstance(value, list):
        return [_bounded(item) for item in value[:MOST_ITEMS]]
    return {name: _bounded(item) for name, item in value.items()} if isinstance(value, dict) else value


def summary(messages: Sequence[Message], wall_s: float, why: str) -> Message:
    """Several messages as one; of a single one itself."""
    if len(messages) == 1:
        return messages[0]
    lines = [
        line
        for one in messages
        for line in (one.lines if one.kind is MessageKind.SUMMARY else (f"{day_time(one.wall_s)} {one.title}",))
    ]
    left_out = sum(one.detail.get("left_out", 0) for one in messages) + max(0, len(lines) - MAX_LINES)
    lines = lines[-MAX_LINES:]
    worst = max((one.severity for one in messages), key=lambda one: Severity(one).weight if one else -1)
    newest = f": the newest {len(lines)}" if left_out else ""
    return Message(
        kind=MessageKind.SUMMARY,
        title=f"{len(lines) + left_out} changes, {why}{newest}",
        lines=tuple(lines),
        severity=worst,
        wall_s=wall_s,
        detail={"left_out": left_out},
    )


def as_json(message: Message) -> dict[str, Any]:
    """For a generic webhook, and a command's standard input."""
    data = {name: value for name, value in asdict(message).items() if name not in ("lines", "detail")}
    return {"version": 1, **data, "text": message.text, **message.detail}


def for_web(message: Message, kind: TargetKind, url: str) -> tuple[str, dict[str, Any]]:
    """(URL, JSON body) for a webhook of this kind."""
    text = message.text
    if kind is TargetKind.SLACK:  # docs.slack.dev: three characters are escaped, and markup can be switched off
        for char, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(char, escaped)
        return url, {"text": text, "mrkdwn": False, "parse": "none", "link_names": False, "unfurl_links": False}
    if kind is TargetKind.DISCORD:  # 2,000 characters; flag 4 shows no page that a text links to
        content = _MARKUP.sub(r"\\\1", text)[:1990]
        return url, {"content": content, "allowed_mentions": {"parse": []}, "flags": 4}
    if kind is TargetKind.NTFY:  # as JSON to the server's root: a header holds no more than Latin-1
        parts = urlsplit(url)
        root, _, topic = parts.path.rstrip("/").rpartition("/")
        is_bad = message.kind in (MessageKind.NEW, MessageKind.WORSE, MessageKind.SUMMARY)
        priority = _PRIORITY.get(message.severity, 3) if is_bad else 3
        title, _, rest = text.partition("\n")
        body = {"topic": topic, "title": title, "message": rest or title, "priority": priority}
        return urlunsplit(parts._replace(path=f"{root}/")), body
    return url, as_json(message)


def for_mail(message: Message, target: Target) -> EmailMessage:
    """The message as a mail."""
    mail = EmailMessage()
    mail["Subject"] = f"sparktop: {message.text.partition(chr(10))[0]}"
    mail["From"] = target.sender
    mail["To"] = ", ".join(target.to)
    mail["Date"] = formatdate(message.wall_s, localtime=True)
    mail["Message-ID"] = f"<{message.id}@sparktop.invalid>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail
