"""Prompts for a host key, a password, the sudo password and a launch's secret; `ui.prompter` shows them."""

from __future__ import annotations

from typing import ClassVar, Generic

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from sparktop import sanitise
from sparktop.text.lines import Line, plain
from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.ui.dialogs.page import Answer, CoveringScreen
from sparktop.ui.theme import styled, tones


class Prompt(CoveringScreen[Answer], ModalScreen[Answer], Generic[Answer]):
    """A dialog that asks one question; subclasses give the question and the answers."""

    is_opaque = False
    DEFAULT_CSS = """
    Prompt { align: center middle; }
    Prompt > .dialog { width: 84; max-width: 96%; height: auto; max-height: 96%; }
    Prompt VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    Prompt .question { height: auto; width: 1fr; }
    Prompt .answers { height: auto; align-horizontal: right; margin-top: 1; }
    Prompt .answers Button { margin-left: 2; }
    """

    is_withdrawn = False
    """Nobody waits for the answer any more: the dialog closes as soon as it is on top."""

    def on_mount(self) -> None:
        styles = tones(self.app, self.query_one(".dialog").background_colors[1])
        self.query_one(".question", Static).update(styled(self.paragraphs(), styles))

    def on_resize(self, event: events.Resize) -> None:
        """Limit the question's height, so that it scrolls and the buttons stay on the screen."""
        self.query_one(VerticalScroll).styles.max_height = max(2, event.size.height - 8)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        if self.is_withdrawn:
            self.dismiss(None)

    def copied(self) -> tuple[str, str]:
        return plain(self.paragraphs()), "the question"

    def paragraphs(self) -> list[Line]:
        """The question, each paragraph on lines of its own."""
        raise NotImplementedError


class HostKeyScreen(Prompt[bool]):
    """Asks whether to trust the fingerprint of a host seen for the first time; refusing is the default."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,r,n", "refuse", "Refuse", show=False),
        Binding("left,right", "app.focus_next", "The other answer", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("down,j", "scroll(1)", "Down", show=False),
    ]
    AUTO_FOCUS = "#refuse"

    def __init__(self, question: HostKeyQuestion) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Text(f"new host  {self._question.host}")
            dialog.border_subtitle = Text("y copy   Esc refuse")
            with VerticalScroll(can_focus=False):
                yield Static(classes="question", markup=False)
            with Horizontal(classes="answers"):
                yield Button(Text("Trust and connect"), id="trust", compact=True)
                yield Button(Text("Refuse"), id="refuse", compact=True)

    def paragraphs(self) -> list[Line]:
        question = self._question
        same_key_hosts = ", ".join(question.same_key_hosts)
        return [
            Line.of("No key is known for ", (question.host, "strong"), ". It presents this one:"),
            Line(),
            Line.of((question.fingerprint, "title"), (f"  {question.algorithm}", "quiet")),
            *([Line.of((f"▲ {same_key_hosts} presents the same key.", "warning"))] if same_key_hosts else []),
            Line(),
            Line.of("Compare it on the machine itself:"),
            Line.of((f"ssh-keygen -lf /etc/ssh/{_key_file(question.algorithm)}", "strong")),
            Line.of(("If trusted, saved in ", "quiet"), str(question.known_hosts_path)),
            *(_same_key_lines() if same_key_hosts else []),
        ]

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    @on(Button.Pressed, "#trust")
    def _trust(self) -> None:
        self.dismiss(True)

    @on(Button.Pressed, "#refuse")
    def action_refuse(self) -> None:
        self.dismiss(False)


def _same_key_lines() -> list[Line]:
    return [
        Line(),
        Line.of(
            "Either both names are one machine, or the units were shipped with the same key, so each can pass for "
            "the other. To make a new key on one of them: ",
            ("sudo rm /etc/ssh/ssh_host_*; sudo dpkg-reconfigure openssh-server", "strong"),
        ),
    ]


def _key_file(algorithm: str) -> str:
    kind = "ed25519" if "ed25519" in algorithm else "ecdsa" if "ecdsa" in algorithm else "rsa"
    return f"ssh_host_{kind}_key.pub"


class SecretScreen(Prompt[str | None]):
    """Asks for a password, a passphrase or the answer to a server's question; it is passed on once and never stored."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Give up", show=False)]
    AUTO_FOCUS = "Input"
    VERB = "log in"

    def __init__(self, question: SecretQuestion) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Text(f"{self.VERB}  {self._question.host}")
            dialog.border_subtitle = Text("Enter send   Esc cancel")
            with VerticalScroll(can_focus=False):
                yield Static(classes="question", markup=False)
            yield Input(password=not self._question.echo, compact=True, classes="secret")

    def paragraphs(self) -> list[Line]:
        question = self._question
        return [
            Line.of((question.prompt or "Password:", "strong")),
            Line.of((f"From {question.host}. The answer is used once and not stored.", "quiet")),
            Line(),
        ]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        answer = event.value
        self._forget()
        self.dismiss(answer)

    def action_give_up(self) -> None:
        self._forget()
        self.dismiss(None)

    def _forget(self) -> None:
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = ""


class SudoScreen(SecretScreen):
    """Asks for the sudo password of one node; it is sent only when sudo asks, and never stored."""

    VERB = "sudo"

    def __init__(self, node: str, wrong_count: int) -> None:
        super().__init__(SecretQuestion(host=node, prompt="sudo password:"))
        self._wrong_count = wrong_count

    def paragraphs(self) -> list[Line]:
        wrong_count = self._wrong_count
        warning = f"▲ {'That was' if wrong_count == 1 else f'{wrong_count} times it was'} not the password."
        return [
            *([Line.of((warning, "warning")), Line()] if wrong_count else []),
            Line.of((f"sudo on {self._question.host} wants your password.", "strong")),
            Line.of(("It is used for this run and not stored. Esc changes nothing.", "quiet")),
            Line(),
        ]


class NamedSecret(SecretScreen):
    """Asks for a secret by its name: HF_TOKEN, an API key; `use` says what becomes of it."""

    VERB = "secret"

    def __init__(self, name: str, *, use: str) -> None:
        super().__init__(SecretQuestion(host=sanitise.name(name), prompt=sanitise.name(name)))
        self._use = use

    def paragraphs(self) -> list[Line]:
        from sparktop.recipe import operator_secrets

        return [
            Line.of((f"{self._question.prompt} isn't set where sparktop was started.", "strong")),
            Line.of((self._use, "quiet")),
            Line.of((f"A line NAME=value in {operator_secrets.env_path()} (chmod 600) saves you typing it.", "quiet")),
            Line(),
        ]
