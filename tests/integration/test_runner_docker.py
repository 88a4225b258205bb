"""The runner and a real Docker Engine: stop, rename, create, start, undo; the daemon restarted in the middle of it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dockerd import IMAGE, Dockerd
from tests.integration.registry import registry
from tests.runner_support import NODE, Bench, bench, until

from sparktop.model.operation import DockerCall, Expect, ImagePull
from sparktop.model.survey import DockerGet, DockerLog
from sparktop.operate.runner.api import OutcomeState
from sparktop.transport.threads import in_thread

pytestmark = pytest.mark.integration


@pytest.fixture
def engine(dockerd: Dockerd) -> Iterator[Dockerd]:
    yield dockerd
    dockerd.clear()


@pytest.fixture
async def stage(engine: Dockerd, tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "state", docker=engine.socket_path) as made:
        yield made


def call(method: str, path: str, **more: Any) -> DockerCall:
    return DockerCall(method=method, path=path, **more)


SLEEPS = ("/bin/sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done")
DEAF = ("/bin/sh", "-c", "trap 'echo asked to end' TERM; while :; do sleep 0.1; done")


async def test_a_container_is_replaced(engine: Dockerd, stage: Bench) -> None:
    old = engine.run_container("vllm", SLEEPS, env={"A": "1"})
    line = await stage.line()
    inspect = DockerGet(node=NODE, path=f"/containers/{old}/json")
    before = (await line.ask([inspect]))[inspect].value
    body = {**before["Config"], "Env": ["A=2", "HF_TOKEN=hf_CANARYcanaryCANARY123"], "HostConfig": before["HostConfig"]}
    outcome = await stage.perform(
        line,
        Expect(
            path=f"/containers/{old}/json",
            equals={"Id": old, "Name": "/vllm", "State.StartedAt": before["State"]["StartedAt"]},
            otherwise="vllm was restarted meanwhile",
        ),
        call("POST", f"/containers/{old}/stop", query={"t": "10"}, limit_s=25.0),
        call("POST", f"/containers/{old}/rename", query={"name": "vllm.before"}),
        call("POST", "/containers/create", query={"name": "vllm"}, body=body, accepts=(201,), saves="new"),
        call("POST", "/containers/{new}/start"),
        Expect(path="/containers/{new}/json", equals={"State.Running": True}, within_s=10.0),
    )
    assert outcome.state is OutcomeState.DONE, outcome
    new = engine.api.inspect_container("vllm")
    assert new["Id"] == outcome.saved["new"]
    assert "A=2" in new["Config"]["Env"]
    assert engine.api.inspect_container(old)["Name"] == "/vllm.before"
    assert b"CANARY" not in stage.journal()
    log = DockerLog(node=NODE, container_id=new["Id"])
    assert (await line.ask([log]))[log].value.endswith(" up\n")


async def test_a_name_that_is_taken_is_undone(engine: Dockerd, stage: Bench) -> None:
    old = engine.run_container("vllm", SLEEPS)
    engine.run_container("taken", SLEEPS)
    outcome = await stage.perform(
        await stage.line(),
        call("POST", f"/containers/{old}/stop", query={"t": "10"}, limit_s=25.0),
        call(
            "POST", "/containers/create", query={"name": "taken"}, body={"Image": IMAGE, "Cmd": ["true"]}, saves="new"
        ),
        undo=(call("DELETE", "/containers/{new}"), call("POST", f"/containers/{old}/start")),
    )
    assert outcome.state is OutcomeState.FAILED
    assert "taken" in outcome.problem
    assert "already in use" in outcome.problem
    assert outcome.undone is True
    assert engine.api.inspect_container(old)["State"]["Running"]


async def test_what_never_ran_is_removed_and_what_ran_is_kept(engine: Dockerd, stage: Bench) -> None:
    line = await stage.line()
    for name in ("made", "ran"):
        made = engine.api.create_container(IMAGE, ["true"], name=name)["Id"]
        if name == "ran":
            engine.api.start(made)
            engine.api.wait(made)
        never_ran = Expect(path=f"/containers/{made}/json", equals={"State.Status": "created"})
        calls = (
            call("DELETE", f"/containers/{made}", accepts=(204, 404), only_where=never_ran),
            call("POST", f"/containers/{made}/rename", query={"name": f"{name}-failed"}, accepts=(204, 404)),
        )
        assert (await stage.perform(line, *calls, step=name)).state is OutcomeState.DONE
    names = {name for one in engine.api.containers(all=True) for name in one["Names"]}
    assert names >= {"/ran-failed"}
    assert not names & {"/made", "/made-failed"}


async def test_an_image_and_a_container_that_are_gone(engine: Dockerd, stage: Bench) -> None:
    line = await stage.line()
    create = call("POST", "/containers/create", query={"name": "x"}, body={"Image": "sha256:" + "0" * 64})
    outcome = await stage.perform(line, create, step="image")
    assert "No such image" in outcome.problem
    outcome = await stage.perform(line, call("POST", "/containers/" + "0" * 64 + "/stop"), step="container")
    assert "No such container" in outcome.problem


async def test_the_daemon_is_restarted_in_the_middle_of_a_stop(engine: Dockerd, stage: Bench) -> None:
    deaf = engine.run_container("deaf", DEAF)
    stopped = Expect(path=f"/containers/{deaf}/json", equals={"State.Running": False})
    renamed = Expect(path=f"/containers/{deaf}/json", equals={"Name": "/stopped"})
    line = await stage.line()
    performing = asyncio.create_task(
        stage.perform(
            line,
            call("POST", f"/containers/{deaf}/stop", query={"t": "30"}, limit_s=45.0, done_when=stopped),
            call("POST", f"/containers/{deaf}/rename", query={"name": "stopped"}, done_when=renamed),
        )
    )
    await until(lambda: b"asked to end" in engine.api.logs(deaf))
    await in_thread(engine.restart)
    outcome = await performing
    assert outcome.state is OutcomeState.DONE, outcome
    assert engine.api.inspect_container(deaf)["Name"] == "/stopped"


async def test_an_image_comes_from_its_registry(engine: Dockerd, stage: Bench) -> None:
    with registry() as given:
        line = await stage.line()
        performing = asyncio.create_task(stage.perform(line, ImagePull(image=given.image, limit_s=120.0)))
        await until(lambda: any((one.done_bytes or 0) > 1_000_000 for one in stage.progress))
        half = stage.progress[-1]
        assert half.words == "0 of 1 layer"
        assert half.total_bytes is not None
        assert 12_000_000 <= half.total_bytes < 12_100_000
        assert (half.done_bytes or 0) < half.total_bytes
        given.go_on.set()
        outcome = await performing
        assert outcome.state is OutcomeState.DONE, outcome
        assert outcome.results[0].brought_bytes == half.total_bytes
        assert engine.api.inspect_image(given.image)
        again = await stage.perform(line, ImagePull(image=given.image), step="again")
        assert again.results[0].was_done
        engine.api.remove_image(given.image)


async def test_a_pull_is_ended_at_the_registry_too(engine: Dockerd, stage: Bench) -> None:
    with registry() as given:
        line = await stage.line()
        performing = asyncio.create_task(stage.perform(line, ImagePull(image=given.image, limit_s=120.0)))
        await until(lambda: any(one.done_bytes for one in stage.progress))
        await line.end("r1", "s")
        assert (await performing).results[0].was_ended
        await until(given.hung_up.is_set)
        assert not given.served


async def test_the_daemon_is_restarted_in_the_middle_of_a_pull(engine: Dockerd, stage: Bench) -> None:
    with registry() as given:
        line = await stage.line()
        performing = asyncio.create_task(stage.perform(line, ImagePull(image=given.image, limit_s=120.0)))
        await until(lambda: any(one.done_bytes for one in stage.progress))
        await in_thread(engine.restart)
        given.go_on.set()
        outcome = await performing
        assert outcome.state is OutcomeState.DONE, outcome
        assert engine.api.inspect_image(given.image)
        engine.api.remove_image(given.image)


async def test_a_login_of_the_user_s_is_used_and_without_it_docker_says_why(
    engine: Dockerd, stage: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = base64.b64encode(b"$oauthtoken:CANARYsecret").decode()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with registry(login=f"Basic {login}") as given:
        given.go_on.set()
        line = await stage.line()
        (tmp_path / "config.json").write_text(json.dumps({"credsStore": "secretservice"}))
        outcome = await stage.perform(line, ImagePull(image=given.image), step="without")
        assert outcome.state is OutcomeState.FAILED
        assert "no basic auth credentials" in outcome.problem
        assert "is in a credential helper (secretservice)" in outcome.problem
        auths = {"auths": {f"127.0.0.1:{given.port}": {"auth": login}}}
        (tmp_path / "config.json").write_text(json.dumps(auths))
        outcome = await stage.perform(line, ImagePull(image=given.image), step="with")
        assert outcome.state is OutcomeState.DONE, outcome
        assert b"CANARY" not in stage.journal()
        engine.api.remove_image(given.image)
