"""`sparktop watch`: a message as each kind of target takes it, when it goes, and what the next watcher knows."""

from __future__ import annotations

import asyncio
import json
import plistlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pictures_support import link, node, picture
from tests.support import needs
from tests.table import over
from tests.unit.headless.test_status import FINDING

from sparktop.cli import main
from sparktop.clock import ManualClock
from sparktop.config import EVENTS, MessageKind, Target, TargetKind, Watching, config_home, load
from sparktop.diagnose.incidents import Change, Incident, News
from sparktop.documents.attention import Attention
from sparktop.errors import ConfigError, UsageError
from sparktop.headless.watch import install, kept, watcher
from sparktop.headless.watch.kept import Kept
from sparktop.headless.watch.message import MAX_LINES, Message, as_json, for_mail, for_web, of_news, summary
from sparktop.headless.watch.outbox import MAX_QUEUED, Outbox, is_quiet
from sparktop.headless.watch.targets import sender
from sparktop.headless.watch.watcher import Watcher
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, Intervention, LinkState
from sparktop.transport.outgoing.outcome import Outcome

HOSTILE = replace(
    FINDING,
    title="<!channel> @everyone [now](http://bad) *x* \x1b]52;c;x\x07 &lt; " + "x" * 5000,
    explanation="a\nb <@U123> `c`",
)
MESSAGE = of_news(News(Change.NEW, Incident(id="a", root=HOSTILE, severity=Severity.CRITICAL)), 1e9)


def target(kind: TargetKind = TargetKind.JSON, **values: object) -> Target:
    return Target(**{"name": "one", "kind": kind, "url": "http://h/x"} | values)  # type: ignore[arg-type]


def test_a_text_of_a_node_is_no_markup_and_mentions_nobody() -> None:
    _, slack = for_web(MESSAGE, TargetKind.SLACK, "http://h/x")
    assert "<" not in slack["text"]
    assert slack["text"].count("&") == slack["text"].count("&lt;") + slack["text"].count("&gt;") + slack["text"].count(
        "&amp;"
    )
    assert (slack["mrkdwn"], slack["parse"], slack["link_names"]) == (False, "none", False)
    _, discord = for_web(MESSAGE, TargetKind.DISCORD, "http://h/x")
    assert r"\<\!channel\> \@everyone \[now\]\(http\:\/\/bad\) \*x\*" in discord["content"]
    assert discord["allowed_mentions"] == {"parse": []}
    assert len(discord["content"]) < 2000
    for kind in (TargetKind.SLACK, TargetKind.DISCORD, TargetKind.NTFY, TargetKind.JSON):
        body = json.dumps(for_web(MESSAGE, kind, "http://h/x")[1])
        assert "\\u001b" not in body, kind
        assert len(body) < 6000
    mail = for_mail(MESSAGE, target(TargetKind.MAIL, to=("a@b", "c@d"), sender="e@f"))
    assert "\n" not in mail["Subject"]
    assert (mail["To"], mail["From"]) == ("a@b, c@d", "e@f")


def test_ntfy_gets_its_topic_and_a_priority() -> None:
    url, body = for_web(MESSAGE, TargetKind.NTFY, "https://ntfy.example/base/my-topic?auth=x")
    assert url == "https://ntfy.example/base/?auth=x"
    assert (body["topic"], body["priority"]) == ("my-topic", 5)
    assert for_web(replace(MESSAGE, kind=MessageKind.RESOLVED), TargetKind.NTFY, url)[1]["priority"] == 3


def test_a_message_names_root_figures_consequences_and_the_next_step() -> None:
    news = News(Change.WORSE, Incident(id="a", root=FINDING, consequences=(replace(FINDING, title="No token"),),
                                       severity=Severity.CRITICAL))  # fmt: skip
    message = of_news(news, 2e9)
    assert message.text.splitlines()[:2] == ["✖ worse: spark1: Spin deadlock", "96 % SM at 15 W"]
    assert "It also causes: spark1: No token" in message.text
    data = as_json(message)
    assert (data["kind"], data["incident"], data["finding"]["rule"]) == ("worse", "a", FINDING.rule)
    over_now = of_news(News(Change.RESOLVED, Incident(id="a", root=replace(FINDING, title="Rest"), announced=FINDING,
                                                      severity=Severity.CRITICAL)), 2e9)  # fmt: skip
    assert over_now.title == "✔ resolved: spark1: Spin deadlock"


def test_a_summary_has_the_newest_lines_and_counts_all() -> None:
    one = Message(kind=MessageKind.NEW, title="x", wall_s=1e9)
    assert summary([one], 1e9, "held") is one
    made = one
    for _ in range(60):
        made = summary([made, one], 1e9, "held")
    assert len(made.lines) == MAX_LINES
    assert made.title == f"61 changes, held: the newest {MAX_LINES}"


@over("quiet, clock, is_it", [
    ((22 * 60, 7 * 60), "23:10", True), ((22 * 60, 7 * 60), "06:59", True), ((22 * 60, 7 * 60), "07:00", False),
    ((9 * 60, 17 * 60), "12:00", True), ((9 * 60, 17 * 60), "18:00", False), (None, "03:00", False),
])  # fmt: skip
def test_quiet_hours_are_those_of_this_machine(quiet: tuple[int, int] | None, clock: str, is_it: bool) -> None:
    wall_s = time.mktime(time.strptime(f"2026-11-20 {clock}", "%Y-%m-%d %H:%M"))
    assert is_quiet(Watching(quiet=quiet), wall_s) is is_it


def outbox(watching: Watching, kept_before: Kept | None = None) -> Outbox:
    async def send(message: Message) -> Outcome:
        raise AssertionError("it isn't run")

    return Outbox(watching, {"one": send}, kept_before or Kept(), lambda: None)


def change(title: str, wall_s: float, severity: str = "warning", kind: MessageKind = MessageKind.NEW) -> Message:
    return Message(kind=kind, title=title, wall_s=wall_s, severity=severity)


def test_in_quiet_hours_critical_ones_go_and_the_rest_goes_together_after_them() -> None:
    night = time.mktime(time.strptime("2026-11-20 23:00", "%Y-%m-%d %H:%M"))
    box = outbox(Watching(targets=(target(),), quiet=(22 * 60, 7 * 60)))
    for message in (change("a", night), change("b", night, "critical"),
                    change("b", night, "critical", MessageKind.RESOLVED)):  # fmt: skip
        box.add(message)
    box.release(night + 60)
    assert [message.title for message in box.queues["one"]] == ["b"]
    box.release(night + 9 * 3600)
    _, second = box.queues["one"]
    assert (second.kind, len(second.lines), box.held) == (MessageKind.SUMMARY, 2, [])


def test_more_than_the_limit_an_hour_are_one_message() -> None:
    box = outbox(Watching(targets=(target(),), most_per_hour=2))
    for number in range(6):
        box.add(change(str(number), 1e9, "critical"))
    box.release(1e9 + 1)
    assert [message.title for message in box.queues["one"]] == ["0", "1"]
    box.release(1e9 + 3601)
    assert box.queues["one"][-1].title == "4 changes, held back until now"


def test_a_queue_is_bounded_and_loses_no_change() -> None:
    box = outbox(Watching(targets=(target(),), most_per_hour=1000))
    for number in range(MAX_QUEUED + 50):
        box.add(change(str(number), 1e9 + number))
    queue = box.queues["one"]
    assert len(queue) == MAX_QUEUED
    assert [queue[0].title, queue[2].title, queue[-1].title] == ["0", "52", "149"]
    assert queue[1].title.startswith("51 changes, ")


def test_a_target_gets_the_events_that_it_names() -> None:
    box = outbox(Watching(targets=(target(events=(MessageKind.HEARTBEAT,)),)))
    box.add(change("a", 1e9))
    box.add(Message(kind=MessageKind.HEARTBEAT, title="b", wall_s=1e9))
    assert [message.title for message in box.queues["one"]] == ["b"]


def test_what_is_kept_is_read_again_and_what_is_broken_is_left_out(tmp_path: Path) -> None:
    incident = Incident(id="a", root=FINDING, keys=frozenset({FINDING.key}), severity=Severity.CRITICAL,
                        announced=FINDING)  # fmt: skip
    before = Kept(alive_wall_s=1e9, heartbeat_wall_s=2.0, incidents=(incident,), held=(MESSAGE,),
                  queues={"one": (MESSAGE, change("b", 1e9))}, sent_wall_s=(3.0,))  # fmt: skip
    file = tmp_path / "watch.json"
    kept.write(file, before)
    assert file.stat().st_mode & 0o777 == 0o600
    after = kept.read(file)
    assert replace(after, incidents=()) == replace(before, incidents=())
    assert after.incidents[0].announced is not None
    assert after.incidents[0].announced.key == FINDING.key
    data = json.loads(file.read_text())
    for broken in ({**data, "incidents": [3], "messages": {"x": 1}, "alive_wall_s": "x"}, {"queues": 3}):
        file.write_text(json.dumps(broken))
        assert kept.read(file).incidents == ()


def test_a_second_watcher_is_refused(tmp_path: Path) -> None:
    with kept.only_watcher(tmp_path), pytest.raises(UsageError, match="twice"), kept.only_watcher(tmp_path):
        pass
    with kept.only_watcher(tmp_path):
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def start(tmp_path: Path, clock: ManualClock) -> Callable[[], Watcher]:
    async def send(message: Message) -> Outcome:
        return Outcome()

    watching = Watching(targets=(target(),))
    nodes = {"spark1", "spark2"}
    return lambda: Watcher(watching, {"one": send}, tmp_path / "watch.json", nodes, clock)


def titles(made: Watcher) -> list[str]:
    queue = made.outbox.queues["one"]
    said = [message.title for message in queue]
    queue.clear()
    return said


def test_a_watcher_says_that_it_was_down_and_repeats_nothing(start: Callable[[], Watcher], clock: ManualClock) -> None:
    fleet = picture(findings=(FINDING,))
    first = start()
    for _ in range(2):
        first.see(fleet)
        clock.advance(watcher.GATHER_S)
    assert titles(first) == ["✖ new: spark1: Spin deadlock"]
    first.keep()
    second = start()
    second.see(fleet)
    assert titles(second) == [], "a short restart"
    clock.advance(watcher.DOWN_S + 60)
    third = start()
    third.see(picture())
    (down,) = titles(third)
    assert "was down from" in down
    for _ in range(2):
        clock.advance(watcher.SETTLED_S / 2)
        third.see(picture(findings=(replace(FINDING, phase=Phase.RESOLVED),)))
    assert titles(third) == ["✔ resolved: spark1: Spin deadlock"]


def test_what_a_console_acknowledged_is_not_announced_until_it_is_worse_or_comes_again(
    start: Callable[[], Watcher], clock: ManualClock, tmp_path: Path
) -> None:
    made, low = start(), replace(FINDING, severity=Severity.WARNING)
    effect = replace(FINDING, rule="engine.no-tokens", caused_by=low.rule, severity=Severity.WARNING)
    console, made._marks = (Attention(clock, tmp_path / "acknowledged.json") for _ in range(2))
    assert isinstance(console, Attention)

    def see(*findings: Finding) -> list[str]:
        for _ in range(2):
            made.see(picture(findings=findings))
            clock.advance(watcher.GATHER_S)
        return titles(made)

    console.acknowledge((low,), on=True)
    assert see(low, effect) == []
    assert see(FINDING) == ["✖ new: spark1: Spin deadlock"], "it is worse"
    console.acknowledge((FINDING,), on=True)
    assert see(replace(FINDING, phase=Phase.RESOLVED)) == ["✔ resolved: spark1: Spin deadlock"], "it was announced"
    assert see(low) == ["▲ new: spark1: Spin deadlock"], "and comes again"


def lost(fleet: FleetState, *names: str) -> FleetState:
    down = link(LinkState.LOST, reason="no answer")
    return replace(fleet, nodes=tuple(replace(one, link=down) if one.name in names else one for one in fleet.nodes))


def test_a_host_that_is_away_is_an_incident_and_all_at_once_are_one(
    start: Callable[[], Watcher], clock: ManualClock
) -> None:
    made, fleet = start(), picture(node("spark1"), node("spark2"))
    for names in (("spark2",), (), ("spark1", "spark2"), ()):
        for _ in range(3):
            made.see(lost(fleet, *names))
            clock.advance(watcher.AWAY_S)
    assert titles(made) == [
        "✖ new: spark2 doesn't answer",
        "✔ resolved: spark2 doesn't answer",
        "✖ new: spark1 + spark2: No host answers: check the watcher's own network first",
        "✔ resolved: spark1 + spark2: No host answers: check the watcher's own network first",
    ]
    reboot = Intervention(node="spark2", action="reboot", began_wall_s=clock.wall(), is_under_way=True)
    for under_way in ((reboot,), (reboot,), (reboot,), (replace(reboot, is_under_way=False),)):
        made.see(replace(lost(fleet, "spark2"), interventions=under_way))
        clock.advance(watcher.AWAY_S)
    made.see(lost(fleet, "spark2"))
    assert titles(made) == ["✖ new: spark2 doesn't answer"], "a console rebooted it, and it didn't come back"


async def test_a_target_that_refuses_is_said_once_and_gets_each_once_and_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.headless.watch.outbox.FIRST_PAUSE_S", 0.01)
    got: list[str] = []
    failures = iter([Outcome(problem="down")] * 3)

    async def send(message: Message) -> Outcome:
        if (failed := next(failures, None)) is not None:
            return failed
        got.append(message.title)
        return Outcome(problem="no such thing", is_refused=True) if message.title == "b" else Outcome()

    arrived = asyncio.Event()
    box = Outbox(Watching(targets=(target(),)), {"one": send}, Kept(), arrived.set)
    for title in "abc":
        box.add(change(title, time.time()))
    running = asyncio.create_task(box.run())
    while box.queues["one"]:
        arrived.clear()
        await arrived.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert got == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines() == [
        "one: down; tried again until it works",
        "one: takes messages again",
        "one: a message was dropped: no such thing",
    ]


SECRET = "Zq7secret"


@over("values, said", [
    ({"url": f"ftp://h/{SECRET}"}, "wants http:// or https://"),
    ({"url": f"https://[h/{SECRET}"}, "wants http:// or https://"),
    ({"url": "", "url_env": "NOT_SET"}, "NOT_SET is not set"),
    ({"url": "", "url_file": "/nonexistent/url"}, "No such file"),
    ({"kind": TargetKind.MAIL, "smtp": "mail:x"}, "HOST:PORT"),
])  # fmt: skip
def test_a_target_that_cannot_be_right_is_refused_and_its_url_not_shown(values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sender(target(**values))
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(target(**values))


def test_a_secrets_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("http://h/x\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="readable by other users"):
        sender(target(url="", url_file=str(file)))
    file.chmod(0o600)
    sender(target(url="", url_file=str(file)))


def test_the_service_runs_the_same_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "a b"))
    argv = ["/usr/bin/python3", "-m", "sparktop", "watch", "--", "me@spark%1"]
    unit = install.service(argv, "linux")
    assert 'ExecStart=/usr/bin/python3 -m sparktop watch -- "me@spark%%1"\n' in unit.text
    assert f'Environment="XDG_CONFIG_HOME={tmp_path}/a b"\n' in unit.text
    assert unit.path == tmp_path / "a b/systemd/user/sparktop-watch.service"
    agent = install.service(argv, "darwin")
    assert plistlib.loads(agent.text.encode())["ProgramArguments"] == argv


def test_systemd_takes_the_unit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs("systemd-analyze", "systemd")
    file = tmp_path / "sparktop-watch.service"
    file.write_text(install.service([sys.executable, "-m", "sparktop", "watch", "--", "me@spark%1"], "linux").text)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    command = ["systemd-analyze", "verify", "--user", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_service_file_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_run", lambda commands: "no systemd here")
    made = install.service(["sparktop"], "linux")
    assert install.install(made, is_agreed=False) == 0
    assert not made.path.exists()
    assert install.install(made, is_agreed=True) == 1
    assert made.path.read_text() == made.text
    assert install.remove(made) == 1
    with pytest.raises(UsageError, match="there is no"):
        install.remove(made)
    made.path.write_text("[Unit]\n")
    with pytest.raises(ConfigError, match="isn't sparktop's"):
        install.install(made, is_agreed=True)
    with pytest.raises(ConfigError, match="isn't sparktop's"):
        install.remove(made)


def test_every_kind_of_change_is_an_event() -> None:
    assert {MessageKind(one.value) for one in Change} < set(EVENTS)


def test_the_command_tries_each_target_and_says_what_came_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--test"]) == 2
    assert "no [watch.target.NAME]" in capsys.readouterr().err
    config_home().mkdir(parents=True)
    tables = [f"[watch.target.{name}]\nkind = 'command'\ncommand = ['{name}']\n" for name in ("true", "false")]
    (config_home() / "config.toml").write_text("".join(tables))
    assert main(["watch", "--test"]) == 1
    assert capsys.readouterr().out == "true: ok, exit code 0\nfalse: false ended with code 1\n"
    assert main(["watch", "spark1", "--yes"]) == 2
    assert main(["watch", "spark1", "--test", "--install"]) == 2
    assert main(["--interval", "2", "watch", "--install", "spark1", "spark1"]) == 0
    assert f"ExecStart={sys.executable} -m sparktop watch --interval 2.0 -- spark1\n" in capsys.readouterr().out


def test_the_settings_that_the_page_shows_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/watching.md").read_text("utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "config.toml").write_text(block)
    watching = load(tmp_path / "config.toml").watch
    assert {one.kind for one in watching.targets} | {TargetKind.DISCORD} == set(TargetKind)
    assert watching.quiet == (22 * 60, 7 * 60)
