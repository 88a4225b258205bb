"""The commands that lead to a change of a Spark, each through a review; none of them changes anything by itself."""

from __future__ import annotations

from sparktop.ui.command import Command

ACTING: tuple[Command, ...] = (
    Command(
        id="fix",
        keys=("f",),
        title="Fix",
        description="What can be done about the selected finding, else about the first of the verdict; what sparktop "
        "can do itself is shown as a plan first.",
        group="Acting",
        action="fix",
        scopes=("findings", "console"),
        footer="fix",
    ),
    Command(
        id="actions",
        keys=("x",),
        title="Actions",
        description="All that can be done to the selected engine, its node, or both nodes.",
        group="Acting",
        action="actions",
        scopes=("console",),
        footer="actions",
        footer_in=("overview", "nodes", "engines"),
    ),
    Command(
        id="restart",
        keys=("R",),
        title="Safe restart",
        description="Stop the selected engine, wait until its memory is back, start it, and try it with one request.",
        group="Acting",
        action="act('safe-restart')",
        scopes=("console",),
        footer="restart",
        footer_in=("overview", "engines"),
        changes=True,
    ),
    Command(
        id="drop-caches",
        keys=("D",),
        title="Drop caches",
        description="Write back and drop the page cache, on the selected node or on both.",
        group="Acting",
        action="act('drop-caches')",
        scopes=("console",),
        footer="drop caches",
        footer_in=("overview", "nodes"),
        changes=True,
    ),
    Command(
        id="guard",
        keys=("G",),
        title="Guard",
        description="Let the probe end the selected engine before memory is gone; where it is armed, disarm it.",
        group="Acting",
        action="act('guard')",
        scopes=("console",),
        footer="guard",
        footer_in=("overview", "nodes", "engines"),
        changes=True,
    ),
    Command(
        id="runs",
        keys=("o",),
        title="Run under way",
        description="Open what is being done, or was done last; several are listed.",
        group="Acting",
        action="runs",
        scopes=("console",),
    ),
)
