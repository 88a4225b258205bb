"""An engine's starts and ends: the lines of its log, from those of real engines, and its memory over that time."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.cmdline.engine_argv import value_of
from sparktop.dataclass import dataclass
from sparktop.sim.scenario import hub
from sparktop.sim.scenario.script import (
    ContainerScript,
    EngineScript,
    LogEntry,
    NodeScript,
    ProcessScript,
    Run,
    Scenario,
)

SHARES = ((0.0, 0.0), (0.06, 0.005), (0.2, 0.01), (0.72, 0.62), (0.76, 0.62), (0.785, 0.97), (0.95, 0.985), (1.0, 1.0))
"""(share of the start's time, share of its memory): weights take most of the time, the KV cache comes at once."""
_BEFORE_WEIGHTS, _WEIGHTS, _GRAPHS = 0.01, 0.62, 0.98
"""Of SHARES: what is taken before the weights, with them, and what is left for graphs."""
CAPTURE, _CAPTURED = 0.8, 0.94
"""Part of the time after which CUDA graphs are captured."""
JOINED = 0.12
"""Part of the time after which a rank waits for the others."""
FAILED, _NOTES = 0.16, 0.19
"""Where it ends that fails early, and names its kernels that doesn't."""
_ENGINES = ("vllm", "sglang.launch_server", "sparktop-ray-worker")
_EAGER = re.compile(r"--(enforce-eager|disable-cuda-graph)( |$)|graph-backend-decode.disabled|graph_mode\W+(?i:none)")
_TOKENS_A_GIB = {"vllm": 3400, "sglang": 1540}
_SAYS_S = 1.0
"""How long before its end an engine says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of an engine, of which this container is a rank."""

    container: ContainerScript
    engine: EngineScript | None
    """None: a rank without an endpoint."""
    described: EngineScript | None
    """The endpoint, its own or that of another rank."""
    run: Run
    ready_s: float
    serves: bool
    """It came to serve."""
    gpu_gib: float

    @property
    def kind(self) -> str:
        if self.described is not None:
            return self.described.kind
        return "sglang" if any("sglang" in word for word in self.container.argv) else "vllm"

    @property
    def rank(self) -> int:
        launched = self.container.launched
        return launched.rank if launched else number_in(self.container.argv, "--node-rank") or 0

    @property
    def is_eager(self) -> bool:
        launched = self.container.launched
        return launched.eager if launched else is_eager(self.container.argv)

    def at(self, time_share: float) -> float:
        """The second at which this share of the start's time has passed, which went on once all ranks had joined."""
        begin_s, joined_s = self.run.start_s, self.run.joined_s
        going_s = begin_s if joined_s is None else joined_s
        return (begin_s if time_share <= JOINED else going_s) + time_share * (self.ready_s - going_s)

    @property
    def loaded(self) -> float:
        """The share of its memory that is allocated once the weights are loaded."""
        weights = self.container.reaction.load_share
        return _WEIGHTS if weights is None else weights

    @property
    def shares(self) -> list[tuple[float, float]]:
        if self.container.reaction.load_share is None:
            return [(self.at(time_share), share) for time_share, share in SHARES]
        grown = [
            (self.at(time_share), self.loaded if _BEFORE_WEIGHTS < share <= _WEIGHTS else share)
            for time_share, share in SHARES
            if share < _GRAPHS
        ]
        return [*grown, (self.at(_CAPTURED), 1.0)]  # the graphs are allocated last


def start_of(scenario: Scenario, script: NodeScript, container: ContainerScript, run: Run) -> Start:
    """The start that a run began with; its end is known where it serves, or was loaded for."""
    engine = script.engine(container.name)
    described, began_s = engine, 0.0
    for node in scenario.nodes if engine is None and container.reaction.group else ():
        for other in node.containers:
            if other.reaction.group == container.reaction.group and node.engine(other.name) is not None:
                described, began_s = node.engine(other.name), node.began_s - script.began_s
    serves = [start + began_s for start, _ in described.serves] if described is not None else []
    end_s = float("inf") if run.end_s is None else run.end_s
    served_s = next((second for second in serves if run.start_s < second < end_s), None)
    ready_s = run.start_s + container.reaction.load_s if served_s is None else served_s
    return Start(
        container=container, engine=engine, described=described, run=run, serves=served_s is not None,
        ready_s=run.ready_s if run.ready_s is not None else ready_s, gpu_gib=sum(held_by(script, container).values()),
    )  # fmt: skip


def lines_of(scenario: Scenario, script: NodeScript, container: ContainerScript, run: Run) -> Iterator[LogEntry]:
    """What an engine logs in one run, but for what a scenario adds: its start as far as it came, and its end."""
    is_engine = script.engine(container.name) is not None or any(word in _ENGINES for word in container.argv)
    if not is_engine:
        return
    start, reaction = start_of(scenario, script, container, run), container.reaction
    end_s = float("inf") if run.end_s is None else run.end_s
    fails = reaction.fault == "exit" and not start.serves
    is_stuck = reaction.fault == "capture" and not start.serves
    told = run.log_share or (CAPTURE if is_stuck else reaction.says_after or FAILED if fails else float("inf"))
    fill = _filler(start)
    for row in [*_lines()["ray"], *_lines()[start.kind]["start"]]:
        if not _is_written(start, row) or row["at"] >= told:
            continue
        entry = LogEntry(
            at_s=start.at(row["at"]), text="", until_s=start.at(row["until"]) if "until" in row else None, once=True,
            total=int(fill(row["total"])) if "total" in row else None, newline=row.get("newline", False),
        )  # fmt: skip
        if "every" in row:
            entry = replace(entry, at_s=max(0.0, entry.at_s), every_s=row["every"], until_s=run.end_s, busy=True)
        yield from (replace(entry, text=text) for text in fill(row["text"]).split("\n"))
    if told > _NOTES:
        yield from (LogEntry(at_s=start.at(_NOTES), text=note, once=True) for note in container.notes)
    says = run.says or (reaction.says if fails else "")
    for number, text in enumerate(says.split("\n") if says else ()):
        says_s = min(end_s - _SAYS_S, start.at(told)) if told <= 1.0 else end_s - _SAYS_S
        yield LogEntry(at_s=says_s + 0.05 * number, text=text, once=True)
    ends = "died" if run.oom_killed else "stop" if run.end_s is not None and run.exit_code == 0 else ""
    is_told = start.engine is not None and start.serves  # before it serves, a vLLM that is stopped says nothing
    for row in _lines()[start.kind].get(ends, ()) if is_told else ():
        for text in fill(row["text"]).split("\n"):
            yield LogEntry(at_s=end_s - row["before_s"], text=text, once=True)


def _is_written(start: Start, row: Mapping[str, Any]) -> bool:
    by, argv = row["by"], start.container.argv
    if by.startswith("sparktop-ray"):
        return by in argv
    if _RAY_WORKER in argv:
        return False
    if by == "endpoint":
        return start.engine is not None
    at_start = start.container.reaction.fault != "spike"  # else at the first request
    return by == "worker" or (start.rank == 0 and not start.is_eager and at_start)


def _filler(start: Start) -> Any:
    """Fills <NAME>s of a line; what it fills in is plain text of a format string."""
    argv, launched = start.container.argv, start.container.launched
    ranks = launched.ranks if launched else number_in(argv, "--nnodes") or 1
    worker = "(EngineCore pid=152)" if ranks == 1 else f"(Worker_TP{start.rank} pid={301 - 14 * start.rank})"
    worker = "(RayWorkerWrapper pid=402)" if _RAY_HEAD in argv else worker
    model = start.described.model if start.described else "model"
    context = start.described.max_model_len if start.described else 32_768
    tokens = int(start.gpu_gib * _TOKENS_A_GIB[start.kind])
    weights_s, gib = start.at(0.72) - start.at(0.2), start.loaded * start.gpu_gib
    port = start.engine.port if start.engine else 8000
    arguments = {"model_tag": model, "host": "0.0.0.0", "port": port, "model": model, "max_model_len": context}  # noqa: S104
    values: dict[str, object] = {
        "version": start.described.version if start.described else "0.32.0",
        "model": model, "context": context, "context_text": f"{context:,}", "port": port,
        "arguments": arguments, "worker": worker, "rank": start.rank, "ranks": ranks,
        "tp": f" TP{start.rank}" if ranks > 1 else "", "shards": hub_shards(start.container),
        "weights_s": f"{weights_s:.2f}", "load_s": f"{weights_s + 2.1:.6f}", "weights_gib": f"{gib:.2f}",
        "kv_gib": f"{max(0.0, start.gpu_gib - gib):.2f}", "half_gib": f"{0.17 * start.gpu_gib:.2f}",
        "tokens": f"{tokens:,}" if start.kind == "vllm" else tokens, "concurrency": f"{tokens / context:.2f}",
        "joined_s": f"{start.at(0.15) - start.at(0.13):.2f}", "init_s": f"{start.at(0.96) - start.at(0.73):.2f}",
        "graphs_s": f"{start.at(0.945) - start.at(CAPTURE):.0f}", "graphs": not start.is_eager,
        "type": "Qwen3ForCausalLM",
    }  # fmt: skip
    plain = {name: str(value).replace("{", "{{").replace("}", "}}") for name, value in values.items()}
    return lambda text: re.sub(r"<(\w+)>", lambda match: plain.get(match[1], match[0]), text)


_RAY_HEAD, _RAY_WORKER = "sparktop-ray-head", "sparktop-ray-worker"


@cache
def _lines() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("engine_lines.toml").read_text(encoding="utf-8"))


def is_eager(argv: tuple[str, ...]) -> bool:
    """Whether a command line turns CUDA graphs off, by any of the flags that do."""
    return _EAGER.search(" ".join(argv)) is not None


def hub_shards(container: ContainerScript) -> int:
    """How many files the weights of a launched engine's model have."""
    model = hub.model(container.launched.model) if container.launched else None
    return model.shards if model is not None else 14


def of_container(script: NodeScript, name: str) -> list[ProcessScript]:
    """The processes of a container."""
    return [process for process in script.processes if process.container == name]


def held_by(script: NodeScript, container: ContainerScript) -> dict[int, float]:
    """GPU memory in GiB of an engine's processes (script pids) while it serves, as at the scenario's start."""
    shares = {
        process.pid: max(0.0, process.gpu_gib.first) for process in of_container(script, container.name)
        if process.gpu_gib is not None
    }  # fmt: skip
    total, gpu_gib = sum(shares.values()), container.reaction.gpu_gib
    if gpu_gib is None:
        return shares
    return {pid: gpu_gib * (share / total if total else 1 / len(shares)) for pid, share in shares.items()}


def number_in(argv: tuple[str, ...], *flags: str) -> int | None:
    """The whole number that follows a flag of a command line."""
    text = value_of(argv, *flags)
    return int(text) if text is not None and text.isdecimal() else None
