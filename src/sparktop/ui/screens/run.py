"""A run while it goes: its steps, what each is at, and how it ended. Closing it leaves the run alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from sparktop.clock import Clock
from sparktop.model.plan import Run, RunState
from sparktop.operate.wording import abort_means, masked
from sparktop.ui.panes.prospect import picture_lines
from sparktop.ui.panes.run_lines import body_lines, head_lines, run_text, watched_engine
from sparktop.ui.screens.ask import ConfirmScreen
from sparktop.ui.screens.dialog import PAGES, Dialog
from sparktop.ui.widgets.ink import BLANK, Line


class RunScreen(Dialog[None]):
    """One run of this session, kept up by `show`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "abort", "Abort", show=False),
        Binding("b", "back", "Way back", show=False),
        Binding("p", "again", "Plan anew", show=False),
        Binding("y,c", "copy", "Copy", show=False),
        Binding("v", "picture", "The memory", show=False),
        Binding("l", "logs", "The engine's log", show=False),
        Binding("q,o", "close", "Close", show=False),
    ]
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
    ) -> None:
        """`abort` gets out of it, `back` opens the review of the way back, `again` plans the same anew; `logs` shows
        the log of a node's engine, False where there is none."""
        super().__init__()
        self._logs = logs
        self._has_picture = False
        self.run_shown = run
        self._clock = clock
        self._abort, self._back, self._again = abort, back, again
        self._is_read = False

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(1.0, self.renew)

    def show(self, run: Run) -> None:
        """The newest state of the same run; its end is told from the top."""
        if run.state.is_over and not self.run_shown.state.is_over and self.is_attached:
            self._is_read = False
            self.news = ""  # what came up on the way is in the console's verdict, as far as it still holds
            super().action_page(-PAGES)
        self.run_shown = run
        self.renew()

    def heading(self) -> str:
        return masked(self.run_shown.plan.title, self.run_shown.plan.secrets)

    def keys(self) -> str:
        run = self.run_shown
        if not run.state.is_over:
            # While it is getting out or going back, there is nothing more to abort.
            own = "a abort   " if run.state in (RunState.RUNNING, RunState.LINK_LOST) else ""
            return f"{own}{self._looks()}y copy   Esc leave it running"
        own = "b way back   " if run.can_go_back else ""
        own += "p plan anew   " if run.state in (RunState.REFUSED, RunState.FAILED, RunState.ABORTED) else ""
        return f"{own}{self._looks()}y copy   Esc close"

    def _looks(self) -> str:
        """What can be looked at of a launch."""
        log = "l log   " if watched_engine(self.run_shown) is not None else ""
        return log + ("v memory   " if self.run_shown.plan.prospect is not None else "")

    def pinned(self, width: int) -> list[Line]:
        most = max(4, self.app.size.height // 2 - 3)
        return self._masked(head_lines(self.run_shown, width, self._clock.wall(), limit=most))

    def content(self, width: int) -> list[Line]:
        lines, at = body_lines(self.run_shown, width, self._clock.wall())
        if self._has_picture and self.run_shown.plan.prospect is not None:
            picture = [*picture_lines(self.run_shown.plan.prospect, width, is_brief=width < 90), BLANK]
            lines, at = [*picture, *lines], None if at is None else at + len(picture)
        self.watched_line = None if self._is_read else at
        return self._masked(lines)

    def _masked(self, lines: list[Line]) -> list[Line]:
        """Masked where it was made, and once more where it is shown: nothing here relies on either alone."""
        secrets = self.run_shown.plan.secrets
        return [Line(tuple((masked(text, secrets), tone) for text, tone in line.runs)) for line in lines]

    def action_scroll(self, lines: int) -> None:
        self._is_read = True  # who scrolls is not dragged back to the step under way
        super().action_scroll(lines)

    def action_page(self, pages: int) -> None:
        self._is_read = True
        super().action_page(pages)

    def action_picture(self) -> None:
        """The memory before and after as it was planned, or without it."""
        if self.run_shown.plan.prospect is not None:
            self._has_picture = not self._has_picture
            self._is_read = True
            super().action_page(-PAGES)
            self.renew()

    def action_logs(self) -> None:
        """The log of the engine that is started here; the run goes on."""
        where = watched_engine(self.run_shown)
        if where is None:
            return
        if self._logs(*where):
            self.dismiss(None)
        else:
            run = self.run_shown
            when = "yet" if not run.state.is_over else "any more" + (": see the evidence" if run.evidence_path else "")
            text = f"{where[1]} isn't among the engines of {where[0]} {when}"
            self.notify(masked(text), markup=False, timeout=4)

    def action_abort(self) -> None:
        if self.run_shown.state not in (RunState.RUNNING, RunState.LINK_LOST):
            return

        def decided(is_agreed: bool | None) -> None:
            if is_agreed and not self.run_shown.state.is_over:
                self._abort()

        said = [abort_means(self.run_shown)]
        if self.run_shown.plan.way_back and not self.run_shown.plan.is_all_or_nothing:
            said.append("The way back is offered then.")
        self.app.push_screen(ConfirmScreen("abort this run?", said, yes="Abort", no="Let it run"), decided)

    def action_back(self) -> None:
        if self.run_shown.state.is_over and self.run_shown.can_go_back:
            self.dismiss(None)
            self._back()

    def action_again(self) -> None:
        if self.run_shown.state in (RunState.REFUSED, RunState.FAILED, RunState.ABORTED):
            self.dismiss(None)
            self._again()

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(masked_lines(self.run_shown))
        self.notify("Copied the run.", markup=False, timeout=3)


def masked_lines(run: Run) -> str:
    """The run as text, with nothing in it that may be nowhere."""
    return "\n".join(masked(line, run.plan.secrets) for line in run_text(run).splitlines())
