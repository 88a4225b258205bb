"""Steps that only bring things to a node (images, models): what sets them apart from those that change it. Pure.

They take minutes or hours, change no engine, and go on where they were cut off. So they don't hold the node meanwhile,
a link that is lost for hours is no failure of theirs, and the operator's way out ends them.
"""

from __future__ import annotations

from sparktop.model.operation import ImagePull, Transfer
from sparktop.model.plan import Act, Remote


def only_fetches(act: Act) -> bool:
    """Whether a step brings something to its node and does nothing else there."""
    return (
        isinstance(act, Remote)
        and bool(act.operations)
        and all(isinstance(one, ImagePull | Transfer) for one in act.operations)
    )
