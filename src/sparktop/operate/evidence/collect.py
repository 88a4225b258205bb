"""Collects evidence from the nodes, each question with a time limit, into one archive on the operator's machine.

Everything goes through the runner that is already open: on a starved host nothing new can be started. A node that
falls silent halfway contributes what it had answered; what the console last saw of it is in the archive in any case.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sparktop import __version__
from sparktop.clock import SystemClock
from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import as_data
from sparktop.errors import SparktopError, TransportError
from sparktop.files import private_folder
from sparktop.model.engine import EndpointState, Engine
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.survey import Answer, DockerGet, DockerLog, Privileges, PrivilegesQuestion, Question
from sparktop.operate.evidence import questions as asked
from sparktop.operate.evidence.archive import Item, WrittenArchive, file_name, plain_data, write
from sparktop.operate.evidence.questions import ArchiveFile
from sparktop.operate.runner.api import NodeLine, NodeLines
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.node_lock import NoLine
from sparktop.operate.step.run_context import Progress
from sparktop.operate.step.step_result import StepResult, StepState
from sparktop.transport.endpoint import EndpointClient
from sparktop.transport.threads import in_thread

NODE_S = 70.0
"""For all questions to one node together; nodes are asked in parallel."""
SLACK_S = 4.0
"""Beyond a question's own limit, for the network."""
SILENT_AT_MOST = 3
"""After so many questions in a row without an answer the node is asked no more."""


async def collect(
    nodes: Sequence[str],
    lines: NodeLines,
    picture: FleetState,
    *,
    engines: Sequence[str] = (),
    folder: Path,
    secrets: Sequence[str] = (),
    progress: Progress | None = None,
) -> WrittenArchive:
    """Collect from the nodes into FOLDER/<UTC time>-<nodes>.tar.gz; `problems` says what is missing and why.

    Raises:
        SparktopError: the archive can't be written.
    """
    on_progress = progress or (lambda _text, _ratio: None)
    began_s = SystemClock().wall()
    gathered = await asyncio.gather(
        *(_node(name, lines, picture.node(name), engines, on_progress, len(nodes)) for name in nodes)
    )
    on_progress("redacting and packing", 0.95)
    findings = [as_data(finding) for finding in picture.findings]
    items = [
        Item(name="findings.json", data={"version": 1, "findings": findings}),
        *(item for node_items in gathered for item in node_items),
    ]
    when = time.gmtime(began_s)
    stem = "-".join((time.strftime("%Y%m%dT%H%M%SZ", when), *(file_name(name) for name in nodes)))
    preface = (
        f"Evidence of {' and '.join(nodes)}, by sparktop {__version__}, {time.strftime('%F %T', when)} UTC.",
        f"Findings at that moment: {'; '.join(finding.title for finding in picture.findings) or 'none'}.",
    )
    return await in_thread(write, items, folder=folder, stem=stem, secrets=tuple(secrets), preface=preface)


async def _node(
    name: str, lines: NodeLines, view: NodeView | None, engines: Sequence[str], tell: Progress, node_count: int
) -> list[Item]:
    """The items of one node: always those of the picture, then the answers as far as they arrive."""
    where, line = file_name(name), lines.line(name)
    items = [Item(name=f"{where}/last-seen.json", data=plain_data(view))] if view is not None else []
    if line is None:
        why = lines.problem(name) or "not connected"
        return [*items, Item(name=where, problem=f"{why}: only what the console last saw is here")]
    gatherer = _Gatherer(name, line, view, engines, lambda text, ratio: tell(text, None if node_count > 1 else ratio))
    try:
        async with asyncio.timeout(NODE_S):
            await gatherer.gather()
    except TimeoutError:
        problem = f"{NODE_S:.0f} s were over before all was asked: the rest is missing"
        gatherer.items.append(Item(name=where, problem=problem))
    except TransportError as error:
        gatherer.items.append(Item(name=where, problem=f"the connection ended ({error.message}): the rest is missing"))
    return items + gatherer.items


class _Gatherer:
    """Asks one node, question after question; `items` holds what has arrived whenever it stops."""

    def __init__(
        self, name: str, line: NodeLine, view: NodeView | None, engines: Sequence[str], tell: Progress
    ) -> None:
        self.items: list[Item] = []
        self._name = name
        self._where = file_name(name)
        self._line = line
        self._view = view
        self._engines = engines
        self._tell = tell
        self._silent = 0

    async def gather(self) -> None:
        """Ask everything, what is cheap and passes soonest first."""
        answer = await self._ask(PrivilegesQuestion(node=self._name), 10.0)
        privileges = answer.value if isinstance(answer.value, Privileges) else Privileges()
        for index, question in enumerate(questions := asked.tables(self._name, self._view, privileges)):
            self._tell(f"{self._name}: {question.name}", index / (2 * len(questions)))
            await self._question(question)
        for engine in self._chosen():
            self._tell(f"{self._name}: metrics of {engine.name}", 0.5)
            await self._metrics(engine)
        if privileges.docker != "open":
            problem = "the user may not use Docker there" if privileges.docker == "denied" else "no Docker Engine"
            self.items.append(Item(name=f"{self._where}/docker", problem=problem))
            return
        await self._containers()

    async def _question(self, file: ArchiveFile) -> None:
        """Ask until one way of a question gives something."""
        problems: list[str] = [file.note] if file.note else []
        for question in file.ways:
            answer = await self._ask(question, asked.limit_s(question))
            if answer.text is not None and not asked.is_empty(answer.text):
                text = asked.whole_lines(question, answer.text)
                self._keep(file.name, text=text, problem=answer.problem)
                return
            problems.append(answer.problem or ("it is empty" if answer.value is not None else "it is not there"))
        if not file.is_optional:
            by_reason = {problem.partition(": ")[2] or problem: problem for problem in reversed(problems)}
            self._keep(file.name, problem="; ".join(reversed(by_reason.values())))

    async def _containers(self) -> None:
        for path, name in (("/version", "docker/version"), ("/info", "docker/info")):
            await self._docker(path, name)
        listed = await self._docker("/containers/json?all=1", "docker/containers")
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        ids = [str(row.get("Id", "")) for row in rows]
        engines = {engine.container.container_id: engine for engine in self._chosen() if engine.container}
        ids = [*engines, *(container_id for container_id in ids if container_id not in engines)]
        wanted_ids = [container_id for container_id in ids if asked.CONTAINER_ID.fullmatch(container_id)][
            : asked.CONTAINERS_AT_MOST
        ]
        names = {str(row.get("Id")): str((row.get("Names") or [""])[0]).lstrip("/") for row in rows}
        names |= {container_id: engine.name for container_id, engine in engines.items()}
        for index, container_id in enumerate(wanted_ids):
            label = f"{file_name(names.get(container_id, ''))}-{container_id[:12]}"
            self._tell(
                f"{self._name}: container {index + 1} of {len(wanted_ids)}", 0.55 + 0.4 * index / len(wanted_ids)
            )
            await self._docker(f"/containers/{container_id}/json", f"docker/{label}")
            if container_id in engines or names.get(container_id) in self._engines or not engines:
                question = DockerLog(node=self._name, container_id=container_id)
                answer = await self._ask(question, question.limit_s)
                text = asked.whole_lines(question, answer.text) if answer.text is not None else None
                gone_text = "" if answer.problem or text is not None else "the container is gone"
                self._keep(f"logs/{label}.log", text=text, problem=answer.problem or gone_text)
            if container_id in engines and (log_question := asked.own_log_file(self._name, engines[container_id])):
                await self._question(log_question)

    async def _docker(self, path: str, name: str) -> object:
        question = DockerGet(node=self._name, path=path)
        answer = await self._ask(question, 10.0)
        self._keep(f"{name}.json", data=answer.value, problem=answer.problem)
        value: object = answer.value
        return value

    async def _metrics(self, engine: Engine) -> None:
        endpoint = engine.endpoint
        if endpoint is None or endpoint.state in (EndpointState.REFUSED, EndpointState.TIMED_OUT):
            return
        client = EndpointClient(self._line.transport, endpoint.host, endpoint.port)
        try:
            reply = await client.get("/metrics")
        finally:
            await client.aclose()
        text = reply.body.decode("utf-8", "replace") if reply.body else None
        self._keep(f"metrics/{file_name(engine.name)}.txt", text=text, problem=reply.detail)

    async def _ask(self, question: Question, limit_s: float) -> Answer:
        """One answer, or a problem where there is none in time.

        Raises:
            TransportError: the connection ended, or the node has left several questions unanswered.
        """
        answer: Answer | None = None
        try:
            async with asyncio.timeout(limit_s + SLACK_S):
                answer = (await self._line.ask((question,))).get(question, Answer(problem="it was not answered"))
        except TimeoutError:
            self._silent += 1
            if self._silent >= SILENT_AT_MOST:
                raise NodeSilent(f"{SILENT_AT_MOST} questions in a row went without an answer") from None
        if answer is not None:
            self._silent = 0
            return answer
        return Answer(problem=f"no answer within {limit_s:.0f} s")

    def _chosen(self) -> tuple[Engine, ...]:
        """The engines that were named, where the node has one of them; else all of them."""
        engines = self._view.engines if self._view is not None else ()
        named = tuple(engine for engine in engines if engine.name in self._engines)
        return named or tuple(engines)

    def _keep(self, name: str, *, text: str | None = None, data: object = None, problem: str = "") -> None:
        self.items.append(Item(name=f"{self._where}/{name}", text=text, data=data, problem=problem))


class NodeSilent(TransportError):
    """The node accepts questions and answers none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectEvidence(Act):
    """Collect all evidence into one archive on the operator's machine."""

    nodes: tuple[str, ...]
    engines: tuple[str, ...] = ()
    """Names; empty: all engines of these nodes."""
    needs: str = ""
    """Collect only if an earlier step on the node has saved an id under this name."""

    @property
    def is_kept(self) -> bool:
        return True

    async def perform(self, hands: Hands) -> StepResult:
        await _wait_for_runners(self.nodes, hands)
        try:
            private_folder(hands.context.evidence_folder)
            archive = await hands.abort.unless(self.archive(hands))
        except SparktopError as error:
            return StepResult(state=StepState.FAILED, detail=error.message)
        except OSError as error:
            return StepResult(state=StepState.FAILED, detail=f"the archive can't be written: {error.strerror or error}")
        count = len(archive.problems)
        missing = f"; {count} thing{'s' if count > 1 else ''} missing" if count else ""
        return StepResult(
            state=StepState.DONE,
            detail=f"{archive.path}{missing}{': ' if count else ''}{'; '.join(archive.problems)}",
            brief=f"{archive.path.name}{missing}{', see README.txt in it' if count else ''}",
            evidence_path=str(archive.path),
        )

    async def archive(self, hands: Hands) -> WrittenArchive:
        return await collect(
            self.nodes,
            hands.context.lines,
            hands.picture(),
            engines=self.engines,
            folder=hands.context.evidence_folder,
            secrets=hands.secrets,
            progress=hands.progress,
        )

    def text(self) -> Iterator[str]:
        engines = f" of {', '.join(self.engines)}" if self.engines else ""
        yield f"logs, tables and metrics{engines} from {' and '.join(self.nodes)}, redacted, into one archive here"

    def filled(self, saved: Mapping[str, str]) -> CollectEvidence | None:
        if not self.needs:
            return self
        return replace(self, needs="") if self.needs in saved else None


async def _wait_for_runners(nodes: Collection[str], hands: Hands) -> None:
    """Wait for the nodes' runners, which a new session may not have yet; not where none can be had."""
    lines = hands.context.lines
    for node in nodes:
        view = hands.picture().node(node)
        is_live = view is not None and view.link.state is LinkState.LIVE
        if is_live and lines.line(node) is None and not lines.problem(node):
            with suppress(NoLine):
                await hands.line(node)
