"""A restart policy in the words of `docker update --restart`: a wrong one would be set by whoever types it."""

from __future__ import annotations

from tests.table import over

from sparktop.operate.container.lifecycle import policy_command, policy_word
from sparktop.operate.relaunch.compose_override import _policy


@over(
    "policy, word",
    [
        ({"Name": "on-failure", "MaximumRetryCount": 5}, "on-failure:5"),
        ({"Name": "on-failure", "MaximumRetryCount": 0}, "on-failure"),
        ({"Name": "on-failure"}, "on-failure"),
        ({"Name": "unless-stopped", "MaximumRetryCount": 0}, "unless-stopped"),
        ({"Name": "always", "MaximumRetryCount": 5}, "always"),
        ({"Name": "no"}, "no"),
    ],
)
def test_the_word_of_a_policy(policy: dict[str, object], word: str) -> None:
    assert policy_word(policy) == word
    assert policy_command("vllm", policy) == f"docker update --restart={word} vllm"
    assert _policy(policy, {}) == {"restart": word}
