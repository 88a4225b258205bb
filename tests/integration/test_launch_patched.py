"""A recipe with a mod and hooks on a real Docker Engine: applied once, kept as an image, nothing left half done."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import IMAGE
from tests.integration.launch_support import order
from tests.integration.test_launch import NAME, at_desk, boxes, launched, planned, sshd
from tests.support import free_port

from sparktop.model.engine import EngineState
from sparktop.model.recipe import Order, Patch, PatchFile
from sparktop.operate.acts.patch_image import PatchImage, container_name
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at_desk", "sshd"]

RUN = 'cp "$(pwd)/made.txt" /usr/local/share/ && touch "$WORKSPACE_DIR/there" && echo patched >> /usr/local/share/count'


@pytest.fixture(autouse=True)
def images(dockerd: Dockerd) -> Iterator[None]:
    """No patched image outlives its test, and nothing compiled."""
    yield
    for image in patched(dockerd):
        dockerd.api.remove_image(image, force=True)
    for folder in (Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache/sparktop/compiled").glob("sparktop-engine-*"):
        shutil.rmtree(folder)


def patched(dockerd: Dockerd) -> list[str]:
    return [
        tag for row in dockerd.api.images() for tag in row["RepoTags"] or () if tag.startswith("localhost/sparktop")
    ]


def with_patches(run: str, **more: Any) -> Order:
    """The tests' engine, with a mod of this script, and a hook."""
    asked = order(free_port(), **more)
    files = (PatchFile(path="run.sh", content=f"#!/bin/sh\n{run}\n".encode()), PatchFile(path="made.txt", content=b"x"))
    hook = Patch(name="pre_exec 1", command="echo port {port} > /usr/local/share/hook")
    return replace(asked, recipe=replace(asked.recipe, patches=(hook, Patch(name="mods/fix-x", files=files))))


def ran(dockerd: Dockerd, script: str) -> str:
    """What a script in the engine's container writes."""
    return str(dockerd.api.exec_start(dockerd.api.exec_create(NAME, ["sh", "-c", script])["Id"]), "utf-8")


def said(run: Run, step: str) -> str:
    return next(one.detail for one in run.steps if one.step.id == step)


@pytest.mark.fast
async def test_patches_are_applied_once_and_kept(at_desk: Any, dockerd: Dockerd) -> None:
    asked = with_patches(RUN, env={"MY_TOKEN": "$MY_TOKEN"}, secrets={"MY_TOKEN": "tok-123456789"})
    asked = replace(asked, recipe=replace(asked.recipe, keeps_compiled=True))
    async with at_desk() as at:
        first = await launched(at, asked)
        assert first.state is RunState.DONE, told(first)
        assert "patch" in [one.step.id for one in first.steps]
        (image,) = patched(dockerd)
        assert dockerd.api.inspect_container(NAME)["Config"]["Image"] == image
        ran(dockerd, "mkdir -p $TRITON_CACHE_DIR; echo kernel > $TRITON_CACHE_DIR/k")
        text = ran(dockerd, "cat /usr/local/share/count /usr/local/share/hook /there")
        assert text == f"patched\nport {asked.recipe.defaults['port']}\n"
        assert "tok-123456789" not in str(dockerd.api.inspect_image(image))
        await at.serves(NAME)
        dockerd.api.remove_container(NAME, force=True)
        own = {NAME, f"vllm:{asked.recipe.defaults['port']}"}  # by its port where its process is listed longer

        def has_ended() -> bool:  # for ten minutes it stays listed, as what sparktop launched and somebody removed
            mine = (one for one in at.monitor.state.nodes[0].engines if one.name in own)
            return all(one.state is EngineState.EXITED for one in mine)

        await at.until(has_ended, what="its end")
        again = await planned(at, asked)
        assert isinstance(again, Plan), again.reason
        assert "patch" not in [step.id for step in again.steps]
        second = await at.finished(at.begin(again))
        assert second.state is RunState.DONE, told(second)
    assert set(boxes(dockerd)) == {NAME}
    assert ran(dockerd, "cat $TRITON_CACHE_DIR/k") == "kernel\n"


async def test_a_patch_that_fails_tells_its_output_and_leaves_nothing(at_desk: Any, dockerd: Dockerd) -> None:
    async with at_desk() as at:
        run = await launched(at, with_patches("echo hunk 1 of 2 does not apply >&2; exit 3"))
    assert run.state is RunState.ROLLED_BACK, told(run)
    assert "hunk 1 of 2 does not apply | mods/fix-x: exit code 3" in said(run, "patch")
    assert not boxes(dockerd)
    assert not patched(dockerd)


async def test_its_own_commands_run_in_it_once_it_serves_and_a_failing_one_leaves_it(
    at_desk: Any, dockerd: Dockerd
) -> None:
    asked = order(free_port())
    hooks = ("echo {port} $(id -u) > /served", "echo no such adapter >&2; exit 3", "touch /never")
    async with at_desk() as at:
        run = await launched(at, replace(asked, recipe=replace(asked.recipe, post_exec=hooks)))
        assert run.state is RunState.FAILED, told(run)
        assert "no such adapter" in said(run, "post-exec")
        assert "post_exec 2 failed" in said(run, "post-exec")
        assert next(one.state for one in run.steps if one.step.id == "measure") is StepState.DONE
        await at.serves(NAME)
    assert boxes(dockerd) == {NAME: "running"}
    assert ran(dockerd, "cat /served; test -e /never || echo no") == f"{asked.recipe.defaults['port']} 0\nno\n"


async def test_whoever_aborts_meanwhile_leaves_no_container(at_desk: Any, dockerd: Dockerd) -> None:
    async with at_desk() as at:
        plan = await planned(at, with_patches("sleep 2"))

        def out(run: Run) -> None:
            if any(one.step.id == "patch" and one.state is StepState.RUNNING for one in run.steps):
                execution.abort()

        execution = at.begin(plan, also=out)
        run = await at.finished(execution)
        assert run.state is RunState.ABORTED, told(run)
    assert not boxes(dockerd)


async def test_what_a_lost_node_left_of_it_is_removed_first(at_desk: Any, dockerd: Dockerd) -> None:
    asked = with_patches(RUN)
    async with at_desk() as at:
        plan = await planned(at, asked)
        assert isinstance(plan, Plan)
        act = next(step.act for step in plan.steps if step.id == "patch")
        assert isinstance(act, PatchImage)
        made = dockerd.api.create_container(IMAGE, ["sleep", "60"], name=container_name(act.image))
        dockerd.api.start(made)
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
    assert set(boxes(dockerd)) == {NAME}
