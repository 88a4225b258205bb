"""`sparktop lint`: launch configurations checked before they run, as findings in text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from sparktop import sanitise
from sparktop.diagnose.lint.reading import MAX_CHARS, read
from sparktop.diagnose.lint.rules import check
from sparktop.diagnose.lint.spec import LaunchSpec
from sparktop.diagnose.lint.userrules import LintRule
from sparktop.diagnose.order import ordered
from sparktop.errors import ConfigError
from sparktop.headless.findings import as_data, as_rows, exit_code
from sparktop.headless.paper import lines_for
from sparktop.model.finding import Finding
from sparktop.probe.remote import mask_text

STDIN = "-"


def lint(files: Sequence[str], *, as_json: bool, own: Sequence[LintRule] = ()) -> int:
    """Check the files ("-": standard input) and say what was found; design.md's exit code.

    Raises:
        ConfigError: a file can't be read, or not as a launch configuration.
    """
    specs: list[LaunchSpec] = []
    for file in files:
        name = "stdin" if file == STDIN else sanitise.line(file)
        reading = read(_text(file), name)
        if reading.note:
            print(f"sparktop lint: {name}: nothing to check: {reading.note}", file=sys.stderr)
        specs += reading.specs
    findings = ordered(check(specs, mask=mask_text, own=own))
    if as_json:
        print(
            json.dumps({"version": 1, "findings": [as_data(each) for each in findings]}, ensure_ascii=False, indent=1)
        )
    else:
        _say(findings, specs)
    return exit_code(findings)


def _say(findings: Sequence[Finding], specs: Sequence[LaunchSpec]) -> None:
    for line in lines_for(as_rows(findings), sys.stdout):
        print(line)
    if specs and not findings:
        print(f"nothing found in {len(specs)} launch configuration{'s' if len(specs) > 1 else ''}", file=sys.stderr)


def _text(file: str) -> str:
    """A file's text, UTF-8 or UTF-16; undecodable bytes are replaced.

    Raises:
        ConfigError: it can't be read, or is far too large for what it should be.
    """
    limit = MAX_CHARS * 4
    try:
        if file == STDIN:
            raw = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(file).open("rb") as opened:
                raw = opened.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}", hint="name a file that can be read, or -") from error
    if len(raw) > limit:
        raise ConfigError(f"{file}: too large for a launch configuration", hint="sparktop explain reads logs")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8", "replace")
