"""What a launch needs of a simulated Spark: disk and hub answer as real ones do, fetches are told of and can be ended,
and an engine that was made of an image checks at its start what vLLM and SGLang check."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sim.test_runner import container, lines, no_secret, perform, until, value

from sparktop.diagnose.logs.engine_state import phase_of
from sparktop.model.operation import Command, DockerCall, ImagePull, Operation, Transfer
from sparktop.model.survey import Answer, DockerGet, DockerLog, FileText, HubModel, ModelsOnDisk, Output
from sparktop.operate.acts.remote import Remote
from sparktop.operate.launch.gates.downloads import df_question
from sparktop.operate.launch.gates.node import listening, port_question
from sparktop.operate.launch.inputs import downloads
from sparktop.operate.launch.inputs.download_steps import copy_command
from sparktop.operate.runner.api import OperationResult, Outcome, OutcomeState, Progress
from sparktop.operate.runner.client import RunnerLine
from sparktop.probe.runner.models import ModelFolders
from sparktop.recipe.models import hub_listing_of, node_models_of
from sparktop.sim.scenario import hub as catalogue

QWEN = "Qwen/Qwen3.6-35B-A3B-FP8"
GPT_OSS = "openai/gpt-oss-120b"
NGC = "nvcr.io/nvidia/vllm:26.05.post1-py3"
GIB = 1 << 30


async def fetch(
    line: RunnerLine, operation: Operation, step: str, *, ends_at: int | None = None
) -> tuple[Outcome, list[Progress]]:
    """A step that fetches, what was told of it, ended where so many bytes have come."""
    told: list[Progress] = []

    def hear(words: OperationResult | Progress) -> None:
        if isinstance(words, Progress):
            told.append(words)

    act = Remote(operations=(operation,))
    task = asyncio.create_task(line.perform("run-1", step, act, told=hear, secret=no_secret))
    if ends_at is not None:

        async def has_come() -> bool:
            return bool(told and (told[-1].done_bytes or 0) > ends_at)

        await until(has_come)
        assert (await line.end("run-1", step)).progress is not None
    return await task, told


def hf(repo: str) -> Transfer:
    argv = ("/home/spark/.local/bin/hf", "download", repo, "--revision", "main")
    return Transfer(command=Command(argv=argv, limit_s=9000), grows="/x", key=f"model {repo}", total_bytes=10**11)


async def start(line: RunnerLine, *argv: str, image: str = NGC, name: str = "made", **more: Any) -> Outcome:
    body = {"Image": image, "Cmd": list(argv), "Labels": {"sparktop.launch": "1"}, **more}
    return await perform(
        line,
        DockerCall(method="POST", path="/containers/create", query={"name": name}, body=body, saves="NEW"),
        DockerCall(method="POST", path="/containers/{NEW}/start"),
        step=f"start {name}",
    )


async def ended(line: RunnerLine, name: str = "made") -> str:
    """Its log, when it has ended."""

    async def has_ended() -> bool:
        return not (await container(line, name))["State"]["Running"]

    await until(has_ended)
    assert (await container(line, name))["State"]["ExitCode"] == 1
    number = (await container(line, name))["Id"]
    log = await value(line, DockerLog(node=line.node, container_id=number))
    assert isinstance(log, str)
    return log


# --- questions


async def test_the_disk_answers_as_a_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HF_HOME", raising=False)
    folder = tmp_path / "models/tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    real = ModelFolders((), 5.0).answer()
    async with lines("bare") as (first, second):
        said = await value(first, ModelsOnDisk(node="spark1"))
        assert set(said) == set(real)
        assert {key: type(one) for key, one in said.items() if key != "free_bytes"} == {
            key: type(one) for key, one in real.items() if key != "free_bytes"
        }
        assert {frozenset(row) for row in said["models"]} == {frozenset(real["models"][0])}
        disk = node_models_of("spark1", said)
        assert disk is not None
        qwen = disk.find(QWEN)
        assert qwen is not None
        assert qwen.is_complete
        facts = qwen.facts
        assert (facts.layers, facts.cache_layers, facts.kv_heads, facts.quantisation) == (40, 10, 2, "fp8")
        assert (facts.weights_bytes or 0) / GIB == pytest.approx(34.6, abs=0.1)
        lying = disk.find("/home/spark/models/MiniMax-M2.7-NVFP4-GB10-AC")
        assert lying is not None
        assert (lying.where, lying.facts.quantisation) == ("folder", "nvfp4")
        other = node_models_of("spark2", await value(second, ModelsOnDisk(node="spark2")))
        assert other is not None
        assert other.find(QWEN) is None


async def test_the_hub_and_the_node_answer_what_a_launch_asks() -> None:
    async with lines("bare") as (line, _):
        ask = HubModel(node="spark1", repo=GPT_OSS)
        hub = hub_listing_of(GPT_OSS, await value(line, ask))
        assert hub.is_there
        assert hub.facts is not None
        assert (hub.facts.quantisation, hub.facts.window_layers) == ("mxfp4", 18)
        assert sum(one.size_bytes or 0 for one in hub.files) > 2.9 * (hub.size_bytes or 0), "three times the weights"
        assert hub_listing_of("no/such", await value(line, HubModel(node="spark1", repo="no/such"))).status == 404
        elsewhere = HubModel(node="spark1", repo=QWEN, hub="https://mirror.example")
        assert hub_listing_of(QWEN, await value(line, elsewhere)).status == 0
        assert downloads.has_rsync(await value(line, downloads.rsync_question("spark1")))
        reach = downloads.ask_reach("spark1", "10.0.0.2")
        nowhere = downloads.ask_reach("spark1", "10.0.0.77")
        assert reach is not None
        assert nowhere is not None
        assert downloads.has_rsync(await value(line, reach))
        assert "No route to host" in (await line.ask([nowhere]))[nowhere].problem
        programs = await value(line, downloads.programs_question("spark1", "/home/spark"))
        assert "/home/spark/.local/bin/hf" in programs.splitlines()
        free = (await value(line, df_question("spark1", "/var/lib/docker"))).splitlines()[1].split()
        assert int(free[0]) > 2000 * GIB
        assert listening(await value(line, port_question("spark1", "/proc/net/tcp"))) == {22}
        large = Output(node="spark1", argv=("ping", "-c1", "-M", "do", "-s", "9200", "-I", "10.0.0.1", "10.0.0.2"))
        assert "100% packet loss" in await value(line, large)
        config = FileText(node="spark1", path="/home/spark/models/MiniMax-M2.7-NVFP4-GB10-AC/config.json")
        assert "MiniMaxM2ForCausalLM" in await value(line, config)
        info = await value(line, DockerGet(node="spark1", path="/info"))
        assert info["DockerRootDir"] == "/var/lib/docker"


# --- fetches


async def test_an_image_is_pulled_told_of_and_there() -> None:
    async with lines("bare", speed=100) as (_, line):
        there = DockerGet(node="spark2", path=f"/images/{NGC}/json")
        assert await value(line, there) is None
        outcome, told = await fetch(line, ImagePull(image=NGC), "pull")
        assert outcome.state is OutcomeState.DONE
        assert [one.done_bytes for one in told if "unpacking" not in one.words] == sorted(
            one.done_bytes or 0 for one in told if "unpacking" not in one.words
        )
        assert any("of 61 layers" in one.words for one in told)
        image = await value(line, there)
        assert image["RepoDigests"]
        again, told = await fetch(line, ImagePull(image=NGC), "again")
        assert again.results[0].was_done
        assert not told
        missing, _ = await fetch(line, ImagePull(image="nvcr.io/nvidia/none:1"), "missing")
        assert missing.state is OutcomeState.FAILED
        assert "pull access denied for nvcr.io/nvidia/none" in missing.problem


async def test_a_model_that_was_half_fetched_is_gone_on_with_and_then_copied() -> None:
    async with lines("bare", speed=100) as (first, second):
        whole = catalogue.model(QWEN)
        assert whole is not None
        outcome, _ = await fetch(second, hf(QWEN), "cut", ends_at=10**9)
        assert outcome.state is OutcomeState.FAILED
        assert outcome.results[0].was_ended
        disk = node_models_of("spark2", await value(second, ModelsOnDisk(node="spark2")))
        found = disk.find(QWEN) if disk is not None else None
        assert found is not None
        assert not found.is_complete
        assert (found.folder_bytes or 0) > 10**9
        outcome, told = await fetch(second, hf(QWEN), "on")
        assert outcome.state is OutcomeState.DONE
        assert (told[0].done_bytes or 0) >= 10**9, "what has come is not fetched again"
        back = copy_command("10.0.0.1", "", "/home/spark/models/MiniMax-M2.7-NVFP4-GB10-AC", "/home/spark/models/M")
        wrong = Transfer(command=copy_command("10.0.0.99", "", "/a", "/b"), grows="/b", key="wrong")
        assert (await fetch(second, wrong, "wrong"))[0].state is OutcomeState.FAILED
        good = Transfer(command=back, grows="/b", key="copy", total_bytes=10**11)
        assert (await fetch(second, good, "copy"))[0].state is OutcomeState.DONE
        assert (await fetch(first, hf("no/such"), "none"))[0].problem.startswith("hf exited with code 1")


async def test_the_same_transfer_is_followed_and_holds_no_node() -> None:
    async with lines("bare", speed=20) as (line, _):
        first = asyncio.create_task(fetch(line, hf("mistralai/Mistral-Small-4-119B-2603-eagle"), "one"))
        await asyncio.sleep(0.1)
        assert await line.lock("me", "a change") is None, "a fetch holds no node"
        outcome, told = await fetch(line, hf("mistralai/Mistral-Small-4-119B-2603-eagle"), "two")
        assert outcome.state is OutcomeState.DONE
        assert any("transfer of the same" in one.words for one in told)
        assert (await first)[0].state is OutcomeState.DONE


# --- starts


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--gpu-memory-utilization", "0.95"),
            "/121.69 GiB) on startup is less than desired GPU memory utilization (0.95, 115.61 GiB).",
        ),
        (("--gpu-memory-utilization", "0.5", "--enforce-eager"), "No available memory for the cache blocks."),
        (("--gpu-memory-utilization", "0.7", "--max-model-len", "200000"), "greater than the derived max_model_len"),
        (("--gpu-memory-utilization", "0.7", "--attention-backend", "FLASHINFER"), "attention sinks not supported"),
    ],
)
async def test_vllm_refuses_as_it_does(flags: tuple[str, ...], words: str) -> None:
    async with lines("bare", speed=80) as (line, _):
        assert (await start(line, "vllm", "serve", GPT_OSS, *flags)).state is OutcomeState.DONE
        log = await ended(line)
        assert words in log
        phases = [phase_of(line.partition(" ")[2]) for line in log.splitlines()]
        has_failed = any(phase is not None and phase.failure for phase in phases)
        assert has_failed or "(APIServer" in log, "the server's own refusal is a traceback"


async def test_sglang_refuses_as_it_does() -> None:
    image = "lmsysorg/sglang:latest-cu130"
    argv = ("python3", "-m", "sglang.launch_server", "--model-path", GPT_OSS, "--mem-fraction-static", "0.4")
    async with lines("bare", speed=200) as (line, _):
        assert (await fetch(line, ImagePull(image=image), "pull"))[0].state is OutcomeState.DONE
        assert (await start(line, *argv, image=image)).state is OutcomeState.DONE
        assert "Not enough memory. Please try to increase --mem-fraction-static." in await ended(line)


async def test_a_rank_waits_for_the_others_of_its_launch() -> None:
    model = "/models/MiniMax"
    more = {"HostConfig": {"Binds": [f"/home/spark/models/MiniMax-M2.7-NVFP4-GB10-AC:{model}:ro"]}}
    argv = ("vllm", "serve", model, "--gpu-memory-utilization", "0.7", "--tensor-parallel-size", "2", "--nnodes", "2")
    head, worker = (*argv, "--node-rank", "0"), (*argv, "--node-rank", "1", "--headless")
    async with lines("bare", speed=60) as (first, second):

        async def listens() -> bool:
            return 8000 in listening(await value(first, port_question("spark1", "/proc/net/tcp")))

        image = "vllm-node:latest"
        assert (await start(second, *worker, image=image, **more)).state is OutcomeState.DONE
        assert (await start(first, *head, image=image, **more)).state is OutcomeState.DONE
        await until(listens)
        number = (await container(first, "made"))["Id"]
        said = await value(first, DockerLog(node="spark1", container_id=number))
        assert "37/37" in said
        stop = DockerCall(method="POST", path="/containers/made/stop", query={"t": "5"}, limit_s=40)
        assert (await perform(first, stop, step="stop")).state is OutcomeState.DONE
        assert not await listens()


async def test_an_image_that_is_not_there_makes_no_container() -> None:
    async with lines("bare") as (_, line):
        outcome = await start(line, "vllm", "serve", QWEN)
        assert outcome.state is OutcomeState.FAILED
        assert outcome.results[0].code == 404
        ask = DockerGet(node="spark2", path="/containers/made/json")
        assert (await line.ask([ask]))[ask] == Answer(code=404)


def test_the_catalogue_holds_what_its_parts_say() -> None:
    found = catalogue.model(GPT_OSS)
    assert found is not None
    assert found.weights_bytes == 65_248_815_744
    assert found.shard_names()[0] == "model-00000-of-00014.safetensors"
    assert sum(size for path, size in found.files() if "/" not in path) == found.size_bytes
