"""Evidence into one archive: what is in it, what is told as missing, and that a dying node gives what it can."""

from __future__ import annotations

import asyncio
import json
import stat as modes
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pictures_support import container, engine, facts, link, node, picture
from tests.plan_golden import compare_plan
from tests.planner_support import plan_of
from tests.table import over

from sparktop.errors import LinkLost, SparktopError
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.request import Request, Risk
from sparktop.model.survey import (
    Answer,
    DockerGet,
    DockerLog,
    FileText,
    Output,
    Privileges,
    PrivilegesQuestion,
    Question,
    Survey,
)
from sparktop.model.telemetry import Collector, CollectorState, Unit
from sparktop.operate.evidence import archive
from sparktop.operate.evidence import collect as collecting
from sparktop.operate.evidence.archive import Item, WrittenArchive, file_name
from sparktop.operate.evidence.collect import CollectEvidence, collect
from sparktop.operate.evidence.questions import tables, whole_lines
from sparktop.operate.machine import collect_evidence
from sparktop.operate.step.plan import Plan, Refusal

BOX = container().container_id
CANARY = "canary-of-the-token-1"
INSPECT = {"Id": BOX, "Name": "/vllm-qwen36", "Config": {"Env": [f"HF_TOKEN={CANARY}", "LANG=C"]}}
USER = Privileges(user="spark", sudo="password", docker="open")


class Node:
    """A line that answers from tables, and fails as it is told."""

    def __init__(self, name: str, *, privileges: Privileges = USER, **answers: Any) -> None:
        self.node = name
        self.asked: list[Question] = []
        self.privileges = privileges
        self.answers = answers
        self.loses_at: int | None = None
        self.hangs_from: int | None = None

    @property
    def transport(self) -> Any:
        raise LinkLost("no forwards here")

    async def ask(self, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        self.asked += questions
        if self.loses_at is not None and len(self.asked) > self.loses_at:
            raise LinkLost("connection reset by peer")
        if self.hangs_from is not None and len(self.asked) > self.hangs_from:
            await asyncio.Event().wait()
        return {ask: self._answer(ask) for ask in questions}

    def _answer(self, ask: Question) -> Answer:
        match ask:
            case PrivilegesQuestion():
                return Answer(value=self.privileges)
            case FileText():
                return self.answers.get(ask.path, Answer(value=f"text of {ask.path}\n"))
            case Output():
                return self.answers.get(ask.argv[0], Answer(value=f"output of {' '.join(ask.argv)}\n"))
            case DockerGet():
                if ask.path == "/containers/json?all=1":
                    return Answer(value=[{"Id": BOX, "Names": ["/vllm-qwen36"]}])
                return Answer(value=INSPECT if ask.path == f"/containers/{BOX}/json" else {"Version": "29"})
            case DockerLog():
                return self.answers.get("log", Answer(value=f"INFO ready\nthe token is {CANARY}\n"))


class Lines:
    def __init__(self, *nodes: Node) -> None:
        self.nodes = {one.node: one for one in nodes}

    def line(self, name: str) -> Any:
        return self.nodes.get(name)

    def problem(self, name: str) -> str:
        return ""

    async def wait(self, name: str) -> Any:
        raise AssertionError("nobody waits for a node that is gone")


def fleet(*names: str) -> FleetState:
    bare = engine(endpoint=None)
    return picture(*(node(name, engines=(bare,)) for name in names or ("spark1",)))


async def collected(
    tmp_path: Path, *nodes: Node, names: Sequence[str] = (), view: FleetState | None = None, **more: Any
) -> tuple[WrittenArchive, dict[str, str]]:
    wanted = tuple(names) or tuple(one.node for one in nodes)
    found = await collect(wanted, Lines(*nodes), view or fleet(*wanted), folder=tmp_path / "evidence", **more)
    return found, unpacked(found.path)


def unpacked(path: Path) -> dict[str, str]:
    found = {}
    with tarfile.open(path) as tar:
        for entry in tar:
            file = tar.extractfile(entry)
            assert entry.isreg()
            assert file is not None
            top, _, name = entry.name.partition("/")
            assert top == path.name.removesuffix(".tar.gz")
            found[name] = file.read().decode()
    return found


async def test_one_archive_of_two_nodes(tmp_path: Path) -> None:
    told: list[str] = []
    found, files = await collected(
        tmp_path, Node("spark1"), Node("spark2"), progress=lambda text, ratio: told.append(text)
    )
    assert modes.S_IMODE(found.path.stat().st_mode) == 0o600
    assert modes.S_IMODE(found.path.parent.stat().st_mode) == 0o700
    assert found.path.name.endswith("Z-spark1-spark2.tar.gz")
    for where in ("spark1", "spark2"):
        for name in (
            "last-seen.json", "memory/meminfo.txt", "kernel/this-boot.log", "kernel/previous-boot.log",
            "processes/ps.txt", "processes/engines.txt", "gpu/nvidia-smi.txt", "network/addresses.json.txt",
            "docker/info.json", "docker/containers.json", f"docker/vllm-qwen36-{BOX[:12]}.json",
            f"logs/vllm-qwen36-{BOX[:12]}.log",
        ):  # fmt: skip
            assert f"{where}/{name}" in files
    assert json.loads(files["findings.json"])["version"] == 1
    assert json.loads(files["spark1/last-seen.json"])["facts"]["dgx_release"] == "7.6.0"
    assert all(CANARY not in text for text in files.values())
    assert "INFO ready" in files[f"spark2/logs/vllm-qwen36-{BOX[:12]}.log"]
    assert "× value of a secret found elsewhere" in files["redaction-report.txt"]
    assert "memory/slabinfo.txt: only root" in files["README.txt"]
    assert told


async def test_without_root_the_kernels_log_is_had_another_way(tmp_path: Path) -> None:
    said = {"journalctl": Answer(value="-- No entries --\n"), "dmesg": Answer(problem="Operation not permitted")}
    _, files = await collected(tmp_path, Node("spark1", **said))
    assert "spark1/kernel/this-boot.log" not in files
    assert "Operation not permitted" in files["README.txt"]
    _, files = await collected(tmp_path, Node("spark1", privileges=replace(USER, sudo="free"), **said))
    assert files["spark1/kernel/this-boot.log"].startswith("output of sudo -n -- /usr/bin/journalctl")
    assert files["spark1/memory/slabinfo.txt"] == "output of sudo -n -- /usr/bin/cat -- /proc/slabinfo\n"


@pytest.mark.parametrize("loses_at", [0, 1, 5, 18, 22])
async def test_a_node_that_is_lost_in_the_middle_gives_what_it_had(tmp_path: Path, loses_at: int) -> None:
    dying, well = Node("spark1"), Node("spark2")
    dying.loses_at = loses_at
    found, files = await collected(tmp_path, dying, well)
    assert "reset by peer" in files["README.txt"]
    assert any("connection ended" in problem for problem in found.problems)
    assert "spark1/last-seen.json" in files
    assert ("spark1/memory/meminfo.txt" in files) is (loses_at > 1)
    assert "spark2/docker/info.json" in files


async def test_a_node_that_answers_nothing_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "SLACK_S", -100.0)
    hung = Node("spark1")
    hung.hangs_from = 4
    _, files = await collected(tmp_path, hung)
    assert len(hung.asked) == 4 + collecting.SILENT_AT_MOST
    assert "3 questions" in files["README.txt"]
    assert "spark1/memory/meminfo.txt" in files


async def test_time_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "NODE_S", 0.01)
    hung = Node("spark1")
    hung.hangs_from = 3
    _, files = await collected(tmp_path, hung)
    assert "rest is missing" in files["README.txt"]


async def test_a_node_without_a_line(tmp_path: Path) -> None:
    found, files = await collected(tmp_path, names=("spark1",))
    assert set(files) == {"README.txt", "redaction-report.txt", "findings.json", "spark1/last-seen.json"}
    assert [one[:22] for one in found.problems] == ["spark1: not connected:"]


async def test_without_docker(tmp_path: Path) -> None:
    _, files = await collected(tmp_path, Node("spark1", privileges=replace(USER, docker="denied")))
    assert "spark1/docker: the user" in files["README.txt"]
    assert "spark1/memory/meminfo.txt" in files


async def test_logs_that_are_not_dockers(tmp_path: Path) -> None:
    box = container("sparkrun_ab12_solo", argv=("sleep", "infinity"))
    units = (Unit(name="vllm.service"), Unit(name="--rotate"), Unit(name="a b.service"))
    view = picture(
        node(
            "spark1",
            engines=(engine(container=box, endpoint=None),),
            facts=facts("spark1", units=units),
        )
    )
    spark = Node("spark1")
    _, files = await collected(tmp_path, spark, view=view)
    assert files["spark1/units/vllm.service.log"].endswith("-u vllm.service\n")
    log = files[f"spark1/logs/sparkrun_ab12_solo-{box.container_id[:12]}-serve.log"]
    assert log == f"output of docker exec {box.container_id} tail -n 2000 /tmp/sparkrun_serve.log\n"
    assert not any("--rotate" in ask.argv for ask in spark.asked if isinstance(ask, Output))


async def test_tabs_are_no_reason_to_cut(tmp_path: Path) -> None:
    spark = Node("spark1", log=Answer(value="a\tb\tc\td\n" + "\x1b[31mx\x1b[0m" + "y" * 20_000 + "\n"))
    _, files = await collected(tmp_path, spark)
    log = files[f"spark1/logs/vllm-qwen36-{BOX[:12]}.log"]
    assert log.startswith("a    b    c    d\nxyyy")
    assert "more characters cut]" in log


async def test_an_exact_secret_is_in_no_file(tmp_path: Path) -> None:
    spark = Node("spark1", log=Answer(value="plain pass-phrase-zz here"))
    _, files = await collected(tmp_path, spark, secrets=("pass-phrase-zz",))
    assert all("pass-phrase-zz" not in text for text in files.values())


async def test_hostile_names_lead_nowhere(tmp_path: Path) -> None:
    names = ("../../../etc/x", "-rf", "a\nb", "\x1b[31mred", "..", "")
    for name in names:
        assert "/" not in file_name(name)
        assert not file_name(name).startswith((".", "-"))
        assert file_name(name).isascii()
    view = picture(node("../x", engines=(engine("$(id)", endpoint=None),)))
    found, files = await collected(tmp_path, Node("../x"), view=view)
    assert found.path.parent == tmp_path / "evidence"
    assert all(".." not in name for name in files)


async def test_a_driver_that_hangs_is_not_asked_once_more(tmp_path: Path) -> None:
    view = fleet("spark1")
    stuck = Collector(name="nvml", state=CollectorState.STUCK)
    view = picture(replace(view.nodes[0], collectors={"nvml": stuck}))
    spark = Node("spark1")
    _, files = await collected(tmp_path, spark, view=view)
    assert not any(isinstance(ask, Output) and ask.argv[0] == "nvidia-smi" for ask in spark.asked)
    assert "gpu/nvidia-smi.txt: left out:" in files["README.txt"]


async def test_a_gpu_that_is_gone_is_not_asked_either(tmp_path: Path) -> None:
    xid = KernelEvent(kind="xid", severity=Severity.CRITICAL, title="Xid 119", text="NVRM: Xid", code=119)
    view = picture(replace(fleet("spark1").nodes[0], kernel_events=(xid,)))
    spark = Node("spark1")
    _, files = await collected(tmp_path, spark, view=view)
    assert not any(isinstance(ask, Output) and ask.argv[0] == "nvidia-smi" for ask in spark.asked)
    assert "the kernel log" in files["README.txt"]


async def test_what_cannot_be_redacted_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = archive.Redactor.learn_text

    def fails(self: Any, item: str, text: str) -> str:
        if item.endswith("meminfo.txt"):
            raise RecursionError
        return real(self, item, text)

    monkeypatch.setattr(archive.Redactor, "learn_text", fails)
    _, files = await collected(tmp_path, Node("spark1"))
    assert "spark1/memory/meminfo.txt" not in files
    assert "(RecursionError)" in files["README.txt"]


def test_a_secret_that_redaction_missed_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive.Redactor, "finish_text", lambda self, item, text: text)
    items = [Item(name="log", text="the canary-known stands"), Item(name="well", text="nothing")]
    found = archive.write(items, folder=tmp_path, stem="x", secrets=("canary-known",), preface=())
    assert set(unpacked(found.path)) == {"README.txt", "redaction-report.txt", "well"}
    assert "still stood" in found.problems[0]


def test_no_file_of_data_scripts_a_terminal(tmp_path: Path) -> None:
    items = [Item(name="inspect.json", data={"Env": ["SAYS=\x1b[2J\x9b31m\u202e", "größer"]})]
    text = unpacked(archive.write(items, folder=tmp_path, stem="x", secrets=(), preface=()).path)["inspect.json"]
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert json.loads(text)["Env"][1] == "größer"
    assert "größer" in text


def test_a_disk_that_takes_nothing_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(SparktopError, match="can't write the evidence"):
        archive.write([], folder=blocked / "evidence", stem="x", secrets=(), preface=())


def test_an_archive_never_replaces_another(tmp_path: Path) -> None:
    paths = [archive.write([], folder=tmp_path, stem="x", secrets=(), preface=()).path for _ in range(3)]
    assert len(set(paths)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths), "no rest is left"


def test_a_cut_line_is_dropped() -> None:
    text = "half a secr\n" + "whole line\n" * 10
    tail = Output(node="n", argv=("x",), limit_bytes=len(text), is_tail=True)
    assert whole_lines(tail, text).startswith("[the beginning is left out]\nwhole line\n")
    head = replace(tail, is_tail=False)
    assert whole_lines(head, text + "half").endswith("whole line\n[the end is left out]\n")
    assert whole_lines(replace(tail, limit_bytes=10_000), text) == text


def test_what_is_asked_is_harmless_and_without_a_shell() -> None:
    for privileges in (USER, replace(USER, sudo="free"), Privileges(is_root=True)):
        for question in tables("spark1", fleet().nodes[0], privileges):
            for ask in question.ways:
                if isinstance(ask, Output):
                    argv = ask.argv[3:] if ask.argv[0] == "sudo" else ask.argv
                    assert ask.argv[0] != "sudo" or ask.argv[1:3] == ("-n", "--")
                    assert argv[0].rpartition("/")[2] in {
                        "head", "cat", "journalctl", "dmesg", "ps", "ip", "rdma", "df", "nvidia-smi",
                    }  # fmt: skip
                    assert ask.limit_s <= 10


# --- the planner


def test_the_plan() -> None:
    made = plan_of(
        collect_evidence, Request(action="collect-evidence", nodes=("spark1", "spark2")), picture(), Survey()
    )
    assert isinstance(made, Plan)
    compare_plan("collect-evidence", made)
    assert made.risk is Risk.SAFE
    (step,) = made.steps
    assert step.act == CollectEvidence(nodes=("spark1", "spark2"))
    assert made.warnings == ()


def test_a_node_that_is_lost_is_said_before() -> None:
    lost = picture(node("spark1", link=link(LinkState.LOST)))
    made = plan_of(collect_evidence, Request(action="collect-evidence", nodes=("spark1",)), lost, Survey())
    assert isinstance(made, Plan)
    assert "last seen" in made.warnings[0]


@over(
    "request_",
    [
        Request(action="collect-evidence", nodes=("spark3",)),
        Request(action="collect-evidence", nodes=()),
        Request(action="collect-evidence", nodes=("spark1",), target="nobody"),
    ],
)
def test_what_is_not_there_is_refused(request_: Request) -> None:
    assert isinstance(plan_of(collect_evidence, request_, picture(), Survey()), Refusal)
