"""docs/bringup.md: every check of the bring-up, with what it says in each case: `make readme` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.bringup_support import Desk
from tests.unit.bringup.test_cards import CASES

from sparktop.bringup.card import Card
from sparktop.bringup.catalogue import CARDS
from sparktop.model.bringup import CHAPTER_TITLES, Chapter, CheckResult
from sparktop.model.state import State
from sparktop.sanitise import line

PAGE = Path(__file__).resolve().parents[1] / "docs" / "bringup.md"
HEAD = """# What a bring-up checks

`sparktop bringup HOST...`, or `B` in the console: how to use it is in [operating](operating.md#bringing-new-sparks-up).
Each row has the check's reason, what it looks at, and what it says of captured output in each case, with its remedy.
{count} checks; `make readme` makes this page.

**Verified on what.** On machines with systemd 257 (`tests/real`), alone and as a pair whose second ports are on one
bridge, a bring-up was played to its end. What is named here failed at first, was put right by its own remedy as it is
written, and was looked at from outside: a login by password (`install-key`), the groups docker and systemd-journal
(`join-group`), `permit-root`, linger, a published name, a pending reboot, a stopped Docker, a unit that would stay
down, clones, a port that is switched off, addresses (`set-addresses`; two networks, and what nothing declares, by hand
with `netplan try`), MTU, full packets, logins between the nodes (`ssh-mesh`), and an engine: launched, proven,
relaunched with a tool parser, exposed. Names that don't resolve: on real OpenSSH servers. `measure-link` ran between
two machines with networks, servers and cables (veth) of their own, where perftest was played: it listened, connected
and counted, hung, failed and lied. `measure-collective` ran on two real Docker Engines, with PyTorch played; the
program of `measure-power` on libraries that stand in for CUDA and cuBLAS; on machines all three say what they lack.
What only a Spark has (DGX Dashboard, fwupd's devices, CDI, ConnectX-7, RDMA, NCCL), NetworkManager, and packages that
apt would have to install: captured text alone.
"""


def page() -> str:
    """The whole page."""
    passing = {row.check: row for row in Desk().rows()}
    parts = [HEAD.format(count=len(CARDS))]
    for chapter in Chapter:
        cards = [card for card in CARDS if card.chapter is chapter]
        if cards:
            parts.append(f"\n## {CHAPTER_TITLES[chapter]}\n\n| check | looks at | says | root | sources |\n")
            parts.append("| --- | --- | --- | --- | --- |\n")
            parts += [_row(card, passing.get(card.id)) for card in cards]
    return "".join(parts)


def _row(card: Card, passing: CheckResult | None) -> str:
    says = "<br>".join(_cell(text) for text in _says(card, passing))
    cells = (f"`{card.id}`<br>{_cell(card.why)}", _cell(card.looks_at), says, card.root or "no")
    return "| " + " | ".join((*cells, _cell("; ".join(card.sources)))) + " |\n"


def _says(card: Card, passing: CheckResult | None) -> Iterator[str]:
    """What it finds, the best first; each with its remedy where it has one."""
    if passing is not None:
        yield f"passed: {passing.found}"
    seen = {passing.found} if passing is not None else set()
    states = () if passing is not None else (State.PASSED,)
    for state in (*states, State.WARNING, State.FAILED, State.SKIPPED, State.UNKNOWN):
        for check, expected, _, given in CASES:
            if check == card.id and expected is state:
                row = next(row for row in given.made().rows(check) if "spark1" in row.nodes)
                if row.found not in seen:
                    seen.add(row.found)
                    remedy = row.remedies[0] if row.remedies else None
                    what = f" → {remedy.title}{f' ({remedy.action})' if remedy.action else ''}" if remedy else ""
                    yield f"{state}: {row.found}{what}"


def _cell(text: str) -> str:
    return line(text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE.relative_to(PAGE.parents[1])} is written")


if __name__ == "__main__":
    main()
