"""The real runner against an Engine of the test's: calls, expectations, lost answers, restarts in the middle."""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_docker import Reply, fake_docker
from tests.runner_support import NODE, bench

from sparktop.model.operation import DockerCall, Expect
from sparktop.model.survey import Answer, DockerGet, DockerLog, PrivilegesQuestion
from sparktop.operate.container.lifecycle import rename_back
from sparktop.operate.runner import codec
from sparktop.operate.runner.api import OutcomeState
from sparktop.probe.runner.docker import is_same, target, unframed, value_at

ID = "ab" * 32


def stop(name: str = "old", **more: Any) -> DockerCall:
    return DockerCall(method="POST", path=f"/containers/{name}/stop", query={"t": "60"}, **more)


async def test_calls_in_a_row_with_what_was_saved(tmp_path: Path) -> None:
    def answer(method: str, path: str, body: Any) -> Reply:
        return (201, {"Id": ID, "Warnings": ["no swap"]}) if "create" in path else (204, None)

    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            hostile = {"Env": ["A='\"$(x)\n\x1b"], "Cmd": ["--", "-n"]}
            outcome = await stage.perform(
                await stage.line(),
                DockerCall(method="POST", path="/containers/a b?c#d\r\nX: y/rename", query={"name": "o&d=\n"}),
                DockerCall(method="POST", path="/containers/create", query={"name": "n"}, body=hostile, saves="new"),
                DockerCall(method="POST", path="/containers/{new}/start"),
            )
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.saved == {"new": ID}
    assert outcome.results[1].output == "no swap"
    assert engine.requests == [
        ("POST", "/containers/a%20b%3Fc%23d%0D%0AX:%20y/rename?name=o%26d%3D%0A", None),
        ("POST", "/containers/create?name=n", hostile),
        ("POST", f"/containers/{ID}/start", None),
    ]
    assert b"$(x)" not in stage.journal()  # bodies are in no journal


@pytest.mark.parametrize("code", [0, 1])
async def test_a_run_that_containerd_still_holds_is_forgotten_and_the_container_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A dockerd that was killed as it stopped the container never told it."""
    program, told = tmp_path / "bin/ctr", tmp_path / "told"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{told}\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/sbin:/usr/bin:/sbin:/bin")

    def answer(method: str, path: str, body: Any) -> Reply:
        refusal = f"failed to create task for container: task {ID}: already exists"
        return (204, None) if told.exists() and code == 0 else (500, {"message": refusal})

    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            start = DockerCall(method="POST", path="/containers/vllm/start")
            outcome = await stage.perform(await stage.line(), start)
    assert outcome.state is (OutcomeState.DONE if code == 0 else OutcomeState.FAILED)
    assert told.read_text().splitlines() == [f"--namespace moby tasks delete {ID}"]
    assert len(engine.requests) == (2 if code == 0 else 1)


async def test_docker_s_own_words_become_the_problem_and_what_was_done_is_undone(tmp_path: Path) -> None:
    def answer(method: str, path: str, body: Any) -> Reply:
        return (409, {"message": 'name "/x\x1b[2J" is in use, token=abcdefgh'}) if "create" in path else (204, None)

    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            outcome = await stage.perform(
                await stage.line(),
                stop(),
                DockerCall(method="POST", path="/containers/create", body={}, saves="new"),
                undo=[
                    DockerCall(method="DELETE", path="/containers/{new}"),
                    DockerCall(method="POST", path="/containers/old/start"),
                ],
            )
    assert outcome.state is OutcomeState.FAILED
    assert outcome.problem == 'name "/x" is in use, token=<masked>'
    assert outcome.undone is True
    assert outcome.results[1].code == 409
    assert outcome.results[2].was_done  # there is nothing to remove: it was never made
    assert [path for _, path, _ in engine.requests] == [
        "/containers/old/stop?t=60",
        "/containers/create",
        "/containers/old/start",
    ]


async def test_expectations(tmp_path: Path) -> None:
    says: dict[str, Any] = {
        "Id": ID,
        "State": {"Running": True, "StartedAt": "t1", "Pid": 1},
        "Config": {"Labels": {"com.docker.compose.project": "p"}},
        "Mounts": [{"Name": "a"}, {"Name": "b"}],
    }
    asked = 0

    def answer(method: str, path: str, body: Any) -> Reply:
        nonlocal asked
        asked += 1
        if "gone" in path:
            return 404, {"message": "No such container: gone"}
        if "later" in path:
            return 200, {"State": {"Running": asked > 6}}
        return 200, says

    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            line = await stage.line()
            path = f"/containers/{ID}/json"
            well = {
                "Id": ID,
                "State.Running": True,
                "State.StartedAt": "t1",
                "Config.Labels.com.docker.compose.project": "p",
                "Mounts.1.Name": "b",
                "State.Absent": None,
            }
            outcome = await stage.perform(
                line,
                Expect(path=path, equals=well),
                Expect(path="/later", equals={"State.Running": True}, within_s=20.0),
                step="well",
            )
            assert outcome.state is OutcomeState.DONE, outcome
            restarted = Expect(path=path, equals={"State.StartedAt": "t0"}, otherwise="it was restarted meanwhile")
            outcome = await stage.perform(line, restarted, stop(), step="restarted")
            assert 'State.StartedAt is "t1"' in outcome.problem
            outcome = await stage.perform(line, Expect(path="/gone", equals={}), step="gone")
            assert outcome.problem == "No such container: gone"
            one = Expect(path=path, equals={"State.Pid": True})
            assert (await stage.perform(line, one, step="one")).problem == "State.Pid is 1, not true"
    assert not [path for method, path, _ in engine.requests if method == "POST"]


@pytest.mark.parametrize("has_happened", [True, False])
async def test_an_answer_that_got_lost_in_a_restart(tmp_path: Path, has_happened: bool) -> None:
    running = True
    stops = 0

    def answer(method: str, path: str, body: Any) -> Reply | None:
        nonlocal running, stops
        if method == "GET":
            return 200, {"Id": ID, "State": {"Running": running}}
        stops += 1
        running = running and not (has_happened or stops > 1)
        if stops == 1:
            engine.away_for(0.3)
            return None
        return 204, None

    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            gone = Expect(path=f"/containers/{ID}/json", equals={"State.Running": False})
            outcome = await stage.perform(await stage.line(), stop(done_when=gone, saves="old"))
    assert outcome.state is (OutcomeState.DONE if has_happened else OutcomeState.FAILED)
    assert stops == (1 if has_happened else 2)
    assert not running
    if has_happened:
        assert outcome.results[0].was_done
        assert outcome.saved == {"old": ID}
    else:
        assert "no Id" in outcome.problem


@pytest.mark.parametrize(("failures", "state"), [(3, OutcomeState.DONE), (99, OutcomeState.FAILED)])
async def test_an_update_between_two_runs_of_a_loop_is_repeated(
    tmp_path: Path, failures: int, state: OutcomeState
) -> None:
    answers = iter([(500, {"message": "cannot update a stopped container: unknown"})] * failures)

    def answer(method: str, path: str, body: Any) -> Reply:
        return next(answers, (200, {"Warnings": None}))

    update = DockerCall(method="POST", path="/containers/old/update", body={}, again_s=2.0)
    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            outcome = await stage.perform(await stage.line(), update)
    assert outcome.state is state
    assert len(engine.requests) >= 4
    assert ("cannot update" in outcome.problem) == (state is OutcomeState.FAILED)


@pytest.mark.parametrize(("failures", "state"), [(3, OutcomeState.DONE), (99, OutcomeState.FAILED)])
async def test_a_rename_waits_until_docker_has_removed_the_container(
    tmp_path: Path, failures: int, state: OutcomeState
) -> None:
    problem = "open /data/containers/0d/.tmp-config.v2.json7: no such file or directory"
    answers = iter([(500, {"message": problem})] * failures)

    def answer(method: str, path: str, body: Any) -> Reply:
        return next(answers, (404, {"message": "No such container: old"}))

    rename = rename_back("/containers/old", "old-after")
    if state is OutcomeState.FAILED:
        rename = replace(rename, again_s=1.0)
    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            outcome = await stage.perform(await stage.line(), rename)
    assert outcome.state is state
    assert (problem in outcome.problem) == (state is OutcomeState.FAILED)


async def test_a_lost_answer_that_nobody_can_ask_about_is_not_repeated(tmp_path: Path) -> None:
    def answer(method: str, path: str, body: Any) -> Reply | None:
        return None

    with fake_docker(tmp_path / "d.sock", answer) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            outcome = await stage.perform(await stage.line(), stop())
    assert outcome.state is OutcomeState.FAILED
    assert outcome.problem.endswith("unknown")
    assert len(engine.requests) == 1


async def test_an_engine_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with fake_docker(tmp_path / "d.sock", lambda *_: (204, None)) as engine:
        engine.away_for(0.5)
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            outcome = await stage.perform(await stage.line(), stop())
    assert outcome.state is OutcomeState.DONE
    assert len(engine.requests) == 1


async def test_an_engine_that_stays_away_is_given_up_with_the_step_s_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = codec.step_words
    monkeypatch.setattr(codec, "step_words", lambda *step: {**words(*step), "limit": 0.5})
    async with bench(tmp_path / "state", docker=tmp_path / "no.sock") as stage:
        async with asyncio.timeout(20):
            outcome = await stage.perform(await stage.line(), stop())
    assert outcome.state is OutcomeState.FAILED
    assert outcome.undone is None


async def test_questions_of_docker(tmp_path: Path) -> None:
    frames = b"".join(
        struct.pack(">BxxxI", number % 2 + 1, len(text)) + text
        for number, text in enumerate([b"2026 out\n", b"2026 err\xff\n"] * 1000)
    )

    def answer(method: str, path: str, body: Any) -> Reply:
        if "logs" in path:
            return 200, frames
        if "big" in path:
            return 200, {"Env": ["\x1b" * 200_000, "é" * 300_000]}
        if "huge" in path:
            return 200, ["x" * (5 << 20)]
        return 404, {"message": "no"}

    big, huge = DockerGet(node=NODE, path="/containers/big/json"), DockerGet(node=NODE, path="/huge")
    none, log = DockerGet(node=NODE, path="/none"), DockerLog(node=NODE, container_id=ID)
    end, access = DockerLog(node=NODE, container_id=ID, limit_bytes=300), PrivilegesQuestion(node=NODE)
    for chunked in (False, True):
        with fake_docker(tmp_path / "d.sock", answer) as engine:
            engine.chunked = chunked
            async with bench(tmp_path / "state", docker=engine.path) as stage:
                answers = await (await stage.line()).ask([big, huge, none, log, end, access])
        assert answers[big].value == {"Env": ["\x1b" * 200_000, "é" * 300_000]}
        assert "too long" in answers[huge].problem
        assert answers[none] == Answer(code=404)
        assert answers[log].value == "2026 out\n2026 err\ufffd\n" * 1000
        assert answers[end].value.endswith("2026 out\n2026 err\ufffd\n")
        assert answers[end].value.startswith("2026 ")
        assert answers[access].value.docker == "open"
    async with bench(tmp_path / "state", docker=tmp_path / "none.sock") as stage:
        answers = await (await stage.line()).ask([big])
    assert str(tmp_path / "none.sock") in answers[big].problem


async def test_what_is_no_docker_engine_is_said_to_be_none(tmp_path: Path) -> None:
    def nonsense(*_: object) -> Reply:
        raise AssertionError

    with fake_docker(tmp_path / "d.sock", nonsense) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as stage:
            ask = DockerGet(node=NODE, path="/x")
            assert "broke" in (await (await stage.line()).ask([ask]))[ask].problem


# --- the parts


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3))
def test_a_target_is_one_word_with_one_query(path: str, query: dict[str, str]) -> None:
    made = target("/" + path, query)
    assert made.isascii()
    assert made.isprintable()
    assert " " not in made
    assert "#" not in made
    assert made.count("?") == (1 if query else 0)


@given(st.binary(max_size=200), st.booleans())
def test_frames_of_anything(data: bytes, is_cut: bool) -> None:
    assert isinstance(unframed(data, is_cut=is_cut), bytes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(JSON, st.text(max_size=12))
def test_a_path_into_anything(data: Any, path: str) -> None:
    value_at(data, path)
    assert is_same(data, json.loads(json.dumps(data)))


def test_paths() -> None:
    assert value_at({"a": {"b.c": {"d": 1}}}, "a.b.c.d") == 1
    assert value_at({"a.b": {"c": 1}, "a": {"b": {"c": 2}}}, "a.b.c") == 1
    assert value_at([{"x": 5}], "0.x") == 5
    assert value_at([], "0") is None
    assert not is_same(True, 1)
    assert not is_same(0, False)
