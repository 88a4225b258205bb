"""Operations, questions and answers on the wire: what goes comes back the same; nothing is believed."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Privilege, Signal, Transfer
from sparktop.model.survey import DockerGet, DockerLog, FileText, Output, Privileges, PrivilegesQuestion
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner import codec as words
from sparktop.operate.runner.api import OutcomeState, Progress

OPERATIONS: list[Operation] = [
    Command(argv=("true",)),
    Command(
        argv=("docker", "compose", "-f", "{content}", "up"),
        privilege=Privilege.ROOT,
        limit_s=60.5,
        accepts=(0, 1),
        environment={"HF_TOKEN": "hf_abc", "EMPTY": ""},
        content="services: {}\n",
        done_when=Command(argv=("test", "-e", "/x")),
    ),
    Expect(path="/containers/a/json", equals={"State.Running": True, "Id": "a", "n": 0, "none": None}),
    Expect(path="/containers/a/json", equals={}, otherwise="it was restarted", within_s=3.0),
    DockerCall(method="POST", path="/containers/a/stop", query={"t": "60"}, limit_s=75.0),
    DockerCall(
        method="POST",
        path="/containers/create",
        query={"name": "a b"},
        body={"Env": ["A=b"], "Empty": {}, "Zero": 0, "No": False, "None": None},
        accepts=(201,),
        saves="new",
        done_when=Expect(path="/containers/a/json", equals={"State.Running": False}),
    ),
    DockerCall(method="POST", path="/x", body={}),
    Signal(pid=12, started_ticks=345),
    ImagePull(image="nvcr.io/nvidia/vllm:26.05", limit_s=60.0),
    Transfer(command=Command(argv=("hf", "x"), environment={"HF_TOKEN": "t"}), grows="~/x", key="model x"),
    Transfer(command=Command(argv=("rsync",)), grows="/x", key="copy x", total_bytes=7),
    Signal(pid=12, started_ticks=0, signal="KILL", privilege=Privilege.ROOT, ends_within_s=2.5, must_end=True),
]


@over("operation", OPERATIONS)
def test_an_operation_comes_back_as_it_went(operation: Operation) -> None:
    sent = json.loads(json.dumps(words.operation_words(operation)))
    assert words.operation_of(sent) == operation


TEXT = st.text(max_size=40)
COMMANDS = st.builds(
    Command,
    argv=st.lists(TEXT, min_size=1, max_size=4).map(tuple),
    privilege=st.sampled_from(Privilege),
    limit_s=st.floats(0.1, 1e4),
    accepts=st.lists(st.integers(0, 255), min_size=1, max_size=3).map(tuple),
    environment=st.dictionaries(TEXT, TEXT, max_size=3),
    content=TEXT,
)


@given(COMMANDS)
def test_hostile_argv_comes_back_as_it_went(command: Command) -> None:
    assert words.operation_of(json.loads(json.dumps(words.operation_words(command)))) == command


def test_a_step_may_take_as_long_as_its_operations() -> None:
    step = words.step_words("r", "s", Remote(operations=(Command(argv=("a",), limit_s=20.0), *OPERATIONS[:1])))
    assert step["limit"] == 20.0 + 30.0 + 2 * words.END_S
    assert (step["run"], step["step"], step["undo"]) == ("r", "s", [])


def test_what_shows_is_sanitised_and_what_a_relaunch_needs_is_not() -> None:
    hostile = "a\x1b]52;c;x\x07b\nc"
    result = words.result_of({"index": 1, "ok": False, "output": hostile, "problem": hostile, "code": "9"})
    assert (result.output, result.problem, result.code) == ("ab\nc", "ab c", None)
    outcome = words.outcome_of({"state": "failed", "problem": hostile, "saved": {"x\x1b[2J": "\x1b[31mid"}})
    assert (outcome.problem, dict(outcome.saved)) == ("ab c", {"x": "id"})
    holder = words.holder_of({"who": "me\x1b[2J", "what": hostile, "since": "yesterday"})
    assert (holder.who, holder.what, holder.since_wall_s) == ("me", "ab c", None)
    get = DockerGet(node="n", path="/x")
    answer = words.answer_of(get, {"kind": "answer", "found": True}, json.dumps({"Env": [hostile]}))
    assert answer.value == {"Env": [hostile]}
    assert "hostile" not in repr(answer)


def test_progress_is_not_believed_to_be_any() -> None:
    assert words.progress_of({"index": 1, "done": 5, "total": 9, "words": "a\x1b[2Jb"}) == Progress(
        index=1, done_bytes=5, total_bytes=9, words="ab"
    )
    nothing = Progress(index=0, done_bytes=None)
    assert words.progress_of({}) == nothing
    assert words.progress_of({"index": "1", "done": -5, "total": 0, "words": 7}) == nothing
    assert words.progress_of({"index": None, "done": True, "total": 1e9, "words": None}) == nothing
    assert words.outcome_of({"state": "running", "progress": {"done": 5}}).progress == Progress(index=0, done_bytes=5)
    assert words.outcome_of({"state": "running", "progress": [5]}).progress is None


def test_a_transfer_may_wait_for_another_first() -> None:
    command = Command(argv=("hf",), limit_s=100.0, done_when=Command(argv=("test",), limit_s=5.0))
    assert words.longest_s(Transfer(command=command, grows="/x", key="k")) == 205.0
    assert words.longest_s(ImagePull(image="x", limit_s=100.0)) == 100.0 + words.RETURN_S


def test_answers() -> None:
    get, file, output = DockerGet(node="n", path="/x"), FileText(node="n", path="/x"), Output(node="n", argv=("a",))
    found = {"kind": "answer", "found": True}
    assert words.answer_of(get, {"kind": "answer", "found": False}, "").value is None
    assert words.answer_of(get, {"kind": "answer", "found": False, "problem": "no"}, "").problem == "no"
    assert words.answer_of(get, {**found, "cut": True}, "{}").problem == "Docker's answer is too long"
    assert words.answer_of(get, found, "{").problem == "Docker's answer can't be read"
    assert words.answer_of(get, found, "[" * 100_000).problem == "Docker's answer can't be read"
    assert words.answer_of(file, found, "").value == ""
    assert words.answer_of(output, {**found, "problem": "a ended with 3"}, "said") == words.Answer(
        value="said", problem="a ended with 3"
    )
    assert words.answer_of(file, {"kind": "refused", "problem": ""}, "").problem
    assert words.question_words(DockerLog(node="n", container_id="ab", lines=7))["get"]["path"] == (
        "/containers/ab/logs?stdout=1&stderr=1&timestamps=1&tail=7"
    )


def test_privileges_of_a_node_that_says_nonsense() -> None:
    nonsense = {"docker": 1, "sudo": [], "sudo_rules": "x", "has_compose": "yes", "user": None, "is_root": 1}
    assert words.answer_of(PrivilegesQuestion(node="n"), nonsense, "").value == Privileges()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
FIELDS = [
    *("state", "results", "saved", "undone", "problem", "output", "index", "undo", "ok", "code", "seconds", "was_done"),
    *("who", "what", "since", "kind", "found", "cut", "user"),
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8))
def test_nothing_that_a_node_says_raises(said: dict[str, object]) -> None:
    assert words.outcome_of(said).state in OutcomeState
    assert isinstance(words.result_of(said).ok, bool)
    assert words.holder_of(said).who is not None
    for ask in (DockerGet(node="n", path="/"), Output(node="n", argv=("a",)), PrivilegesQuestion(node="n")):
        assert isinstance(words.answer_of(ask, said, "x").problem, str)


def test_a_state_that_is_none_of_ours_has_to_be_looked_at() -> None:
    assert words.outcome_of({"state": "perhaps"}).state is OutcomeState.GONE


@over("number", [10**400, 1e300, -1, "5", True])
def test_a_figure_out_of_bounds_is_none(number: object) -> None:
    assert words.holder_of({"who": "a", "what": "b", "since": number}).since_wall_s is None
    assert words.result_of({"seconds": number}).seconds == 0.0
    progress = words.progress_of({"done": number, "total": number, "index": 10**400})
    assert (progress.index, progress.done_bytes, progress.total_bytes) == (0, None, None)


@over("text", ["9" * 400, "[" * 1000 + "]" * 1000, "1e999"])
def test_an_answer_out_of_bounds_has_a_problem(text: str) -> None:
    answer = words.answer_of(DockerGet(node="spark1", path="/info"), {"found": True}, text)
    assert answer.value is None
    assert answer.problem


def test_the_lists_of_an_outcome_have_a_limit() -> None:
    outcome = words.outcome_of({"results": [{}] * 10_000, "saved": {f"K{n}": "v" for n in range(10_000)}})
    assert len(outcome.results) < 5000
    assert len(outcome.saved) < 100
