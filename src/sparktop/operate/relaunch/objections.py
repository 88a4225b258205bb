"""What is known against a change: what lint finds in the launch with it, and a context that is too long. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.checks.machine import judge_context
from sparktop.cmdline.container_body import host_options
from sparktop.cmdline.engine_argv import whole
from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.cmdline.engine_flags import canonical
from sparktop.cmdline.launch_command import changed
from sparktop.cmdline.source import Item
from sparktop.diagnose.lint.catalogue import check
from sparktop.knowledge.card import found
from sparktop.launchspec.read.running import items_of, running_engine, spec_of
from sparktop.launchspec.spec import LaunchSpec
from sparktop.masking import mask_text
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.survey import ModelsOnDisk, Survey
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.recipe.models import node_models_of
from sparktop.sanitise import items, mapping

_CONTEXT = ("max-model-len", "context-length")


def context(rank_change: RankChange, survey: Survey) -> Iterator[str]:
    """A context longer than its model was made for, as a launch's gate judges it; what can't be told is left to the
    engine."""
    tokens = _tokens(rank_change)
    if tokens is None:
        return
    question = _ask(rank_change)
    models = node_models_of(question.node, survey.value(question))
    copy = models.find(*question.roots or (rank_change.rank.engine.model or "",)) if models is not None else None
    longest = copy.facts.longest_tokens if copy is not None else None
    if (judgement := judge_context((tokens, longest, False))).is_problem:
        figures = {"tokens": tokens, "longest": longest, "name": ""}
        yield f"{found(judge_context.id, judgement.case, figures).title}."


def _tokens(rank_change: RankChange) -> int | None:
    flags = rank_change.change.flags.items()
    texts = [value for name, value in flags if value and canonical(name) in _CONTEXT]
    return whole(texts[-1]) if texts else None


def _ask(rank_change: RankChange) -> ModelsOnDisk:
    """With the model's folder on the node, where the engine is given a path."""
    path = rank_change.rank.engine.model or ""
    if not path.startswith("/"):
        return ModelsOnDisk(node=rank_change.rank.node)
    for mount in map(mapping, items(rank_change.raw.get("Mounts"))):
        inside = str(mount.get("Destination") or "").rstrip("/")
        if inside and f"{path}/".startswith(f"{inside}/"):
            path = f"{str(mount.get('Source') or '').rstrip('/')}{path[len(inside) :]}"
            break
    return ModelsOnDisk(node=rank_change.rank.node, roots=(path,))


def lint(rank_changes: Sequence[RankChange]) -> tuple[str, ...]:
    """Lint findings that the change introduces: one sentence each."""
    return tuple(
        dict.fromkeys(
            warning for rank_change in rank_changes for warning in _new_findings(rank_change, len(rank_changes))
        )
    )


def _new_findings(rank_change: RankChange, nodes: int) -> Iterator[str]:
    desktop = rank_change.rank.view.facts.is_graphical if rank_change.rank.view.facts else None
    engine = running_engine(rank_change.rank.engine, rank_change.rank.node, nodes=nodes, desktop=desktop)
    before = replace(engine, options=_options(rank_change.host)) if engine.has_container else engine
    after = _changed_launch(rank_change, before)
    if after is None:
        return
    old_findings = {(old.rule, old.subject, old.title) for old in _findings(before)}
    for finding in _findings(after):
        if finding.severity is not Severity.INFO and (finding.rule, finding.subject, finding.title) not in old_findings:
            yield f"The change itself: {finding.title} ({finding.rule})."


def _findings(running: LaunchSpec) -> tuple[Finding, ...]:
    spec = spec_of(running)
    return () if spec is None else check((spec,), mask=mask_text)


def _changed_launch(rank_change: RankChange, before: LaunchSpec) -> LaunchSpec | None:
    """The launch with the change; None where its command can't be edited."""
    change = rank_change.change
    try:
        argv = changed((), before.wrapper, change.flags, {}).command if change.flags else before.wrapper
    except CannotEdit:
        return None
    variables = {**{item.name: item.value for item in before.environment}, **change.environment}
    return replace(
        before,
        wrapper=tuple(argv),
        environment=tuple(items_of((name, value) for name, value in variables.items() if value is not None)),
        image=Item(name="image", value=change.image) if change.image else before.image,
        options=_options(rank_change.changed_host) if before.has_container else (),
    )


def _options(host: Mapping[str, Any]) -> tuple[Item, ...]:
    """A container's Docker options as lint names them."""
    return tuple(items_of(("mount" if name == "volume" else name, value) for name, value in host_options(host)))
