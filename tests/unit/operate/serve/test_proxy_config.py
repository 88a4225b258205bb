"""The configurations of nginx and Caddy, with real ones: what arrives when, what is refused, what is not there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proxy_support import KEY, NAME, Engine, Running, engine, program, proxy
from tests.support import free_port
from tests.table import over

from sparktop.operate.acts.checks import exposed_here
from sparktop.operate.serve.proxy_config import (
    HEAD,
    Proxy,
    Site,
    Upstream,
    checked_key,
    key_text,
    server_name,
    site_text,
    upstream,
)

ENGINES = pytest.mark.parametrize("before", list(Proxy), indirect=True)


@pytest.fixture
def serving() -> Iterator[Engine]:
    with engine() as found:
        yield found


@pytest.fixture
def before(request: pytest.FixtureRequest, tmp_path: Path, serving: Engine) -> Iterator[Running]:
    with proxy(request.param, tmp_path, serving.port) as running:
        yield running


@ENGINES
def test_a_streamed_completion_arrives_token_by_token(before: Running, serving: Engine) -> None:
    serving.goes_on.release()
    reply = before.ask("/v1/chat/completions", method="POST", body=b"{}")
    assert reply.status == 200
    for number in range(3):  # each is here before the engine may send the next
        text = b""
        while not text.endswith(b"\n\n"):
            text += reply.read1(64)
        assert text == b"data: token %d\n\n" % number
        serving.goes_on.release()
    assert reply.read() == b""


@ENGINES
def test_a_body_of_30_mb_passes(before: Running, serving: Engine) -> None:
    assert before.ask("/v1/embeddings", method="POST", body=b"x" * 30_000_000).status == 200
    assert serving.body_bytes == 30_000_000


@ENGINES
@pytest.mark.parametrize("key", ["", "wrong-key-123", KEY.swapcase(), KEY + "x", KEY.replace(".", "x"), f"x{KEY}"])
def test_without_the_key_nothing_reaches_the_engine(before: Running, serving: Engine, key: str) -> None:
    for method, body in (("GET", None), ("POST", b"{}")):
        assert before.ask("/v1/models", key=key, method=method, body=body).status == 401
    assert serving.paths == []
    assert before.ask("/v1/models").status == 200


@ENGINES
@pytest.mark.parametrize(
    "path",
    ["/", "/metrics", "/v1", "/flush_cache", "/generate", "/health/x", "/v1/../metrics", "/v1/%2e%2e/metrics",
     "//v1/../metrics", "/docs"],
)  # fmt: skip
def test_nothing_else_is_there(before: Running, serving: Engine, path: str) -> None:
    assert before.ask(path).status in (301, 400, 404), "301: nginx adds a slash to /v1"
    assert serving.paths == []


@ENGINES
def test_health_needs_no_key(before: Running, serving: Engine) -> None:
    assert before.ask("/health", key="").status == 200
    assert serving.paths == ["/health"]


@pytest.mark.parametrize("before", [Proxy.NGINX], indirect=True)
def test_nginx_catches_a_doubled_upstream(before: Running) -> None:
    assert before.tested() == ""
    shutil.copy(before.root / "sites-enabled" / NAME, before.root / "sites-enabled" / "old-copy")
    assert 'duplicate upstream "sparktop_llm_example_org"' in before.tested()


@pytest.mark.parametrize("before", [Proxy.NGINX], indirect=True)
def test_two_names_stand_side_by_side(before: Running) -> None:
    other = Site(name="b.example.org", upstreams=(Upstream(address="127.0.0.1", port=9),), port=before.port)
    (before.root / "b.example.org.key").write_text(key_text(other, Proxy.NGINX, "another-key-456"))
    (before.root / "sites-enabled" / "b").write_text(site_text(other, Proxy.NGINX, str(before.root)))
    assert before.tested() == ""


async def test_a_name_that_points_elsewhere_is_not_sent_the_key(serving: Engine) -> None:
    result = await exposed_here("127.0.0.1", serving.port, KEY)
    assert not result.ok
    assert "whoever reaches it can use it" in result.detail
    assert serving.paths
    assert KEY not in " ".join(serving.keys)


@pytest.mark.parametrize("before", [Proxy.NGINX], indirect=True)
async def test_this_machine_asks_without_the_key(before: Running, serving: Engine) -> None:
    result = await exposed_here("127.0.0.1", before.port, KEY)
    assert (result.ok, result.detail) == (True, "401 without a key, 401 with a wrong one")
    assert not (await exposed_here("127.0.0.1", free_port(), KEY)).ok


def test_two_engines_share_the_load(tmp_path: Path) -> None:
    program(Proxy.NGINX)
    with engine() as one, engine() as two, proxy(Proxy.NGINX, tmp_path, one.port, two.port) as running:
        for _ in range(4):
            assert running.ask("/v1/models").status == 200
        assert len(one.paths) == len(two.paths) == 2


def test_certbot_can_edit_it() -> None:
    site = Site(name=NAME, upstreams=(Upstream(address="192.168.0.50", port=8000),))
    text = site_text(site, Proxy.NGINX, "/etc/nginx/sparktop")
    assert text.startswith(HEAD)
    assert "ssl" not in text, "HTTP first: nginx -t fails on a certificate that isn't there yet"
    assert "listen 80;" in text
    assert "listen [::]:80;" in text


def test_caddy_gets_a_certificate_for_a_public_name_alone() -> None:
    def first(name: str) -> str:
        site = Site(name=name, upstreams=(Upstream(address="::1", port=8000),))
        return site_text(site, Proxy.CADDY, "/x").splitlines()[1]

    assert first("llm.example.org") == "llm.example.org {"
    assert first("spark1.local") == "http://spark1.local:80 {"
    assert first("gateway") == "http://gateway:80 {"


@over("text", ["", "-a.org", "a b", "a;b", "a.org {", "a\n", "*.example.org", "a..b", "x" * 300, "$host", "a/b"])
def test_what_is_no_host_name(text: str) -> None:
    with pytest.raises(ValueError, match="no host name"):
        server_name(text)


@over("text", ["spark.local:8000", "192.168.0.50", "192.168.0.50:0", "1.2.3.4:99999", ":80", "[::1]"])
def test_what_is_no_upstream(text: str) -> None:
    with pytest.raises(ValueError, match="IP"):
        upstream(text)


@over("text", ["", "short", "with blank", 'quote"quote', "a;return 200;", "$variable1", "new\nline12"])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match="a key is"):
        checked_key(text)


def test_an_address_of_ipv6() -> None:
    assert str(upstream("[fd00::1]:8000")) == "[fd00::1]:8000"
