"""What the page of a bring-up lists as changed."""

from __future__ import annotations

from typing import Any

from sparktop.documents.bringup import page_text
from sparktop.model.bringup import Changed
from sparktop.operate.audit.changes import changes_on


def run(name: str, action: str, *nodes: str, state: str | None = "done", title: str = "Reboot it") -> list[Any]:
    intent = {"kind": "intent", "run": name, "action": action, "nodes": list(nodes), "title": title, "wall_s": 10.0}
    return [intent, *([{"kind": "end", "run": name, "state": state, "wall_s": 20.0}] if state else [])]


def test_ended_runs_on_the_nodes_are_listed_without_those_that_only_look() -> None:
    entries = [
        *run("a", "reboot", "spark1"),
        *run("b", "reboot", "elsewhere"),
        *run("c", "collect-evidence", "spark1"),
        *run("d", "measure-link", "spark1", "spark2"),
        *run("e", "set-addresses", "spark1", "spark2", state="rolled back", title="Give \x1b[2J addresses"),
        *run("f", "reboot", "spark2", state=None),
        {"kind": "guard", "node": "spark1", "wall_s": 30.0},
        {"kind": "end", "run": "no intent", "state": "done", "wall_s": 5.0},
    ]
    found = changes_on(("spark1", "spark2"), entries)
    assert [(one.nodes, one.result) for one in found] == [
        (("spark1",), "done"),
        (("spark1", "spark2"), "rolled back"),
    ]
    assert "\x1b" not in found[1].title


def test_the_page_ends_with_what_was_changed() -> None:
    change = Changed(wall_s=1_779_937_964.0, nodes=("spark1",), title="Write <b> | it", result="done")
    words = {"hosts": ["spark1"], "now_wall_s": 1_779_937_964.0, "changes": [change]}
    text = page_text([], is_html=False, **words)  # type: ignore[arg-type]
    assert "## What was changed from this machine" in text
    assert "| spark1 | Write &lt;b> \\| it | done |" in text
    html = page_text([], is_html=True, **words)  # type: ignore[arg-type]
    assert "<td>Write &lt;b&gt; | it</td>" in html
    assert "changed from this machine" not in page_text([], is_html=False, hosts=["spark1"], now_wall_s=1.0)
