"""Every test runs with a home, a configuration and a terminal of its own."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

FUZZ_EXAMPLES = int(os.environ.get("SPARKTOP_FUZZ", "0"))
"""How many inputs each property test tries in `make fuzz`."""

# How fast inputs are made says something of the machine, not of the code. Continuous integration tries the same inputs
# each time; elsewhere they are new ones. `make test` tries the fast profile's number.
settings.register_profile(
    "full",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=200,
    derandomize=bool(os.environ.get("CI")),
)
settings.register_profile("fast", settings.get_profile("full"), max_examples=25)
settings.register_profile(
    "fuzz", settings.get_profile("full"), max_examples=FUZZ_EXAMPLES or 200, derandomize=False, print_blob=True
)
settings.load_profile("fuzz" if FUZZ_EXAMPLES else "full")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def pytest_configure() -> None:
    from tests.support import other_docker

    os.environ.update(other_docker())


def pytest_report_header() -> list[str]:
    if "SPARKTOP_DOCKER" not in os.environ:
        return []
    return [subprocess.run(["dockerd", "--version"], capture_output=True, text=True, check=True).stdout.strip()]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each worker of a whole run compiles a part of what isn't compiled yet, and finds the rest done by the others."""
    if session.config.args == ["tests"] and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        tests = Path(__file__).parent
        for path in sorted(tests.rglob("test_*.py"))[int(worker[2:]) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]:
            with contextlib.suppress(Exception):  # collecting it says what is wrong
                importlib.import_module(".".join(path.relative_to(tests.parent).with_suffix("").parts))


_HOMES = itertools.count()


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.getbasetemp() / f"home{next(_HOMES)}"  # mktemp would list all earlier ones for a number
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local/state"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file run in one process; those on real parts in rows, as they share a machine."""
    from xdist.scheduler import LoadScopeScheduling

    class ByMachine(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return row_of(nodeid) or nodeid.partition("::")[0]

    return ByMachine(config, log)


PAIRS = (
    *("test_launch_pair", "test_launch_ray", "test_launch_relaunch", "test_operate_pair"),
    *("test_operate_composed", "test_operate_secrets", "test_operate_sudo", "test_measure_collective"),
    *("test_prove", "test_expose", "test_forward", "test_unit", "test_ssh_c", "test_ssh_passwords"),
    *("test_runner_s", "test_docker_"),
)
"""What has Ray's own ports; and, so that the rows are of one length, some of what only acts on containers or sshd."""
LAUNCHES = (
    *("test_launch", "test_fetch", "test_demo", "test_first_contact"),
    *("test_restart", "test_operate_relaunch", "test_runner_docker", "test_evidence", "test_findings_docker"),
)
"""What downloads, and looks at every command line meanwhile; first contacts, for the same reason; and as above."""


ON_THE_KERNEL = ("test_machine", "test_kernel", "test_remedies", "test_vllm", "test_vm", "test_interruptions")
"""Of those on machines with systemd, what fills memory, drops caches or writes to this machine's kernel log."""


def row_of(nodeid: str) -> str:
    """The row that a test on real parts stands in, one after another; empty for all other tests. Most of its time such
    a test waits, so the rows run beside one another; whatever takes memory, drops caches, writes kernel messages,
    starts a desktop or counts processes does so in one of them."""
    file, _, test = nodeid.partition("::")
    name = Path(file).stem
    if "/real/" in file:
        return "the machine" if name.startswith(ON_THE_KERNEL) else "machines"
    if "/integration/" not in file and not file.endswith("probe/test_run.py"):
        return ""
    if "takes_all_memory" in test:
        return "the machine"
    if name.startswith(PAIRS):
        return "pairs"
    return "launches" if name.startswith(LAUNCHES) else "the machine"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside the rows, the rest of the tests takes what time of the processors they leave: real parts have limits."""
    if "PYTEST_XDIST_WORKER" in os.environ and not row_of(item.nodeid) and not os.getpriority(os.PRIO_PROCESS, 0):
        os.nice(10)


LONGEST = (
    *("test_incidents", "test_interrupted", "test_scenarios_verdict", "test_scenario_remedies", "test_app"),
    *("test_guard_run", "test_runner_fetch", "test_launch_screen", "test_acting_keys", "test_cli"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rows first, then the longest files, so that none is left to the end."""
    items.sort(key=lambda item: (not row_of(item.nodeid), Path(item.nodeid.partition("::")[0]).stem not in LONGEST))
