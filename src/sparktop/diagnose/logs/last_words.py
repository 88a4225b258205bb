"""The error that ended a program, by the end of its log: for logs in which no rule knows the cause. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeGuard

from sparktop.dataclass import dataclass
from sparktop.diagnose.logs import engine_state
from sparktop.diagnose.logs.head import head_of
from sparktop.diagnose.logs.level import is_crash, level_of
from sparktop.text.expression import Expression

WORDS_CHARS = 118
ALL_CHARS = 1500
END_LINES = 3
"""With at most so many lines after it, an error is the last that a program said."""
AFTER_LINES = 12
"""At most so many lines follow the last error of a program that logs no traceback."""
HINT_LINES = 6
"""So many lines after an error may advise what to do."""
TERSE_CHARS = 30
"""Shorter words say little without the code that failed."""
WORD_CHARS = 24
"""A longer word of a message that is too long is cut: a symbol, a path."""
MESSAGE_LINES = 2
"""So many indented lines after an exception go on with its message."""
GAP_LINES = 4
"""Errors with at most so many other lines between them are of one failure: the first tells most."""

TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s+File "(?P<file>[^"]{1,400})", line \d+')
_LIBRARY = re.compile(r"/lib/python3[.\d]*/(?!.*(?:site|dist)-packages)|<frozen ")
_SHOWN = re.compile(r"\s+(?:× |E: |(?:ERROR|error): |Killed$)")
"""pip's and uv's own error is indented, and so is what a build shows of its programs."""
_DONE = re.compile(r"Falling back to |[^|]{0,200}100%\|")
"""A way around, or a progress bar at its end: what failed just before is overcome."""
_CHAINED = ("During handling of the above", "The above exception was")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<error>[A-Z]\w*|\w+[Ee]rror)(?:: (?P<said>.*)|:?\s*$)")
_FUNCTION = re.compile(r"^(?:[a-z]{3,4} +)?(?!\w+(?:Error|Exception):)[\w:~]{3,60}: (?:\w+\(\): |error: )?")
"""How llama.cpp begins a message: tag and function."""
_FIELD = re.compile(r"""\b(?:msg|error|err)=(?:"((?:[^"\\]|\\.){0,1000})"?|(\S+))""")
"""What a line of logfmt says."""
_GOES_ON = re.compile(r"\A(?:\s++(?!at |\d+(?:: | \|)|#|\^|\[)\S|Caused by:)")
"""How a line after an error begins that belongs to its message: no frame of its stack."""
_OF_A_PROCESS = re.compile(r"\b(?:terminated|died|crashed|panicked|error loading|failed to (?:load|start))\b")
"""Words of a server about a process of its own, or a model: no client's fault."""
_STATUS = re.compile(
    r"\b(?:exit|returned non-?zero) (?:status|code):? \d+\.?$|: EOF$|connection refused$|subprocess-exited-with-error"
    r"|^Failed building wheel|^Could not build wheels|^(?:make|ninja)\b|^Command '\["
)
"""What tells only that another process ended."""
_THROWN = re.compile(r"^terminate called after throwing an instance of '(?:\w+::)*(?P<error>\w+)'\s*(?:what\(\):)?")
_FAILURE = re.compile(
    r"(?!-- |\s|#|['\"])[^|<`]{0,200}?(?i:\b(?:failed|unable) to \w|\bcould ?n[o']t \w|\bcan ?n[o']t \w"
    r"|\bfailed with (?!result)|\bexited before\b|\bis dead\b|\b(?:crashed|aborted|killed)$)"
)
"""How a line without a level says that something failed."""
_MENDED = re.compile(
    r"(?i:\b(?:fall(?:ing|s)? ?back|ignor|skipping|retry|instead|continu|generating new|trying to resume)|\blocally$)"
)
"""The program goes on without it."""
_HINT = re.compile(
    r"(?:If |You |See |Please |Run |Try |Use |For |To |Possible |Consult |\d\. |(?i:note|hint|tip): )|\s|-+$"
)
"""A line that only helps with the error above it, or goes on with it."""
_DEEP = re.compile(r"(?:Vllm|Ray)?Worker|[A-Z]{2}\d|rank\d")
_MIDDLE = re.compile(r"EngineCore|Scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """What a program said of the error that ended it."""

    said: str
    """ "OSError: [Errno 99] Cannot assign requested address"."""
    index: int
    """Of its line, among those given."""
    is_last: bool
    """Hardly anything was logged after it."""
    words: str
    """All of it, up to ALL_CHARS."""
    hints: str = ""
    """What the next lines advise."""
    is_crash: bool = False
    """A runtime ended the process with it."""
    is_fatal: bool = False
    """That, or the program itself by its own word."""
    file: str = ""
    """The source that raised it: of the innermost frame outside Python's own library."""


@dataclass(slots=True, kw_only=True)
class _Ended:
    """A traceback's end, or an error."""

    process: str
    said: str
    index: int
    file: str = ""
    is_crash: bool = False
    """A runtime ended the process with it."""
    is_fatal: bool = False
    """That, or the program itself by its own word."""


@dataclass(slots=True, kw_only=True)
class _Process:
    """What one process has written so far."""

    is_open: bool = False
    """In a traceback."""
    indent: str = ""
    """Before each of its lines, where another program shows it: pip."""
    is_chained: bool = False
    """The next exception was raised from the last one."""
    is_library: bool = False
    """The newest frame is of Python's own library."""
    code: str = ""
    """The line of source that the newest other frame shows."""
    index: int = 0
    """Of that line."""
    file: str = ""
    last: _Ended | None = None
    """Its newest traceback's end."""
    newest: _Ended | None = None
    """That, or an error since."""


def last_words(lines: Sequence[str], elsewhere: Expression, *, is_over: bool = True) -> LastWords | None:
    """The error that ended a program; None where its log tells of none, or of work since.

    Of several processes the innermost one knows the cause, by what it said first; of exceptions raised from one another
    the last has the most words; without a traceback it is the first of the errors at the end.

    Args:
        lines: the end of its log, without wrapping.
        elsewhere: words which say that the reason stands elsewhere.
        is_over: nothing follows, so a traceback without its end was cut.
    """
    processes: dict[str, _Process] = {}
    ended: list[_Ended] = []
    errors: list[_Ended] = []
    failures: list[_Ended] = []
    is_up = False
    for index, text in enumerate(lines):
        work = engine_state.work_of(text)
        head = head_of(text)
        if _DONE.match(text):
            errors, failures = [], []
        if work is not None:
            is_whole = work.begins or work.serves
            processes = {} if is_whole else processes
            # A progress bar may come late: another process's error stands.
            ended = [] if is_whole else [end for end in ended if end.process != head.process]
            errors, failures = [], []
            is_up = work.serves or (is_up and not work.begins)
            continue
        body = text[head.stop :]
        is_shown = body[:1].isspace() and not head.level and _SHOWN.match(body) is None
        level = None if is_shown else level_of(text if head.level else body.lstrip())
        if level in ("warning", "info", "debug"):
            continue
        process = processes.setdefault(head.process, _Process())
        if process.is_open:
            body = body.removeprefix(process.indent)
        frame = _FRAME.match(body)
        if TRACEBACK in body or frame is not None:
            if frame is None:
                process.indent = body[: len(body) - len(body.lstrip())]
            process.is_open = True
            process.is_library = _LIBRARY.search(body) is not None
            if frame is not None and not process.is_library:
                process.file = frame["file"]
        elif body.startswith(_CHAINED):
            process.is_chained = True
        elif process.is_open and (not body.strip() or body[0].isspace()):
            if not process.is_library and any(map(str.isalnum, body)) and not body.lstrip().startswith("raise"):
                process.code, process.index = body.strip(), index
        elif process.is_open:
            match = _EXCEPTION.match(body)
            if match is not None and elsewhere.search(body) is None:
                said = f"{match['error']}: {match['said'] or process.code}"
                if match["said"] and process.code and len(said) < TERSE_CHARS:
                    said += f", in {process.code}"
                if process.is_chained and process.last is not None:
                    process.last.said, process.last.index, process.last.file = said, index, process.file
                else:
                    process.last = process.newest = _Ended(
                        process=head.process, said=said, index=index, file=process.file
                    )
                    ended.append(process.last)
            process.is_open = process.is_chained = False
            process.code = process.file = ""
        elif _goes_on(process.newest, body, index):
            process.newest.said += f" {body.strip()}"
        elif level in ("error", "critical") and elsewhere.search(body) is None:
            process.newest = _Ended(
                process="", said=_message(body), index=index, is_crash=is_crash(body), is_fatal=level == "critical"
            )
            errors.append(process.newest)
        elif level is None and _FAILURE.match(body) and _MENDED.search(body) is None and elsewhere.search(body) is None:
            process.newest = _Ended(process="", said=_message(body), index=index)
            failures.append(process.newest)
    for process in processes.values() if is_over and not ended else ():
        if process.is_open and process.code and _written_between(lines, process.index, len(lines)) <= END_LINES:
            said = f"an error whose words are cut off, in {process.code}"
            ended.append(_Ended(process="", said=said, index=process.index, file=process.file))
    if ended:
        words: _Ended | None = max(ended, key=lambda end: _depth(end.process))
    else:  # a server that runs logs its clients' errors too
        if is_up and not any(error.is_crash for error in errors):
            errors = [error for error in errors if _OF_A_PROCESS.search(error.said)]
        told = [error for error in errors if _STATUS.search(error.said) is None]
        words = next(iter(_last_failure(told or errors, lines)), None)
        words = words or max(_last_failure(failures, lines, END_LINES), key=lambda one: len(one.said), default=None)
    if words is None:
        return None
    all_words = " ".join(_THROWN.sub(r"\g<error>: ", words.said).split()).rstrip(": ")[:ALL_CHARS]
    return LastWords(
        said=shortened(all_words),
        index=words.index,
        is_last=_written_after(lines, words.index) <= END_LINES,
        words=all_words,
        hints=" ".join(filter(_HINT.match, islice(_bodies(lines, words.index), HINT_LINES))),
        is_crash=words.is_crash,
        is_fatal=words.is_fatal,
        file=words.file,
    )


def last_line(lines: Sequence[str]) -> LastWords | None:
    """The last line of a program that somebody else says has failed, whatever it is; None where it said nothing."""
    for index in range(len(lines) - 1, -1, -1):
        said = " ".join(lines[index][head_of(lines[index]).stop :].split())
        if any(map(str.isalnum, said)):
            return LastWords(said=shortened(said), index=index, is_last=True, words=said[:ALL_CHARS])
    return None


def _goes_on(said: _Ended | None, body: str, index: int) -> TypeGuard[_Ended]:
    return (
        said is not None
        and any(map(str.isalnum, body))
        and _STATUS.search(body.lstrip()) is None
        and (said.said.endswith(":") or (index - said.index <= MESSAGE_LINES and _GOES_ON.match(body) is not None))
    )


def _message(body: str) -> str:
    fields = [quoted or bare for quoted, bare in _FIELD.findall(body)] if "msg=" in body else []
    return ": ".join(fields).replace('\\"', '"') or _FUNCTION.sub("", body, count=1).strip()


def _depth(process: str) -> int:
    return 2 if _DEEP.match(process) else 1 if _MIDDLE.match(process) else 0


def _last_failure(errors: Sequence[_Ended], lines: Sequence[str], after: int = AFTER_LINES) -> list[_Ended]:
    """The errors of the failure at the end, the first first; a crash is one, however long the stack that follows."""
    crashes = [at for at, error in enumerate(errors) if error.is_crash]
    last = crashes[0] if crashes else len(errors) - 1
    if last < 0 or (not crashes and _written_after(lines, errors[last].index) > after):
        return []
    own = [errors[last]]
    for error in reversed(errors[:last]):
        if _written_between(lines, error.index, own[0].index) > GAP_LINES:
            break
        own.insert(0, error)
    own[0].is_crash, own[0].is_fatal = bool(crashes), any(error.is_fatal for error in errors)
    return own


def _written_between(lines: Sequence[str], first: int, last: int) -> int:
    return sum(text.strip()[:1] not in ("", "|", "+") for text in lines[first + 1 : last])  # a table is one thing


def _written_after(lines: Sequence[str], index: int) -> int:
    """Lines after this one, without what belongs to it."""
    return sum(_HINT.match(body) is None for body in _bodies(lines, index))


def _bodies(lines: Sequence[str], index: int) -> Iterator[str]:
    return (text[head_of(text).stop :] for text in lines[index + 1 :] if text.strip())


def shortened(said: str) -> str:
    """Its beginning and its end: what was refused often stands last. Of a path the name, of a symbol the beginning."""
    if len(said) <= WORDS_CHARS:
        return said
    said = " ".join([_short_word(word) for word in said.split(" ")])
    if len(said) <= WORDS_CHARS:
        return said
    end = said[-WORDS_CHARS // 2 :].partition(" ")[2]
    return f"{said[: WORDS_CHARS - len(end) - 3].rsplit(' ', 1)[0]} … {end}"


def _short_word(word: str) -> str:
    name = word.rpartition("/")[2] if "://" not in word and "/" in word[:-1] else word
    return name if len(name) <= WORD_CHARS else f"{name[: WORD_CHARS - 1]}…"
