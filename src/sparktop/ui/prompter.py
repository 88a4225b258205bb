"""Asks the operator what a connection or a step wants to know; the dialogs are imported with the first question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App

from sparktop.transport.base import HostKeyQuestion, SecretQuestion

if TYPE_CHECKING:
    from sparktop.ui.dialogs.dialog import Dialog

Answer = TypeVar("Answer")


class ConsolePrompter:
    """The Prompter of the running app: shows the questions of all nodes one after the other.

    A question whose asker was cancelled (the connection ended) closes its dialog.
    """

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        from sparktop.ui.dialogs.prompts import HostKeyScreen

        trusted = await self._ask(HostKeyScreen(question))
        return trusted is True

    async def secret(self, question: SecretQuestion) -> str | None:
        from sparktop.ui.dialogs.prompts import LoginScreen

        return await self._ask(LoginScreen(question))

    async def sudo(self, node: str, wrong_count: int) -> str | None:
        """The user's sudo password on that node, after `wrong_count` wrong ones; None: the operator gave up."""
        from sparktop.ui.dialogs.prompts import SudoScreen

        return await self._ask(SudoScreen(node, wrong_count))

    async def _ask(self, screen: Dialog[Answer]) -> Answer | None:
        async with self._turn:
            answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

            def answered(result: Answer | None) -> None:
                if not answer.done():
                    answer.set_result(result)

            # Not push_screen_wait: this runs in the monitor's tasks, which aren't workers of the app.
            self._app.push_screen(screen, answered)
            try:
                return await answer
            except asyncio.CancelledError:
                screen.settle(None)
                raise
