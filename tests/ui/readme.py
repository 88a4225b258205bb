"""The README's table of keys, from the one registry: python -m tests.ui.readme writes it."""

from __future__ import annotations

from pathlib import Path

from sparktop.ui.commands import readme_table

README = Path(__file__).resolve().parents[2] / "README.md"
START, END = "<!-- keys -->\n", "<!-- /keys -->"


def with_table(text: str) -> str:
    """The README with the table as the registry has it now."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}{readme_table()}{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
