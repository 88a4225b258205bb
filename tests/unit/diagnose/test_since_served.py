"""What has changed since an engine that fails last served."""

from __future__ import annotations

from dataclasses import replace

from tests import pictures_support as made
from tests.restart_support import ended
from tests.table import over

from sparktop.diagnose.since_served import with_changes
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import Baseline, ServedOn

ENGINE = ended(made.engine())
VIEW = made.node(engines=(ENGINE,))
assert VIEW.facts is not None
assert ENGINE.container is not None
SERVED = ServedOn(
    wall_s=made.WALL_S - 86_400,
    kernel=VIEW.facts.kernel,
    driver=VIEW.driver_version,
    image_id=ENGINE.container.image_id,
    version=ENGINE.version or "",
    command=" ".join(ENGINE.argv),
)
FINDING = Finding(
    rule="engine.down",
    severity=Severity.CRITICAL,
    title="It is down",
    phase=Phase.FIRING,
    nodes=("spark1",),
    subject=ENGINE.name,
)


def told(finding: Finding = FINDING, served: ServedOn | None = SERVED, view=VIEW) -> list[str]:
    baseline = Baseline(served_on={ENGINE.name: served} if served else {})
    fleet = made.picture(replace(view, baseline=baseline))
    return [each.text for each in with_changes(finding, fleet).evidence]


@over(
    "served, says",
    [
        (SERVED, "on the same kernel, driver, image and command"),
        (replace(SERVED, kernel="6.17.0-1"), f"kernel 6.17.0-1 to {VIEW.facts.kernel}"),
        (replace(SERVED, driver="580.1"), "driver 580.1 to "),
        (replace(SERVED, image_id="sha256:" + "9" * 64), "same" if not ENGINE.container.image_id else "image 9999"),
        (replace(SERVED, version="0.1"), "same" if not ENGINE.version else "version 0.1 to "),
        (replace(SERVED, command=f"{SERVED.command} --enforce-eager"), "without --enforce-eager"),
        (replace(SERVED, kernel="", driver="", image_id="", version="", command=""), "same"),
    ],
)
def test_what_it_served_on_is_compared_with_what_it_fails_on(served: ServedOn, says: str) -> None:
    (text,) = told(served=served)
    assert f"{ENGINE.name} last served on " in text
    assert says in text


@over(
    "finding, view",
    [
        (replace(FINDING, severity=Severity.WARNING), VIEW),
        (replace(FINDING, phase=Phase.RESOLVED), VIEW),
        (replace(FINDING, subject="another"), VIEW),
        (replace(FINDING, nodes=("spark1", "spark2")), VIEW),
        (FINDING, made.node()),
    ],
)
def test_of_what_is_no_engine_s_failure_nothing_is_told(finding: Finding, view) -> None:
    assert told(finding, view=view) == []


def test_of_an_engine_that_never_served_here_nothing_is_told() -> None:
    assert told(served=None) == []
