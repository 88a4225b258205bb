"""The real runner fetching: pulls from an Engine of the test's, commands that grow a folder, followed and ended."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fake_docker import FakeDocker, Reply, fake_docker
from tests.runner_support import Bench, bench, is_alive, sh, until
from tests.table import over

from sparktop.errors import LinkLost
from sparktop.model.operation import Command, ImagePull, Privilege, Transfer
from sparktop.operate.runner.api import OutcomeState, Progress
from sparktop.probe.runner.fetch import FOLLOWS, folder_bytes
from sparktop.probe.runner.journal import RESERVED_BYTES, Unable
from sparktop.probe.runner.pull import Layers, as_reference, login_for, registry_of
from sparktop.probe.runner.step import last_line

IMAGE = "nvcr.io/nvidia/vllm:26.05.post1-py3"
MEG = 1_000_000


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "state") as made:
        yield made


def grows(folder: Path, script: str, *arguments: str, **more: Any) -> Transfer:
    """A transfer into a folder; the script's $1 is the folder."""
    options = {"total_bytes": 8 * MEG, "limit_s": 60.0, "key": f"model x to {folder}", **more}
    command = sh(script, str(folder), *arguments, limit_s=options.pop("limit_s"))
    return Transfer(command=command, grows=str(folder), **options)


SLOW = """
mkdir -p "$1"; echo $$ >"$1.pid"; echo once >>"$1.count"
for n in 1 2 3 4 5 6 7 8; do
    [ -e "$1/part$n" ] || head -c 1000000 /dev/urandom >"$1/part$n"
    [ $n = 2 ] && while [ ! -e "$1.go" ]; do sleep 0.05; done
done
echo all is there
"""
"""Grows to two parts of eight, and on when there is a file "go"; begun again it goes on."""


# --- a transfer


@pytest.mark.parametrize("total", [9 * MEG, None])
async def test_a_transfer_tells_how_its_folder_grows(stage: Bench, tmp_path: Path, total: int | None) -> None:
    """What was there before counts where the size in the end is known, and is not what was brought."""
    line = await stage.line()
    folder, go = tmp_path / "model", tmp_path / "model.go"
    folder.mkdir()
    (folder / "before").write_bytes(b"x" * MEG)
    first = MEG if total else 0
    performing = asyncio.create_task(stage.perform(line, grows(folder, SLOW, total_bytes=total)))
    await until(lambda: any((one.done_bytes or 0) >= 2 * MEG + first for one in stage.progress))
    assert all(first <= (one.done_bytes or 0) < 3 * MEG + first for one in stage.progress)
    assert {one.total_bytes for one in stage.progress} == {total}
    async with asyncio.timeout(20):  # it is written down less often than it is told
        while True:
            asked = await line.outcome("r1", "s")
            assert asked.state is OutcomeState.RUNNING
            assert asked.progress is not None
            if (asked.progress.done_bytes or 0) >= 2 * MEG + first:
                break
            await asyncio.sleep(0.05)
    assert (asked.progress.done_bytes or 0) - first < 3 * MEG
    go.touch()
    outcome = await performing
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.results[0].output == "all is there"
    assert 8 * MEG <= (outcome.results[0].brought_bytes or 0) < 9 * MEG
    assert not list(stage.folder.rglob("*.progress"))
    assert (await line.outcome("r1", "s")).progress is None


async def test_its_progress_takes_no_more_room_with_time(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    performing = asyncio.create_task(stage.perform(line, grows(tmp_path / "model", SLOW)))
    await until(lambda: len(stage.progress) >= 4)
    sizes = {path.suffix: path.stat().st_size for path in stage.folder.rglob("*.*") if path.is_file()}
    assert sizes[".progress"] == 1024
    assert sizes[".step"] == RESERVED_BYTES
    (tmp_path / "model.go").touch()
    await performing


async def test_a_failure_is_told_in_its_last_words_and_a_root_s_is_none(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    failed = grows(tmp_path / "m", "echo some of it; echo 401 Unauthorized token=abcdefgh >&2; exit 1")
    outcome = await stage.perform(line, failed, step="fails")
    assert outcome.problem.endswith("code 1: 401 Unauthorized token=<masked>")
    assert outcome.results[0].brought_bytes is not None, "what came of it is told"
    assert (outcome.results[0].free_bytes or 0) > 0
    slow = grows(tmp_path / "m", "sleep 60", limit_s=0.3)
    assert "0.3 s" in (await stage.perform(line, slow, step="slow")).problem
    root = Command(argv=("touch", str(tmp_path / "no")), privilege=Privilege.ROOT)
    outcome = await stage.perform(line, Transfer(command=root, grows="/x", key="k"), step="root")
    assert (outcome.problem, outcome.results[0].is_untouched) == (
        "sparktop downloads nothing as root; nothing was done",
        True,
    )


async def test_what_is_there_already_is_not_fetched(stage: Bench, tmp_path: Path) -> None:
    done = grows(tmp_path, "exit 9")
    done = replace(done, command=replace(done.command, done_when=Command(argv=("test", "-d", str(tmp_path)))))
    outcome = await stage.perform(await stage.line(), done)
    assert outcome.results[0].was_done


async def test_secrets_reach_it_by_its_environment_alone(stage: Bench, tmp_path: Path) -> None:
    secret = "hf_CANARYcanaryCANARY1234567890"
    transfer = grows(tmp_path / "m", 'echo "$HF_TOKEN"; echo "token $HF_TOKEN" >"$1"')
    transfer = replace(transfer, command=replace(transfer.command, environment={"HF_TOKEN": secret}))
    outcome = await stage.perform(await stage.line(), transfer)
    assert secret in (tmp_path / "m").read_text()
    assert "CANARY" not in outcome.results[0].output
    assert b"CANARY" not in stage.journal()


async def test_it_outlives_its_console_and_is_followed_by_the_next(stage: Bench, tmp_path: Path) -> None:
    """A console is closed in the middle; another launches the same: one command at a time, and then all is there."""
    folder = tmp_path / "model"
    transfer = grows(folder, SLOW)
    first = await stage.line(key="first")
    performing = asyncio.create_task(stage.perform(first, transfer, run="r1"))
    await until((folder / "part2").exists)
    await first.close()
    with pytest.raises(LinkLost):
        await performing
    second = await stage.line(key="second")
    assert await second.lock("me@laptop", "something else") is None  # it holds no node
    performing = asyncio.create_task(stage.perform(second, transfer, run="r2"))
    await until(lambda: any(one.words == FOLLOWS and (one.done_bytes or 0) >= 2 * MEG for one in stage.progress))
    assert (tmp_path / "model.count").read_text() == "once\n"
    (tmp_path / "model.go").touch()
    outcome = await performing
    assert outcome.state is OutcomeState.DONE, outcome
    assert (await stage.ended(second, run="r1")).state is OutcomeState.DONE
    assert (tmp_path / "model.count").read_text() == "once\nonce\n"  # the second finds all there
    assert 8 * MEG <= (outcome.results[0].brought_bytes or 0) < 9 * MEG


async def test_the_operator_ends_it_and_it_goes_on_next_time(stage: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    line = await stage.line()
    performing = asyncio.create_task(stage.perform(line, grows(folder, SLOW)))
    await until((folder / "part2").exists)
    pid = int((tmp_path / "model.pid").read_text())
    assert (await line.end("r1", "s")).state is OutcomeState.RUNNING
    outcome = await performing
    assert outcome.state is OutcomeState.FAILED
    assert outcome.results[0].was_ended
    assert "operator" in outcome.problem
    assert not is_alive(pid)
    assert (folder / "part1").exists()
    assert not list(stage.folder.rglob("*.ending"))
    assert (await line.end("r1", "s")).state is OutcomeState.FAILED  # once more does nothing
    assert (await line.end("r1", "never")).state is OutcomeState.NOT_STARTED
    (tmp_path / "model.go").touch()
    assert (await stage.perform(line, grows(folder, SLOW), run="r2")).state is OutcomeState.DONE


async def test_another_kind_of_step_is_not_ended(stage: Bench, tmp_path: Path) -> None:
    line = await stage.line()
    go = tmp_path / "go"
    command = sh('while [ ! -e "$1" ]; do sleep 0.05; done', str(go))
    performing = asyncio.create_task(stage.perform(line, command))
    await until(lambda: list(stage.folder.rglob("*.step")))
    assert (await line.end("r1", "s")).state is OutcomeState.RUNNING
    go.touch()
    assert (await performing).state is OutcomeState.DONE


@pytest.mark.parametrize("is_heard", [True, False])
async def test_ending_the_one_that_follows(stage: Bench, tmp_path: Path, is_heard: bool) -> None:
    """The first goes on where its console may still go on with it, and is ended with the second where it is gone."""
    folder = tmp_path / "model"
    first = await stage.line(key="first")
    performing = asyncio.create_task(stage.perform(first, grows(folder, SLOW), run="r1"))
    await until((folder / "part2").exists)
    if not is_heard:
        await first.close()
        with pytest.raises(LinkLost):
            await performing
        progress = stage.folder / f"sparktop-{os.getuid()}" / "r1.s.progress"
        await until(lambda: b'"heard":false' in progress.read_bytes())
    line = await stage.line(key="second")
    stage.progress.clear()
    following = asyncio.create_task(stage.perform(line, grows(folder, SLOW), run="r2"))
    await until(lambda: any(one.words == FOLLOWS for one in stage.progress))
    await line.end("r2", "s")
    assert (await following).results[0].was_ended
    if is_heard:
        assert (await line.outcome("r1", "s")).state is OutcomeState.RUNNING
        (tmp_path / "model.go").touch()
        assert (await performing).state is OutcomeState.DONE
    else:
        assert (await stage.ended(line, run="r1")).results[0].was_ended
        assert not is_alive(int((tmp_path / "model.pid").read_text()))


async def test_one_whose_step_was_killed_is_waited_for_all_the_same(stage: Bench, tmp_path: Path) -> None:
    """Its command lives, and a second one would write the same files."""
    folder = tmp_path / "model"
    line = await stage.line()
    first = asyncio.create_task(stage.perform(line, grows(folder, SLOW), run="r1"))
    await until((folder / "part2").exists)
    command = int((tmp_path / "model.pid").read_text())
    step = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(step, signal.SIGKILL)
    assert (await first).state is OutcomeState.GONE
    second = asyncio.create_task(stage.perform(line, grows(folder, SLOW), run="r2"))
    await until(lambda: any(one.words == FOLLOWS for one in stage.progress))
    assert (tmp_path / "model.count").read_text() == "once\n"
    (tmp_path / "model.go").touch()
    assert (await second).state is OutcomeState.DONE
    assert not is_alive(command)


def test_what_a_folder_takes(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(os.urandom(100_000))
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b" / "file")
    (tmp_path / "again").symlink_to(tmp_path)
    os.link(tmp_path / "a" / "b" / "file", tmp_path / "hard")
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(50_000_000)
    found = folder_bytes(str(tmp_path))
    assert found is not None
    assert 100_000 <= found < 150_000
    assert folder_bytes(str(tmp_path / "none")) == 0


# --- an image


def layer(name: str, status: str, done: int | None = None, size: int | None = None) -> dict[str, Any]:
    detail = {} if done is None else {"current": done, "total": size}
    return {"status": status, "id": name, "progressDetail": detail}


class Registry:
    """A Docker Engine that pulls as the test says."""

    def __init__(self) -> None:
        self.has = False
        self.streams: list[Iterator[Any]] = []
        self.step = threading.Event()

    def __call__(self, method: str, path: str, body: Any) -> Reply | None:
        if method == "GET":
            return (200, {"Id": "sha256:" + "0" * 64}) if self.has else (404, {"message": "No such image"})
        assert path.startswith("/images/create?")
        return 200, self.streams.pop(0)

    def comes(self) -> Iterator[Any]:
        yield {"status": "Pulling from nvidia/vllm", "id": "26.05.post1-py3"}
        yield layer("a", "Already exists")
        yield layer("b", "Pulling fs layer")
        yield layer("c", "Pulling fs layer")
        yield layer("b", "Downloading", 30 * MEG, 40 * MEG)
        assert self.step.wait(20)
        yield layer("c", "Downloading", 5 * MEG, 60 * MEG)
        yield layer("b", "Download complete")
        yield layer("b", "Pull complete")
        yield layer("c", "Download complete")
        yield layer("c", "Pull complete")
        yield {"status": f"Status: Downloaded newer image for {IMAGE}"}
        self.has = True


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def pulling(tmp_path: Path, registry: Registry) -> AsyncIterator[tuple[FakeDocker, Bench]]:
    with fake_docker(tmp_path / "d.sock", registry) as engine:
        async with bench(tmp_path / "state", docker=engine.path) as made:
            yield engine, made


async def test_a_pull_tells_its_layers(pulling: tuple[FakeDocker, Bench], registry: Registry) -> None:
    engine, stage = pulling
    registry.streams = [registry.comes()]
    line = await stage.line()
    performing = asyncio.create_task(stage.perform(line, ImagePull(image=IMAGE)))
    await until(lambda: stage.progress)
    assert stage.progress[-1] == Progress(index=0, done_bytes=30 * MEG, words="1 of 3 layers")
    registry.step.set()
    outcome = await performing
    assert outcome.state is OutcomeState.DONE, outcome
    assert outcome.results[0].brought_bytes == 100 * MEG
    assert engine.requests[1][:2] == ("POST", "/images/create?fromImage=nvcr.io%2Fnvidia%2Fvllm&tag=26.05.post1-py3")
    registry.has = True
    assert (await stage.perform(line, ImagePull(image=IMAGE), step="again")).results[0].was_done


async def test_a_pull_that_fails_says_so_in_docker_s_words(
    pulling: tuple[FakeDocker, Bench], registry: Registry
) -> None:
    _, stage = pulling
    refused = {"errorDetail": {"message": "unauthorized: authentication required\x1b[2J"}, "error": "unauthorized"}
    registry.streams = [iter([layer("a", "Pulling fs layer"), refused]), iter([layer("a", "Waiting")])]
    line = await stage.line()
    outcome = await stage.perform(line, ImagePull(image=IMAGE))
    assert (outcome.state, outcome.problem) == (OutcomeState.FAILED, "unauthorized: authentication required")
    outcome = await stage.perform(line, ImagePull(image=IMAGE), step="2")
    assert IMAGE in outcome.problem


async def test_the_daemon_is_restarted_in_the_middle_of_a_pull(
    pulling: tuple[FakeDocker, Bench], registry: Registry
) -> None:
    engine, stage = pulling

    def breaks() -> Iterator[Any]:
        yield layer("b", "Downloading", 30 * MEG, 40 * MEG)
        engine.away_for(0.5)
        yield None

    registry.step.set()
    registry.streams = [breaks(), registry.comes()]
    outcome = await stage.perform(await stage.line(), ImagePull(image=IMAGE))
    assert outcome.state is OutcomeState.DONE, outcome
    assert not registry.streams


async def test_the_time_of_a_pull_is_over(pulling: tuple[FakeDocker, Bench], registry: Registry) -> None:
    _, stage = pulling
    registry.streams = [registry.comes()]
    outcome = await stage.perform(await stage.line(), ImagePull(image=IMAGE, limit_s=2.0))
    registry.step.set()
    assert outcome.problem.startswith(IMAGE)
    assert outcome.problem.endswith("2 s")


async def test_a_pull_is_ended_by_hanging_up(pulling: tuple[FakeDocker, Bench], registry: Registry) -> None:
    engine, stage = pulling

    def endless() -> Iterator[Any]:
        number = 0
        while not registry.step.wait(0.02):
            number += 1
            yield layer("b", "Downloading", number, 40 * MEG)

    registry.streams = [endless()]
    line = await stage.line()
    performing = asyncio.create_task(stage.perform(line, ImagePull(image=IMAGE)))
    await until(lambda: stage.progress)
    await line.end("r1", "s")
    outcome = await performing
    assert outcome.results[0].was_ended
    await until(engine.hung_up.is_set)
    registry.step.set()


async def test_a_login_reaches_its_own_registry_alone(
    pulling: tuple[FakeDocker, Bench], registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, stage = pulling
    registry.step.set()
    registry.streams = [registry.comes(), registry.comes()]
    (tmp_path / "config.json").write_text(
        json.dumps({"auths": {"https://nvcr.io/v2/": {"auth": base64.b64encode(b"$oauthtoken:CANARY?pass").decode()}}})
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    line = await stage.line()
    await stage.perform(line, ImagePull(image=IMAGE))
    registry.has = False
    await stage.perform(line, ImagePull(image="vllm/vllm-openai"), step="2")
    sent = [login for (method, *_), login in zip(engine.requests, engine.logins, strict=True) if method == "POST"]
    assert sent[0] is not None
    words = json.loads(base64.urlsafe_b64decode(sent[0]))
    assert (words["username"], words["password"]) == ("$oauthtoken", "CANARY?pass")
    assert sent[1] is None
    assert b"CANARY" not in stage.journal()


def test_a_helper_s_login_is_not_used_and_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert login_for("nvcr.io/nvidia/vllm") == ("", "")
    (tmp_path / "config.json").write_text('{"auths": {"nvcr.io": {}}, "credHelpers": {"nvcr.io": "secretservice"}}')
    assert login_for("nvcr.io/nvidia/vllm") == (
        "",
        "pulled without a login: that for nvcr.io is in a credential helper (secretservice), which isn't asked",
    )
    assert login_for("vllm/vllm-openai") == ("", "")
    (tmp_path / "config.json").write_text('{"auths": {"https://index.docker.io/v1/": {"identitytoken": "t"}}}')
    assert json.loads(base64.urlsafe_b64decode(login_for("vllm/vllm-openai")[0]))["identitytoken"] == "t"
    (tmp_path / "config.json").write_text("[[[")
    assert "can't read" in login_for("x")[1]


@over(
    "image, found, registry",
    [
        ("ubuntu", ("ubuntu", "latest"), "docker.io"),
        ("vllm/vllm-openai:v0.11.0", ("vllm/vllm-openai", "v0.11.0"), "docker.io"),
        (IMAGE, ("nvcr.io/nvidia/vllm", "26.05.post1-py3"), "nvcr.io"),
        ("localhost:5000/x:1", ("localhost:5000/x", "1"), "localhost:5000"),
        (f"a.b/c:1@sha256:{'0' * 64}", ("a.b/c", f"sha256:{'0' * 64}"), "a.b"),
        ("index.docker.io/library/ubuntu", ("index.docker.io/library/ubuntu", "latest"), "docker.io"),
    ],
)
def test_an_image_s_name(image: str, found: tuple[str, str], registry: str) -> None:
    assert as_reference(image) == found
    assert registry_of(found[0]) == registry


@over("image", ["", "../containers", "a b", "-x", "a\r\nb", "sha256:" + "0" * 64, "0" * 64, "x?y=1"])
def test_what_names_no_image(image: str) -> None:
    with pytest.raises(Unable, match="is not an image in a registry"):
        as_reference(image)


async def test_what_names_no_image_is_not_asked_for(stage: Bench) -> None:
    outcome = await stage.perform(await stage.line(), ImagePull(image=""))
    assert outcome.results[0].is_untouched
    assert outcome.problem == "'' is not an image in a registry; nothing was done"


def heard(*lines: Any) -> Layers:
    layers = Layers()
    for line in lines:
        layers.hear(line if isinstance(line, bytes) else json.dumps(line).encode())
    return layers


def test_layers_are_summed_and_unpacking_is_told_apart() -> None:
    assert heard().progress() is None
    one, two = layer("a", "Downloading", 10, 50), layer("b", "Pulling fs layer")
    assert heard(one, two).progress() == (10, None, "0 of 2 layers")  # the size of the second is not known yet
    two = layer("b", "Downloading", 1, 100)
    assert heard(one, two).progress() == (11, 150, "0 of 2 layers")
    both = (one, two, layer("a", "Download complete"), layer("b", "Verifying Checksum"))
    assert heard(*both).progress() == (None, None, "unpacking, 0 of 2 layers")
    unpacks = layer("a", "Extracting", 20, 50)
    assert heard(*both, unpacks).progress() == (20, 150, "unpacking, 0 of 2 layers")
    assert heard(*both, unpacks, layer("a", "Pull complete")).progress() == (50, 150, "unpacking, 1 of 2 layers")
    seconds = {"status": "Extracting", "id": "a", "progressDetail": {"current": 3, "units": "s"}}
    assert heard(*both, seconds).progress() == (None, None, "unpacking, 0 of 2 layers")
    assert heard(*both).brought == 150


def test_hostile_progress_breaks_nothing() -> None:
    found = heard(
        b"\xff\xfe", b"[]", b"null", b'{"status": 5, "id": []}', b"[" * 100_000,
        {"status": "Downloading", "id": "a", "progressDetail": {"current": "x", "total": -5}},
        {"status": "Downloading", "id": "b", "progressDetail": 7},
        {"errorDetail": "no object", "error": "why"},
    )  # fmt: skip
    assert found.progress() == (0, None, "0 of 2 layers")
    assert found.error == "why"


def test_of_rsync_the_line_is_told_that_says_why() -> None:
    said = """rsync: [receiver] write failed on "/x/model.safetensors": No space left on device (28)
rsync error: error in file IO (code 11) at receiver.c(380) [receiver=3.2.7]
rsync: [generator] write error: Broken pipe (32)
"""
    assert last_line(said).endswith("No space left on device (28)")
    assert "28" in last_line("rsync: write error: Broken pipe (32)\nrsync: write failed: full (28)\nrsync error: io\n")
    assert last_line("rsync error: received SIGINT\n\n") == "rsync error: received SIGINT"
    assert last_line("") == ""
    assert last_line("/etc/sudoers.d/x:1:5: syntax error\nme may\n   ^~~\n") == "/etc/sudoers.d/x:1:5: syntax error"
    assert last_line("rsync: link_stat failed\nrsync: retrying\nssh: no route\n") == "ssh: no route"  # not rsync's end
    assert last_line("rsync: first\nsomething between\nrsync error: last\n") == "rsync: first"


def test_what_nginx_refuses_is_told_and_not_that_it_refuses() -> None:
    said = (
        '2026/11/23 11:10:59 [emerg] 12923#12923: duplicate upstream "a" in /etc/nginx/sites-enabled/x:1\n'
        "nginx: configuration file /etc/nginx/nginx.conf test failed\n"
    )
    assert 'duplicate upstream "a"' in last_line(said)
    assert last_line("nginx: configuration file /etc/nginx/nginx.conf test failed").startswith("nginx: conf")
