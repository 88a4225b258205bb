"""A Compose project as its files describe it, for one service and its container.

Works on file texts that were read from the node and shows none of them: `docker compose config` would print every
secret.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import yaml

from sparktop.cmdline.variables import env_file
from sparktop.cmdline.yaml_nodes import Loader, values_of
from sparktop.dataclass import dataclass
from sparktop.model.survey import DockerGet, FileText, Output, Survey
from sparktop.operate.relaunch.compose_shell_values import values_from_shell
from sparktop.operate.relaunch.rank_change import CannotChange, RankChange
from sparktop.sanitise import mapping

OVERRIDE = "compose.sparktop.yaml"
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,200}", re.IGNORECASE)
_SERVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")
_ENTRY = re.compile(r"[^\0]+")
V1_NEWEST_API = (1, 43)
"""From Docker 25 (API 1.44) on, docker-compose v1 fails while it recreates a container: 'ContainerConfig'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One service of a Compose project on one node."""

    program: tuple[str, ...]
    """ ("docker", "compose") or ("docker-compose",)."""
    name: str
    service: str
    folder: str
    files: tuple[str, ...]
    """Absolute paths, without sparktop's own override."""
    env_files: tuple[str, ...] = ()
    override: str = ""
    """Path of sparktop's override file."""
    before: str | None = field(default=None, repr=False)
    """The override's text now; None: there is no such file."""
    uses_before: bool = False
    """Whether the container was created with that override."""
    container_name: str = ""
    """The name that Compose will give the new container."""
    definitions: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The service in each file that has it, the override included where it was used; scalars as written."""
    shell_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the shell has to provide: no env file has them with the container's values."""
    notes: tuple[str, ...] = ()

    def argv(self, *words: str, override: str) -> tuple[str, ...]:
        """The Compose command with the project's options.

        Args:
            override: path of one more compose file; empty: none.
        """
        files = [*self.files, *([override] if override else [])]
        return (
            *self.program, "-p", self.name, "--project-directory", self.folder,
            *(word for path in files for word in ("-f", path)),
            *(word for path in self.env_files for word in ("--env-file", path)),
            *words,
        )  # fmt: skip


def project(rank_change: RankChange, survey: Survey) -> Project:
    """The project as it is now.

    Raises:
        CannotChange: it can't be brought up as it was.
    """
    origin, node = rank_change.origin, rank_change.rank.node
    folder = origin.working_dir
    if not folder.startswith("/") or not _ENTRY.fullmatch(folder):
        raise CannotChange(f"its project folder {folder[:80]!r} is not on {node}: it was brought up elsewhere")
    if not _PROJECT.fullmatch(origin.project) or not _SERVICE.fullmatch(origin.service):
        raise CannotChange("its project's or service's name is none that compose would take")
    files = [_join(folder, path) for path in origin.config_files]
    env_files = tuple(_join(folder, path) for path in origin.environment_file.split(",") if path)
    env_file_paths = env_files or (_join(folder, ".env"),)
    override = _join(folder, OVERRIDE)
    # All of it at once, whatever is refused.
    there = {path: read(node, path, survey) for path in (*files, *env_file_paths, override)}
    no_write = survey.problem(Output(node=node, argv=("test", "-w", folder)))
    siblings = survey.value(_siblings_question(rank_change))
    program = program_on(node, survey)
    texts = _file_texts(node, {path: there[path] for path in files if path != override})
    before, unread = there[override]
    if unread:
        raise CannotChange(f"{override} can't be read: {unread}", f"move it away: mv {override} {override}.old")
    if no_write:
        raise CannotChange(
            f"the user may not write into {folder} on {node}, where the override file belongs ({no_write})",
            "log in as the owner of the project, or do it by hand there:",
        )
    uses_override = override in files and before is not None
    documents = [*texts.items(), *([(override, before)] if uses_override and before is not None else [])]
    definitions = tuple(
        definition
        for path, text in documents
        if (definition := service_definition(path, text, origin.service)) is not None
    )
    if not definitions:
        raise CannotChange(
            f"no service {origin.service} is in its files ({', '.join(texts)}) any more",
            "restore them, and plan again",
        )
    if isinstance(siblings, list) and len(siblings) > 1:  # `up SERVICE` would recreate each of a scaled service
        raise CannotChange(
            f"compose has {len(siblings)} containers of its service {origin.service}: all would be recreated",
            "edit the compose file, and bring them up one by one",
        )
    variables = dict[str, str | None]()
    for path in env_file_paths:
        text, _ = there[path]
        if text is None and env_files:
            raise CannotChange(f"its env file {path} no longer exists", f"restore it to {path}, and plan again")
        variables |= env_file(text or "")
    trees = [parsed(text) for _, text in documents]
    shell_values, notes = values_from_shell(rank_change, definitions, trees, variables)
    return Project(
        program=program,
        name=origin.project,
        service=origin.service,
        folder=folder,
        files=tuple(texts),
        env_files=env_files,
        override=override,
        before=before,
        uses_before=uses_override,
        container_name=_container_name(rank_change, program, definitions),
        definitions=definitions,
        shell_values=shell_values,
        notes=tuple(notes),
    )


def parsed(text: str) -> Any:
    """A YAML text with every scalar as written; None where it is no YAML."""
    try:
        return values_of(text, _Plain)
    except ValueError:
        return None


class _Plain(Loader):
    """Keeps numbers and the like as text: they are compared with what Docker has, not computed with."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if tag in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:null")]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Plain.add_multi_constructor("!", lambda loader, suffix, node: None)


# --- parts


def _join(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path)) if path != "-" else path


def read(node: str, path: str, survey: Survey) -> tuple[str | None, str]:
    """(the file's text, why it isn't known)."""
    question = FileText(node=node, path=path)
    return survey.text(question), survey.problem(question)


def program_on(node: str, survey: Survey) -> tuple[str, ...]:
    """The first words of a Compose command there.

    Raises:
        CannotChange: it has none, or one that would fail.
    """
    privileges = survey.privileges(node)
    if privileges is not None and privileges.has_compose:
        return ("docker", "compose")
    installs = f"on {node}: sudo apt-get install docker-compose-plugin   # or docker-compose-v2 of Ubuntu"
    question = Output(node=node, argv=("docker-compose", "version", "--short"), limit_s=15.0)
    answer = (survey.text(question) or "").strip()
    engine = mapping(survey.value(DockerGet(node=node, path="/version")))
    if not re.match(r"v?\d+\.", answer):
        raise CannotChange(f"neither `docker compose` nor docker-compose works for the user on {node}", installs)
    version = str(engine.get("ApiVersion") or "")
    api = re.fullmatch(r"(\d+)\.(\d+)", version)
    if answer.lstrip("v").startswith("1.") and api and (int(api[1]), int(api[2])) > V1_NEWEST_API:
        raise CannotChange(
            f"docker-compose {answer[:20]} on {node} fails at the Docker Engine there (API {version}) in the "
            "middle of recreating a container ('ContainerConfig')",
            installs,
        )
    return ("docker-compose",)


def _file_texts(node: str, files: Mapping[str, tuple[str | None, str]]) -> dict[str, str]:
    """The project's own files.

    Args:
        files: (text, why it isn't known) by path.
    """
    texts = dict[str, str]()
    if not files:
        raise CannotChange("its labels don't name the compose files")
    for path, (text, problem) in files.items():
        if path == "-":
            raise CannotChange("its compose file came on standard input: there is no copy")
        if text is None:
            why = problem or "it doesn't exist"
            raise CannotChange(
                f"its compose file {path} can't be read on {node}: {why}",
                f"restore it to {path} (a file of another machine can't be used), and plan again",
            )
        texts[path] = text
    return texts


def service_definition(path: str, text: str, service: str) -> Mapping[str, Any] | None:
    document = parsed(text)
    if not isinstance(document, Mapping):
        raise CannotChange(f"{path} is no longer a compose file", "restore it, and plan again")
    services = document.get("services", document if "version" not in document else None)
    definition = mapping(services).get(service)
    return definition if isinstance(definition, Mapping) else None


def _siblings_question(rank_change: RankChange) -> DockerGet:
    label = "com.docker.compose."
    names = {"project": rank_change.origin.project, "service": rank_change.origin.service, "oneoff": "False"}
    filters = json.dumps({"label": [f"{label}{name}={value}" for name, value in names.items()]}, separators=(",", ":"))
    return DockerGet(node=rank_change.rank.node, path=f"/containers/json?all=1&filters={filters}")


def _container_name(rank_change: RankChange, program: Sequence[str], definitions: Sequence[Mapping[str, Any]]) -> str:
    """The name it has now; Compose v1 joins the parts with "_", v2 with "-"."""
    container, origin = rank_change.rank.container, rank_change.origin
    name = container.name if container is not None else ""
    number = container.labels.get("com.docker.compose.container-number", "1") if container is not None else "1"
    if any("container_name" in definition for definition in definitions):
        return name
    return usual_name(name, (origin.project, origin.service, number), program)


def usual_name(name: str, parts: Sequence[str], program: Sequence[str]) -> str:
    """The name that this Compose program gives, where `name` is one made of the project, the service and a number."""
    joint = "_" if program == ("docker-compose",) else "-"
    return joint.join(parts) if name in ("-".join(parts), "_".join(parts)) else name
