"""Leaving while something is being done: what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.plan import Remote, Run
from sparktop.operate.fetching import only_fetches
from sparktop.operate.wording import masked
from sparktop.ui.panes.run_lines import current
from sparktop.ui.screens.ask import ConfirmScreen


def leaving(runs: Sequence[Run]) -> ConfirmScreen:
    """The question; staying is the default."""
    said = []
    for run in runs:
        now = current(run)
        title = masked(run.plan.title, run.plan.secrets)
        if now is None:
            said.append(f"{title}: nothing of it is begun any more.")
        elif only_fetches(now.step.act):
            said.append(
                f"{title}: “{masked(now.step.title, run.plan.secrets)}” goes on by itself on {masked(now.step.node)}, "
                "and is followed when the same is run again. What comes after it is not done."
            )
        elif isinstance(now.step.act, Remote):
            said.append(
                f"{title}: the step “{masked(now.step.title, run.plan.secrets)}” finishes, or is undone, on "
                f"{masked(now.step.node)} by itself. What comes after it is not done."
            )
        else:
            said.append(f"{title}: what is done stays done; what comes after it is not done.")
    return ConfirmScreen("leave while this is under way?", said, yes="Leave", no="Stay")
