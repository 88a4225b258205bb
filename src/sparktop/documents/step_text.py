"""A plan's acts as text: as a person would type them, or as the exact commands and calls. Pure.

Secrets are masked, remote text is sanitised. The review and `sparktop act --dry-run` print the same lines.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any
from urllib.parse import unquote, urlencode

from sparktop import sanitise
from sparktop.masking import MASK, is_secret_name, mask_argv
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Privilege, Signal, Transfer
from sparktop.model.plan import (
    Act,
    AwaitBack,
    AwaitGone,
    AwaitMemory,
    AwaitReady,
    AwaitResolved,
    AwaitServing,
    CheckExposed,
    CheckLogin,
    CollectEvidence,
    GuardOrder,
    Measure,
    MeasureCollective,
    MeasureLink,
    MeasurePower,
    Plan,
    Remote,
    SmokeTest,
    Step,
    only_fetches,
)
from sparktop.model.proof import ANSWER_TOKENS, LONG_TOKENS, Proof, Prove
from sparktop.model.run import Run, StepState
from sparktop.operate.measure.perftest import client_argv, ping_argv, server_argv
from sparktop.operate.secrets.masking import Masker
from sparktop.text.lines import Line
from sparktop.text.units import gib

CREATE = "/containers/create"
_CONTENT = re.compile(r"'([\w=]*)\{content\}'")
"""In a command's words: the file with its text, see `Command`."""
_CHECKS = frozenset(("test", "grep", "cmp"))
"""Programs that change nothing."""
MAX_BODY_CHARS = 300
"""A longer body is shown by its size only: it is docker inspect's, with the differences that the review shows."""
_SHOWN_VARIABLE = re.compile(r"HF_\w+=(?:\d{1,3}|/[\w./-]*)")
"""Variables of the hub's command line that are shown; the values of all others are masked."""
_CONTAINER_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def masked(text: str, secrets: Sequence[str] = ()) -> str:
    """Text that is safe to show: without control characters, known secrets, or what looks like a secret."""
    return _masked(text, tuple(secrets))


@lru_cache(maxsize=1024)
def _masked(text: str, secrets: tuple[str, ...]) -> str:
    return _masker(secrets).text(text)


@lru_cache(maxsize=8)
def _masker(secrets: tuple[str, ...]) -> Masker:
    return Masker(secrets)


def masked_lines(lines: Iterable[Line], secrets: Sequence[str]) -> list[Line]:
    """The lines with secrets masked once more: a run masks its texts itself, but neither is relied on alone."""
    return [Line(tuple((masked(text, secrets), tone) for text, tone in line.runs)) for line in lines]


def step_lines(step: Step, plan: Plan) -> tuple[str, ...]:
    """The exact commands and calls of a step, with its checks and what is done if it fails."""
    return tuple(masked(line, plan.secrets) for line in _act(step.act))


def typed_lines(step: Step, plan: Plan) -> tuple[str, ...]:
    """What a step changes, as a person would type it; its checks are left out, and so is a wait, which the title
    tells."""
    if not isinstance(step.act, Remote):
        return ()
    names = _container_names(plan)
    for earlier in takewhile(lambda one: one != step, (*plan.steps, *plan.way_back)):
        for operation in earlier.act.operations if isinstance(earlier.act, Remote) else ():
            _rename(operation, names.get(earlier.node, {}))
    of_node = names.get(step.node, {})
    lines: list[str] = []
    for operation in step.act.operations:
        lines += _typed(operation, of_node)
        _rename(operation, of_node)
    return tuple(masked(line, plan.secrets) for line in lines)


def creates_container(plan: Plan) -> bool:
    """Whether a step creates a container, whose settings are too many for a step's line."""
    operations = (operation for step in plan.steps if isinstance(step.act, Remote) for operation in step.act.operations)
    return any(isinstance(operation, DockerCall) and operation.path == CREATE for operation in operations)


def _container_names(plan: Plan) -> dict[str, dict[str, str]]:
    """By node, container id, or the placeholder of one that is made -> its first name, from what the plan's steps
    check and create."""
    names_by_node: dict[str, dict[str, str]] = {}
    for step in (*plan.steps, *plan.way_back):
        names = names_by_node.setdefault(step.node, {})
        if isinstance(step.act, AwaitReady) and step.act.container_id:
            names.setdefault(step.act.container_id, step.act.name)  # a container that is made has another name first
        for operation in step.act.operations if isinstance(step.act, Remote) else ():
            match operation:
                case Expect() if "Name" in operation.equals:
                    names.setdefault(_container_in(operation.path), str(operation.equals["Name"]).lstrip("/"))
                case DockerCall() if operation.path == CREATE:
                    names[f"{{{operation.saves}}}"] = operation.query.get("name", operation.saves)
    return names_by_node


def _rename(operation: Operation, names: dict[str, str]) -> None:
    """Note the name that a container has from this operation on."""
    if isinstance(operation, DockerCall) and operation.path.endswith("/rename") and "name" in operation.query:
        names[_container_in(operation.path)] = operation.query["name"]


def _container_in(path: str) -> str:
    """The container in a path of Docker's API: "/containers/ID/stop"; "" without one."""
    parts = path.split("/")
    return unquote(parts[2]) if len(parts) > 2 and parts[1] == "containers" else ""


def _typed(operation: Operation, names: Mapping[str, str]) -> Iterator[str]:
    match operation:
        case Expect():
            return
        case Signal():
            yield f"{_sudo(operation.privilege)}kill -s {operation.signal} {operation.pid}"
        case DockerCall():
            key = _container_in(operation.path)
            name = shlex.quote(sanitise.line(names.get(key, _short(key))))
            yield from _typed_call(operation, name)
        case Command() if operation.argv[0].rpartition("/")[2] in _CHECKS:
            return
        case Command() if operation.content:
            yield from (_CONTENT.sub(r"\1…", line) for line in _operation(operation))
        case _:
            yield from _operation(operation)


def _typed_call(call: DockerCall, name: str) -> Iterator[str]:
    """The docker command that makes this call; one that only reads or waits has none."""
    verb, query, body = call.path.rpartition("/")[2], call.query, call.body or {}
    if call.method == "GET" or verb == "wait":
        return
    if call.method == "DELETE" and call.path.count("/") == 2:
        flags = "".join(f"-{flag[0]} " for flag in ("force", "v") if query.get(flag) == "true")
        yield f"docker rm {flags}{name}"
    elif verb == "create":
        made, image = (sanitise.line(str(text)) for text in (query.get("name", ""), body.get("Image", "")))
        yield f"docker create --name {shlex.quote(made)} … {shlex.quote(image) if image else ''}".rstrip()
    elif verb in ("stop", "restart") and "t" in query:
        yield f"docker {verb} -t {query['t']} {name}"
    elif verb == "kill":
        signal = query.get("signal", "KILL")
        yield f"docker kill {'' if signal == 'KILL' else f'-s {signal} '}{name}"
    elif verb == "rename":
        yield f"docker rename {name} {shlex.quote(sanitise.line(query.get('name', '')))}"
    elif verb == "update" and set(body) == {"RestartPolicy"}:
        policy = body["RestartPolicy"]
        most = f":{policy['MaximumRetryCount']}" if policy.get("MaximumRetryCount") else ""
        yield f"docker update --restart={shlex.quote(sanitise.line(str(policy['Name'])))}{most} {name}"
    elif verb in ("start", "stop", "restart", "pause", "unpause"):
        yield f"docker {verb} {name}"
    else:
        yield from _operation(call)


def abort_means(run: Run) -> str:
    """What an abort would do during the step under way, in sentences."""
    current = next((step for step in run.steps if step.state not in _OVER), None)
    if current is None:
        return "No step is running."
    act, node = current.step.act, masked(current.step.node)
    title = masked(current.step.title, run.plan.secrets)
    if only_fetches(act):
        return (
            f"{title}: stops on {node}. What was downloaded stays; the next try continues from there. No further "
            f"steps will start.{_rollback_sentence(run)}"
        )
    if isinstance(act, Remote):
        return f"{title}: {node} completes or reverts this step; the rest is cancelled.{_rollback_sentence(run)}"
    if isinstance(act, AwaitBack):
        return "The wait ends; the node keeps booting. No further steps will start."
    stays = _rollback_sentence(run) or " Finished steps stay as they are; no further steps will start."
    return f"{title}: the wait ends at once.{stays}"


def _rollback_sentence(run: Run) -> str:
    """The sentence that an abort rolls back, for an all-or-nothing plan that has changed something; else ""."""
    acts = (step.step.act for step in run.steps if step.state is not StepState.WAITING)
    has_changed = any(isinstance(act, Remote) and not only_fetches(act) for act in acts)
    if not (has_changed and run.plan.is_all_or_nothing and run.plan.way_back):
        return ""
    return " Then sparktop rolls back by itself: half of this plan is worse than nothing."


_OVER = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)


def _act(act: Act) -> Iterator[str]:
    match act:
        case Remote():
            for operation in act.operations:
                yield from _operation(operation)
            for operation in act.undo:
                for line in _operation(operation):
                    yield f"if it fails: {line}"
        case CollectEvidence():
            of = f" of {', '.join(act.engines)}" if act.engines else ""
            yield f"logs, tables and metrics{of} from {' and '.join(act.nodes)}, redacted, into one archive here"
        case AwaitGone():
            pids = f"pid {', '.join(map(str, act.pids))}" if act.pids else "its processes"
            yield f"until {pids} and every GPU process of the container are gone"
        case AwaitMemory():
            yield f"until {gib(act.target_bytes)} are available, and stay so for {act.stable_s:g} s"
        case AwaitReady():
            yield f"until {act.name} {'runs and its head answers' if act.is_worker else 'answers'}"
        case AwaitServing():
            yield f"{act.name} still runs, not restarted since it was ready" + (
                "" if act.is_worker else ", and answers"
            )
        case AwaitResolved():
            rules = [rule for rule, _, _ in act.findings]
            yield f"until {' and '.join(rules)} {'is' if len(rules) == 1 else 'are'} no longer found"
        case AwaitBack():
            yield "until the node is back with another boot id"
        case SmokeTest():
            yield (
                f"POST /v1/chat/completions of {act.engine}: {act.max_tokens} tokens at most, asked from here; fails "
                f"when less than {gib(act.floor_bytes)} are available"
            )
        case Measure():
            yield f"POST /v1/chat/completions of {act.engine}: {act.tokens} tokens, timed from here"
        case CheckExposed():
            yield f"GET /v1/models of {act.name}: refused without the key and with a wrong one, answered with it"
            yield f"GET /metrics of {act.name}: not found"
        case CheckLogin():
            yield f"a new connection from here, with the key {act.key.fingerprint} alone: no password is tried"
        case MeasureLink():
            for number, half in enumerate(act.halves):
                yield f"{_joined(ping_argv(half))}"
                yield f"on {act.peer}: {_joined(server_argv(act, half, number))}"
                yield _joined(client_argv(act, half, number))
        case MeasurePower():
            yield f"timeout {act.limit_s} python3: cuBLAS ({act.library}) multiplies matrices for {act.seconds} s"
        case MeasureCollective():
            yield "until the container exits; then the figure in its log, and NCCL's line on its transport"
        case Prove():
            yield from _proof(act)
        case GuardOrder():
            yield _order(act)


_PROOFS: Mapping[Proof, str] = {
    Proof.HEALTH: "GET /health",
    Proof.ANSWER: "POST /v1/chat/completions",
    Proof.STREAM: "POST /v1/chat/completions, streamed",
    Proof.TOOL_CALL: "POST /v1/chat/completions with one tool, get_weather",
    Proof.LONG_PROMPT: f"POST /v1/chat/completions, streamed, with some {LONG_TOKENS:,} tokens",
    Proof.TWO_AT_ONCE: "POST /v1/chat/completions, twice at once",
    Proof.WRONG_KEY: "GET /v1/models?client=sparktop with a wrong key, and without one",
}


def _proof(act: Prove) -> Iterator[str]:
    yield f"GET /metrics of {act.engine}: no request runs or waits"
    tokens = ANSWER_TOKENS.get(act.proof)
    bounds = (
        ""
        if tokens is None
        else f", {tokens} tokens at most; fails when less than {gib(act.floor_bytes)} are available"
    )
    yield f"{_PROOFS[act.proof]}: within {act.limit_s:g} s{bounds}"


def _order(order: GuardOrder) -> str:
    if not order.container_id:
        return "the probe's guard is disarmed"
    when = f"less than {gib(order.floor_bytes)} are available"
    if order.empty_within_s is not None:
        when += f", or they would be gone within {order.empty_within_s:g} s"
    stay = f"for {order.stay_s / 60:g} min after the console has gone" if order.stay_s else "as long as the console"
    return f"the probe ends {order.container_name} ({order.container_id[:12]}) when {when}; it stays armed {stay}"


def _operation(operation: Operation) -> Iterator[str]:
    match operation:
        case Command():
            yield f"{_sudo(operation.privilege)}{''.join(_assignments(operation))}{_joined(operation.argv)}"
        case Signal():
            yield f"{_sudo(operation.privilege)}{_joined(operation.argv)}   # if it is still that process"
        case DockerCall():
            query = f"?{urlencode(operation.query)}" if operation.query else ""
            body = f"  {_body(operation)}" if operation.body else ""
            yield f"docker: {operation.method} {_short(operation.path)}{_short(query)}{body}"
        case Expect():
            facts = ", ".join(f"{name} = {json.dumps(value)}" for name, value in operation.equals.items())
            yield f"docker: GET {_short(operation.path)} must say {_short(facts)}"
        case ImagePull():
            yield f"docker pull {shlex.quote(sanitise.line(operation.image))}"
        case Transfer():
            yield from _operation(operation.command)


def _sudo(privilege: Privilege) -> str:
    return "sudo " if privilege is Privilege.ROOT else ""


def _assignments(command: Command) -> Iterator[str]:
    for name, value in command.environment.items():
        text = shlex.quote(value) if _SHOWN_VARIABLE.fullmatch(f"{name}={value}") and not is_secret_name(name) else MASK
        yield f"{shlex.quote(name)}={text} "


def _joined(argv: Sequence[str]) -> str:
    return shlex.join(mask_argv(argv))


def _body(call: DockerCall) -> str:
    text = json.dumps(_clean(call.body), ensure_ascii=False, default=str)
    if len(text) <= MAX_BODY_CHARS:
        return text
    count = len(call.body or {})
    return f"{{ {count} field{'s' if count != 1 else ''}, {len(text)} characters }}"


def _clean(value: Any) -> Any:
    """The value with all strings sanitised: JSON only escapes control characters, and a reader would restore them."""
    if isinstance(value, str):
        return sanitise.line(value)
    if isinstance(value, Mapping):
        return {sanitise.line(str(key)): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value


def _short(text: str) -> str:
    """The text with container ids cut to 12 characters, as Docker's tools show them."""
    return _CONTAINER_ID.sub(r"\1", text)
