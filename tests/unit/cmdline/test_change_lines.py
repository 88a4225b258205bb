"""A change of a launch as typed lines: what is read, what is refused, and that a change survives being shown."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.relaunch_support import INFINIBAND
from tests.table import over

from sparktop.cmdline.change_lines import lines_of, read
from sparktop.model.change import Change


@over(
    "line, change",
    [
        ("--gpu-memory-utilization=0.70", Change(flags={"--gpu-memory-utilization": "0.70"})),
        ("--max-num-seqs 8", Change(flags={"--max-num-seqs": "8"})),
        ("--enforce-eager", Change(flags={"--enforce-eager": ""})),
        ("-cc.cudagraph_mode=NONE", Change(flags={"-cc.cudagraph_mode": "NONE"})),
        ('--compilation-config={"a": "b c"}', Change(flags={"--compilation-config": '{"a": "b c"}'})),
        ("A=1", Change(environment={"A": "1"})),
        ("A=", Change(environment={"A": ""})),
        ("A=b=c d", Change(environment={"A": "b=c d"})),
        ("TOKEN", Change(environment={"TOKEN": "from here"})),
        ("unset --enforce-eager", Change(flags={"--enforce-eager": None})),
        ("unset A", Change(environment={"A": None})),
        ("option IpcMode=host", Change(options={"IpcMode": "host"})),
        ("option ShmSize=17179869184", Change(options={"ShmSize": 17179869184})),
        ('option Ulimits=[{"Name": "memlock"}]', Change(options={"Ulimits": [{"Name": "memlock"}]})),
        ("option --device=/dev/infiniband", Change(options={"Devices": INFINIBAND.options["Devices"]})),
        ("option --ulimit=memlock=-1", Change(options={"Ulimits": INFINIBAND.options["Ulimits"]})),
        ("image vllm/vllm-openai:v0.14.1", Change(image="vllm/vllm-openai:v0.14.1")),
        ("@a@spark2:22 HCA=a,b", Change(by_node={"a@spark2:22": Change(environment={"HCA": "a,b"})})),
        ("  # a remark", Change()),
        ("", Change()),
    ],
)  # fmt: skip
def test_what_a_line_says(line: str, change: Change) -> None:
    assert read([line], {"TOKEN": "from here"}) == (change, ())


@over(
    "line, said",
    [
        ("-", "no flag"),
        ("--=1", "no flag"),
        ("--gpu-memory-utilization=0.80unset NCCL_IB_GID_INDEX", "takes one number"),
        ("- x", "no flag"),
        ("ABSENT", "is not set here"),
        ("two words", "neither a flag nor NAME=value"),
        ("1A=2", "neither a flag nor NAME=value"),
        ("unset", "neither|one flag or one variable|is not set here"),
        ("unset a b", "one flag or one variable"),
        ("option host", "Name=value"),
        ("option ipc=host", "Name=value"),
        ("image", "one image"),
        ("image a b", "one image"),
        ("image --privileged", "one image"),
        ("@spark2 two words", "neither a flag"),
        ("@", "a node's name"),
        ("@spark2", "a node's name"),
        ("A=\x00", "no command line can"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_line(line: str, said: str) -> None:
    change, (problem,) = read(["--fine", line], {})
    assert change.flags == {"--fine": ""}
    assert change.image is None
    assert problem.line == 2
    assert any(part in problem.text for part in said.split("|"))


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("unset", "option", "image")
)
FLAGS = st.from_regex(r"--[a-z][a-z0-9-]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=("C", "Z")), max_size=12)


@given(
    st.dictionaries(FLAGS, st.none() | TEXTS, max_size=4),
    st.dictionaries(NAMES, st.none() | TEXTS, max_size=4),
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Za-z]{0,8}", fullmatch=True),
        st.booleans() | st.integers() | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
        max_size=3,
    ),
)
def test_a_change_is_read_back_as_it_was(
    flags: dict[str, str | None], variables: dict[str, str | None], options: dict[str, object]
) -> None:
    change = Change(flags=flags, environment=variables, options=options, image="a/b:1")
    change = replace(change, by_node={"spark2": change} if lines_of(change) else {})
    assert read(lines_of(change), {}) == (change, ())


@given(st.lists(st.text(max_size=30), max_size=5))
def test_every_line_is_understood_or_named_as_a_problem(lines: list[str]) -> None:
    change, problems = read(lines, {})
    assert not change.is_empty or len(problems) == len([one for one in lines if one.strip() and one.strip()[0] != "#"])


def test_what_rdma_needs_is_shown_as_docker_run_has_it() -> None:
    lines = lines_of(INFINIBAND)
    assert lines == ("option --ulimit=memlock=-1", "option --device=/dev/infiniband")
    assert read(lines, {}) == (INFINIBAND, ())
