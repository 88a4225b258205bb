"""Every action: its name, text, risk and options, and the module that plans it.

A planner is a module with two pure functions: `asks(request, picture, survey)` returns its questions to the nodes
(it is called again with the answers until it has no more), `plan(request, picture, survey)` returns a Plan. Either may
raise Refused.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Ask, Survey
from sparktop.operate.step.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of an action: `--set NAME=VALUE` on the command line."""

    name: str
    description: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    meanings: tuple[str, ...] = ()
    """What each choice does, in their order, where the description doesn't say it."""

    @property
    def text(self) -> str:
        """The description, and what each choice does."""
        parts = (f"{choice}: {meaning}" for choice, meaning in zip(self.choices, self.meanings, strict=False))
        return "; ".join(filter(None, (self.description, *parts)))


REQUESTS_AT_RISK = "interrupts any running requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action that sparktop offers."""

    name: str
    title: str
    description: str
    """One sentence: what it does."""
    risk: Risk
    """The highest risk a plan of it can have; the plan states its own."""
    at_risk: str = REQUESTS_AT_RISK
    """What a disruptive plan of it does to others."""
    target: str
    """What it is applied to: "engine", "process", "node" or "nodes"; "recipe" or "command" where it takes more than a
    target, and has a command of its own."""

    @property
    def phrase(self) -> str:
        """Its title inside a sentence: "kill a GPU process"."""
        return self.title[0].lower() + self.title[1:]

    @property
    def is_own_command(self) -> bool:
        """Whether it is planned by a command of its own, not by `sparktop act`."""
        return self.has_own_command or self.target in ("recipe", "command")

    planner: str
    """The planner's module, within `sparktop.operate`."""
    options: tuple[Option, ...] = ()
    has_own_command: bool = False
    """On the command line it takes more than a target; in the console, options are enough."""
    only_looks: bool = False
    """It changes nothing on a Spark: no remedy, and offered in a read-only console too."""
    least_nodes: int = 1
    """Of how many Sparks at least it is done."""
    needs_running: bool = False
    """Its engine must run."""
    only_measures: bool = False
    """It loads a Spark, or asks its engine, and changes nothing there."""


class Planner(Protocol):
    """The functions of a planner's module."""

    asks: Callable[[Request, FleetState, Survey], tuple[Ask, ...]]
    plan: Callable[[Request, FleetState, Survey], Plan]


ACTIONS: tuple[Action, ...] = (
    Action(
        name="drop-caches",
        title="Drop caches",
        description="Write back and drop the page cache, on one node or both.",
        risk=Risk.SAFE,
        target="nodes",
        planner="machine.caches",
    ),
    Action(
        name="safe-restart",
        title="Safe restart",
        description="Stop an engine, wait until its memory is back, start it, and prove it with one request.",
        risk=Risk.DISRUPTIVE,
        target="engine",
        planner="restart.restart",
        options=(
            Option(name="grace_s", description="seconds between SIGTERM and SIGKILL", default="60"),
            Option(name="target_gib", description="available memory to wait for; else computed from the engine"),
            Option(name="memory_limit_s", description="seconds to wait for the memory", default="300"),
            Option(name="smoke", description="send one request when it is ready", default="yes", choices=("yes", "no")),
        ),
    ),
    Action(
        name="relaunch",
        title="Relaunch with a change",
        description="Restart an engine with other flags, environment or container options; roll back if it fails.",
        risk=Risk.DISRUPTIVE,
        target="engine",
        planner="relaunch.relaunch",
        options=(
            Option(name="grace_s", description="seconds between SIGTERM and SIGKILL", default="60"),
            Option(name="target_gib", description="available memory to wait for; else computed from the engine"),
            Option(name="smoke", description="send one request when it is ready", default="yes", choices=("yes", "no")),
            Option(
                name="keep_old", description="keep the old container, stopped", default="yes", choices=("yes", "no")
            ),
        ),
    ),
    Action(
        name="stop-engine",
        title="Stop engine",
        description="Stop an engine on its node, or on both, and see its memory come back.",
        risk=Risk.DISRUPTIVE,
        target="engine",
        planner="restart.stop",
        options=(
            Option(
                name="grace_s",
                description="seconds between SIGTERM and SIGKILL; else 60, or 2 where memory is running out",
            ),
        ),
    ),
    Action(
        name="break-restart-loop",
        title="Break restart loop",
        description="Keep its log, switch the restart policy off and stop it, so that the cause can be looked at.",
        risk=Risk.DISRUPTIVE,
        target="engine",
        planner="restart.loop",
    ),
    Action(
        name="launch",
        title="Launch a recipe",
        description="From a recipe to a served, proven engine: download, free memory, start, first request, measure.",
        risk=Risk.DISRUPTIVE,
        target="recipe",
        planner="launch.launch",
        options=(
            Option(name="grace_s", description="seconds between SIGTERM and SIGKILL of what is stopped", default="60"),
        ),
    ),
    Action(
        name="end-holder",
        title="Kill a GPU process",
        description="Kill one process that holds GPU memory.",
        risk=Risk.DISRUPTIVE,
        at_risk="kills one process",
        target="process",
        planner="machine.end_process",
        options=(
            Option(name="even_desktop", description="include desktop processes", default="no", choices=("yes", "no")),
        ),
    ),
    Action(
        name="recover-desktop",
        title="Recover the desktop",
        description="Bring a frozen desktop back: restart its shell (on X11), or the display manager, or do without.",
        risk=Risk.DISRUPTIVE,
        at_risk="interrupts work on the desktop",
        target="node",
        planner="machine.desktop",
        options=(
            Option(
                name="way",
                description="",
                choices=("shell", "manager", "console"),
                meanings=("HUP to the shell", "restart the display manager", "multi-user"),
            ),
        ),
    ),
    Action(
        name="reboot",
        title="Reboot",
        description="Reboot a node, watch it go and come back, and say how long it took.",
        risk=Risk.DESTRUCTIVE,
        target="node",
        planner="machine.reboot",
        options=(
            Option(
                name="watch_only",
                description="reboot nothing: watch a node that reboots by itself come back",
                default="no",
                choices=("yes", "no"),
            ),
        ),
    ),
    Action(
        name="collect-evidence",
        title="Collect evidence",
        description="Logs, kernel log, tables and metrics of one node or both, redacted, into one archive here.",
        risk=Risk.SAFE,
        target="nodes",
        planner="machine.collect_evidence",
        only_looks=True,
    ),
    Action(
        name="enable-linger",
        title="Enable linger",
        description="Let the login user linger, so that a logout doesn't remove an engine's shared memory.",
        risk=Risk.SAFE,
        target="nodes",
        planner="machine.linger",
    ),
    Action(
        name="install-unit",
        title="Run as a systemd service",
        description="Install, enable and start a systemd unit for an engine's container: it starts at boot.",
        risk=Risk.DISRUPTIVE,
        target="engine",
        planner="serve.unit",
        options=(
            Option(
                name="user",
                description="as a unit of the user's own, without root",
                default="no",
                choices=("yes", "no"),
            ),
            Option(name="grace_s", description="seconds between SIGTERM and SIGKILL", default="60"),
        ),
    ),
    Action(
        name="remove-unit",
        title="Remove its systemd unit",
        description="Stop an engine that a unit of sparktop's runs, disable the unit and remove it.",
        risk=Risk.DISRUPTIVE,
        target="engine",
        planner="serve.unit_removal",
    ),
    Action(
        name="expose",
        title="Expose an engine",
        description="Serve an engine under a host name through nginx or Caddy, with a key; or take that away.",
        risk=Risk.DISRUPTIVE,
        target="engine",
        needs_running=True,
        has_own_command=True,
        planner="serve.proxy",
        options=(
            Option(name="name", description="the name that clients use, as llm.example.org", is_required=True),
            Option(name="on", description="the Spark that the proxy runs on", is_required=True),
            Option(name="listen", description="its port for plain HTTP", default="80"),
            Option(name="with", description="the proxy", default="nginx", choices=("nginx", "caddy")),
        ),
    ),
    Action(
        name="install-key",
        title="Install your key",
        description="Install your public key for the login user, so that no password is asked; or take it off.",
        risk=Risk.SAFE,
        target="nodes",
        planner="setup.login_key",
        options=(
            Option(name="key", description="which one, by fingerprint, .pub file or comment, where you have several"),
            Option(name="remove", description="take it off again", default="no", choices=("yes", "no")),
        ),
    ),
    Action(
        name="ssh-mesh",
        title="Set up SSH between nodes",
        description="Let each node log in to the others over the cable: keys, host keys, a test; or take it away.",
        risk=Risk.SAFE,
        target="nodes",
        least_nodes=2,
        planner="setup.mesh",
        options=(Option(name="remove", description="take it away again", default="no", choices=("yes", "no")),),
    ),
    Action(
        name="prove-endpoint",
        title="Prove an endpoint",
        description="A minute of requests with content: an answer, a stream, a tool call, a long prompt, a wrong key.",
        risk=Risk.SAFE,
        target="engine",
        needs_running=True,
        only_measures=True,
        planner="measure.prove",
    ),
    Action(
        name="join-group",
        title="Join a group",
        description="Add the login user to the group docker, or to systemd-journal for the kernel log.",
        risk=Risk.SAFE,
        target="nodes",
        planner="setup.group",
        options=(
            Option(
                name="group",
                description="which one",
                default="docker",
                choices=("docker", "systemd-journal"),
                meanings=("use Docker", "read the kernel log"),
            ),
        ),
    ),
    Action(
        name="permit-root",
        title="Permit root commands",
        description="Permit exactly the root commands that sparktop needs at night, without a password.",
        risk=Risk.SAFE,
        target="nodes",
        planner="setup.root_rules",
    ),
    Action(
        name="set-addresses",
        title="Set the cable's addresses",
        description="Give the cables between two to eight Sparks static addresses; each returns by itself if lost.",
        risk=Risk.DISRUPTIVE,
        at_risk="interrupts what runs over the cable",
        target="nodes",
        least_nodes=2,
        planner="setup.addresses",
    ),
    Action(
        name="measure-link",
        title="Measure the cable",
        description="Load the cable between two idle Sparks for half a minute, and measure its bandwidth and latency.",
        risk=Risk.SAFE,
        target="nodes",
        least_nodes=2,
        only_measures=True,
        planner="measure.link",
    ),
    Action(
        name="measure-collective",
        title="Measure a collective",
        description="Run an all-reduce of 1 GiB over two idle Sparks, inside a serving image that both have.",
        risk=Risk.SAFE,
        target="nodes",
        least_nodes=2,
        only_measures=True,
        planner="measure.collective",
        options=(Option(name="image", description="the image; else the newest serving image that both have"),),
    ),
    Action(
        name="measure-power",
        title="Measure power under load",
        description="Load the GPU of one idle Spark or both for some seconds, and see its clock and power rise.",
        risk=Risk.DISRUPTIVE,
        at_risk="loads the GPU",
        target="nodes",
        only_measures=True,
        planner="measure.power",
    ),
    Action(
        name="guard",
        title="Guard",
        description="Kill the engine if memory drops below a limit; the probe on the Spark does it at once.",
        risk=Risk.DISRUPTIVE,
        at_risk="may kill an engine by itself",
        target="engine",
        needs_running=True,
        planner="machine.guard",
        options=(
            Option(
                name="floor_gib",
                description="kill below this much available; by default 4, less where memory is short",
            ),
            Option(
                name="empty_within_s",
                description="kill when this close to empty, but not while it loads; by default 2, 0 is off",
            ),
            Option(name="stay_minutes", description="stays armed this long after the console has closed", default="0"),
            Option(name="off", description="disarm", default="no", choices=("yes", "no")),
        ),
    ),
)


RESUME = "resume"
RESTORE = "restore"
RUN_COMMANDS = {
    RESUME: "Show what an interrupted run has left, and plan the same action again.",
    RESTORE: "Show what an interrupted run has left, and plan its rollback.",
}
"""What `sparktop act` takes in place of an action: commands about a run that was cut off."""
HALF_AUDITED = ("launch", "relaunch")
"""Actions whose request is more than options: the audit keeps it where it holds no secret (`audit.request_codec`)."""


def action(name: str) -> Action | None:
    """The action of that name, None where there is none."""
    return next((candidate for candidate in ACTIONS if candidate.name == name), None)


def planner_of(chosen: Action) -> Planner:
    """The action's planner, imported on first use."""
    planner: Planner = import_module(f"sparktop.operate.{chosen.planner}")
    return planner
