"""A mail, by an SMTP server or by this machine's own sendmail."""

from __future__ import annotations

import smtplib
import ssl
from contextlib import closing, suppress
from dataclasses import field
from email.message import EmailMessage

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.transport.outgoing.outcome import Outcome
from sparktop.transport.outgoing.program import run_command
from sparktop.transport.threads import in_thread

TIMEOUT_S = 20.0
TLS_PORT = 465
SENDMAIL = ("sendmail", "-t", "-oi")
"""Recipients from the header; a line with a dot alone doesn't end the mail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpServer:
    """Where mail is handed in; with a user only over TLS."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


async def send_mail(message: EmailMessage, server: SmtpServer | None) -> Outcome:
    """Hand a mail to the server; None: to sendmail."""
    if server is None:
        return Outcome(problem=await run_command(SENDMAIL, message.as_bytes(), limit_s=TIMEOUT_S), answer="sendmail")
    return await in_thread(lambda: _over_smtp(message, server))


def _over_smtp(message: EmailMessage, server: SmtpServer) -> Outcome:
    where = f"{server.host}:{server.port}"
    try:
        context = ssl.create_default_context()
        with closing(_connected(server, context)) as smtp:
            if server.port != TLS_PORT and (server.user or smtp.has_extn("starttls")):
                smtp.starttls(context=context)
            if server.user:
                smtp.login(server.user, server.password)
            smtp.send_message(message)
            with suppress(OSError, smtplib.SMTPException):  # it has the mail: whatever follows, it isn't sent again
                smtp.quit()
    except (OSError, smtplib.SMTPException, ValueError) as error:
        codes = [code for code, _ in getattr(error, "recipients", {}).values()] or [getattr(error, "smtp_code", 0)]
        is_about_mail = isinstance(error, smtplib.SMTPRecipientsRefused | smtplib.SMTPDataError)
        problem = sanitise.line(f"{where}: {type(error).__name__}: {error}", limit=250)
        return Outcome(problem=problem, is_refused=is_about_mail and min(codes) >= 500)
    return Outcome(answer="accepted")


def _connected(server: SmtpServer, context: ssl.SSLContext) -> smtplib.SMTP:
    if server.port == TLS_PORT:
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_S, context=context)
    else:
        smtp = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
    smtp.ehlo()
    return smtp
