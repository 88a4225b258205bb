"""The README's moving picture: each row is seen in its frames, and what is committed can be shown."""

from __future__ import annotations

import re
from pathlib import Path

from tests.ui.moving import Frame, timeline

ROOT = Path(__file__).parents[2]


def test_a_row_is_seen_in_its_frames_and_without_animation_in_the_still_one() -> None:
    frames = [Frame("", 1.0, ("both", "one")), Frame("", 3.0, ("both", "two")), Frame("", 1.0, ("both", "one"))]
    css, body = timeline(frames, still=1)
    assert body[0] == "both", "what never changes needs no animation"
    assert len(body) == 3, "a row that comes again is there once"
    shown = dict(re.findall(r'class="(k\d+)">\n(\w+)', "\n".join(body)))
    rules = {shown[name]: rule for name in shown for rule in css if rule.startswith(f"@keyframes {name}{{")}
    assert re.findall(r"([\d.]+)%\{visibility:(\w+)", rules["one"]) == [
        ("0", "visible"), ("20", "hidden"), ("80", "visible"), ("100", "visible"),
    ]  # fmt: skip
    at_rest = {shown[line[1:3]]: "visible" in line for line in css if line.startswith(".k")}
    assert at_rest == {"one": False, "two": True}


def test_the_committed_picture_is_small_runs_no_script_and_is_in_the_readme() -> None:
    picture = ROOT / ".github" / "moving.svg"
    assert picture.stat().st_size < 2_000_000
    text = picture.read_text("utf-8")
    assert "<script" not in text
    assert "@keyframes" in text
    assert f"({picture.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf-8")
