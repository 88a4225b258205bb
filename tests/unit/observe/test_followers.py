"""What a node's followers keep of its containers, endpoints and logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.pictures_support import memory
from tests.support import engine_of

from sparktop.clock import ManualClock
from sparktop.model.engine import (
    Containers,
    Endpoint,
    EndpointState,
    Engine,
    EngineKind,
    EngineMetrics,
    EngineRates,
    EngineState,
)
from sparktop.model.telemetry import GapReason, Gpu, GpuReading, Sample
from sparktop.observe import followers as module
from sparktop.observe.engines import engine_book
from sparktop.observe.engines.engine_book import EngineBook, Figures
from sparktop.observe.followers import Followers
from sparktop.observe.intake import Intake
from sparktop.observe.node_state import NodeState
from sparktop.observe.received import Scraped
from sparktop.transport.endpoint import Reply


def test_the_log_of_the_container_before_is_kept_with_the_engines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    book = NodeState("spark1", clock=clock, changed=lambda _: None)
    book.message(Sample(sequence=1, boot_s=1.0, wall_s=1.0, interval_s=1.0, memory=memory()), clock.monotonic())
    found = EngineBook(book)
    engines: list[Engine] = []
    monkeypatch.setattr(engine_book, "discover", lambda *_, **__: tuple(engines))

    def see(*now: Engine) -> None:
        engines[:] = now
        found.look()

    first = engine_of(key="aaa", kind=EngineKind.VLLM, name="vllm", state=EngineState.READY)
    second = replace(first, key="bbb")
    see(first)
    feed = found.feed("aaa")
    assert feed is not None
    assert feed.previous is None
    # A relaunch renames the old container and makes one of its name.
    see(replace(first, name="vllm.old", state=EngineState.EXITED), second)
    renewed = found.feed("bbb")
    assert renewed is not None
    assert renewed.previous is feed
    see(second)
    renewed = found.feed("bbb")
    assert renewed is not None
    assert renewed.previous is feed
    see(replace(first, key="ccc", name="other"), second)
    other = found.feed("ccc")
    assert other is not None
    assert other.previous is None


def test_figures_of_an_earlier_run_are_none_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    book = NodeState("spark1", clock=clock, changed=lambda _: None)
    book.message(Sample(sequence=1, boot_s=1.0, wall_s=1.0, interval_s=1.0, memory=memory()), clock.monotonic())
    found = EngineBook(book)
    engines: list[Engine] = []
    monkeypatch.setattr(engine_book, "discover", lambda *_, **__: tuple(engines))

    def seen(*pids: int) -> Engine:
        endpoint = Endpoint(host="127.0.0.1", port=8000)
        engines[:] = [
            engine_of(key="aaa", kind=EngineKind.VLLM, name="vllm", state=EngineState.STARTING, pids=pids,
                   endpoint=endpoint)
        ]  # fmt: skip
        found.look()
        return found.engines[0]

    seen(10)
    scraped = found.figures["aaa"] = Figures()
    scraped.endpoint = Endpoint(host="127.0.0.1", port=8000, state=EndpointState.OK)
    scraped.metrics = EngineMetrics(wall_s=1.0, running=2.0)
    assert seen(10, 11).metrics is scraped.metrics
    assert seen(20).metrics is None


@pytest.mark.parametrize(
    ("state", "asked"), [(EndpointState.OK, ["old"]), (EndpointState.REFUSED, ["old", "new"])], ids=["listens", "loads"]
)
def test_who_starts_on_another_one_s_port_is_not_taken_for_it(state: EndpointState, asked: list[str]) -> None:
    """Its start lasts half a minute before it finds the port taken; meanwhile the other one would answer for it."""
    endpoint = Endpoint(host="127.0.0.1", port=8000, state=state)
    old = engine_of(key="old", kind=EngineKind.VLLM, name="vllm", endpoint=endpoint, uptime_s=60.0)
    new = replace(old, key="new", endpoint=replace(endpoint, state=EndpointState.NOT_ASKED), uptime_s=1.0)
    targets = module._targets((new, old))
    assert {target[0] for target in targets if target[0].startswith("ask")} == {f"ask {key}" for key in asked}


def test_containers_listed_as_before_make_no_picture_of_their_own() -> None:
    """The next one has the time of the answer, which steps wait for."""
    clock = ManualClock()
    changes: list[bool] = []
    book = NodeState("spark1", clock=clock, changed=changes.append)
    book.containers(Containers(available=True))
    assert len(changes) == 1
    clock.advance(3.0)
    book.containers(Containers(available=True))
    assert len(changes) == 1
    assert book.view().containers_at_s == clock.monotonic()
    book.containers(Containers(detail="gone"))
    assert len(changes) == 2


@pytest.mark.parametrize(
    ("metrics", "age_s", "gpu_percent", "seconds"),
    [
        (EngineMetrics(wall_s=1.0, running=0.0, waiting=0.0), 60.0, 0.0, 60),
        (EngineMetrics(wall_s=1.0, running=1.0), 60.0, 0.0, 8),
        (EngineMetrics(wall_s=1.0, running=0.0, waiting=0.0), 1.0, 0.0, 8),
        (EngineMetrics(wall_s=1.0, running=0.0, waiting=0.0), 60.0, 96.0, 8),
    ],
    ids=["it rests", "it works", "it has just worked", "its GPU works"],
)
async def test_an_engine_at_rest_is_asked_every_quarter_of_a_minute(
    monkeypatch: pytest.MonkeyPatch, metrics: EngineMetrics, age_s: float, gpu_percent: float, seconds: int
) -> None:
    """Each question is a line in its log."""
    clock, asked = ManualClock(), list[float]()
    book = NodeState("spark1", clock=clock, changed=lambda _: None)
    book.gpu_reading = GpuReading(boot_s=1.0, gpus=(Gpu(name="GB10", utilisation_percent=gpu_percent),))
    found = EngineBook(book)
    followers = Followers(Intake(book, found))
    endpoint = Endpoint(host="127.0.0.1", port=8000)
    engine = engine_of(key="aaa", kind=EngineKind.VLLM, name="vllm", endpoint=endpoint)
    scraped = found.figures["aaa"] = Figures()
    scraped.rates, found.engines = EngineRates(progress_age_s=age_s), (engine,)

    async def scrape(*_: object) -> Scraped:
        asked.append(clock.monotonic())
        if len(asked) == 5:
            found.engines = ()
        return Scraped(key="aaa", state=EndpointState.OK, metrics=metrics)

    async def rest(seconds: float) -> None:
        clock.advance(seconds)

    monkeypatch.setattr(engine_book, "advance", lambda scrapes, _: (scrapes, scraped.rates))
    monkeypatch.setattr(followers, "_scrape", scrape)
    monkeypatch.setattr(followers, "_rest", rest)
    await followers._follow_endpoint(cast("Any", None), ("127.0.0.1", 8000), "aaa")
    assert len(asked) == 5
    assert seconds <= asked[-1] - asked[0] <= 1.1 * seconds


CAPTURES = Path(__file__).parents[2] / "real/captures/llama.cpp-0.7.0"
ANSWERS = {
    "/metrics": Reply(state=EndpointState.OK, body=(CAPTURES / "metrics-under-load.txt").read_bytes()),
    "/slots": Reply(state=EndpointState.OK, body=(CAPTURES / "slots.json").read_bytes()),
    "/props": Reply(state=EndpointState.OK, body=b'{"build_info": "b11669-Debian"}'),
    "/v1/models": Reply(state=EndpointState.OK, body=(CAPTURES / "models.json").read_bytes()),
    "/health": Reply(state=EndpointState.OK),
}
NO_KEY = Reply(state=EndpointState.NOT_METRICS, detail="needs a key", needs_key=True)
ABSENT = Reply(state=EndpointState.NOT_METRICS, detail="answers status 501")
BUSY = Reply(state=EndpointState.LOADING, detail="503")


@pytest.mark.parametrize(
    ("argv", "answers", "state", "running", "asked", "detail"),
    [
        ("--metrics", {}, EndpointState.OK, 3.0, "/metrics /slots /props /v1/models", ""),
        ("--metrics", {"/slots": ABSENT}, EndpointState.OK, 3.0, "/metrics /slots /props /v1/models", "501"),
        ("", {}, EndpointState.OK, 0.0, "/slots /props /v1/models", "--metrics"),
        ("--metrics", {"/metrics": BUSY}, EndpointState.LOADING, None, "/metrics", "503"),
        (
            "--metrics",
            {"/metrics": NO_KEY},
            EndpointState.OK,
            None,
            "/metrics /health /props /v1/models",
            "needs a key",
        ),
        (
            "--metrics",
            {"/metrics": NO_KEY, "/health": BUSY},
            EndpointState.NOT_METRICS,
            None,
            "/metrics /health",
            "key",
        ),
    ],
    ids=["all", "no slots", "no metrics", "it loads", "a key", "a key, and it loads"],
)
async def test_what_llama_cpp_tells(
    argv: str, answers: dict[str, Reply], state: EndpointState, running: float | None, asked: str, detail: str
) -> None:
    paths: list[str] = []

    class Client:
        async def get(self, path: str) -> Reply:
            paths.append(path)
            return {**ANSWERS, **answers}[path]

    book = NodeState("spark1", clock=ManualClock(), changed=lambda _: None)
    engine = engine_of(key="a", kind=EngineKind("llama.cpp"), name="a", argv=("llama-server", *argv.split()))
    scraped = await Followers(Intake(book, EngineBook(book)))._scrape(cast("Any", Client()), engine)
    assert (scraped.state, scraped.metrics and scraped.metrics.running) == (state, running)
    assert " ".join(paths) == asked
    assert detail in scraped.detail
    if scraped.metrics is not None:
        assert (scraped.version, scraped.metrics.model) == ("b11669-Debian", "tiny")


@pytest.mark.parametrize(
    ("loaded", "model", "context", "size"),
    [
        (b'[{"name":"gpt-oss:20b","size":14e9,"size_vram":14e9,"context_length":8192}]', "gpt-oss:20b", 8192, 14e9),
        (b"[]", None, None, None),
    ],
)
async def test_what_ollama_tells(loaded: bytes, model: str | None, context: int | None, size: float | None) -> None:
    class Client:
        async def get(self, path: str) -> Reply:
            body = {"/api/ps": b'{"models":%b}' % loaded, "/api/version": b'{"version":"0.11.4"}'}[path]
            return Reply(state=EndpointState.OK, body=body)

    book = NodeState("spark1", clock=ManualClock(), changed=lambda _: None)
    engine = engine_of(key="a", kind=EngineKind("ollama"), name="a", argv=("ollama", "serve"))
    scraped = await Followers(Intake(book, EngineBook(book)))._scrape(cast("Any", Client()), engine)
    assert (scraped.state, scraped.version) == (EndpointState.OK, "0.11.4")
    figures = scraped.metrics
    assert figures is not None
    assert (figures.model, figures.context_tokens, figures.model_bytes) == (model, context, size)
    assert (figures.running, figures.generation_tokens) == (None, None)
    assert figures.gaps["generation_tokens"] in (GapReason.NOT_SUPPORTED, GapReason.NOT_FOUND)


@pytest.mark.parametrize(("argv", "told", "port"), [("", 9931, 9931), ("", None, 8080), ("--port 8080", 9931, 8080)])
def test_a_default_port_is_the_one_that_its_log_tells(argv: str, told: int | None, port: int) -> None:
    endpoint = Endpoint(host="127.0.0.1", port=8080)
    words = ("llama-server", *argv.split())
    engine = engine_of(key="a", kind=EngineKind("llama.cpp"), name="a", argv=words, endpoint=endpoint)
    found = engine_book._at_its_port(engine, told).endpoint
    assert found is not None
    assert found.port == port
