"""A repository behind a real sshd as a source of recipes: copied, interrupted, and launched from on a real Docker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import NODE, told
from tests.integration.launch_support import text_of
from tests.integration.sshd import Sshd
from tests.integration.test_launch import at_desk, planned, sshd
from tests.support import free_port, interruptible, poll
from tests.unit.recipe.test_sources import committed

from sparktop.config import state_home
from sparktop.model.recipe import Order
from sparktop.operate.audit_file import entries
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import RunState
from sparktop.recipe.read.shelf import recipe
from sparktop.recipe.sources import git, sources

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at_desk", "sshd"]


async def test_a_repository_behind_ssh_is_launched_from_once_it_is_agreed_to(
    at_desk: Any, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = committed(tmp_path / "repo", {"recipes/tiny.yaml": text_of(free_port())})
    config, known = sshd.alias("forge"), sshd.trust()  # ssh itself looks in the home of the user database
    url = f"ssh://forge{tmp_path}/repo"
    with pytest.raises(git.GitFailed, match="Could not resolve hostname forge"):
        await asyncio.to_thread(sources.add, "team", url)
    monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F {config} -o UserKnownHostsFile={known}")
    assert (await asyncio.to_thread(sources.add, "team", url)).commit == commit
    async with at_desk() as at:
        plan = await planned(at, Order(recipe=recipe("@team/tiny")))
        assert isinstance(plan, Plan), plan
        assert (plan.typed, commit[:7] in plan.warnings[0]) == ("@team", True)
        assert not sources.source("team").is_trusted
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
        assert sources.source("team").is_trusted
        again = await planned(at, Order(recipe=recipe("@team/tiny"), stops=((NODE, "vllm-team-tiny"),)))
        assert isinstance(again, Plan), again
        assert again.typed == ""
    asked = next(entry["asked"]["order"] for entry in entries(at.audit_path)[0] if entry["kind"] == "intent")
    assert asked["recipe"] == "@team/tiny"


def test_what_git_waits_for_is_ended_by_ctrl_c_and_leaves_nothing(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho $PPID $$ >{pids}\nsleep 600\n")
    ssh.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "sparktop", "recipes", "source", "add", "team", "ssh://h/x"],
        env=os.environ | {"GIT_SSH": str(ssh)},
        preexec_fn=interruptible,
    ) as process:
        poll(lambda: pids.exists() and pids.read_text().endswith("\n"), what="git and its ssh")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    started = [int(pid) for pid in pids.read_text().split()]
    poll(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in started), what="their end")
    assert [*(state_home() / "recipe-sources").iterdir()] == []
