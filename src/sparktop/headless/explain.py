"""`sparktop explain` and `sparktop lint`: read files, find problems in them, print the findings."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sparktop import sanitise
from sparktop.diagnose.explain import Explanation, explain_together
from sparktop.diagnose.findings import as_data, firing_at, ordered
from sparktop.diagnose.lint.catalogue import check
from sparktop.diagnose.lint.user_rules import LintRule
from sparktop.diagnose.logs.decode import SNIFFED_BYTES, binary_kind
from sparktop.diagnose.logs.rule import LogRule
from sparktop.documents.finding import pages
from sparktop.errors import ConfigError, UsageError
from sparktop.headless.terminal import draw, put_json, say, width_of
from sparktop.launchspec.read.configuration import MAX_CHARS, read
from sparktop.launchspec.spec import LaunchSpec
from sparktop.masking import mask_text
from sparktop.model.finding import Finding

STDIN = "-"
_PIECE_BYTES = 1 << 20
_EXAMPLES = {
    "explain": "docker logs vllm 2>&1 | sparktop explain   ·   sparktop explain engine.log kernel.log",
    "lint": "give a compose file, a `docker run` script, a unit or a recipe: sparktop lint compose.yml start.sh",
}


def explain(names: Sequence[str], rules: Sequence[LogRule], *, as_json: bool) -> int:
    """Explain these log files ("-" is standard input) as one incident; the exit code.

    Raises:
        UsageError: a file can't be read or isn't text; nothing was printed.
    """
    explanations = [_explanation(name, rules) for name in names or (STDIN,)]
    findings = explain_together(explanations, rules)
    return _tell(findings, "" if findings else f"sparktop: {_nothing_found(explanations, len(rules))}", as_json=as_json)


def _tell(findings: Sequence[Finding], nothing: str, *, as_json: bool, indent: int | None = None) -> int:
    """Print the findings, or on standard error that there are none; the exit code."""
    if as_json:
        put_json({"findings": [as_data(finding) for finding in findings]}, indent=indent)
    elif findings:
        draw(pages(findings, width_of(sys.stdout)), sys.stdout)
    if nothing:
        say(nothing)
    return int(bool(firing_at(findings)))


def _explanation(name: str, rules: Sequence[LogRule]) -> Explanation:
    with _opened(name, "explain") as file:
        explanation = Explanation(_shown(name), rules, mask=mask_text)
        head = b""
        while piece := file.read(_PIECE_BYTES):
            if len(head) < SNIFFED_BYTES:
                head += piece[:SNIFFED_BYTES]
                _check_is_text(head, "standard input" if name == STDIN else name)
            explanation.feed(piece)
        explanation.finish()
    return explanation


def _shown(name: str) -> str:
    return "stdin" if name == STDIN else name


@contextmanager
def _opened(name: str, command: str) -> Iterator[BinaryIO]:
    """A file that a command was given, or standard input for "-".

    Raises:
        UsageError: it can't be opened or read.
    """
    example = _EXAMPLES[command]
    try:
        if name != STDIN:
            with Path(name).open("rb") as file:
                yield file
        elif sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            text = f"nothing to {command}: no file is named, and standard input is a terminal"
            raise UsageError(text, hint=example)
        else:
            yield sys.stdin.buffer
    except FileNotFoundError:
        raise UsageError(f"{name}: there is no such file", hint=example) from None
    except PermissionError:
        raise UsageError(f"{name}: no permission to read it", hint=f"sudo cat {name} | sparktop {command} -") from None
    except IsADirectoryError:
        hint = f"name the files in it: sparktop {command} {Path(name) / '*'}"
        raise UsageError(f"{name} is a directory", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}", hint=example) from error


def _check_is_text(head: bytes, name: str) -> None:
    kind = binary_kind(head)
    if kind is not None:
        hint = "give it logs, kernel messages, or the output of docker and nvidia-smi; unpack archives first"
        raise UsageError(f"{name} is {kind}", hint=hint)


def _nothing_found(explanations: Sequence[Explanation], rules: int) -> str:
    """The sentence that nothing was found, with what was read."""
    lines = sum(explanation.lines for explanation in explanations)
    if not lines:
        return f"there was nothing to read\n  {_EXAMPLES['explain']}"
    kinds = list(dict.fromkeys(kind for explanation in explanations for kind in explanation.seen))
    kinds_text = f" of {' and '.join(kinds)}" if kinds else " of an unknown kind"
    counted = f"{lines:,} line{'' if lines == 1 else 's'}"
    return (
        f"nothing found in {counted}{kinds_text}: {rules} log rules, and those for kernel and command output checked it"
    )


def lint(files: Sequence[str], *, as_json: bool, own: Sequence[LintRule] = ()) -> int:
    """Check launch files ("-" is standard input) and print the findings; the exit code.

    Raises:
        UsageError: a file can't be read.
        ConfigError: it is not a launch configuration.
    """
    specs: list[LaunchSpec] = []
    for file in files:
        name = sanitise.line(_shown(file))
        reading = read(_text(file), name)
        if reading.note:
            say(f"sparktop lint: {name}: nothing to check: {reading.note}\n  {_EXAMPLES['lint']}")
        specs += reading.specs
    findings = ordered(check(specs, mask=mask_text, own=own))
    several = "s" if len(specs) > 1 else ""
    is_clean = specs and not findings and not as_json
    nothing = f"nothing found in {len(specs)} launch configuration{several}" if is_clean else ""
    return _tell(findings, nothing, as_json=as_json, indent=1)


def _text(file: str) -> str:
    """A file's text, UTF-8 or UTF-16; undecodable bytes are replaced.

    Raises:
        UsageError: it can't be read.
        ConfigError: it is too large for a launch configuration.
    """
    limit = MAX_CHARS * 4
    with _opened(file, "lint") as opened:
        raw = opened.read(limit + 1)
    if len(raw) > limit:
        raise ConfigError(f"{file}: too large for a launch configuration", hint="sparktop explain reads logs")
    return raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8", "replace")
