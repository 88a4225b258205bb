"""What the code cites in docs/ is there: each page, section and id."""

from __future__ import annotations

import re
from pathlib import Path

from tests.table import over

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "docs" / "facts"
_CITED = re.compile(r"docs/facts/([a-z0-9_]+)\.md((?:[\s#]*(?:sections?\s+)?[\w.,\s-]{0,80})?)")
_SECTION = re.compile(r"(?<![\w.-])(\d{1,2}(?:\.\d{1,2})?|1[A-E])\b(?![-.]\d)")
_ID = re.compile(r"\b((?:MEM|KRN|NET|OPS)-\d{2}|C\d{1,2})\b")


def sources() -> list[Path]:
    """Every text that may cite a page of facts."""
    folders = [ROOT / name for name in ("src", "tests", "recipes", "styles")]
    found = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".toml", ".md", ".yaml")
    ]
    return [path for path in found if "cases" not in path.parts]


def citations() -> dict[tuple[str, str], str]:
    """(page, section or id) -> where it is cited first; a section is the first number after the page's name."""
    cited: dict[tuple[str, str], str] = {}
    for path in sources():
        text = re.sub(r"\n\s*(?:#\s*)?", " ", path.read_text("utf-8"))
        for match in _CITED.finditer(text):
            page, tail = (
                match[1],
                re.split(r"[A-Za-z]{4,}(?<!sections)(?<!section)", match[2].replace("section", " "))[0],
            )
            where = str(path.relative_to(ROOT))
            cited.setdefault((page, ""), where)
            for name in (*_SECTION.findall(tail), *_ID.findall(tail)):
                cited.setdefault((page, name), where)
    return cited


CITED = citations()


def test_the_code_does_cite_facts() -> None:
    assert len({page for page, _ in CITED}) >= 3
    assert len(CITED) > 40


@over("page, name", sorted(CITED))
def test_what_is_cited_is_there(page: str, name: str) -> None:
    file = FACTS / f"{page}.md"
    assert file.is_file(), CITED[page, name]
    text = file.read_text("utf-8")
    if _ID.fullmatch(name):
        assert re.search(rf"\b{name}\b", text), CITED[page, name]
    elif name:
        # A heading, or a numbered point of a section.
        assert re.search(rf"^(?:#+ {re.escape(name)}[. ]|{re.escape(name)}\. )", text, re.MULTILINE), CITED[page, name]


def test_nothing_cites_what_the_repository_does_not_have() -> None:
    for path in sources():
        if path != Path(__file__):
            assert "design" + ".md" not in path.read_text("utf-8"), path


def test_every_room_and_module_that_the_architecture_names_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    face = ""
    for line in page.split("\n"):
        row = re.match(r"\| `(\w+)` \|", line)
        face = f"{row[1]}/" if row else ""
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", line.partition("|")[2].partition("|")[2] if row else line):
            if "/" not in name and not face:
                continue
            places = [ROOT / "src" / "sparktop" / part for part in (f"{face}{name}", name)] + [ROOT / name]
            assert any(place.exists() or place.with_suffix(".py").exists() for place in places), name
