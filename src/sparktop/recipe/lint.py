"""Our linter over a launch as it is rendered: what would be said of it as a file, before anything is started. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparktop.diagnose.lint.reading import read
from sparktop.diagnose.lint.rules import check
from sparktop.diagnose.lint.spec import LaunchSpec
from sparktop.model.finding import Finding
from sparktop.model.recipe import Muted, Recipe
from sparktop.probe.remote import mask_text
from sparktop.recipe.rendered import Rendered
from sparktop.recipe.runline import lasting, run_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """What the linter says of a launch."""

    findings: tuple[Finding, ...]
    """Worst first, each thing once, whichever ranks have it."""
    muted: tuple[tuple[Muted, Finding], ...] = ()
    """What the recipe is right not to follow, with its reason."""


def lint(rendered: Rendered, recipe: Recipe) -> Linted:
    """What is known against this launch on these nodes, what the recipe mutes kept apart."""
    found: dict[object, Finding] = {}
    for finding in check(tuple(_specs(rendered)), mask=mask_text):
        found.setdefault((finding.rule, finding.subject, finding.title), finding)
    reasons = {muted.rule: muted for muted in recipe.muted}
    return Linted(
        findings=tuple(finding for finding in found.values() if finding.rule not in reasons),
        muted=tuple((reasons[finding.rule], finding) for finding in found.values() if finding.rule in reasons),
    )


def findings(rendered: Rendered, recipe: Recipe) -> tuple[Finding, ...]:
    """What is known against this launch, without what the recipe mutes."""
    return lint(rendered, recipe).findings


def _specs(rendered: Rendered) -> Iterator[LaunchSpec]:
    """The engines of each rank's `docker run` line, as the linter reads it; each is a part of all ranks."""
    for rank in rendered.ranks:
        for spec in read(run_line(lasting(rank.container)), f"{rendered.recipe_id} on {rank.node}").specs:
            yield replace(spec, nodes=max(spec.nodes, len(rendered.ranks)))
