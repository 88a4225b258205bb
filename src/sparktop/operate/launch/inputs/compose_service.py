"""A compose file's service launched as itself: `docker compose up` on the Spark that the file lies on. Pure.

The recipe made of the file says what is weighed, checked and proven; compose makes the container, with all that the
file says. It takes no other values: with some, or on other Sparks, the launch makes a container of its own.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256

from sparktop import sanitise
from sparktop.cmdline.variables import env_file
from sparktop.dataclass import dataclass
from sparktop.engines.images import version_of
from sparktop.engines.memory_needs import default_share
from sparktop.model.operation import Command, DockerCall, Expect
from sparktop.model.recipe import ComposeService, Order
from sparktop.model.survey import Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.lifecycle import GRACE_S, NEW_PATH, NO_POLICY, NewContainer, same_image, update_policy
from sparktop.operate.launch.inputs.docker import Listed, rows
from sparktop.operate.plan.sequence import Phases
from sparktop.operate.relaunch.compose_project import Project, program_on, read, service_definition, usual_name
from sparktop.operate.relaunch.compose_shell_values import missing_variables
from sparktop.operate.relaunch.rank_change import CannotChange
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.recipe.models import is_repo
from sparktop.recipe.parameters import SHARE
from sparktop.recipe.render.model_mounts import own_cache
from sparktop.text.sentences import listed

LIMIT_S = 180.0
_LABEL = "com.docker.compose."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLaunch:
    """The service, and the calls that bring it up."""

    service: ComposeService
    project: Project
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets of the operator's that the file takes from the shell."""
    obstacle: CannotChange | None = None
    """Why compose can't bring it up as it was read."""

    @property
    def name(self) -> str:
        """The container's."""
        return self.project.container_name

    @property
    def command(self) -> str:
        """What brings it up, as a person would type it."""
        is_named = self.service.project != posixpath.basename(self.project.folder)
        project = ("-p", self.service.project) if is_named else ()
        words = (*self.project.program, "-f", self.service.path, *project, "up", "-d", "--no-deps", self.service.name)
        return sanitise.line(shlex.join(words), limit=400)

    def typed(self) -> Iterator[str]:
        """The same on its node; secrets named, never written."""
        where = f"on {self.service.node}: "
        if self.environment:
            yield f"{where}export {' '.join(map(shlex.quote, self.environment))}   # each with its value"
        yield where + self.command

    def as_written(self, order: Order) -> Order:
        """The order as compose carries it out: the file's own share, image and secrets, and its container's name."""
        recipe = order.recipe
        kind, flag = recipe.engine, recipe.engine.traits.share_flag
        command = recipe.command.replace(f"{{{SHARE}}}", str(recipe.defaults.get(SHARE)))
        if flag and flag not in command:
            share = default_share(kind, version_of(recipe.container, kind))
            command = f"{command.rstrip()} {flag} {share:g}\n"
        defaults = {**recipe.defaults, "name": self.name}
        recipe = replace(recipe, command=command, defaults=defaults, patches=(), pulls="", risks=self.service.risks)
        if is_repo(recipe.model) and not own_cache(recipe):
            risk = (
                f"{self.service.path} mounts no cache of models that sparktop can look into: the engine has "
                f"{recipe.model} in a volume, or downloads it as it starts."
            )
            recipe = replace(recipe, has_model_inside=True, risks=(*recipe.risks, risk))
        secrets = dict(order.secrets)
        if (key := kind.traits.key_variable) in secrets and key not in recipe.environment:
            del secrets[key]
            risk = f"{key} is set, and {self.service.path} doesn't take it: the engine asks for no key."
            recipe = replace(recipe, risks=(*recipe.risks, risk))
        return replace(order, recipe=recipe, secrets=secrets)

    def phases(self, own: Phases, new: NewContainer, started: str) -> Phases:
        """The phases of a container of our own, with compose in the place of what makes and starts it.

        Args:
            started: what its id is saved as, once it has started.
        """
        return replace(own, prepare=(self._check(new), self._make(new)), start=(self._start(new, started),))

    def _check(self, new: NewContainer) -> Step:
        there = {path: digest for path, digest in self.service.digests.items() if digest}
        changed = f"{self.service.path}, or a file that it takes values from, was changed since it was read: plan again"
        sums = "".join(f"{digest}  {path}\n" for path, digest in there.items())
        is_same = Command(argv=("sha256sum", "--check", "--status", "{content}"), content=sums, otherwise=changed)
        absent = (path for path in self.service.digests if path not in there)
        is_absent = (Command(argv=("test", "!", "-e", path), otherwise=changed) for path in absent)
        return Step(
            id=f"check{new.mark}",
            title=f"Let compose read {self.service.path}",
            node=new.node,
            act=Remote(operations=(is_same, *is_absent, self._compose("config", "--quiet"))),
            limit_s=90.0,
            verifies="its files are unchanged, and compose accepts them",
            on_failure=OnFailure.ROLL_BACK,
        )

    def _make(self, new: NewContainer) -> Step:
        path = f"/containers/{self.name}"
        created = Expect(
            path=f"{path}/json",
            equals={"State.Status": "created", **self._labels},
            otherwise=f"somebody else has brought {self.service.name} up meanwhile",
        )
        image = (same_image(new),) if new.image_id else ()
        # Its restart policy comes back once it has served; without it, one that fails isn't started over and over.
        operations = (
            *image,
            self._up("--no-start"),
            created,
            DockerCall(method="GET", path=f"{path}/json", accepts=(200,), saves="NEW"),
            update_policy(NEW_PATH, NO_POLICY),
        )
        remove = DockerCall(
            method="DELETE", path=path, query={"v": "true"}, accepts=(204, 404, 409), limit_s=90.0, only_where=created
        )
        return Step(
            id=f"make{new.mark}",
            title=f"Have compose make the container {self.name}",
            node=new.node,
            act=Remote(operations=operations, undo=(remove,), reverse=()),
            limit_s=LIMIT_S + 90.0,
            verifies="it is compose's; nothing runs yet",
            on_failure=OnFailure.ROLL_BACK,
        )

    def _start(self, new: NewContainer, started: str) -> Step:
        created = Expect(
            path=f"{NEW_PATH}/json",
            equals={"Name": f"/{self.name}", "State.Running": False},
            otherwise=f"somebody else has renamed, started or removed {self.name}",
        )
        find = DockerCall(method="GET", path=f"{NEW_PATH}/json", accepts=(200,), saves=started)
        stop = DockerCall(
            method="POST", path=f"{NEW_PATH}/stop", query={"t": f"{GRACE_S:.0f}"}, accepts=(204, 304, 404),
            limit_s=GRACE_S + 45.0,
        )  # fmt: skip
        return Step(
            id=f"start{new.mark}",
            title=f"Have compose start {self.name}",
            node=new.node,
            act=Remote(operations=(created, self._up("-d"), find), undo=(stop,), reverse=()),
            limit_s=LIMIT_S + 120.0,
            verifies="Docker says that it runs",
            on_failure=OnFailure.ROLL_BACK,
        )

    @property
    def _labels(self) -> Mapping[str, str]:
        return {
            f"Config.Labels.{_LABEL}project": self.service.project,
            f"Config.Labels.{_LABEL}service": self.service.name,
        }

    def _up(self, flag: str) -> Command:
        # What is there is never recreated: the container that was made is the one that starts.
        words = ("up", flag, "--no-deps", "--no-build", "--no-recreate", "--", self.service.name)
        return replace(self._compose(*words), limit_s=LIMIT_S)

    def _compose(self, *words: str) -> Command:
        argv = self.project.argv(*words, override="")
        return Command(argv=argv, limit_s=60.0, environment=dict(self.environment))


def service_of(order: Order, nodes: Sequence[str]) -> ComposeService | None:
    """The service that this order brings up as itself; None: it makes a container of its own."""
    service = order.recipe.compose
    return service if service is not None and tuple(nodes) == (service.node,) and not order.values else None


def service_launch(order: Order, nodes: Sequence[str], survey: Survey) -> ServiceLaunch | None:
    """How it is brought up, as far as the node has answered; None: a container of its own is made."""
    service = service_of(order, nodes)
    if service is None:
        return None
    node, folder = service.node, posixpath.dirname(service.path)
    there = {path: read(node, path, survey) for path in service.digests}
    text = there[service.path][0] or ""
    variables = env_file(read(node, posixpath.join(folder, ".env"), survey)[0] or "")
    environment = {
        name: value for name, value in order.secrets.items() if name in text and variables.get(name) != value
    }  # the shell's wins over the file's
    obstacle: CannotChange | None = None
    program: tuple[str, ...] = ("docker", "compose")
    parts = (service.project, service.name, "1")
    name = str(order.recipe.defaults.get("name", ""))
    try:
        program = program_on(node, survey)
        _refuse_changed(service, there)
        _refuse_missing(service, text, {*variables, *environment})
        _refuse_existing(service, usual_name(name, parts, program), rows(survey, node) or ())
    except CannotChange as error:
        obstacle = error
    project = Project(
        program=program,
        name=service.project,
        service=service.name,
        folder=folder,
        files=(service.path,),
        container_name=usual_name(name, parts, program),
    )
    return ServiceLaunch(service=service, project=project, environment=environment, obstacle=obstacle)


# --- obstacles


def _refuse_changed(service: ComposeService, there: Mapping[str, tuple[str | None, str]]) -> None:
    for path, digest in service.digests.items():
        text, problem = there[path]
        if problem:
            raise CannotChange(f"{path} on {service.node} can't be read any more: {problem}", f"ls -l {path}")
        now = sha256(text.encode()).hexdigest() if text is not None else ""
        if now != digest:
            what = "is gone" if not now else "was changed" if digest else "was added"
            again = "read it again: close the launch and choose it in the list, or repeat the command"
            raise CannotChange(f"{path} on {service.node} {what} since sparktop read {service.path}", again)


def _refuse_missing(service: ComposeService, text: str, known_names: set[str]) -> None:
    """Compose takes a variable that nothing sets as empty, and starts an engine that fails."""
    missing = missing_variables(service_definition(service.path, text, service.name), known_names)
    if missing:
        path = posixpath.join(posixpath.dirname(service.path), ".env")
        raise CannotChange(
            f"{service.path} takes {listed(missing)} from the shell or from {path}, and neither sets it",
            f"on {service.node}: echo {missing[0]}=... >> {shlex.quote(path)}   # or empty: {missing[0]}=",
        )


def _refuse_existing(service: ComposeService, name: str, containers: Sequence[Listed]) -> None:
    """The service has a container, which `up` would start or replace; or another one has its name."""
    node = service.node
    own = {f"{_LABEL}project": service.project, f"{_LABEL}service": service.name, f"{_LABEL}oneoff": "False"}
    for row in containers:
        there = shlex.quote(row.names[0] if row.names else row.container_id)
        remove = f"on {node}: docker rm {there}   # then launch a new one; its log is lost"
        if own.items() <= row.labels.items():
            raise CannotChange(
                f"compose has made {there} of {service.name} on {node} already ({row.state}), and `up` would start "
                "that one, or replace it where the file has changed",
                *([] if row.state == "created" else [f"sparktop act safe-restart {node} --engine {there}"]),
                f"sparktop act relaunch {node} --engine {there}" if row.state == "running" else remove,
            )
        if name in row.names:
            raise CannotChange(
                f"{name} on {node} is a container that compose didn't make of {service.name} ({row.state})",
                f"on {node}: docker rename {there} {there}-old   # or: docker rm {there}",
            )
