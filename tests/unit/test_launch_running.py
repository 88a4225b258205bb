"""What runs already is looked at for what its launch's end would have given it."""

from __future__ import annotations

import pytest
from tests import pictures_support as made

from sparktop.operate.launching.running import without_policy

ALWAYS = {"Name": "always", "MaximumRetryCount": 0}


@pytest.mark.parametrize(
    ("policy", "wanted", "lines"),
    [
        ("no", ALWAYS, ["once it serves, on spark1: docker update --restart=always vllm-tiny"]),
        ("", ALWAYS, ["once it serves, on spark1: docker update --restart=always vllm-tiny"]),
        ("always", ALWAYS, []),
        ("unless-stopped", ALWAYS, []),
        ("no", {}, []),
    ],
)
def test_a_restart_policy_that_was_never_given_is_told(
    policy: str, wanted: dict[str, object], lines: list[str]
) -> None:
    box = made.container("vllm-tiny", restart_policy=policy)
    picture = made.picture(made.node("spark1", engines=(made.engine("vllm-tiny", container=box),)))
    assert list(without_policy([("spark1", "vllm-tiny"), ("spark3", "vllm-tiny")], wanted, picture)) == lines
