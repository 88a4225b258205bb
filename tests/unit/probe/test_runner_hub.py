"""What the hub says, through a real runner and a server on loopback; the token goes there, and nowhere else."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.hub import Hub, index_of, safetensors
from tests.runner_support import NODE, bench

from sparktop.model.survey import HubModel
from sparktop.probe.runner.hub import hub_model
from sparktop.recipe.models import hub_listing_of

SHARDS = {"model-00001-of-00002.safetensors": {"a": 4096}, "model-00002-of-00002.safetensors": {"b": 2048}}
FILES = {
    "config.json": json.dumps({"num_hidden_layers": 28, "quantization_config": {"quant_method": "fp8"}}).encode(),
    "model.safetensors.index.json": index_of(SHARDS),
    **{name: safetensors(tensors) for name, tensors in SHARDS.items()},
    "original/model.safetensors": safetensors({"a": 8192}),
}
TOKEN = "hf_abcdefghijklmnop"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("HF_HOME", "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "XDG_CACHE_HOME", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Hub.start() as server:
        server.tokens.add(TOKEN)
        yield server


def asked(hub: Hub, repo: str = "acme/small", *, token: str = "", revision: str = "main", **more: Any) -> Any:
    return hub_model({"repo": repo, "revision": revision, "hub": hub.url, "token": token, "seconds": 5.0, **more})


async def test_a_public_model_through_a_real_runner(hub: Hub, tmp_path: Path) -> None:
    made = hub.model("acme/small", FILES)
    ask = HubModel(node=NODE, repo="acme/small", hub=hub.url, token=TOKEN)
    async with bench(tmp_path / "state") as stage:
        line = await stage.line()
        answer = (await line.ask([ask]))[ask]
        assert TOKEN.encode() not in stage.journal()
    assert TOKEN not in json.dumps(answer.value)
    assert TOKEN not in repr(ask)
    said = hub_listing_of("acme/small", answer.value)
    assert (said.status, said.problem, said.is_gated, said.revision) == (200, "", False, made.commit)
    assert said.facts is not None
    assert (said.facts.layers, said.facts.quantisation) == (28, "fp8")
    assert said.facts.weights_bytes == sum(len(FILES[name]) for name in SHARDS)
    assert said.size_bytes == sum(len(data) for name, data in FILES.items() if "/" not in name)
    assert set(hub.seen_tokens) == {TOKEN}


def test_a_gated_model_is_told_though_its_list_of_files_is_everybody_s(hub: Hub) -> None:
    hub.model("acme/small", FILES, is_gated=True)
    said = hub_listing_of("acme/small", asked(hub))
    assert (said.status, said.is_gated, said.is_there) == (401, True, False)
    assert "GatedRepo" in said.problem
    assert hub_listing_of("acme/small", asked(hub, token="hf_another")).status == 403
    said = hub_listing_of("acme/small", asked(hub, token=TOKEN))
    assert (said.status, said.is_gated, said.is_there) == (200, True, True)


def test_the_node_s_own_token_is_used_and_not_told(hub: Hub, tmp_path: Path) -> None:
    hub.model("acme/small", FILES, is_gated=True)
    (tmp_path / ".cache/huggingface").mkdir(parents=True)
    (tmp_path / ".cache/huggingface/token").write_text(TOKEN + "\n")
    answer = asked(hub)
    assert answer["status"] == 200
    assert TOKEN not in json.dumps(answer)
    asked(hub, token="hf_the-operators")
    assert hub.seen_tokens[-1] == "hf_the-operators"


def test_what_is_not_there(hub: Hub) -> None:
    hub.model("acme/small", FILES)
    hub.model("acme/private", FILES, is_private=True)
    assert asked(hub, "acme/none")["status"] == 401  # as the hub says it to whoever has no token
    assert asked(hub, "acme/none", token=TOKEN)["status"] == 404
    assert asked(hub, "acme/private")["status"] == 401
    assert asked(hub, revision="v9")["status"] == 404


def test_mistral_s_params_and_modelopt_s_own_file(hub: Hub) -> None:
    quant = {"quantization": {"quant_algo": "NVFP4"}}
    files = {"params.json": b'{"n_layers": 36}', "hf_quant_config.json": json.dumps(quant).encode()}
    hub.model("acme/small", files | {"consolidated.safetensors": safetensors({"a": 64})})
    said = hub_listing_of("acme/small", asked(hub))
    assert said.facts is not None
    assert (said.facts.layers, said.facts.quantisation) == (36, "nvfp4")


def test_no_hub(hub: Hub) -> None:
    said = hub_model({"repo": "a/b", "hub": "http://127.0.0.1:9", "seconds": 3.0, "token": TOKEN})
    assert said["status"] == 0
    assert "can't be reached" in said["problem"]
    for address in ("file:///etc/passwd", "ftp://127.0.0.1/", "127.0.0.1", ""):
        assert hub_model({"repo": "a/b", "hub": address, "seconds": 3.0})["status"] == 0


@contextlib.contextmanager
def serving(answer: bytes, *, status: int = 200, location: str = "") -> Iterator[tuple[str, list[str]]]:
    """Whatever it is asked, that."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            if location:
                self.send_header("Location", location + self.path)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(answer)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def test_the_token_does_not_follow_a_redirection_to_another_host(hub: Hub) -> None:
    hub.model("acme/small", FILES)
    with serving(b"", status=307, location=hub.url) as (url, seen):
        answer = hub_model({"repo": "acme/small", "hub": url, "token": TOKEN, "seconds": 5.0})
    assert answer["status"] == 200
    assert set(seen) == {f"Bearer {TOKEN}"}
    assert hub.seen_tokens == []


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"null", b'{"siblings": 3}', b"[" * 50_000])
def test_what_no_hub_says(hub: Hub, answer: bytes) -> None:
    with serving(answer) as (url, _):
        said = hub_model({"repo": "a/b", "hub": url, "seconds": 5.0})
    assert (said["status"], said["files"]) == (0, [])
    assert said["problem"]


def test_a_token_that_can_be_no_header_is_in_no_problem(hub: Hub) -> None:
    hub.model("acme/small", FILES)
    answer = asked(hub, token="hf_secret\r\nX: y")
    assert answer["status"] == 0
    assert "hf_secret" not in json.dumps(answer)


def test_a_name_stays_within_the_path(hub: Hub) -> None:
    for repo in ("../../etc", "a/b?x=1", "a b/c#d", "a/b\r\nX: y"):
        assert asked(hub, repo)["status"] in (0, 401, 404)
