"""Remove a unit that sparktop has installed: its engine is stopped, the unit disabled, its file removed. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command
from sparktop.model.request import Request, Risk
from sparktop.model.survey import FileText, Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.plan.common_steps import evidence_step, privilege_questions
from sparktop.operate.plan.running_rank import requests_lost
from sparktop.operate.plan.service import Service, home_of, home_questions, unit_folder
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import require_root_for, sudo_notes
from sparktop.operate.serve.unit import UnitFile, drop_in_path, gone
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.recipe.export import UNIT_HEAD, environment_file


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    """The unit's file, of the system or of the user, on each node."""
    views = _views(request, picture)
    homes = tuple(question for view in views for question in home_questions(view))
    files = [_file(view, request.target, survey, is_own=is_own) for view in views for is_own in (False, True)]
    units = [question for question in files if question is not None]
    return (
        *privilege_questions(request),
        *homes,
        *units,
        *(replace(question, path=drop_in_path(question.path)) for question in units),
    )


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Stop, disable, remove; refused where there is no such unit of sparktop's."""
    files = [file for view in _views(request, picture) for file in _installed(view, request.target, survey)]
    if not files:
        where = " or ".join(request.nodes)
        raise Refused(
            f"no unit of sparktop's is named {request.target}.service on {where}",
            tuple(f"on {node}: systemctl list-unit-files --type=service" for node in request.nodes),
        )
    if len(files) > 1:
        marked = [replace(file.service, mark=f"@{file.service.node}") for file in files]
        files = [replace(file, service=service) for file, service in zip(files, marked, strict=True)]
    nodes = [file.service.node for file in files]
    steps = (evidence_step(nodes), *(step for file in files for step in _steps(file)))
    require_root_for(steps, survey)
    return Plan(
        request=request,
        title=f"Remove {files[0].service.unit} from {' and '.join(nodes)}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        rollback=tuple(step for file in files for step in _way_back(file)),
        effect=f"Stops {request.target}. Nothing starts it again, neither after a failure nor at boot. Its container "
        "stays, stopped.",
        warnings=tuple(_warnings(request, picture, steps, survey, files)),
        differences=tuple(
            line
            for file in files
            for path, text in ((file.path, file.before), (drop_in_path(file.path), file.drop_in))
            for line in gone(path, text)
        ),
    )


def _views(request: Request, picture: FleetState) -> list[NodeView]:
    return [view for name in request.nodes if (view := picture.node(name)) is not None]


def _file(view: NodeView, name: str, survey: Survey, *, is_own: bool) -> FileText | None:
    folder = unit_folder(view, survey, is_own=is_own)
    return FileText(node=view.name, path=f"{folder}/{name}.service") if folder and "/" not in name else None


def _installed(view: NodeView, name: str, survey: Survey) -> Iterator[UnitFile]:
    for is_own in (False, True):
        question = _file(view, name, survey, is_own=is_own)
        text = survey.text(question) if question is not None else None
        if question is not None and text is not None and text.startswith(UNIT_HEAD):
            service = Service(view=view, unit=f"{name}.service", is_own=is_own, engine=name)
            secrets_path = environment_file(name, is_own=is_own, home=home_of(view, survey))
            secrets_path = secrets_path if "\nEnvironmentFile=" in text else ""
            drop_in = survey.text(FileText(node=view.name, path=drop_in_path(question.path)))
            yield UnitFile(
                service=service, path=question.path, text="", before=text, secrets_path=secrets_path, drop_in=drop_in
            )


def _steps(file: UnitFile) -> Iterator[Step]:
    service = file.service
    yield service.stop(60.0)
    remove = Command(argv=("/usr/bin/rm", "-f", "--", file.path), privilege=service.privilege)
    yield Step(
        id=f"remove{service.mark}",
        title=f"Disable {service.unit} and remove {file.path}",
        node=service.node,
        act=Remote(
            operations=(service.enable(now=False), remove, *file.drop_change(), service.reload()),
            undo=(*file.take_back(), service.enable()),
            # Its text is nothing to be typed.
            reverse=f"docker start {shlex.quote(service.engine)}; "
            f"sparktop unit {shlex.quote(service.engine)} {shlex.quote(service.node)} --install",
        ),
        limit_s=180.0,
        verifies="systemd has reloaded its files",
    )
    if file.secrets_path:  # last: until then a rollback needs it
        remove = Command(argv=("/usr/bin/rm", "-f", "--", file.secrets_path), privilege=service.privilege)
        yield Step(
            id=f"secrets{service.mark}",
            title=f"Remove {file.secrets_path}",
            node=service.node,
            act=Remote(operations=(remove,)),
            limit_s=90.0,
            verifies="its secrets are gone from the disk; the container, while it is there, has them too",
            on_failure=OnFailure.FAIL_AT_END,
        )


def _way_back(file: UnitFile) -> Iterator[Step]:
    service = file.service
    yield Step(
        id=f"back-file{service.mark}",
        title=f"Write {file.path} as it was, and enable {service.unit}",
        node=service.node,
        act=Remote(operations=(*file.take_back(), service.enable())),
        limit_s=180.0,
        verifies="systemd has reloaded its files",
        undoes=(f"remove{service.mark}",),
    )
    yield replace(service.start(), id=f"back-start{service.mark}")


def _warnings(
    request: Request, picture: FleetState, steps: tuple[Step, ...], survey: Survey, files: list[UnitFile]
) -> Iterator[str]:
    for file in files:
        view = file.service.view
        for engine in view.engines:
            waiting = (engine.metrics.running or 0) + (engine.metrics.waiting or 0) if engine.metrics else 0
            if engine.name == request.target and waiting:
                yield requests_lost(round(waiting), engine.name)
        yield from sudo_notes(steps, survey.privileges(view.name), view.name)
