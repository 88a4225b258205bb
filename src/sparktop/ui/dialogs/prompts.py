"""Prompts for a host key, a password, the sudo password and a launch's secret; `ui.prompter` shows them."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widget import Widget
from textual.widgets import Input

from sparktop import sanitise
from sparktop.text.lines import BLANK, Line
from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.dialog import ConfirmScreen, Dialog, folded


class HostKeyScreen(ConfirmScreen):
    """Asks whether to trust the fingerprint of a host seen for the first time; refusing is the default."""

    BINDINGS = bound(close="r,n")
    is_worth_copying = True

    def __init__(self, question: HostKeyQuestion) -> None:
        same_key_hosts = ", ".join(question.same_key_hosts)
        paragraphs = [
            Line.of("No key is known for ", (question.host, "strong"), ". It presents this one:"),
            BLANK,
            Line.of((question.fingerprint, "title"), (f"  {question.algorithm}", "quiet")),
            *([Line.of((f"▲ {same_key_hosts} presents the same key.", "warning"))] if same_key_hosts else []),
            BLANK,
            Line.of("Compare it on the machine itself:"),
            Line.of((f"ssh-keygen -lf /etc/ssh/{_key_file(question.algorithm)}", "strong")),
            Line.of(("If trusted, saved in ", "quiet"), str(question.known_hosts_path)),
            *(_SAME_KEY if same_key_hosts else ()),
        ]
        super().__init__(f"new host  {question.host}", paragraphs, yes="Trust and connect", no="Refuse")


_SAME_KEY = (
    BLANK,
    Line.of(
        "Either both names are one machine, or the units were shipped with the same key, so each can pass for "
        "the other. To make a new key on one of them:"
    ),
    Line.of(("sudo rm /etc/ssh/ssh_host_*; sudo dpkg-reconfigure openssh-server", "strong")),
)


def _key_file(algorithm: str) -> str:
    kind = "ed25519" if "ed25519" in algorithm else "ecdsa" if "ecdsa" in algorithm else "rsa"
    return f"ssh_host_{kind}_key.pub"


class SecretScreen(Dialog[str | None]):
    """Asks for a password, a passphrase or another secret; it is passed on once and never stored."""

    AUTO_FOCUS = "Input"
    is_opaque = False

    def __init__(self, title: str, paragraphs: Sequence[Line], *, echo: bool = False) -> None:
        super().__init__(title)
        self._paragraphs = paragraphs
        self._field = Input(password=not echo, compact=True)

    def state_keys(self) -> Sequence[str]:
        return ("Enter send", "Esc cancel")

    def content(self, width: int) -> list[Line]:
        return [*folded(self._paragraphs, width), BLANK]

    def below(self) -> list[Widget]:
        return [self._field]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._leave(event.value)

    def action_close(self) -> None:
        self._leave(None)

    def _leave(self, answer: str | None) -> None:
        with self._field.prevent(Input.Changed):
            self._field.value = ""  # the dialog keeps nothing
        self.dismiss(answer)


class LoginScreen(SecretScreen):
    """Asks what a server wants to know."""

    def __init__(self, question: SecretQuestion) -> None:
        asked = Line.of((question.prompt or "Password:", "strong"))
        source = Line.of((f"From {question.host}. The answer is used once and not stored.", "quiet"))
        super().__init__(f"log in  {question.host}", (asked, source), echo=question.echo)


class SudoScreen(SecretScreen):
    """Asks for the sudo password of one node; it is sent only when sudo asks."""

    def __init__(self, node: str, wrong_count: int) -> None:
        warning = f"▲ {'That was' if wrong_count == 1 else f'{wrong_count} times it was'} not the password."
        paragraphs = [
            *([Line.of((warning, "warning")), BLANK] if wrong_count else []),
            Line.of((f"sudo on {node} wants your password.", "strong")),
            Line.of(("It is used for this run and not stored. Esc changes nothing.", "quiet")),
        ]
        super().__init__(f"sudo  {node}", paragraphs)


class NamedSecret(SecretScreen):
    """Asks for a secret by its name: HF_TOKEN, an API key; `use` says what becomes of it."""

    def __init__(self, name: str, *, use: str) -> None:
        from sparktop.recipe import operator_secrets

        named = sanitise.name(name)
        kept = f"A line NAME=value in {operator_secrets.env_path()} (chmod 600) saves you typing it."
        paragraphs = [
            Line.of((f"{named} isn't set where sparktop was started.", "strong")),
            Line.of((use, "quiet")),
            Line.of((kept, "quiet")),
        ]
        super().__init__(f"secret  {named}", paragraphs)
