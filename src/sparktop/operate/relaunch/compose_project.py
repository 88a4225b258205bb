"""A Compose project as its files describe it, for one service and its container.

Works on file texts that were read from the node and shows none of them: `docker compose config` would print every
secret.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import yaml

from sparktop.cmdline.variables import env_file
from sparktop.cmdline.yaml_nodes import values_of
from sparktop.dataclass import dataclass
from sparktop.model.survey import Ask, DockerGet, FileText, Output, Survey
from sparktop.operate.relaunch.compose_shell_values import ShellValueUnknown, values_from_shell
from sparktop.operate.relaunch.rank_change import RankChange

OVERRIDE = "compose.sparktop.yaml"
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,200}", re.IGNORECASE)
_SERVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")
_ENTRY = re.compile(r"[^\0]+")
V1_NEWEST_API = (1, 43)
"""From Docker 25 (API 1.44) on, docker-compose v1 fails while it recreates a container: 'ContainerConfig'."""


class UnusableProject(ValueError):
    """Why sparktop can't bring the project up; `remedies` say what would help."""

    def __init__(self, reason: str, *remedies: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedies = remedies


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


def asks(rank_change: RankChange, survey: Survey) -> Iterator[Ask]:
    """Questions about the project's files, its containers and the Compose program."""
    node, origin = rank_change.rank.node, rank_change.origin
    folder = origin.working_dir
    if not folder.startswith("/"):
        return
    for path in dict.fromkeys(
        (*_file_paths(rank_change), *_env_file_paths(rank_change), _join(folder, ".env"), _join(folder, OVERRIDE))
    ):
        yield FileText(node=node, path=path)
    yield _writable_ask(node, folder)
    if _PROJECT.fullmatch(origin.project) and _SERVICE.fullmatch(origin.service):
        yield _siblings_ask(rank_change)
    privileges = survey.privileges(node)
    if privileges is not None and not privileges.has_compose:
        yield _v1_ask(node)
        yield _engine_ask(node)


def project(rank_change: RankChange, survey: Survey) -> Project:
    """The project as it is now.

    Raises:
        UnusableProject: it can't be brought up as it was.
    """
    origin, node = rank_change.origin, rank_change.rank.node
    folder = origin.working_dir
    if not folder.startswith("/") or not _ENTRY.fullmatch(folder):
        raise UnusableProject(f"its project folder {folder[:80]!r} is not on {node}: it was brought up elsewhere")
    if not _PROJECT.fullmatch(origin.project) or not _SERVICE.fullmatch(origin.service):
        raise UnusableProject("its project's or service's name is none that compose would take")
    program = _program(rank_change, survey)
    override = _join(folder, OVERRIDE)
    files = _file_paths(rank_change)
    texts = _file_texts(rank_change, [path for path in files if path != override], survey)
    before = _override_text(rank_change, override, survey)
    _refuse_read_only(rank_change, survey)
    uses_override = override in files and before is not None
    documents = [*texts.items(), *([(override, before)] if uses_override and before is not None else [])]
    definitions = tuple(
        definition
        for path, text in documents
        if (definition := _service_definition(path, text, origin.service)) is not None
    )
    if not definitions:
        raise UnusableProject(
            f"no service {origin.service} is in its files ({', '.join(texts)}) any more",
            "restore them, and plan again",
        )
    _refuse_several_containers(rank_change, survey)
    env_files = _env_file_paths(rank_change)
    variables = _env_file_values(
        rank_change, env_files or (_join(folder, ".env"),), is_named=bool(env_files), survey=survey
    )
    try:
        shell_values, notes = values_from_shell(
            rank_change, definitions, [parsed(text) for _, text in documents], variables
        )
    except ShellValueUnknown as untold:
        raise UnusableProject(
            f"its files take {untold} from the shell, and the container doesn't tell what was given",
            f"put it into {folder}/.env, and plan again",
        ) from None
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


class _Plain(yaml.SafeLoader):
    """Keeps numbers and the like as text: they are compared with what Docker has, not computed with."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if tag in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:null")]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Plain.add_multi_constructor("!", lambda loader, suffix, node: None)


# --- parts


def _file_paths(rank_change: RankChange) -> tuple[str, ...]:
    return tuple(_join(rank_change.origin.working_dir, path) for path in rank_change.origin.config_files)


def _env_file_paths(rank_change: RankChange) -> tuple[str, ...]:
    paths = rank_change.origin.environment_file.split(",")
    return tuple(_join(rank_change.origin.working_dir, path) for path in paths if path)


def _join(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path)) if path != "-" else path


def _writable_ask(node: str, folder: str) -> Output:
    return Output(node=node, argv=("test", "-w", folder))


def _v1_ask(node: str) -> Output:
    return Output(node=node, argv=("docker-compose", "version", "--short"), limit_s=15.0)


def _engine_ask(node: str) -> DockerGet:
    return DockerGet(node=node, path="/version")


def _program(rank_change: RankChange, survey: Survey) -> tuple[str, ...]:
    node = rank_change.rank.node
    privileges = survey.privileges(node)
    if privileges is not None and privileges.has_compose:
        return ("docker", "compose")
    installs = f"on {node}: sudo apt-get install docker-compose-plugin   # or docker-compose-v2 of Ubuntu"
    answer = survey.value(_v1_ask(node))
    if not isinstance(answer, str) or not re.match(r"v?\d+\.", answer.strip()):
        raise UnusableProject(f"neither `docker compose` nor docker-compose works for the user on {node}", installs)
    engine = survey.value(_engine_ask(node))
    version = str(engine.get("ApiVersion") or "") if isinstance(engine, Mapping) else ""
    api = re.fullmatch(r"(\d+)\.(\d+)", version)
    if answer.strip().lstrip("v").startswith("1.") and api and (int(api[1]), int(api[2])) > V1_NEWEST_API:
        raise UnusableProject(
            f"docker-compose {answer.strip()[:20]} on {node} fails at the Docker Engine there (API {version}) in the "
            "middle of recreating a container ('ContainerConfig')",
            installs,
        )
    return ("docker-compose",)


def _file_texts(rank_change: RankChange, files: Sequence[str], survey: Survey) -> dict[str, str]:
    node, texts = rank_change.rank.node, dict[str, str]()
    if not files:
        raise UnusableProject("its labels don't name the compose files")
    for path in files:
        ask = FileText(node=node, path=path)
        text = survey.value(ask)
        if path == "-":
            raise UnusableProject("its compose file came on standard input: there is no copy")
        if not isinstance(text, str):
            why = survey.problem(ask) or "it doesn't exist"
            raise UnusableProject(
                f"its compose file {path} can't be read on {node}: {why}",
                f"restore it to {path} (a file of another machine can't be used), and plan again",
            )
        texts[path] = text
    return texts


def _override_text(rank_change: RankChange, path: str, survey: Survey) -> str | None:
    ask = FileText(node=rank_change.rank.node, path=path)
    if survey.problem(ask):
        raise UnusableProject(f"{path} can't be read: {survey.problem(ask)}", f"move it away: mv {path} {path}.old")
    text = survey.value(ask)
    return text if isinstance(text, str) else None


def _refuse_read_only(rank_change: RankChange, survey: Survey) -> None:
    folder, node = rank_change.origin.working_dir, rank_change.rank.node
    if problem := survey.problem(_writable_ask(node, folder)):
        raise UnusableProject(
            f"the user may not write into {folder} on {node}, where the override file belongs ({problem})",
            "log in as the owner of the project, or do it by hand there:",
        )


def _service_definition(path: str, text: str, service: str) -> Mapping[str, Any] | None:
    document = parsed(text)
    if not isinstance(document, Mapping):
        raise UnusableProject(f"{path} is no longer a compose file", "restore it, and plan again")
    services = document.get("services", document if "version" not in document else None)
    definition = services.get(service) if isinstance(services, Mapping) else None
    return definition if isinstance(definition, Mapping) else None


def _siblings_ask(rank_change: RankChange) -> DockerGet:
    label = "com.docker.compose."
    names = {"project": rank_change.origin.project, "service": rank_change.origin.service, "oneoff": "False"}
    filters = json.dumps({"label": [f"{label}{name}={value}" for name, value in names.items()]}, separators=(",", ":"))
    return DockerGet(node=rank_change.rank.node, path=f"/containers/json?all=1&filters={filters}")


def _refuse_several_containers(rank_change: RankChange, survey: Survey) -> None:
    """`up SERVICE` would recreate every container of a scaled service, so one of several is refused."""
    rows = survey.value(_siblings_ask(rank_change))
    if isinstance(rows, list) and len(rows) > 1:
        raise UnusableProject(
            f"compose has {len(rows)} containers of its service {rank_change.origin.service}: all would be recreated",
            "edit the compose file, and bring them up one by one",
        )


def _container_name(rank_change: RankChange, program: Sequence[str], definitions: Sequence[Mapping[str, Any]]) -> str:
    """The name it has now; Compose v1 joins the parts with "_", v2 with "-"."""
    container, origin = rank_change.rank.container, rank_change.origin
    name = container.name if container is not None else ""
    number = container.labels.get("com.docker.compose.container-number", "1") if container is not None else "1"
    if any("container_name" in definition for definition in definitions):
        return name
    joint = "_" if program == ("docker-compose",) else "-"
    usual = {mark: mark.join((origin.project, origin.service, number)) for mark in "_-"}
    return usual[joint] if name in usual.values() else name


def _env_file_values(
    rank_change: RankChange, paths: Sequence[str], *, is_named: bool, survey: Survey
) -> dict[str, str | None]:  # fmt: skip
    values: dict[str, str | None] = {}
    for path in paths:
        text = survey.value(FileText(node=rank_change.rank.node, path=path))
        if isinstance(text, str):
            values |= env_file(text)
        elif is_named:
            raise UnusableProject(f"its env file {path} no longer exists", f"restore it to {path}, and plan again")
    return values
