"""`sparktop explain` and `sparktop lint`: read files, find problems in them, print the findings."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from sparktop import sanitise
from sparktop.diagnose.explain import Explanation, explain_together
from sparktop.diagnose.findings import as_data, ordered
from sparktop.diagnose.lint.catalogue import check
from sparktop.diagnose.lint.user_rules import LintRule
from sparktop.diagnose.logs.decode import SNIFFED_BYTES, binary_kind
from sparktop.diagnose.logs.rule import LogRule
from sparktop.documents.finding import pages
from sparktop.errors import ConfigError, UsageError
from sparktop.headless.findings import exit_code
from sparktop.headless.terminal import draw, width_of
from sparktop.launchspec.read.configuration import MAX_CHARS, read
from sparktop.launchspec.spec import LaunchSpec
from sparktop.masking import mask_text

STDIN = "-"


_PIECE_BYTES = 1 << 20


_EXAMPLE = "docker logs vllm 2>&1 | sparktop explain   ·   sparktop explain engine.log kernel.log"


def explain(
    names: Sequence[str],
    rules: Sequence[LogRule],
    *,
    as_json: bool,
    stdin: BinaryIO | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Explain these log files ("-" is standard input) as one incident; the exit code.

    Raises:
        UsageError: a file can't be read or isn't text; nothing was printed.
    """
    out, err = out or sys.stdout, err or sys.stderr
    explanations = [_explanation(name, rules, stdin) for name in names or (STDIN,)]
    findings = explain_together(explanations, rules)
    if as_json:
        print(
            json.dumps({"version": 1, "findings": [as_data(finding) for finding in findings]}, ensure_ascii=False),
            file=out,
        )
    elif findings:
        draw(pages(findings, width_of(out)), out)
    out.flush()
    if not findings:
        print(f"sparktop: {_nothing_found(explanations, len(rules))}", file=err)
    return exit_code(findings)


def _explanation(name: str, rules: Sequence[LogRule], stdin: BinaryIO | None) -> Explanation:
    if name != STDIN:
        with _open(name) as file:
            return _feed(Explanation(name, rules, mask=mask_text), file, name)
    if stdin is None:
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            raise UsageError("nothing to explain: no file is named, and standard input is a terminal", hint=_EXAMPLE)
        stdin = sys.stdin.buffer
    return _feed(Explanation("stdin", rules, mask=mask_text), stdin, "standard input")


def _open(name: str) -> BinaryIO:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UsageError(f"{name}: there is no such file", hint=_EXAMPLE) from None
    except PermissionError:
        raise UsageError(f"{name}: no permission to read it", hint=f"sudo cat {name} | sparktop explain") from None
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}", hint=_EXAMPLE) from error
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        inside = Path(name) / "*.log"
        raise UsageError(f"{name} is a directory", hint=f"name the files in it: sparktop explain {inside}")
    return os.fdopen(descriptor, "rb")


def _feed(explanation: Explanation, file: BinaryIO, name: str) -> Explanation:
    head = b""
    for piece in _pieces(file, name):
        if len(head) < SNIFFED_BYTES:
            head += piece[:SNIFFED_BYTES]
            _check_is_text(head, name)
        explanation.feed(piece)
    explanation.finish()
    return explanation


def _pieces(file: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        while piece := file.read(_PIECE_BYTES):
            yield piece
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error


def _check_is_text(head: bytes, name: str) -> None:
    kind = binary_kind(head)
    if kind is not None:
        hint = "give it logs, kernel messages, or the output of docker and nvidia-smi; unpack archives first"
        raise UsageError(f"{name} is {kind}", hint=hint)


def _nothing_found(explanations: Sequence[Explanation], rules: int) -> str:
    """The sentence that nothing was found, with what was read."""
    lines = sum(explanation.lines for explanation in explanations)
    if not lines:
        return "there was nothing to read"
    kinds = list(dict.fromkeys(kind for explanation in explanations for kind in explanation.seen))
    kinds_text = f" of {' and '.join(kinds)}" if kinds else " of an unknown kind"
    counted = f"{lines:,} line{'' if lines == 1 else 's'}"
    return (
        f"nothing found in {counted}{kinds_text}: {rules} log rules, and those for kernel and command output checked it"
    )


def lint(files: Sequence[str], *, as_json: bool, own: Sequence[LintRule] = ()) -> int:
    """Check launch files ("-" is standard input) and print the findings; the exit code.

    Raises:
        ConfigError: a file can't be read, or is not a launch configuration.
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
            json.dumps(
                {"version": 1, "findings": [as_data(finding) for finding in findings]}, ensure_ascii=False, indent=1
            )
        )
    elif findings:
        draw(pages(findings, width_of(sys.stdout)), sys.stdout)
    elif specs:
        print(f"nothing found in {len(specs)} launch configuration{'s' if len(specs) > 1 else ''}", file=sys.stderr)
    return exit_code(findings)


def _text(file: str) -> str:
    """A file's text, UTF-8 or UTF-16; undecodable bytes are replaced.

    Raises:
        ConfigError: it can't be read, or is too large for a launch configuration.
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
