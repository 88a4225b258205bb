"""Every test runs with a home, a configuration and a terminal of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How fast inputs are made says something of the machine, not of the code. Continuous integration tries the same inputs
# each time; elsewhere they are new ones.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local/state"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file run in one process; those on real parts in two rows, as they share a machine."""
    from xdist.scheduler import LoadScopeScheduling

    class ByMachine(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return row_of(nodeid)

    return ByMachine(config, log)


def row_of(nodeid: str) -> str:
    """What launches and fetches stays clear of the rest: who takes memory, drops caches, writes kernel messages, starts
    a desktop or counts processes does so in one row."""
    file, _, test = nodeid.partition("::")
    name = Path(file).stem
    if "/integration/" not in file and name != "test_probe_run":
        return file
    is_launch = name.startswith(("test_launch", "test_fetch", "test_demo_launches"))
    return "launches" if is_launch and "takes_all_memory" not in test else "the machine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes is left to continuous integration, and to who asks for it."""
    if os.environ.get("SPARKTOP_REQUIRE_INTEGRATION") == "1":
        return
    skip = pytest.mark.skip(reason="takes minutes: SPARKTOP_REQUIRE_INTEGRATION=1 runs it")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
