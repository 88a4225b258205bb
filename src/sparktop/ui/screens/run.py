"""The screen of one run, and the question whether to quit during a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from sparktop.clock import Clock
from sparktop.documents.prospect import picture_lines
from sparktop.documents.run import body_lines, current, head_lines, printed_lines, watched_engine
from sparktop.documents.step_text import abort_means, masked, masked_lines
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.run import Run, RunState
from sparktop.text.lines import BLANK, CLIPBOARD_CELLS, Line, plain
from sparktop.ui.dialogs.dialog import PAGES, ConfirmScreen, Dialog
from sparktop.ui.screens.review import Glance


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
    return ConfirmScreen("quit while this is running?", texts, yes="Leave", no="Stay")


class RunScreen(Dialog[bool]):
    """One run of this session; `show` updates it. Answers True where it was only closed, with nothing else opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "abort", "Abort", show=False),
        Binding("b", "back", "Way back", show=False),
        Binding("p", "again", "Plan again", show=False),
        Binding("v", "picture", "The memory", show=False),
        Binding("l", "logs", "The engine's log", show=False),
        Binding("q,o", "close", "Close", show=False),
    ]
    has_glance = True
    """The verdict and the memory are in sight above its lines."""
    AUTO_FOCUS = ""

    def __init__(
        self,
        run: Run,
        clock: Clock,
        *,
        abort: Callable[[], None],
        back: Callable[[], None],
        again: Callable[[], None],
        logs: Callable[[str, str], bool],
        glance: Glance = lambda width: [],
    ) -> None:
        """`abort` aborts the run, `back` opens the review of the rollback, `again` plans the same again; `logs` shows
        the log of (node, engine), False where there is none."""
        super().__init__()
        self._logs = logs
        self._glance = glance
        self._has_picture = False
        self.run_shown = run
        self._clock = clock
        self._abort, self._back, self._again = abort, back, again
        self._was_scrolled = False

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(1.0, self.renew)

    def show(self, run: Run) -> None:
        """Show the newest state of the same run; when it ends, scroll to the top."""
        if run.state.is_over and not self.run_shown.state.is_over and self.is_attached:
            self._was_scrolled = False
            self.news = ""  # the console's verdict shows the findings that are still open
            super().action_page(-PAGES)
        self.run_shown = run
        self.renew()

    def heading(self) -> str:
        return masked(self.run_shown.plan.title, self.run_shown.plan.secrets)

    def keys(self) -> str:
        run = self.run_shown
        if not run.state.is_over:
            # A run that aborts or rolls back can't be aborted again.
            state_keys = "a abort   " if run.state in (RunState.RUNNING, RunState.LINK_LOST) else ""
            return f"{state_keys}{self._view_keys()}Esc leave it running"
        state_keys = "b roll back   " if run.can_go_back else ""
        state_keys += "p plan again   " if run.state in (RunState.REFUSED, RunState.FAILED, RunState.ABORTED) else ""
        return f"{state_keys}{self._view_keys()}Esc close"

    def _view_keys(self) -> str:
        """The hints of the keys l and v, where they apply."""
        log = "l log   " if watched_engine(self.run_shown) is not None else ""
        return log + ("v memory   " if self.run_shown.plan.prospect is not None else "")

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
            super().action_page(-PAGES)
            self.renew()

    def action_logs(self) -> None:
        """Show the log of the engine that the run starts; the run continues."""
        engine = watched_engine(self.run_shown)
        if engine is None:
            return
        if self._logs(*engine):
            self.dismiss(False)
        else:
            run = self.run_shown
            when = "yet" if not run.state.is_over else "any more" + (": see the evidence" if run.evidence_path else "")
            text = f"{engine[1]} isn't among the engines of {engine[0]} {when}"
            self.notify(masked(text), markup=False, timeout=4)

    def action_abort(self) -> None:
        if self.run_shown.state not in (RunState.RUNNING, RunState.LINK_LOST):
            return

        def decided(is_agreed: bool | None) -> None:
            if is_agreed and not self.run_shown.state.is_over:
                self._abort()

        paragraphs = [abort_means(self.run_shown)]
        if self.run_shown.plan.way_back and not self.run_shown.plan.is_all_or_nothing:
            paragraphs.append("You can roll back then.")
        self.app.push_screen(ConfirmScreen("abort this run?", paragraphs, yes="Abort", no="Keep running"), decided)

    def action_close(self) -> None:
        self.dismiss(True)

    def action_back(self) -> None:
        if self.run_shown.state.is_over and self.run_shown.can_go_back:
            self.dismiss(False)
            self._back()

    def action_again(self) -> None:
        if self.run_shown.state in (RunState.REFUSED, RunState.FAILED, RunState.ABORTED):
            self.dismiss(False)
            self._again()

    def copied(self) -> tuple[str, str]:
        lines = printed_lines(self.run_shown, CLIPBOARD_CELLS, has_steps=True)
        return plain(masked_lines(lines, self.run_shown.plan.secrets)), "the run"
