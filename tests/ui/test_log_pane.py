"""The log pane: what its frame says, its keys, its search line, copying and saving."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.table import over
from tests.ui import svg
from tests.ui.log_stage import VLLM, Feed, Stage, from_remote, numbered
from textual.content import Content
from textual.widgets import Input, Static

from sparktop.clock import ManualClock
from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing
from sparktop.ui.panes.log import LogPane
from sparktop.ui.widgets.log_file import mask, save
from sparktop.ui.widgets.search_bar import SearchBar

ENTRY = ("line", None, None, None, False)
SECRET = "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH"


def title(pane: LogPane) -> str:
    found: Content | None = getattr(pane, "_border_title", None)
    return found.plain if found else ""


def staged(feed: Feed | None) -> tuple[LogPane, Stage]:
    pane = LogPane(clock=ManualClock())
    stage = Stage(pane)
    stage.call_later(pane.show, feed)
    stage.call_later(pane.focus)
    return pane, stage


def feed_of(lines: list[LogLine]) -> Feed:
    feed = Feed()
    feed.ring.extend(lines)
    return feed


async def test_the_frame_says_whose_log_it_is_and_whether_it_follows() -> None:
    feed = feed_of(numbered(0, 100))
    pane, stage = staged(feed)
    async with stage.run_test(size=(60, 20)) as pilot:
        await svg.settle(pilot, lambda: title(pane).endswith("following"))
        assert title(pane).startswith("log  vllm-minimax @ spark1 ─")
        await pilot.press("space")
        await svg.settle(pilot, lambda: title(pane).endswith("paused"))
        feed.ring.extend(numbered(100, 1234))
        await svg.settle(pilot, lambda: title(pane).endswith("paused · 1,234 new"))
        await pilot.press("space")
        await svg.settle(pilot, lambda: title(pane).endswith("following"))
        assert pane.log_view.visible_rows[-1].line.text == "line 1333"


async def test_routine_lines_are_folded_until_z_and_searched_and_saved_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    feed = feed_of([line for number in range(30) for line in (*numbered(number, 1), LogLine(text=f"scrape {number}"))])
    feed.brief, feed.folded = LineRing(), {"statistics": 25, "probes": 5}
    feed.brief.extend(numbered(0, 30))
    pane, stage = staged(feed)
    async with stage.run_test(size=(110, 12)) as pilot:
        await svg.settle(pilot, lambda: texts(pane)[-2:] == ["line 28", "line 29"])
        assert "30 folded (statistics 25, probes 5)  z unfold" in title(pane)
        await pilot.press("k", "k")
        top = texts(pane)[0]
        await pilot.press("z")
        await svg.settle(pilot, lambda: "z fold" in title(pane))
        assert texts(pane)[0] == top, "the place stays"
        await pilot.press("z", "space")
        await svg.settle(pilot, lambda: texts(pane)[-2:] == ["line 28", "line 29"])
        await pilot.press("slash", *"scrape 7", "enter")
        await svg.settle(pilot, lambda: "scrape 7" in texts(pane))
        await pilot.press("escape")
        await svg.settle(pilot, lambda: not any("scrape" in text for text in texts(pane)))
        await pilot.press("ctrl+s")
        await svg.settle(pilot, lambda: any((tmp_path / "sparktop/logs").glob("*")))
        (saved,) = (tmp_path / "sparktop/logs").glob("*")
        await svg.settle(pilot, lambda: saved.read_text().count("scrape") == 30)


def texts(pane: LogPane) -> list[str]:
    return [row.line.text for row in pane.log_view.visible_rows]


def rows_of(pane: LogPane) -> list[str]:
    view = pane.log_view
    return [view.render_line(y).text.rstrip() for y in range(len(view.visible_rows))]


@pytest.mark.parametrize(
    ("size", "row"),
    [
        ((50, 8), "E EngineCore encountered a fatal error."),
        ((80, 8), "E 20:26:46 EngineCore encountered a fatal error. core.py:1091"),
        ((120, 8), "E 20:26:46 EngineCore_DP0 EngineCore encountered a fatal error. core.py:1091"),
    ],
)
async def test_the_message_comes_first_and_its_head_has_what_room_is_left(size: tuple[int, int], row: str) -> None:
    pane, stage = staged(feed_of(from_remote(VLLM[:7])))
    async with stage.run_test(size=size) as pilot:
        await svg.settle(pilot, lambda: pane.log_view.visible_rows and rows_of(pane)[-1].split() == row.split())
        await pilot.press("p")
        await svg.settle(pilot, lambda: "(EngineCore_DP0 pid=214) ERROR 1" in rows_of(pane)[-1])
        await pilot.press("p")
        await svg.settle(pilot, lambda: rows_of(pane)[-1].split() == row.split())


async def test_a_match_in_a_folded_head_unfolds_its_line() -> None:
    pane, stage = staged(feed_of(from_remote(VLLM)))
    async with stage.run_test(size=(80, 30)) as pilot:
        await pilot.press("slash", *"core.py:1091", "enter")
        await svg.settle(pilot, lambda: pane.log_view.search_status() == "2/2")
        unfolded = [row for row in rows_of(pane) if "[core.py:1091]" in row]
        assert len(unfolded) == 2
        assert not any("api_server.py:1937]" in row for row in rows_of(pane))
        await pilot.press("escape")
        await svg.settle(pilot, lambda: not any("[core.py:1091]" in row for row in rows_of(pane)))


async def test_a_time_without_a_stamp_is_taken_from_the_line() -> None:
    pane, stage = staged(feed_of([LogLine(text="INFO 05-19 10:00:09 [a.py:1] ready")]))
    async with stage.run_test(size=(80, 8)) as pilot:
        await svg.settle(pilot, lambda: pane.log_view.visible_rows and rows_of(pane)[0].startswith("  10:00:09 ready"))


async def test_a_title_is_never_markup() -> None:
    feed = feed_of(numbered(0, 3))
    feed.title = "[red]vllm[/x] @ [link=https://x]spark1"
    feed.status = "[bold]docker logs[/nope]"
    _, stage = staged(feed)
    async with stage.run_test(size=(90, 20)) as pilot:
        await svg.settle(pilot, lambda: feed.title in "\n".join(svg.plain(stage)))
        assert feed.status in "\n".join(svg.plain(stage))


async def test_a_narrow_frame_keeps_the_name() -> None:
    pane, stage = staged(feed_of(numbered(0, 3)))
    async with stage.run_test(size=(30, 6)) as pilot:
        await svg.settle(pilot, lambda: "vllm-minimax" in title(pane))
        assert len(title(pane)) <= 26


async def test_without_lines_it_says_why() -> None:
    pane, stage = staged(None)
    async with stage.run_test(size=(60, 20)) as pilot:
        await svg.settle(pilot, lambda: "No engine is selected" in "\n".join(svg.plain(stage)))
        feed = Feed(status="docker refuses: add the user to the docker group [/x]")
        pane.show(feed)
        await svg.settle(pilot, lambda: "No line yet. docker refuses" in "\n".join(svg.plain(stage)))
        assert "group [/x]" in " ".join(svg.plain(stage))
        feed.ring.extend(numbered(0, 2))
        pane.show(feed)
        await svg.settle(pilot, lambda: "line 1" in "\n".join(svg.plain(stage)))
        assert not stage.query_one(".log-empty", Static).display


async def test_lines_that_come_between_pictures_are_shown() -> None:
    feed = Feed()
    _, stage = staged(feed)
    async with stage.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        feed.ring.extend(numbered(0, 2))
        await svg.settle(pilot, lambda: "line 1" in "\n".join(svg.plain(stage)))


async def test_searching_with_the_keys() -> None:
    _, stage = staged(feed_of(from_remote(VLLM * 4)))
    async with stage.run_test(size=(80, 20)) as pilot:
        await pilot.press("slash", *"fatal")
        await svg.settle(pilot, lambda: svg.plain(stage)[-2].rstrip("│ ").endswith("4/4"))
        await pilot.press("enter", "n")
        await svg.settle(pilot, lambda: "1/4  from the top" in svg.plain(stage)[-2])
        await pilot.press("N")
        await svg.settle(pilot, lambda: "4/4  from the end" in svg.plain(stage)[-2])
        await pilot.press("escape")
        await svg.settle(pilot, lambda: not stage.query_one(SearchBar).display)
        assert stage.query_one(LogPane).log_view.query_now is None
        assert stage.query_one(LogPane).log_view.has_focus


async def test_what_is_no_expression_is_searched_as_text() -> None:
    _, stage = staged(feed_of(numbered(0, 10)))
    async with stage.run_test(size=(80, 20)) as pilot:
        await pilot.press("slash", "(")
        await svg.settle(pilot, lambda: "not a regex: as text" in svg.plain(stage)[-2])
        await svg.settle(pilot, lambda: "no match" in svg.plain(stage)[-2])
        await pilot.press(*"line)")
        await svg.settle(pilot, lambda: "10/10" in svg.plain(stage)[-2])


async def test_n_without_a_search_opens_one() -> None:
    _, stage = staged(feed_of(numbered(0, 10)))
    async with stage.run_test(size=(80, 20)) as pilot:
        await pilot.press("n")
        await svg.settle(pilot, lambda: stage.query_one(Input).has_focus)


async def test_the_keys_of_the_search_line_are_text() -> None:
    pane, stage = staged(feed_of(numbered(0, 10)))
    async with stage.run_test(size=(80, 20)) as pilot:
        await pilot.press("slash", "w", "space", "y", "n")
        await svg.settle(pilot, lambda: stage.query_one(Input).value == "w yn")
        assert pane.log_view.wrap_wish is None


async def test_keys_move_as_in_a_pager() -> None:
    pane, stage = staged(feed_of(numbered(0, 200)))
    async with stage.run_test(size=(80, 20)) as pilot:
        await svg.settle(pilot, lambda: pane.log_view.visible_rows)
        await pilot.press("g")
        assert pane.log_view.visible_rows[0].line.text == "line 0"
        await pilot.press("G")
        assert pane.log_view.is_following
        assert pane.log_view.visible_rows[-1].line.text == "line 199"


async def test_wrap_and_copy_and_save() -> None:
    feed = feed_of([LogLine(text=f"token is {SECRET} here", wall_s=1_780_000_000.0), *numbered(0, 3)])
    pane, stage = staged(feed)
    async with stage.run_test(size=(80, 20), notifications=True) as pilot:
        assert pane.log_view.wrap, "long lines wrap where there is room"
        await pilot.press("w")
        assert not pane.log_view.wrap
        await pilot.press("w")
        assert pane.log_view.wrap
        await pilot.press("y")
        await svg.settle(pilot, lambda: stage.clipboard)
        assert stage.clipboard == "token is <masked> here\nline 0\nline 1\nline 2"
        await pilot.press("ctrl+s")
        directory = Path(os.environ["XDG_STATE_HOME"]) / "sparktop" / "logs"
        await svg.settle(pilot, lambda: directory.is_dir() and list(directory.iterdir()))
        (path,) = directory.iterdir()
        assert path.name.startswith("vllm-minimax-spark1-2026")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        await svg.settle(pilot, lambda: path.read_text().endswith("line 2\n"))
        assert SECRET not in path.read_text()
        assert path.read_text().splitlines()[0].endswith("token is <masked> here")
        await svg.settle(pilot, lambda: "The log of 4 lines was saved to" in " ".join(svg.plain(stage)))


async def test_what_is_selected_is_what_is_copied() -> None:
    pane, stage = staged(feed_of(numbered(0, 5)))
    async with stage.run_test(size=(80, 20)) as pilot:
        await svg.settle(pilot, lambda: pane.log_view.visible_rows)
        await pilot.mouse_down(pane.log_view, offset=(4, 1))
        await pilot.hover(pane.log_view, offset=(5, 3))
        await pilot.mouse_up(pane.log_view, offset=(5, 3))
        await pilot.press("y")
        await svg.settle(pilot, lambda: stage.clipboard)
        assert stage.clipboard.startswith("ne 1\nline 2\nlin")
        assert not pane.log_view.is_following, "selected text must stay where it is"


async def test_a_log_that_cannot_be_saved_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file[x]"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    _, stage = staged(feed_of(numbered(0, 5)))
    async with stage.run_test(size=(120, 30), notifications=True) as pilot:
        await pilot.press("ctrl+s")
        await svg.settle(pilot, lambda: "was not saved" in " ".join(svg.plain(stage)))
        assert "XDG_STATE_HOME" in " ".join(svg.plain(stage))


async def test_the_earlier_containers_log_is_one_key_away() -> None:
    feed = feed_of(numbered(0, 5))
    pane, stage = staged(feed)
    async with stage.run_test(size=(80, 20), notifications=True) as pilot:
        await pilot.press("b")
        await svg.settle(pilot, lambda: "No earlier container" in " ".join(svg.plain(stage)))
        feed.previous = feed_of([LogLine(text="why it died")])
        pane.show(feed)
        await svg.settle(pilot, lambda: "b earlier container's" in "\n".join(svg.plain(stage)))
        await pilot.press("b")
        await svg.settle(pilot, lambda: "why it died" in "\n".join(svg.plain(stage)))
        assert "earlier container" in title(pane)
        await pilot.press("b")
        await svg.settle(pilot, lambda: "line 4" in "\n".join(svg.plain(stage)))
        assert "earlier container" not in title(pane)


async def test_another_feed_replaces_the_first() -> None:
    pane, stage = staged(feed_of(numbered(0, 50)))
    async with stage.run_test(size=(80, 20)) as pilot:
        await pilot.press("k")
        other = Feed(title="sglang @ spark2")
        other.ring.extend(numbered(0, 3, "other"))
        pane.show(other)
        await svg.settle(pilot, lambda: "other 2" in "\n".join(svg.plain(stage)))
        assert "sglang @ spark2" in title(pane)
        assert title(pane).endswith("following")


@over(
    "text, masked",
    [
        (f"HF_TOKEN={SECRET}", "HF_TOKEN=<masked>"),
        (f"using {SECRET}.", "using <masked>."),
        ("Authorization: Bearer abc.def-ghi", "Authorization: <masked>"),
        ("--api-key sk-proj-abcdefghijklmnop1234", "--api-key <masked>"),
        ("nvapi-AbCdEfGhIjKlMnOpQrStUv here", "<masked> here"),
        ("http://user:s3cretpw@host/x", "http://<masked>@host/x"),
        ('{"password": "correct horse", "a": 1}', '{"password": "<masked>", "a": 1}'),
        ("--api-key plain-value-of-it --port 8000", "--api-key <masked> --port 8000"),
        ('{"Authorization": "Basic dXNlcjpwYXNz"}', '{"Authorization": "<masked>"}'),
        ("Basic information about tokens: none", "Basic information about tokens: none"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl", "<masked>"),
        ("12.4 tokens/s, Running: 3 reqs", "12.4 tokens/s, Running: 3 reqs"),
        ("prompt tokens: 1234567 of max_tokens: 131072", "prompt tokens: 1234567 of max_tokens: 131072"),
        ("num_tokens=8192, tokenizer=/models/x", "num_tokens=8192, tokenizer=/models/x"),
        ("max_num_batched_tokens=1048576", "max_num_batched_tokens=1048576"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_a_saved_log_is_named_after_nothing_dangerous(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    first = save([ENTRY], title="../../etc/passwd\n @ x", wall_s=1_780_000_000.0, directory=directory)
    second = save([ENTRY], title="../../etc/passwd\n @ x", wall_s=1_780_000_000.0, directory=directory)
    third = save([], title="../..", wall_s=1_780_000_000.0, directory=directory)
    assert first.parent == second.parent == third.parent == directory
    assert first.name.startswith("etc-passwd-x-2026")
    assert second != first
    assert third.name.startswith("log-2026")


async def test_the_log_takes_another_themes_colours() -> None:
    pane, stage = staged(feed_of(from_remote(["plain"])))
    async with stage.run_test(size=(60, 10)) as pilot:

        def ink() -> object:
            (segment,) = (part for part in pane.log_view.render_line(0) if part.text == "plain")
            return segment.style and segment.style.color

        await svg.settle(pilot, lambda: pane.log_view.visible_rows)
        dark = ink()
        stage.theme = "sparktop-light"
        await svg.settle(pilot, lambda: ink() != dark)
