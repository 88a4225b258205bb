"""The screen of one run, and the question whether to quit during a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from sparktop.clock import Clock
from sparktop.documents.prospect import picture_lines
from sparktop.documents.run import body_lines, current, head_lines, printed_lines, watched_engine
from sparktop.documents.step_text import abort_means, masked, masked_lines
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.run import Run, RunState
from sparktop.text.lines import BLANK, CLIPBOARD_CELLS, Line, plain, spaced
from sparktop.ui.commands import bound
from sparktop.ui.dialogs.dialog import ConfirmScreen, Dialog
from sparktop.ui.dialogs.page import MOST_LINES
from sparktop.ui.screens.review import Glance

ABORTABLE = (RunState.RUNNING, RunState.LINK_LOST)
"""A run that aborts or rolls back can't be aborted again."""
UNDONE = (RunState.REFUSED, RunState.FAILED, RunState.ABORTED)
"""What can be planned again."""


def leaving(runs: Sequence[Run]) -> ConfirmScreen:
    """The question whether to quit while these runs are under way; staying is the default."""
    texts = []
    for run in runs:
        step = current(run)
        title = masked(run.plan.title, run.plan.secrets)
        if step is None:
            texts.append(f"{title}: no further steps will start.")
        elif step.step.act.only_fetches:
            texts.append(
                f"{title}: “{masked(step.step.title, run.plan.secrets)}” goes on by itself on "
                f"{masked(step.step.node)}, and the next run follows it. "
                "The rest is cancelled."
            )
        elif isinstance(step.step.act, Remote):
            texts.append(
                f"{title}: the step “{masked(step.step.title, run.plan.secrets)}” completes or reverts on "
                f"{masked(step.step.node)} by itself. The rest is cancelled."
            )
        else:
            texts.append(f"{title}: quit now and its finished steps stay; the rest is cancelled.")
    return ConfirmScreen("quit while this is running?", _paragraphs(texts), yes="Leave", no="Stay")


def _paragraphs(texts: Sequence[str]) -> list[Line]:
    return spaced([Line.of(text)] for text in texts)


Next = Literal["close", "log", "back", "again"]
"""What follows: nothing, the log of the engine that was started, the review of the rollback, the same plan anew."""


class RunScreen(Dialog[Next]):
    """One run of this session; `show` updates it."""

    BINDINGS = bound(abort="a", back="b", again="p", picture="v", logs="l", close="q,o")
    closed = "close"
    has_glance = True
    """The verdict and the memory are in sight above its lines."""
    AUTO_FOCUS = ""

    def __init__(
        self,
        run: Run,
        clock: Clock,
        *,
        abort: Callable[[], None],
        logs: Callable[[str, str], bool],
        glance: Glance = lambda width: [],
    ) -> None:
        """`abort` aborts the run; `logs` shows the log of (node, engine), False where there is none."""
        super().__init__()
        self._logs = logs
        self._glance = glance
        self._has_picture = False
        self.run_shown = run
        self._clock = clock
        self._abort = abort
        self._was_scrolled = False

    def on_mount(self) -> None:
        self.set_interval(1.0, self.renew)

    def show(self, run: Run) -> None:
        """Show the newest state of the same run; when it ends, scroll to the top."""
        if run.state.is_over and not self.run_shown.state.is_over and self.is_attached:
            self._was_scrolled = False
            self.alert = ""  # the console's verdict shows the findings that are still open
            super().action_scroll(-MOST_LINES)
        self.run_shown = run
        self.renew()

    def heading(self) -> str:
        return masked(self.run_shown.plan.title, self.run_shown.plan.secrets)

    def state_keys(self) -> Sequence[str]:
        run = self.run_shown
        hints = {
            "v memory": run.plan.prospect is not None,
            "l log": watched_engine(run) is not None,
            "a abort": run.state in ABORTABLE,
            "b roll back": run.state.is_over and run.can_go_back,
            "p plan again": run.state in UNDONE,
            "Esc close": run.state.is_over,
            "Esc leave it running": not run.state.is_over,
        }
        return [hint for hint, is_shown in hints.items() if is_shown]

    def pinned(self, width: int) -> list[Line]:
        max_lines = max(4, self.app.size.height // 2 - 3)
        lines = masked_lines(
            head_lines(self.run_shown, width, self._clock.wall(), limit=max_lines), self.run_shown.plan.secrets
        )
        glance = self._glance(width)
        return [*glance, *([BLANK] if glance[1:] else []), *lines]

    def content(self, width: int) -> list[Line]:
        lines, watched_line = body_lines(self.run_shown, width, self._clock.wall())
        if self._has_picture and self.run_shown.plan.prospect is not None:
            picture = [*picture_lines(self.run_shown.plan.prospect, width, is_brief=width < 90), BLANK]
            lines, watched_line = [*picture, *lines], None if watched_line is None else watched_line + len(picture)
        self.watched_line = None if self._was_scrolled else watched_line
        return masked_lines(lines, self.run_shown.plan.secrets)

    def action_scroll(self, lines: int) -> None:
        self._was_scrolled = True  # after scrolling, don't jump back to the step under way
        super().action_scroll(lines)

    def action_page(self, pages: int) -> None:
        self._was_scrolled = True
        super().action_page(pages)

    def action_picture(self) -> None:
        """Show or hide the planned memory before and after."""
        if self.run_shown.plan.prospect is not None:
            self._has_picture = not self._has_picture
            self._was_scrolled = True
            super().action_scroll(-MOST_LINES)
            self.renew()

    def action_logs(self) -> None:
        """Show the log of the engine that the run starts; the run continues."""
        engine = watched_engine(self.run_shown)
        if engine is None:
            return
        if self._logs(*engine):
            self.dismiss("log")
        else:
            run = self.run_shown
            when = "yet" if not run.state.is_over else "any more" + (": see the evidence" if run.evidence_path else "")
            text = f"{engine[1]} isn't among the engines of {engine[0]} {when}"
            self.notify(masked(text), markup=False, timeout=4)

    def action_abort(self) -> None:
        if self.run_shown.state not in ABORTABLE:
            return

        def decided(is_agreed: bool | None) -> None:
            if is_agreed and not self.run_shown.state.is_over:
                self._abort()

        texts = [abort_means(self.run_shown)]
        if self.run_shown.plan.rollback and not self.run_shown.plan.is_all_or_nothing:
            texts.append("You can roll back then.")
        question = ConfirmScreen("abort this run?", _paragraphs(texts), yes="Abort", no="Keep running")
        self.app.push_screen(question, decided)

    def action_back(self) -> None:
        if self.run_shown.state.is_over and self.run_shown.can_go_back:
            self.dismiss("back")

    def action_again(self) -> None:
        if self.run_shown.state in UNDONE:
            self.dismiss("again")

    def copied(self) -> tuple[str, str]:
        lines = printed_lines(self.run_shown, CLIPBOARD_CELLS, has_steps=True)
        return plain(masked_lines(lines, self.run_shown.plan.secrets)), "the run"
