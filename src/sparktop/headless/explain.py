"""`sparktop explain`: reads files or standard input, says what is wrong in them, as text or JSON.

Standard output carries findings only; what was read, and that nothing was found, goes to standard error.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from sparktop.diagnose.explain import Explanation, together
from sparktop.diagnose.logs.decode import SNIFFED_BYTES, binary_kind
from sparktop.diagnose.logs.rules import LogRule
from sparktop.errors import UsageError
from sparktop.headless.findings import as_data, as_rows, exit_code
from sparktop.headless.paper import lines_for
from sparktop.probe.remote import mask_text

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
    """Explain these files ("-" is standard input) as one incident; the exit code.

    Raises:
        UsageError: one can't be read, or is no text; nothing was printed.
    """
    out, err = out or sys.stdout, err or sys.stderr
    read = [_explained(name, rules, stdin) for name in names or (STDIN,)]
    findings = together(read, rules)
    if as_json:
        print(json.dumps({"version": 1, "findings": [as_data(one) for one in findings]}, ensure_ascii=False), file=out)
    else:
        for line in lines_for(as_rows(findings), out):
            print(line, file=out)
    out.flush()
    if not findings:
        print(f"sparktop: {_nothing(read, len(rules))}", file=err)
    return exit_code(findings)


def _explained(name: str, rules: Sequence[LogRule], stdin: BinaryIO | None) -> Explanation:
    if name != STDIN:
        with _opened(name) as file:
            return _fed(Explanation(name, rules, mask=mask_text), file, name)
    if stdin is None:
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            raise UsageError(
                "what shall be explained? Standard input is a terminal, and no file is named", hint=_EXAMPLE
            )
        stdin = sys.stdin.buffer
    return _fed(Explanation("stdin", rules, mask=mask_text), stdin, "standard input")


def _opened(name: str) -> BinaryIO:
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


def _fed(explanation: Explanation, file: BinaryIO, name: str) -> Explanation:
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


def _nothing(read: Sequence[Explanation], rules: int) -> str:
    """One honest sentence: nothing was recognised, and what was looked at."""
    lines = sum(each.lines for each in read)
    if not lines:
        return "there was nothing to read"
    seen = list(dict.fromkeys(kind for each in read for kind in each.seen))
    what = f" of {' and '.join(seen)}" if seen else ", of no kind that is known here"
    counted = f"{lines:,} line{'' if lines == 1 else 's'}"
    return f"nothing found in {counted}{what}: {rules} log rules, the kernel's and those for documents have read it"
