"""A systemd service that runs an engine: the steps that stop and start it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from sparktop.dataclass import dataclass
from sparktop.model.fleet import NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.survey import Output, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.plan.origin import systemctl
from sparktop.operate.secrets.sudo import program
from sparktop.operate.step.plan import Step

STOP_LIMIT_S = 300.0
"""Longer than systemd's own TimeoutStopSec (90 s by default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service on its node."""

    view: NodeView
    unit: str
    is_own: bool = False
    """It belongs to the user's own manager (`systemctl --user`)."""
    engine: str = ""
    """Name of the engine that it runs; empty where none lives long enough to be seen."""
    mark: str = ""
    """Suffix of its steps' ids."""

    @property
    def node(self) -> str:
        return self.view.name

    @property
    def privilege(self) -> Privilege:
        return Privilege.USER if self.is_own else Privilege.ROOT

    @property
    def manager(self) -> tuple[str, ...]:
        """The systemctl command of the manager that runs it."""
        return systemctl(self.view, is_own=self.is_own, path=program("systemctl"))

    def argv(self, verb: str) -> tuple[str, ...]:
        """The systemctl command; a start doesn't wait, because a service may wait for memory before it starts."""
        options = ("--no-block",) if verb == "start" else ()
        return (*self.manager, verb, *options, "--", self.unit)

    @property
    def reload_argv(self) -> tuple[str, ...]:
        """Has its manager read its files anew."""
        return (*self.manager, "daemon-reload")

    @property
    def sudo(self) -> str:
        """What stands before a command of it that is typed."""
        return "" if self.is_own else "sudo "

    @property
    def typed_manager(self) -> str:
        return "systemctl --user" if self.is_own else "sudo systemctl"

    def typed(self, verb: str) -> str:
        """The systemctl command as it would be typed."""
        return f"{self.typed_manager} {verb} -- {shlex.quote(self.unit)}"

    def stop(self, grace_s: float) -> Step:
        """Stop the service, and wait until it has stopped; Restart= doesn't undo that."""
        limit_s = max(STOP_LIMIT_S, 2 * grace_s)
        return Step(
            id=f"stop{self.mark}",
            title=f"Stop {self._title}",
            node=self.node,
            act=Remote(operations=(self._command("stop", limit_s),), reverse=(self._command("start", 60.0),)),
            limit_s=limit_s + 60.0,
            verifies="the service is inactive",
            stops=self.engine,
        )

    def start(self) -> Step:
        """Start the service."""
        return Step(
            id=f"start{self.mark}",
            title=f"Start {self._title}",
            node=self.node,
            act=Remote(operations=(self._command("start", 60.0),), reverse=(self._command("stop", STOP_LIMIT_S),)),
            limit_s=120.0,
            verifies="systemd has taken the order",
            undoes=(f"stop{self.mark}",),
        )

    @property
    def _title(self) -> str:
        return f"{self.unit}, which runs {self.engine}" if self.engine else self.unit

    def forget(self) -> Command:
        """Reset the count of its failures."""
        return self._own("reset-failed", "--", self.unit, accepts=(0, 1))

    def reload(self) -> Command:
        """Have its manager read its files anew."""
        return self._own("daemon-reload", limit_s=60.0)

    def enable(self, *, now: bool = True) -> Command:
        """Have it start at boot, or no more."""
        return self._own("enable" if now else "disable", "--", self.unit, accepts=(0,) if now else (0, 1))

    def _own(self, *words: str, accepts: tuple[int, ...] = (0,), limit_s: float = 30.0) -> Command:
        return Command(argv=(*self.manager, *words), privilege=self.privilege, accepts=accepts, limit_s=limit_s)

    def _command(self, verb: str, limit_s: float) -> Command:
        """To stop a unit that systemd doesn't know any more is done already (5)."""
        accepts = (0, 5) if verb == "stop" else (0,)
        return Command(argv=self.argv(verb), privilege=self.privilege, accepts=accepts, limit_s=limit_s)


SYSTEM_FOLDER = "/etc/systemd/system"
_HOME = re.compile(r"/[^\0\n:]+")


def home_questions(view: NodeView) -> Iterator[Output]:
    """What tells the home folder of the node's user."""
    if view.facts is not None and view.facts.user_id is not None:
        yield Output(node=view.name, argv=("getent", "passwd", str(view.facts.user_id)))


def home_of(view: NodeView, survey: Survey) -> str:
    """The home folder of the node's user; empty where it isn't known."""
    for question in home_questions(view):
        fields = (survey.text(question) or "").strip().split(":")
        if len(fields) >= 6 and _HOME.fullmatch(fields[5]):
            return fields[5]
    return ""


def unit_folder(view: NodeView, survey: Survey, *, is_own: bool) -> str:
    """Where the manager's unit files are that people write; empty where the user's home isn't known."""
    if not is_own:
        return SYSTEM_FOLDER
    home = home_of(view, survey)
    return f"{home}/.config/systemd/user" if home else ""
