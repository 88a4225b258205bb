"""`sparktop expose` over a real sshd with a real nginx and a real engine's port: installed, asked, refused, removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.desk import told
from tests.integration.spark import Spark
from tests.integration.terminal import sparktop
from tests.integration.test_operate_pair import PairDesk, console
from tests.proxy_support import KEY, NAME, Engine, Running, engine, program
from tests.support import free_port, poll

from sparktop.model.request import Request
from sparktop.operate.serve.proxy_config import HEAD, Proxy
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
NGINX = """\
pid /run/nginx.pid;
error_log /run/nginx-error.log;
events {}
http { access_log off; client_body_temp_path /run/body; include /etc/nginx/sites-enabled/*; }
"""


@pytest.fixture
def serving() -> Iterator[Engine]:
    with engine() as found:
        yield found


@pytest.fixture
def gateway() -> Iterator[Spark]:
    path = program(Proxy.NGINX)
    with Spark.start("gateway", "127.0.0.2") as one:
        folder = one.root / "etc/nginx"
        (folder / "nginx.conf").write_text(NGINX)
        shutil.rmtree(folder / "sites-enabled", ignore_errors=True)
        (folder / "sites-enabled").mkdir()
        one.run(path)
        yield one


def test_what_is_planned_as_it_is_typed(gateway: Spark, serving: Engine, tmp_path: Path) -> None:
    gateway.sshd.trust()
    gateway.sshd.alias("gateway")
    words = ("expose", NAME, "--upstream", f"127.0.0.1:{serving.port}", "--on", "gateway", "--dry-run")
    keyless = sparktop(*words, environment={"SPARKTOP_API_KEY": "", "VLLM_API_KEY": ""})
    assert (keyless.returncode, "a key is required" in keyless.stdout) == (1, True), keyless.stderr
    secret = tmp_path / "key.env"
    secret.write_text(f"SPARKTOP_API_KEY={KEY}\n")
    secret.chmod(0o644)
    seen = sparktop(*words, "--env-file", str(secret))
    assert (seen.returncode, "chmod 600" in seen.stderr) == (2, True), seen.stderr
    secret.chmod(0o600)
    for more in (("--env-file", str(secret)), ("--env-file", str(secret), "--json")):
        planned = sparktop(*words, *more)
        assert (planned.returncode, f"/etc/nginx/sparktop/{NAME}.key" in planned.stdout) == (0, True), planned.stderr
        assert KEY not in planned.stdout + planned.stderr
    printed = sparktop("expose", NAME, "--upstream", "192.168.0.50:8000")
    assert (printed.returncode, printed.stdout.startswith(HEAD)) == (0, True)
    assert "YOUR-KEY" in printed.stderr


async def planned(at: PairDesk, *, key: str = KEY, **options: str) -> Plan | Refusal:
    await at.until(lambda: at.lines.line("gateway") and at.monitor.state.nodes[0].sample, what="its runner")
    options = {"on": "gateway", **options}
    return await at.operations.plan(
        Request(action="expose", nodes=("gateway",), options={"name": NAME, **options}, secret=key)
    )


async def run(at: PairDesk, plan: Plan | Refusal) -> Run:
    assert isinstance(plan, Plan), plan
    return await at.finished(at.begin(plan))


@pytest.mark.fast
async def test_it_is_served_with_the_key_until_it_is_removed(gateway: Spark, serving: Engine, tmp_path: Path) -> None:
    port = free_port()
    asked = Running(tmp_path, port, gateway.init, ())
    upstream = f"127.0.0.1:{serving.port}"
    async with console((gateway,), tmp_path) as at:
        done = await run(at, await planned(at, upstream=upstream, listen=str(port)))
        assert done.state is RunState.DONE, told(done)
        assert "401 without a key, 401 with a wrong one, 200 with yours, 404 outside /v1/" in told(done)
        assert (asked.ask("/v1/models").status, asked.ask("/v1/models", key="").status) == (200, 401)
        key_file = gateway.root / f"etc/nginx/sparktop/{NAME}.key"
        assert key_file.stat().st_mode & 0o777 == 0o600
        assert KEY not in "".join(map(repr, at.shown)) + (tmp_path / "audit.jsonl").read_text()

        changed = await run(at, await planned(at, key="another-key-77", upstream=upstream, listen=str(port)))
        assert changed.state is RunState.DONE, told(changed)
        assert (asked.ask("/v1/models").status, asked.ask("/v1/models", key="another-key-77").status) == (401, 200)
        assert [path.name for path in key_file.parent.iterdir()] == [key_file.name], "the old key is gone"

        removed = await run(at, await planned(at, remove="yes"))
        assert removed.state is RunState.DONE, told(removed)
        assert not key_file.exists()
        assert list((gateway.root / "etc/nginx/sites-enabled").iterdir()) == []
        poll(lambda: refuses(asked), what="nothing on its port")


def refuses(asked: Running) -> bool:
    try:
        asked.ask("/v1/models")
    except OSError:
        return True
    return False


async def test_what_nginx_or_the_check_refuses_is_taken_back(gateway: Spark, serving: Engine, tmp_path: Path) -> None:
    sites = gateway.root / "etc/nginx/sites-enabled"
    port = str(free_port())
    upstream = f"127.0.0.1:{serving.port}"
    async with console((gateway,), tmp_path) as at:
        (sites / "stale").write_text("upstream sparktop_llm_example_org { server 127.0.0.1:9; }\n")
        doubled = await planned(at, upstream=upstream, listen=port)
        assert isinstance(doubled, Refusal)
        assert "/etc/nginx/sites-enabled/stale on gateway defines the upstream" in doubled.reason
        (sites / "stale").unlink()

        plan = await planned(at, upstream=upstream, listen=port)
        (sites / "late").write_text("upstream sparktop_llm_example_org { server 127.0.0.1:9; }\n")
        failed = await run(at, plan)
        assert failed.state is RunState.FAILED, told(failed)
        assert "duplicate upstream" in told(failed)
        assert [path.name for path in sites.iterdir()] == ["late"]
        (sites / "late").unlink()

        dead = await run(at, await planned(at, upstream=f"127.0.0.1:{free_port()}", listen=port))
        assert dead.state is RunState.ROLLED_BACK, told(dead)
        assert "the proxy does not reach the engine" in told(dead)
        assert list(sites.iterdir()) == []
        assert list((gateway.root / "etc/nginx/sparktop").iterdir()) == []

        plan = await planned(at, upstream=upstream, listen=port)
        gateway.run(program(Proxy.NGINX), "-s", "stop")
        stopped = await run(at, plan)
        assert stopped.state is RunState.ROLLED_BACK, told(stopped)
        assert list(sites.iterdir()) == []
