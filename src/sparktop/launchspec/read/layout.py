"""The layout of a shell text: what runs only sometimes, which defaults count, where a comment cuts a command.

Nothing is run: a value in a branch, or behind a variable's default, may not be the one that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from sparktop.cmdline.shell import Dialect, Operator, ShellWord, tokens
from sparktop.cmdline.source import Document, Span, Word
from sparktop.cmdline.variables import reference_at
from sparktop.launchspec.spec import Branch, Doubt

MAX_PASSES = 20
"""Comment lines in a row that are looked behind, in the middle of a command."""
FOLDED = 2
"""More characters between two of a text's are a line's end and an indent, which YAML folded."""

_DEFAULT = re.compile(r"\$\{(?:[A-Za-z_]\w*|\d):?[-=]")
_ENDS = {"if": "fi", "case": "esac", "{": "}", "for": "done", "while": "done", "until": "done", "select": "done"}
_OPTION = re.compile(r"\s*--?[A-Za-z]")


def branches(source: Word, document: Document) -> Iterator[Branch]:
    """The branches of a script by their offsets in the document; a loop's body counts as run."""
    if len(source.at) != len(source.text) or not re.search(r"\b(?:if|case)\b|&&|\|\||\(\)", source.text):
        return
    for head, *places in _branches(source.text):
        start, end, first, last = (source.at[min(at, len(source.at) - 1)] for at in places)
        if -1 not in (start, end):
            reason = f"whether the branch in line {document.line_of(start)} runs"
            yield Branch(start=start, end=end, reason=reason, whole=(first, last), head=head)


def _branches(text: str) -> Iterator[tuple[str, int, int, int, int]]:
    """(head, start, end, start of the whole statement, its end) of each branch."""
    frames: list[tuple[str, int, list[int]]] = []  # the statement's head and start, where its branches begin
    chains: dict[int, int] = {}  # by depth: where && or || begins
    is_head, before = True, ""
    for token in tokens(text, Dialect.DRAFT):
        at, depth = token.start, len(frames)
        if isinstance(token, Operator):
            if token.is_redirection:
                continue
            if token.text in ("&&", "||"):
                chains.setdefault(depth, at)
            elif token.text not in ("|", "|&") and depth in chains:
                start = chains.pop(depth)
                yield "&&", start, at, start, at
            if token.text in (";;", ";&", ";;&") and frames and frames[-1][0] == "case":
                frames[-1][2].append(at)
            before, is_head = before if token.text == "\n" else token.text, True
            continue
        word = token.raw
        if is_head and frames and word == _ENDS[frames[-1][0]]:
            head, begin, marks = frames.pop()
            for start, end in pairwise([*marks, at]):
                yield head, start, end, begin, token.end
            is_head = False
        elif is_head and frames and frames[-1][0] == "if" and word in ("then", "elif", "else"):
            frames[-1][2].append(at)
        elif is_head and word in _ENDS:
            frames.append((word, at, [at] if word == "{" and before == ")" else []))
            is_head = word not in ("case", "for", "select")
        else:
            is_head = is_head and word in ("!", "do", "time")
        before = ""
    for start in chains.values():
        yield "&&", start, len(text), start, len(text)


def functions(source: Word) -> list[Span]:
    """Where the bodies of a script's functions begin and end, in order."""
    spans = _branches(source.text) if "()" in source.text else ()
    return sorted((start, end) for head, start, end, *_ in spans if head == "{")


def is_open(text: str) -> bool:
    """Whether a script ends within a statement: `if true; then`."""
    depth, is_head = 0, True
    for token in tokens(text, Dialect.DRAFT):
        if isinstance(token, Operator):
            is_head = is_head or not token.is_redirection
        elif is_head:
            depth += (token.raw in _ENDS) - (token.raw in _ENDS.values())
            is_head = token.raw in ("!", "{", "do", "elif", "else", "if", "then", "time", "until", "while")
    return depth > 0


@lru_cache(maxsize=4)  # once for all launches of a document
def defaults(document: Document) -> tuple[Doubt, ...]:
    """The doubts about `${NAME:-default}`, anywhere in a document."""
    return tuple(_defaults(document))


def _defaults(document: Document) -> Iterator[Doubt]:
    for match in _DEFAULT.finditer(document.text):
        reference, end = reference_at(document.text, match.start())
        if reference is not None and reference.rest:
            name = f"${reference.name}" if reference.name.isdecimal() else reference.name
            start = match.start() + reference.rest_start
            yield Doubt(start=start, end=end - 1, reason=f"whether {name} is set where this starts", variable=name)


def runs_before(found: Sequence[Branch], first: int, then: int) -> bool:
    """Whether a command at the first offset may have run when one at the other, further down, runs."""
    apart = [branch for branch in found if branch.holds(first) and not branch.holds(then)]
    return first < then and not any(
        branch.head in ("case", "{") or branch.whole[0] <= then < branch.whole[1] for branch in apart
    )


def continued(source: Word) -> tuple[Word, tuple[Span, ...]]:
    """The text as its author means it, where comments, or blanks behind a backslash, cut continued commands or lines
    that YAML folds into one; and where they do. Every offset stays."""
    cuts: list[Span] = []
    for _ in range(MAX_PASSES if len(source.at) == len(source.text) else 0):
        found = list(_cuts(source))
        text = source.text
        for start, end in found:
            cuts.append((source.at[start], source.at[end - 1] + 1))
            joint = "\\" if text.startswith("\n", end) else " "
            text = f"{text[:start]}{' ' * (end - start - 1)}{joint}{text[end:]}"
        if not found:
            break
        source = Word(text, source.at)
    return source, tuple(sorted(cuts))


def _cuts(source: Word) -> Iterator[Span]:
    text = source.text
    if not re.search(r"\s#|\\[ \t]+\n", text):
        return
    first = last = None
    for token in (*tokens(text, Dialect.DRAFT), Operator(start=len(text), text="\n")):
        if isinstance(token, ShellWord):
            first, last = first or token, token
        elif not token.is_redirection:
            if token.text == "\n" and first and last:
                yield from _cut(source, first.start, last, token.start)
            first = last = None


def _cut(source: Word, begin: int, last: ShellWord, end: int) -> Iterator[Span]:
    """Where a command is cut that begins, has this last word and ends at these places."""
    gap = source.text[last.end : end]
    comment = re.search(r"(?<=\s)#[^\n]*", gap)
    start = last.end + comment.start() if comment else end
    folds = (at for at in range(start + 1, end) if source.at[at] - source.at[at - 1] > FOLDED)
    fold = next(folds, end)
    if source.text[fold:end].strip():
        yield start, fold
    elif not _goes_on(source.text, begin, end + 1):
        return
    elif comment and (gap.endswith("\\") or "\\\n" in gap[: comment.start()]):
        yield start, end
    elif re.fullmatch(r"\\[ \t]", last.raw):
        yield last.start, end


def _goes_on(text: str, begin: int, at: int) -> bool:
    """Whether the line at this offset reads as a part of the command that begins further up."""
    row = text[at:].partition("\n")[0]
    head = text[text.rfind("\n", 0, begin) + 1 : begin]
    deeper = len(row) - len(row.lstrip()) > len(head) - len(head.lstrip())
    return bool(row.strip()) and (deeper or _OPTION.match(row) is not None)
