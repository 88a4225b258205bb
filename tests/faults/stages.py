"""Before a trial: the engines on the Sparks, the command to type, and what it promises."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.draw import Trial
from tests.faults.judge import Box, Promise
from tests.integration.engine_image import EngineLike
from tests.integration.interrupting import stage
from tests.integration.spark import Spark
from tests.integration.test_launch_pair import NAME
from tests.support import free_port, poll

POLICY = "unless-stopped"
SECRETS = {"HF_TOKEN": "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", "DB_PASSWORD": "Tr0ub4dor-and-3-more"}
RESTART = ("--set", "target_gib=2", "--set", "grace_s=5")
_SAYS = f"\x1b]0;taken over\x07\x1b[2J\x9b31m{SECRETS['HF_TOKEN']}"
_PROMISES = {"stop-engine": Promise.STOPPED, "break-restart-loop": Promise.BROKEN}
_MORE = {
    "safe-restart": RESTART,
    "relaunch": ("--env", "NEW=1", "--set", "target_gib=2", "--set", "grace_s=5"),
    "stop-engine": ("--set", "grace_s=5"),
    "break-restart-loop": (),
}


@dataclass(kw_only=True)
class Scene:
    """What a trial is played on."""

    sparks: tuple[Spark, ...]
    words: tuple[str, ...]
    """Of the command; without --yes where a way back is to be asked for."""
    retry_words: tuple[str, ...]
    """Of a second console, and of the next try: the same, without a question."""
    names: tuple[str, ...]
    promise: Promise
    old: EngineLike | None
    """What serves before."""
    new: EngineLike | None = None
    """What shall serve, where it is another one."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(spark.name for spark in self.sparks)

    def boxes(self) -> tuple[Box, ...]:
        """Every container, by Docker."""
        found = []
        for spark in self.sparks:
            for row in spark.dockerd.api.containers(all=True):
                seen = spark.dockerd.api.inspect_container(row["Id"])
                policy = seen["HostConfig"]["RestartPolicy"]["Name"] or "no"
                found.append(
                    Box(
                        node=spark.name,
                        container_id=seen["Id"],
                        name=seen["Name"].lstrip("/"),
                        status=seen["State"]["Status"],
                        policy=policy,
                    )
                )
        return tuple(sorted(found, key=lambda box: (box.node, box.name)))

    def answers(self, state: str) -> bool:
        """What serves after such an end gives its models."""
        engine = self.new if self.new is not None and state != "rolled back" else self.old
        return engine is None or engine.answers() is not None


@contextlib.contextmanager
def scene(trial: Trial, sparks: tuple[Spark, Spark], folder: Path) -> Iterator[Scene]:
    """All of it for one trial, and away with it."""
    there = sparks[: trial.nodes]
    try:
        if trial.action == "launch":
            with _launch(there, sparks, folder) as made:
                yield made
        else:
            yield _engines(trial, there)
    finally:
        for spark in sparks:
            spark.dockerd.clear()
            spark.engines.names.clear()


@contextlib.contextmanager
def _launch(there: tuple[Spark, ...], sparks: tuple[Spark, Spark], folder: Path) -> Iterator[Scene]:
    with stage(sparks, folder, len(there)) as made:
        recipes = Path(os.environ["XDG_CONFIG_HOME"]) / "sparktop/recipes"
        recipes.mkdir(parents=True, exist_ok=True)
        (recipes / "tiny.yaml").write_text(made.text)
        secret = folder / "secrets.env"
        secret.touch(mode=0o600)
        secret.write_text("".join(f"{name}={value}\n" for name, value in SECRETS.items()))
        stops = [word for _, name in made.order().stops for word in ("--stop", name)]
        words = ("launch", "tiny", *made.nodes, *stops, "--grace", "3", "--env-file", str(secret), "--yes")
        yield Scene(
            sparks=there,
            words=words,
            retry_words=words,
            names=(NAME,) * len(there),
            promise=Promise.SERVES,
            old=made.old,
            new=EngineLike(there[0].dockerd, "", NAME, made.port),
            environment={"HF_ENDPOINT": made.hub.url},
        )


def _engines(trial: Trial, there: tuple[Spark, ...]) -> Scene:
    names = ("vllm-one",) if len(there) == 1 else ("vllm-head", "vllm-worker")
    special = {"break-restart-loop": {"ENGINE_FAILS": "load"}, "way-back": {"ENGINE_DEAF": "1"}}.get(trial.action, {})
    head = _team(there, names, special)
    what = (*(spark.name for spark in there), "--engine", names[0])
    action = "safe-restart" if trial.action == "way-back" else trial.action
    retry_words = ("act", action, *what, *_MORE[action], "--yes")
    return Scene(
        sparks=there,
        words=("act", action, *what, *RESTART) if trial.action == "way-back" else retry_words,
        retry_words=retry_words,
        names=names,
        promise=_PROMISES.get(trial.action, Promise.SERVES),
        old=None if trial.action == "break-restart-loop" else head,
    )


def _team(there: tuple[Spark, ...], names: Sequence[str], special: Mapping[str, str]) -> EngineLike:
    """An engine, or the two ranks of one; `special` is in the head's environment."""
    loops = "ENGINE_FAILS" in special
    port = free_port()
    env = {**SECRETS, "ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16", "ENGINE_SAYS": _SAYS}
    pair = ("--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.2") if len(there) > 1 else ()
    head: EngineLike | None = None
    for rank, (spark, name) in enumerate(zip(there, names, strict=True)):
        flags = (*pair, "--node-rank", str(rank), *(("--headless",) if rank else ())) if pair else ()
        engine = spark.engines.start(
            name,
            *flags,
            env={**env, **({} if rank else special)},
            port=port,
            ready=not rank and not loops,
            restart_policy={"Name": "always" if loops else POLICY},
        )
        head = head or engine
    assert head is not None
    if loops:
        looping = head
        poll(lambda: looping.inspect()["RestartCount"] >= 3, within_s=30, what="its loop")
    return head
