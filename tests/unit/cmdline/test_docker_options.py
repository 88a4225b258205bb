"""The table of Docker's options, and lines that are read by it."""

from __future__ import annotations

from collections import Counter

from tests.table import over

from sparktop.cmdline.docker_options import by_host_key, by_name
from sparktop.cmdline.docker_run import docker_run, parse_run_line
from sparktop.cmdline.source import Word

OPTIONS = tuple(dict.fromkeys(by_name().values()))


def test_no_name_stands_for_two_options() -> None:
    names = [name for one in OPTIONS for name in (one.name, one.alias, one.short) if name]
    keys = [key for one in OPTIONS for key in (one.key, one.config, one.compose) if key]
    assert [name for name, count in Counter(names + keys).items() if count > 1 and name not in by_name()] == []
    assert len(names) == len(by_name())
    assert {one.key for one in OPTIONS if one.key} <= by_host_key().keys()


def test_every_option_is_read_and_leaves_the_image() -> None:
    for option in OPTIONS:
        for name in (f"--{option.name}", *([f"--{option.alias}"] if option.alias else ())):
            words = [name, *(["x"] if option.takes_value else ()), "IMAGE", "serve"]
            run = docker_run([Word(word) for word in words])
            assert run.image == Word("IMAGE"), name
            assert run.misplaced == [], name
            assert [own for own, *_ in parse_run_line(["docker", "run", *words]).options] == [option.name]


@over(
    "line, options, misplaced",
    [
        ("-itp8000:80 -e A=1 IMAGE", {"interactive": None, "tty": None, "publish": "8000:80"}, []),
        ("--rm=false --net host -v/a:/b IMAGE", {"network": "host", "mount": "/a:/b"}, []),
        ("--ipc=host --max-model-len 8 --enforce-eager IMAGE m", {"ipc": "host"}, ["max-model-len", "enforce-eager"]),
        ("--gpus", {"gpus": None}, []),
    ],
)
def test_options_keep_their_values(line: str, options: dict[str, str | None], misplaced: list[str]) -> None:
    run = docker_run([Word(word) for word in line.split()])
    assert {item.name: item.value for item in run.options} == options
    assert [item.name for item in run.misplaced] == misplaced
