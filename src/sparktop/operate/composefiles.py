"""A compose project as its files have it, and the container that was made of one of its services. Pure.

Who asks gives the texts; nothing of them is shown (`docker compose config` would print every secret in them).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from sparktop.operate.changing import Changing
from sparktop.operate.composegiven import NotTold, given_by_shell
from sparktop.operate.composevalues import env_file
from sparktop.operate.survey import Ask, DockerGet, FileText, Output, Survey

OVERRIDE = "compose.sparktop.yaml"
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,200}", re.IGNORECASE)
_SERVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")
_ENTRY = re.compile(r"[^\0]+")
V1_NEWEST_API = (1, 43)
"""From Docker 25 on (API 1.44) docker-compose v1 fails in the middle of making a container anew: 'ContainerConfig'."""


class Unusable(ValueError):
    """Why the project can't be acted on; `remedies` say what would help."""

    def __init__(self, reason: str, *remedies: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedies = remedies


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One service of a project on one node."""

    program: tuple[str, ...]
    """ ("docker", "compose") or ("docker-compose",)."""
    name: str
    service: str
    folder: str
    files: tuple[str, ...]
    """Absolute, without our own override."""
    env_files: tuple[str, ...] = ()
    override: str = ""
    """Where ours is, or will be."""
    before: str | None = field(default=None, repr=False)
    """What stands there now; None: nothing."""
    uses_before: bool = False
    """Whether the container was made with it."""
    container_name: str = ""
    """What compose will call the container that it makes."""
    definitions: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The service in each file that has it, the override's included where it was used; scalars as they stand."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the shell must give: the variables that no env file has as the container has them."""
    notes: tuple[str, ...] = ()

    def argv(self, *words: str, override: str) -> tuple[str, ...]:
        """The program with the project's options; `override` is the path of one more file, or none."""
        files = [*self.files, *([override] if override else [])]
        return (
            *self.program, "-p", self.name, "--project-directory", self.folder,
            *(word for path in files for word in ("-f", path)),
            *(word for path in self.env_files for word in ("--env-file", path)),
            *words,
        )  # fmt: skip


def asks(one: Changing, survey: Survey) -> Iterator[Ask]:
    """What is to be known of a project beyond its container."""
    node, starter = one.part.node, one.starter
    folder = starter.working_dir
    if not folder.startswith("/"):
        return
    for path in dict.fromkeys((*_files(one), *_env_files(one), _join(folder, ".env"), _join(folder, OVERRIDE))):
        yield FileText(node=node, path=path)
    yield _writable(node, folder)
    if _PROJECT.fullmatch(starter.project) and _SERVICE.fullmatch(starter.service):
        yield _siblings(one)
    rights = survey.privileges(node)
    if rights is not None and not rights.has_compose:
        yield _v1(node)
        yield _engine(node)


def project(one: Changing, survey: Survey) -> Project:
    """The project as it is.

    Raises:
        Unusable: it can't be brought up as it was; says why.
    """
    starter, node = one.starter, one.part.node
    folder = starter.working_dir
    if not folder.startswith("/") or not _ENTRY.fullmatch(folder):
        raise Unusable(f"its project folder {folder[:80]!r} is none of {node}: it was brought up from elsewhere")
    if not _PROJECT.fullmatch(starter.project) or not _SERVICE.fullmatch(starter.service):
        raise Unusable("its project's or service's name is none that compose would take")
    program = _program(one, survey)
    override = _join(folder, OVERRIDE)
    files = _files(one)
    texts = _texts(one, [path for path in files if path != override], survey)
    before = _override(one, override, survey)
    _may_write(one, survey)
    uses = override in files and before is not None
    whole = [*texts.items(), *([(override, before)] if uses and before is not None else [])]
    definitions = tuple(
        definition for path, text in whole if (definition := _service(path, text, starter.service)) is not None
    )
    if not definitions:
        raise Unusable(
            f"no service {starter.service} is in its files ({', '.join(texts)}) any more",
            "bring them to what they were, and plan again",
        )
    _alone(one, survey)
    env_files = _env_files(one)
    variables = _variables(one, env_files or (_join(folder, ".env"),), is_named=bool(env_files), survey=survey)
    try:
        given, notes = given_by_shell(one, definitions, [parsed(text) for _, text in whole], variables)
    except NotTold as untold:
        raise Unusable(
            f"its files take {untold} from the shell, and the container doesn't tell what was given",
            f"put it into {folder}/.env, and plan again",
        ) from None
    return Project(
        program=program,
        name=starter.project,
        service=starter.service,
        folder=folder,
        files=tuple(texts),
        env_files=env_files,
        override=override,
        before=before,
        uses_before=uses,
        container_name=_container_name(one, program, definitions),
        definitions=definitions,
        given=given,
        notes=tuple(notes),
    )


def parsed(text: str) -> Any:
    """A YAML text with every scalar as it stands; None where it is none."""
    try:
        return yaml.load(text, Loader=_Plain)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


class _Plain(yaml.SafeLoader):
    """Numbers and such stay texts: they are compared with what Docker has, not reckoned with."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if tag in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:null")]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Plain.add_multi_constructor("!", lambda loader, suffix, node: None)


# --- what was asked


def _files(one: Changing) -> tuple[str, ...]:
    return tuple(_join(one.starter.working_dir, path) for path in one.starter.config_files)


def _env_files(one: Changing) -> tuple[str, ...]:
    given = one.starter.environment_file.split(",")
    return tuple(_join(one.starter.working_dir, path) for path in given if path)


def _join(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path)) if path != "-" else path


def _writable(node: str, folder: str) -> Output:
    return Output(node=node, argv=("test", "-w", folder))


def _v1(node: str) -> Output:
    return Output(node=node, argv=("docker-compose", "version", "--short"), limit_s=15.0)


def _engine(node: str) -> DockerGet:
    return DockerGet(node=node, path="/version")


def _program(one: Changing, survey: Survey) -> tuple[str, ...]:
    node = one.part.node
    rights = survey.privileges(node)
    if rights is not None and rights.has_compose:
        return ("docker", "compose")
    installs = f"on {node}: sudo apt-get install docker-compose-plugin   # or docker-compose-v2 of Ubuntu"
    said = survey.value(_v1(node))
    if not isinstance(said, str) or not re.match(r"v?\d+\.", said.strip()):
        raise Unusable(f"neither `docker compose` nor docker-compose works for the user on {node}", installs)
    engine = survey.value(_engine(node))
    version = str(engine.get("ApiVersion") or "") if isinstance(engine, Mapping) else ""
    api = re.fullmatch(r"(\d+)\.(\d+)", version)
    if said.strip().lstrip("v").startswith("1.") and api and (int(api[1]), int(api[2])) > V1_NEWEST_API:
        raise Unusable(
            f"docker-compose {said.strip()[:20]} on {node} fails at the Docker Engine there (API {version}) in the "
            "middle of making a container anew ('ContainerConfig')",
            installs,
        )
    return ("docker-compose",)


def _texts(one: Changing, files: Sequence[str], survey: Survey) -> dict[str, str]:
    node, out = one.part.node, dict[str, str]()
    if not files:
        raise Unusable("compose did not note which files it was made from")
    for path in files:
        ask = FileText(node=node, path=path)
        text = survey.value(ask)
        if path == "-":
            raise Unusable("its compose file came on standard input, and is kept nowhere")
        if not isinstance(text, str):
            why = survey.problem(ask) or "it isn't there"
            raise Unusable(
                f"its compose file {path} can't be read on {node}: {why}",
                f"bring it back to {path} (a file of another machine can't be used), and plan again",
            )
        out[path] = text
    return out


def _override(one: Changing, path: str, survey: Survey) -> str | None:
    ask = FileText(node=one.part.node, path=path)
    if survey.problem(ask):
        raise Unusable(f"{path} can't be read: {survey.problem(ask)}", f"move it away: mv {path} {path}.old")
    text = survey.value(ask)
    return text if isinstance(text, str) else None


def _may_write(one: Changing, survey: Survey) -> None:
    folder, node = one.starter.working_dir, one.part.node
    if problem := survey.problem(_writable(node, folder)):
        raise Unusable(
            f"the user may not write into {folder} on {node}, where the override file belongs ({problem})",
            "log in as the owner of the project, or do it by hand there:",
        )


def _service(path: str, text: str, service: str) -> Mapping[str, Any] | None:
    whole = parsed(text)
    if not isinstance(whole, Mapping):
        raise Unusable(f"{path} is no compose file any more", "bring it to what it was, and plan again")
    services = whole.get("services", whole if "version" not in whole else None)
    found = services.get(service) if isinstance(services, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _siblings(one: Changing) -> DockerGet:
    label = "com.docker.compose."
    names = {"project": one.starter.project, "service": one.starter.service, "oneoff": "False"}
    filters = json.dumps({"label": [f"{label}{name}={value}" for name, value in names.items()]}, separators=(",", ":"))
    return DockerGet(node=one.part.node, path=f"/containers/json?all=1&filters={filters}")


def _alone(one: Changing, survey: Survey) -> None:
    """`up SERVICE` brings the service to its count: of several containers, all would be made anew."""
    rows = survey.value(_siblings(one))
    if isinstance(rows, list) and len(rows) > 1:
        raise Unusable(
            f"compose has {len(rows)} containers of its service {one.starter.service}: all would be made anew",
            "change the compose file, and bring them up one by one",
        )


def _container_name(one: Changing, program: Sequence[str], definitions: Sequence[Mapping[str, Any]]) -> str:
    """The same as now; but version 1 puts "_" where version 2 puts "-"."""
    box, starter = one.part.box, one.starter
    name = box.name if box is not None else ""
    number = box.labels.get("com.docker.compose.container-number", "1") if box is not None else "1"
    if any("container_name" in each for each in definitions):
        return name
    joint = "_" if program == ("docker-compose",) else "-"
    usual = {mark: mark.join((starter.project, starter.service, number)) for mark in "_-"}
    return usual[joint] if name in usual.values() else name


def _variables(
    one: Changing, paths: Sequence[str], *, is_named: bool, survey: Survey
) -> dict[str, str | None]:  # fmt: skip
    out: dict[str, str | None] = {}
    for path in paths:
        text = survey.value(FileText(node=one.part.node, path=path))
        if isinstance(text, str):
            out |= env_file(text)
        elif is_named:
            raise Unusable(f"its env file {path} isn't there any more", f"bring it back to {path}, and plan again")
    return out
