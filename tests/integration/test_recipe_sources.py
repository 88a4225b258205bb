"""A repository behind a real sshd as a source of recipes: copied, interrupted, and launched from on a real Docker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import NODE, told
from tests.integration.dockerd import Dockerd
from tests.integration.launch_support import text_of
from tests.integration.sshd import Sshd
from tests.integration.test_launch import at_desk, planned, sshd
from tests.integration.test_launch_patched import images
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
__all__ = ["at_desk", "images", "sshd"]


async def test_a_repository_behind_ssh_is_launched_from_once_it_is_agreed_to(
    at_desk: Any, images: None, dockerd: Dockerd, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod = "#!/bin/sh\ncp of-the-mod /usr/local/share/\n"
    committed(tmp_path / "repo", {"mods/mark/run.sh": mod, "mods/mark/of-the-mod": "x"})
    commit = committed(tmp_path / "repo", {"recipes/tiny.yaml": text_of(free_port()) + "mods: [mods/mark]\n"})
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
        marked = dockerd.api.exec_create("vllm-team-tiny", ["cat", "/usr/local/share/of-the-mod"])
        assert dockerd.api.exec_start(marked["Id"]) == b"x"
        again = await planned(at, Order(recipe=recipe("@team/tiny"), stops=((NODE, "vllm-team-tiny"),)))
        assert isinstance(again, Plan), again
        assert again.typed == ""
    asked = next(entry["asked"]["order"] for entry in entries(at.audit_path)[0] if entry["kind"] == "intent")
    assert (asked["recipe"], asked["source"]) == ("@team/tiny", sources.source("team").text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_cut_off_leaves_the_last_state(tmp_path: Path, number: signal.Signals) -> None:
    repo, pids, ssh = tmp_path / "repo", tmp_path / "pids", tmp_path / "ssh"
    committed(repo, {"a.yaml": text_of(free_port())})
    before = sources.add("team", repo.as_uri())
    note = state_home() / "recipe-sources/team.json"
    note.write_text(note.read_text().replace(repo.as_uri(), "ssh://h/x"))
    ssh.write_text(f"#!/bin/sh\necho $PPID $$ >{pids}\nexec sleep 600\n")
    ssh.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "sparktop", "recipes", "source", "update"],
        env=os.environ | {"GIT_SSH": str(ssh)},
        preexec_fn=interruptible,
    ) as process:
        poll(lambda: pids.exists() and pids.read_text().endswith("\n"), what="git and its ssh")
        process.send_signal(number)
        assert process.wait() == (130 if number == signal.SIGINT else -9)
    for pid in map(int, pids.read_text().split()):
        if number == signal.SIGKILL:
            os.kill(pid, number)
        poll(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), what="its end")
    assert replace(sources.source("team"), place=before.place) == before
    note.write_text(note.read_text().replace("ssh://h/x", repo.as_uri()))
    assert sources.update(sources.source("team")) == recipe("@team/a").source == before
    assert sorted(path.name for path in note.parent.iterdir()) == ["team.json", f"team@{before.commit}"]
