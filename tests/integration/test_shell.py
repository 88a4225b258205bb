"""The key s: a shell in the engine's container or on its node, by OpenSSH, and the console afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.spark import Spark
from tests.integration.terminal import Terminal, terminal

from sparktop.ui.drivers.terminal import OTHERS_UNDONE

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    with Spark.start("spark1", "127.0.0.2") as one:
        one.engines.start("vllm-mine", env={"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"})
        yield one


@pytest.fixture(autouse=True)
def _known(spark: Spark) -> None:
    spark.sshd.trust()
    spark.sshd.alias("spark1")


def opened(at: Terminal, place: str) -> int:
    """Type s; until a shell has the terminal."""
    begun = len(at.written)
    at.types("s")
    at.reads("\x1b[?1049l", after=begun)
    return at.reads(f"sparktop: {place}. exit", after=begun)


def back(at: Terminal, after: int) -> None:
    """Until the console is drawn again."""
    place = at.reads("\x1b[?1049h", after=after)
    assert OTHERS_UNDONE.strip().encode() in at.written[after:place], "what is left switched on is undone first"
    at.reads("spark1", after=place)


def test_a_shell_in_the_container_and_one_on_the_node(spark: Spark) -> None:
    with terminal("spark1", size=(40, 200)) as at:
        at.reads("ready")
        place = opened(at, "vllm-mine on spark1")
        at.reads("# ", after=place)
        at.types("tr '\\0' ' ' < /proc/1/cmdline; printf '\\033[?7l\\033(0\\033[?1003h'\r")
        at.reads("serve tiny", after=place)
        for key in "\x03\x1c\x1a":  # the shell's, and never the console's
            at.types(key)
        at.types("\rexit\r")
        back(at, place)

        place = len(at.written)
        at.types("2")
        at.reads("bring-up", after=place)  # the nodes' own keys: they have the focus
        place = opened(at, "spark1")
        at.types("echo $((40+2)) > /dev/tty; ls -d /proc/self/root/run/sshd; exit 3\r")
        at.reads("42", after=place)
        back(at, place)
        assert "lost" not in at.text
        at.types("q")
        assert at.ends() == 0
