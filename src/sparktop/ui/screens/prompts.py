"""Questions a connection asks: trust this host key? what is the password? One dialog at a time."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Generic, TypeVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.ui.theme import tones
from sparktop.ui.widgets.ink import Line

Answer = TypeVar("Answer")


class Prompt(ModalScreen[Answer], Generic[Answer]):
    """A dialog with one question; subclasses say what it asks and what its answers are."""

    DEFAULT_CSS = """
    Prompt { align: center middle; }
    Prompt > .dialog { width: 84; max-width: 96%; height: auto; max-height: 96%; }
    Prompt VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    Prompt .question { height: auto; width: 1fr; }
    Prompt .answers { height: auto; align-horizontal: right; margin-top: 1; }
    Prompt .answers Button { margin-left: 2; }
    """

    is_withdrawn = False
    """Nobody waits for the answer any more: the dialog goes as soon as it is on top."""

    def on_mount(self) -> None:
        self.fill(*self.paragraphs())

    def on_resize(self, event: events.Resize) -> None:
        """The answers stay on screen, whatever the question's length: the question scrolls."""
        self.query_one(VerticalScroll).styles.max_height = max(2, event.size.height - 8)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        if self.is_withdrawn:
            self.dismiss(None)

    def paragraphs(self) -> list[Line]:
        """The question, each paragraph on lines of its own."""
        raise NotImplementedError

    def fill(self, *paragraphs: Line) -> None:
        """Show the question."""
        styles = tones(self.app, self.query_one(".dialog").background_colors[1])
        text = Text()
        for number, paragraph in enumerate(paragraphs):
            text.append("\n" if number else "")
            for run, tone in paragraph.runs:
                text.append(run, styles[tone])
        self.query_one(".question", Static).update(text)


class HostKeyScreen(Prompt[bool]):
    """First contact with a host: its fingerprint, and whether to trust it from now on. Refusing is the default."""

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
        with Vertical(classes="dialog") as box:
            box.border_title = Text(f"new host  {self._question.host}")
            with VerticalScroll(can_focus=False):
                yield Static(classes="question", markup=False)
            with Horizontal(classes="answers"):
                yield Button(Text("Trust and connect"), id="trust", compact=True)
                yield Button(Text("Refuse"), id="refuse", compact=True)

    def paragraphs(self) -> list[Line]:
        asked = self._question
        same = ", ".join(asked.same_key_hosts)
        return [
            Line.of("No key is known for ", (asked.host, "strong"), ". It presents this one:"),
            Line(),
            Line.of((asked.fingerprint, "title"), (f"  {asked.algorithm}", "quiet")),
            *([Line.of((f"▲ {same} presents the same key.", "warning"))] if same else []),
            Line(),
            Line.of("Compare it on the machine itself:"),
            Line.of((f"ssh-keygen -lf /etc/ssh/{_key_file(asked.algorithm)}", "strong")),
            Line.of(("Trusted, it is written to ", "quiet"), str(asked.known_hosts_path)),
            *(_same_key_means() if same else []),
        ]

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    @on(Button.Pressed, "#trust")
    def _trust(self) -> None:
        self.dismiss(True)

    @on(Button.Pressed, "#refuse")
    def action_refuse(self) -> None:
        self.dismiss(False)


def _same_key_means() -> list[Line]:
    return [
        Line(),
        Line.of(
            "Either both names lead to one machine, or the units were shipped with one key, and each can pass for "
            "the other. A new key, on one of them: ",
            ("sudo rm /etc/ssh/ssh_host_*; sudo dpkg-reconfigure openssh-server", "strong"),
        ),
    ]


def _key_file(algorithm: str) -> str:
    kind = "ed25519" if "ed25519" in algorithm else "ecdsa" if "ecdsa" in algorithm else "rsa"
    return f"ssh_host_{kind}_key.pub"


class SecretScreen(Prompt[str | None]):
    """A password, a passphrase or a server's own question; what is typed is handed over once and kept nowhere."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Give up", show=False)]
    AUTO_FOCUS = "Input"
    VERB = "log in"

    def __init__(self, question: SecretQuestion) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Text(f"{self.VERB}  {self._question.host}")
            box.border_subtitle = Text("Enter send   Esc give up")
            with VerticalScroll(can_focus=False):
                yield Static(classes="question", markup=False)
            yield Input(password=not self._question.echo, compact=True, classes="secret")

    def paragraphs(self) -> list[Line]:
        asked = self._question
        return [
            Line.of((asked.prompt or "Password:", "strong")),
            Line.of((f"Asked by {asked.host}. The answer is used once and kept nowhere.", "quiet")),
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
    """The password for sudo on one node; sent only after sudo itself has asked, and kept nowhere."""

    VERB = "sudo"

    def __init__(self, node: str, wrong_count: int) -> None:
        super().__init__(SecretQuestion(host=node, prompt="sudo password:"))
        self._wrong_count = wrong_count

    def paragraphs(self) -> list[Line]:
        wrong = self._wrong_count
        said = f"▲ {'That was' if wrong == 1 else f'{wrong} times it was'} not the password."
        return [
            *([Line.of((said, "warning")), Line()] if wrong else []),
            Line.of((f"sudo on {self._question.host} wants your password.", "strong")),
            Line.of(("It is used for this run and kept nowhere. Giving up changes nothing.", "quiet")),
            Line(),
        ]


class ConsolePrompter:
    """A transport's Prompter over a running app. Nodes that ask at once are asked for one after the other.

    A question whose asker has gone (the connection ended meanwhile) closes its dialog.
    """

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        trusted = await self._ask(HostKeyScreen(question))
        return trusted is True

    async def secret(self, question: SecretQuestion) -> str | None:
        return await self._ask(SecretScreen(question))

    async def sudo(self, node: str, wrong_count: int) -> str | None:
        """The password of the user on that node, of which so many were wrong so far; None: the operator gave up."""
        return await self._ask(SudoScreen(node, wrong_count))

    async def _ask(self, screen: Prompt[Answer]) -> Answer | None:
        async with self._turn:
            answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

            def answered(result: Answer | None) -> None:
                if not answer.done():
                    answer.set_result(result)

            # Not push_screen_wait: this runs in the monitor's tasks, which are no workers of the app.
            self._app.push_screen(screen, answered)
            try:
                return await answer
            except asyncio.CancelledError:
                screen.is_withdrawn = True
                if screen.is_active:
                    screen.dismiss(None)
                raise
