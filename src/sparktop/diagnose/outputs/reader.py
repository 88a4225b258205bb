"""Finds command outputs in a text (`docker inspect`, `docker ps`, `nvidia-smi`, API answers) and reads each."""

from __future__ import annotations

from sparktop.diagnose.outputs import api_answer, capture_end, docker, nvidia_smi
from sparktop.diagnose.rule import Rule, RuleKind, rule_of
from sparktop.model.finding import Finding

READERS = (docker.read_inspection, docker.read_processes, nvidia_smi.read, api_answer.read, capture_end.read)


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """The findings in the command outputs of a text: None without any output, empty if nothing is wrong.

    Other lines may surround them, as in a terminal's copy. Pure; never raises.
    """
    results = [result for reader in READERS if (result := reader(text, source)) is not None]
    return tuple(finding for result in results for finding in result) if results else None


def cards() -> tuple[Rule, ...]:
    """The cards of the document rules, except container endings (`container_exit.cards`)."""
    ids = (*docker.CARDS, *nvidia_smi.CARDS, *api_answer.CARDS, *capture_end.CARDS)
    return tuple(rule_of(card_id, RuleKind.DOCUMENT) for card_id in ids)
