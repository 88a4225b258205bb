"""Asks for one secret of a launch: typed unseen, kept for this launch alone."""

from __future__ import annotations

from sparktop import sanitise
from sparktop.recipe import ownsecrets
from sparktop.transport.base import SecretQuestion
from sparktop.ui.screens.prompts import SecretScreen
from sparktop.ui.widgets.ink import Line


class LaunchSecret(SecretScreen):
    """HF_TOKEN, an API key, or what else the recipe takes from its operator."""

    VERB = "secret"

    def __init__(self, name: str) -> None:
        super().__init__(SecretQuestion(host=sanitise.name(name), prompt=sanitise.name(name)))

    def paragraphs(self) -> list[Line]:
        return [
            Line.of((f"{self._question.prompt} isn't set where sparktop was started.", "strong")),
            Line.of(("It is used for this launch, never shown, and written into no log, plan or archive.", "quiet")),
            Line.of((f"A line NAME=value in {ownsecrets.place()} (chmod 600) spares typing it.", "quiet")),
            Line(),
        ]
