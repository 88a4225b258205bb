"""The launch files beside what runs are found by a question that this machine answers here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests import pictures_support as made
from tests import restart_support as restarts
from tests.table import over

from sparktop.model.fleet import NodeView
from sparktop.model.telemetry import Unit
from sparktop.operate.launch import launch_files

RUNS = "docker run i/vllm:1 vllm serve Org/A\n"
FOLDERS = ("composed", "mounted/models/org", "home", "shell", "shell/inner", "client", "service", "elsewhere")


def asked(view: NodeView, compose_files: tuple[str, ...] = ()) -> list[str]:
    question = launch_files.question(view, compose_files)
    done = subprocess.run(question.argv, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return launch_files.paths(done.stdout)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a b.sh").write_text(RUNS)
    (tmp_path / "link").symlink_to(tmp_path / "service")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_files_lie_beside_a_compose_file_and_in_and_above_what_is_mounted(root: Path) -> None:
    (root / "composed/docker-compose.next.yml").write_text("services: {a: {image: i/vllm:1}}")
    (root / "composed/other.yml").write_text("image: 1")
    (root / "composed/prepare.sh").write_text("apt-get update\n")
    (root / "composed/large.sh").write_text(RUNS + "#" * (launch_files.SCRIPT_KB << 10))
    (root / "mounted/run.sh").write_text(RUNS)
    mounts = (f"{root}/mounted/models:/models", "/etc/localtime:/etc/localtime", "volume:/root/.cache")
    engine = made.engine(container=replace(made.container(), mounts=mounts))
    found = asked(restarts.spark(engines=(engine,)), (f"{root}/composed/compose.yaml",))
    assert sorted(path for path in found if str(root) in path) == [
        f"{root}/composed/a b.sh",
        f"{root}/composed/docker-compose.next.yml",
        f"{root}/mounted/run.sh",
    ]


def test_files_lie_where_an_engine_and_what_waits_for_it_were_started(root: Path) -> None:
    (root / "shell/inner/serve.sh").write_text("sleep 60 & echo $!; wait\n")
    with subprocess.Popen(["sh", "inner/serve.sh"], cwd=root / "shell", stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        try:
            engine = replace(made.engine(), container=None, pids=(pid,))
            found = asked(restarts.spark(engines=(engine,)))
        finally:
            os.kill(pid, signal.SIGKILL)
    assert [path for path in found if str(root) in path] == [f"{root}/shell/a b.sh", f"{root}/shell/inner/a b.sh"]


def test_files_lie_where_a_client_of_docker_waits(root: Path) -> None:
    shutil.copy("/bin/sleep", root / "docker")
    with subprocess.Popen([root / "docker", "60"], cwd=root / "client") as client:
        found = asked(restarts.spark(engines=()))
        client.kill()
    assert f"{root}/client/a b.sh" in found


@over(
    "lines",
    [
        "ExecStart={}/start.sh",
        "ExecStart=-/bin/bash {}/start.sh --port 8000",
        "ExecStart=@+!{}/start.sh x",
        "ExecStart=/bin/bash -c '{}/start.sh'",
        "ExecStart=/usr/bin/docker compose \\\n  --file={}/llm.yaml \\\n  up",
        "WorkingDirectory=-{}\nExecStart=/usr/bin/docker compose up",
        "ExecStart=/usr/bin/docker compose up\nWorkingDirectory={}/../link",
    ],
)
def test_files_lie_beside_what_a_service_starts_and_where_it_starts_it(root: Path, lines: str) -> None:
    folder = root / "home/.config/systemd/user"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "llm.service").write_text(f"[Service]\n{lines.format(root / 'service')}\n")
    facts = made.facts(units=(Unit(name="llm.service"), Unit(name="docker.service")))
    found = asked(restarts.spark(engines=(), facts=facts))
    assert [os.path.realpath(path) for path in found if str(root) in path] == [f"{root}/service/a b.sh"]


def test_a_folder_that_is_a_link_is_followed_and_named_once(root: Path) -> None:
    found = asked(restarts.spark(engines=()), (f"{root}/link/compose.yaml", f"{root}/service/compose.yaml"))
    assert [path for path in found if str(root) in path] == [f"{root}/link/a b.sh"]


def test_a_name_that_no_terminal_shows_is_none() -> None:
    assert launch_files.paths("/a.sh\n/a.sh\nb.sh\n/\x1b[31m.sh\n") == ["/a.sh"]
    assert launch_files.paths(None) == []
