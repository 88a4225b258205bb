"""Labels on what `sparktop launch` starts: by them it is known again, with what the operator had set."""

from __future__ import annotations

OURS = "sparktop."
RECIPE = "sparktop.recipe"
"""The recipe's id."""
VALUES = "sparktop.values"
"""JSON of the parameters that the operator has set; no secrets."""
LAUNCH = "sparktop.launch"
"""The same on every rank of one launch."""
RANK = "sparktop.rank"
"""0: the head."""
