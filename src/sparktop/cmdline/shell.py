"""The one reader of shell text: simple commands of words that know their places, read, substituted and edited. Pure.

No shell is run. A word whose text only a shell could tell (a variable's value, a command's output, a glob) has none.
tests/unit/cmdline/test_shell_differential.py holds it against the real bash.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum

from sparktop.cmdline.source import Word, joined
from sparktop.cmdline.variables import MAX_DEFAULTS, Takes, reference_at, takes
from sparktop.dataclass import dataclass

MAX_SUBSTITUTED = 1 << 19
"""Characters that the variables of one text may become together (a=$a$a ...); the rest is left as written."""
_WORD_COST = 16
"""What a word of an array counts for, with its characters."""
MAX_NESTING = 40
"""Substitutions nested deeper than this are refused."""

_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]{0,40}>")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^]]*\])?\+?=")
_OPEN_SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[[^]]*\Z")
_ARRAY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|<>|>>|>\||[<>]&-?|[<>](?!\()")
_DESCRIPTOR = re.compile(r"(?:[0-9]{1,9}|\{[A-Za-z_][A-Za-z0-9_]*\})(?=[<>])(?![<>]\()")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|()\n]")
_SPLIT_OPERATOR = re.compile(r"[;&|<>](?:\\\n)+[;&|<>(-]")
_SCRIPT_RUN = re.compile(r"[^\s|&;()<>\\'\"$`]+")
_PLAIN_RUN = re.compile(r"[^\s\\'\"$]+")
_QUOTED_RUN = re.compile(r"[^\\\"$`]+")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_BRACED_START = re.compile(r"\$\{(?:[!#]?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*])|[@*#?$!-])[]}[:=?+%/^,@#*-]")
_BRACES = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_TILDE = re.compile(r"(?:\A|[=:])~")
_ANSI_PIECE = re.compile(
    r"[^'\\]|\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|.|\Z)", re.DOTALL
)
_FIGURES = re.compile(r"\$\(\(([\d\s()+*/%-]{1,60})\)\)")
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_ANSI_NAMES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_AFTER_GROUP = frozenset(["then", "do", "done", "fi", "esac", "else", "elif", "}", "{", "in"])
RESERVED = frozenset(["if", "then", "elif", "else", "while", "until", "do", "!", "{", "time"])
"""Words after which a command begins."""
_OPEN_QUOTE = "a quote is opened in it and never closed"
_OPEN_SUBSTITUTION = "a substitution is opened in it and never closed"


UNREAD: Sequence[Word] = (Word("$"),)
"""The words of a variable that is set, to what isn't read."""


class Variables(dict[str, Sequence[Word]]):
    """Each variable's words: one for a plain variable, several for an array."""

    def __init__(self, values: Mapping[str, Sequence[Word]] | None = None) -> None:
        super().__init__(values or {})
        self.substituted: list[int] = values.substituted if isinstance(values, Variables) else [0]
        """How much they have become; a copy, for a shell within, counts with it."""

    def words(self, name: str) -> Sequence[Word] | None:
        """A variable's words, counted as substituted; None where it isn't known, or too much has been."""
        values = self.get(name)
        if values is not None:
            self.substituted[0] += sum(len(value.text) + _WORD_COST for value in values)
        return values if self.substituted[0] <= MAX_SUBSTITUTED and values is not UNREAD else None


class Dialect(Enum):
    """Who reads a text."""

    SHELL = "a shell that runs it: what bash refuses is refused"
    DRAFT = "a lint: a quote may stay open, a line end as on Windows, `<model>` stand for a name"
    TEMPLATE = "a recipe: as a draft, without names in angles; blanks behind a line's last backslash don't count"
    PLAIN = "no shell: a compose file's command, a Dockerfile's ENV, where signs and line ends mean nothing"


_CONTINUATIONS = {
    Dialect.SHELL: re.compile(r"\\\n"),
    Dialect.DRAFT: re.compile(r"\\\r?\n"),
    Dialect.PLAIN: re.compile(r"\\\r?\n"),
    Dialect.TEMPLATE: re.compile(r"\\[ \t\r]*(?:\n|\Z)"),
}


class Unclear(ValueError):
    """A text that can't be read safely, for a reason at an offset in it."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class UnclosedQuote(Unclear):
    """A quote that is never closed; `offset` is where it opens."""

    def __init__(self, offset: int) -> None:
        super().__init__(_OPEN_QUOTE, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a word: literal characters that stand one by one from `start`, or one expansion."""

    start: int
    end: int
    text: str | None
    """None: an expansion."""
    is_quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWord:
    """One word of a command, as written."""

    start: int
    end: int
    raw: str
    pieces: tuple[Piece, ...]
    array: tuple[ShellWord, ...] | None = None
    """The words of `NAME=( words )`."""

    @property
    def text(self) -> str | None:
        """What the program receives; None where only a shell knows."""
        texts = [piece.text for piece in self.pieces if piece.text is not None]
        is_known = len(texts) == len(self.pieces) and self.array is None and not self._is_pattern
        return "".join(texts) if is_known and not _TILDE.search(self._bare) else None

    @property
    def is_open(self) -> bool:
        """Whether it may become several words, or none: unquoted variables, "$@", arrays, globs, braces."""
        return self._is_pattern or any(
            piece.text is None
            and (
                not piece.is_quoted or re.search(r"[@*!]", self.raw[piece.start - self.start : piece.end - self.start])
            )
            for piece in self.pieces
        )

    @property
    def assigned(self) -> str:
        """The variable that it assigns; empty where it is no assignment."""
        match = _ASSIGNMENT.match(self.raw.replace("\\\n", ""))
        return match[1] if match else ""

    @property
    def _bare(self) -> str:
        """Its unquoted characters; NUL for the others."""
        return "".join(
            "\0" if piece.text is None or (piece.is_quoted and not piece.text)
            else "\0" * len(piece.text) if piece.is_quoted else piece.text
            for piece in self.pieces
        )  # fmt: skip

    @property
    def _is_pattern(self) -> bool:
        bare = self._bare
        return bool(re.search(r"[*?]|\[.*\]", bare, re.DOTALL) or _BRACES.search(bare))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What stands between words: `;`, `&&`, a line's end; a redirection with its target."""

    start: int
    text: str
    is_redirection: bool = False


def tokens(text: str, dialect: Dialect = Dialect.SHELL) -> Iterator[ShellWord | Operator]:
    """The words and operators of a script; comments and the bodies of here-documents are skipped.

    Raises:
        Unclear: bash would refuse it, or read it in a way that isn't known here.
    """
    return _Lexer(text, dialect).tokens()


def simple_commands(text: str) -> Iterator[list[ShellWord]]:
    """The simple commands of a script, without redirections.

    Raises:
        Unclear: bash would refuse it, or read it in a way that isn't known here.
    """
    return _grouped(tokens(text))


def _grouped(tokens_: Iterable[ShellWord | Operator]) -> Iterator[list[ShellWord]]:
    words: list[ShellWord] = []
    for token in tokens_:
        if isinstance(token, ShellWord):
            words.append(token)
        elif not token.is_redirection and words:
            yield words
            words = []
    if words:
        yield words


# --- substituted, for texts that are only read


def commands(source: Word, variables: Variables, *, strict: bool = False) -> Iterator[tuple[int, list[Word]]]:
    """The simple commands of a draft, each with the offset where it begins, and with variables substituted: those that
    the caller sets meanwhile are known in later ones. What isn't known stays as written.

    Raises:
        UnclosedQuote: with `strict`, where a shell would not run the text either.
    """
    lexer = _Lexer(source.text, Dialect.DRAFT)
    for command in _grouped(lexer.tokens()):
        if words := [field for word in command for field in _fields(word, source, variables)]:
            yield command[0].start, words
    if strict and lexer.unclosed is not None:
        raise UnclosedQuote(lexer.unclosed)


def takes_arguments(text: str) -> bool:
    """Whether a script reads its own arguments, or where its file lies."""
    for word in tokens(text, Dialect.DRAFT):
        for piece in word.pieces if isinstance(word, ShellWord) else ():
            raw = word.raw[piece.start - word.start : piece.end - word.start]  # type: ignore[union-attr]
            if piece.text is None and re.match(r"\$\{?(?:[0-9@*#]|BASH_SOURCE)", raw):
                return True
            if piece.text is None and raw.startswith("$(") and takes_arguments(raw[2:-1]):
                return True
    return re.search(r"(?m)^\s*(?:shift|getopts)\b", text) is not None


def plain_words(source: Word) -> list[Word]:
    """The words of a text that no shell reads: a compose file's `command`, a Dockerfile's ENV."""
    words = (token for token in tokens(source.text, Dialect.PLAIN) if isinstance(token, ShellWord))
    return [field for word in words for field in _fields(word, source, Variables(), is_script=False)]


def filled(source: Word, variables: Variables | None = None, *, depth: int = 0) -> Word:
    """One value with its variables substituted; quotes and spaces in it are literal. `depth`: of nested defaults."""
    if depth > MAX_DEFAULTS:
        return source
    variables = Variables() if variables is None else variables
    pieces, at = list[Word](), 0
    while (start := source.text.find("$", at)) >= 0:
        end = max(start + 1, reference_at(source.text, start)[1])
        pieces += [source.part(at, start)]
        pieces += _expanded(source.part(start, end), variables, is_script=False, depth=depth)
        at = end
    return joined([*pieces, source.part(at)])


def _fields(word: ShellWord, source: Word, variables: Variables, *, is_script: bool = True) -> list[Word]:
    """The words that a word becomes; an array is assigned and becomes none."""
    if word.array is not None:
        match = _ARRAY.match(word.raw)
        name, is_longer = (match[1], bool(match[2])) if match else ("", False)
        values = [field for item in word.array for field in _fields(item, source, variables)]
        before = variables.get(name, ()) if is_longer else ()
        variables[name] = UNREAD if before is UNREAD else [*before, *values]
        return []
    fields: list[list[Word]] = []
    is_begun = has_empty_array = False
    for piece in word.pieces:
        values = [Word(piece.text or "", source.at[piece.start : piece.start + len(piece.text or "")])]
        if piece.text is None:
            raw = source.part(piece.start, piece.end)
            values = _expanded(raw, variables, is_script=is_script)
            has_empty_array |= not values
            if raw.text.endswith("-}") and not any(value.text for value in values):
                values = [raw]  # `${ARGS:-}`: nothing by default, and whatever is set
            values = values if piece.is_quoted else _split(values)
        for index, value in enumerate(values):
            if index or not is_begun:
                fields.append([])
                is_begun = True
            fields[-1].append(value)
    words = [joined(field) for field in fields]
    return [] if has_empty_array and not any(one.text for one in words) else words  # "${ARGS[@]}" is no word then


def _split(values: list[Word]) -> list[Word]:
    """The fields of an unquoted expansion."""
    if len(values) != 1 or values[0].text[:1] in ("$", "`", "<", ">"):  # unknown: it stays one word
        return values
    return [values[0].part(match.start(), match.end()) for match in re.finditer(r"\S+", values[0].text)]


def _expanded(raw: Word, variables: Variables, *, is_script: bool = True, depth: int = 0) -> list[Word]:
    """What an expansion becomes: a known variable's words, else the text as written."""
    if raw.text == "$$" and not is_script:  # how compose and systemd write a literal $
        return [raw.part(0, 1)]
    reference, _ = reference_at(raw.text, 0)
    if reference is None:
        return [_computed(raw) if is_script else raw]
    values = variables.words(reference.name)
    if values is None and reference.name in variables:
        return [raw]
    taken = takes(reference, "".join(value.text for value in values) if values else None)  # an empty array is unset
    if taken is Takes.REST:
        operand = raw.part(reference.rest_start, reference.rest_start + len(reference.rest))
        if is_script and re.fullmatch(r'"[^"\\]*"', operand.text):
            operand = operand.part(1, len(operand.text) - 1)
        inner, end = reference_at(operand.text, 0) if operand.text.startswith("${") else (None, 0)
        if inner is not None and end == len(operand.text) and depth < MAX_DEFAULTS:
            return _expanded(operand, variables, is_script=is_script, depth=depth + 1)  # `${ARGS[@]+"${ARGS[@]}"}`
        return [filled(operand, variables, depth=depth + 1)]
    if values is None:  # whether it is set isn't known
        return [raw]
    return list(values) if taken is Takes.VALUE or not values else [raw.part(0, 0)]


def _computed(raw: Word) -> Word:
    """`$((16*1024))` as its figure, at the place of the whole; as written where more than figures stand in it."""
    match = _FIGURES.fullmatch(raw.text)
    try:
        text = str(_figure(ast.parse(match[1].strip(), mode="eval").body)) if match else ""
    except (SyntaxError, ArithmeticError, LookupError, ValueError):
        return raw
    return Word(text, [*raw.at[: len(text) - 1], *raw.at[-1:]]) if 0 < len(text) <= len(raw.text) else raw


def _figure(node: ast.expr) -> int:
    """The value of an expression; what bash and Python compute differently, as of a negative figure, is refused."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if not isinstance(node, ast.BinOp):
        raise ValueError("no figures alone")
    figure = _OPERATIONS[type(node.op)](_figure(node.left), _figure(node.right))
    if not 0 <= figure < 1 << 63:
        raise ValueError("out of range")
    return figure


# --- edited


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """New words in place of a word (none: it is removed), or after it."""

    word: ShellWord
    words: tuple[str, ...]
    is_after: bool = False
    raw: str | None = None
    """Shell text to insert as it is, instead of words."""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with these edits; everything else stays as it was, to the last space."""
    pieces: list[tuple[int, int, int, str]] = []
    for number, edit in enumerate(edits):
        new = edit.raw if edit.raw is not None else shlex.join(edit.words)
        if edit.is_after:
            pieces.append((edit.word.end, edit.word.end, number, f" {new}" if new else ""))
        elif new:
            pieces.append((edit.word.start, edit.word.end, number, new))
        else:
            pieces.append((_gap_before(text, edit.word.start), edit.word.end, number, ""))
    for start, end, _, new in sorted(pieces, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _gap_before(text: str, start: int) -> int:
    """Where the white space before a word begins, continued lines included."""
    while start > 0:
        if text[start - 1] in " \t":
            start -= 1
        elif text[start - 2 : start] == "\\\n":
            start -= 2
        else:
            break
    return start


def is_shell(program: str) -> bool:
    """Whether the program runs the string after its -c."""
    return program.rpartition("/")[2] in ("bash", "sh", "dash", "ash", "zsh", "su", "runuser")


def script_at(words: Sequence[str | None]) -> int | None:
    """The index of the string that a shell among these words runs (`bash -lc STRING`); None without one."""
    for index, word in enumerate(words[:-1]):
        if word and re.fullmatch(r"-[a-zA-Z]*c", word) and any(is_shell(earlier or "") for earlier in words[:index]):
            return index + 1
    return None


# --- the reader


class _Lexer:
    """Reads one text from start to end."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._is_draft = dialect is not Dialect.SHELL
        self._is_script = dialect is not Dialect.PLAIN
        self._is_compound = dialect in (Dialect.SHELL, Dialect.DRAFT)
        self._heredocs: list[tuple[str, bool, bool]] = []
        self._depth = 0
        self.at = 0
        self.unclosed: int | None = None
        """Where the first quote opens that is never closed."""

    def tokens(self, *, is_inside: bool = False) -> Iterator[ShellWord | Operator]:
        """Words and operators up to the end, or to the `)` that closes a substitution (`is_inside`)."""
        words: list[ShellWord] = []  # of the current command
        before = "\n"  # the operator before it
        depth, has_redirection = 0, False
        while self._skip_blanks():
            start = self.at
            if self._is_script and self._starts("#"):
                self._skip_line()
            elif self._is_script and (redirection := self._redirection()):
                has_redirection = True
                yield redirection
            elif self._is_script and (operator := _OPERATOR.match(self._text, self.at)):
                mark = operator[0]
                if self._is_compound and self._starts("((") and _are_reserved(words):
                    words.append(self._arithmetic())
                    yield words[-1]
                    continue
                self._check_operator(mark, before, words, has_redirection)
                self.at = operator.end()
                if mark == ")" and depth == 0:
                    if is_inside:
                        return
                    mark = ";;"  # of a pattern
                if mark in (";;", ";&", ";;&") and not self._is_draft and "case" not in self._text[:start]:
                    raise Unclear("a sign of `case` stands in it alone", start)
                depth += {"(": 1, ")": -1}.get(mark, 0)
                if mark == "\n":
                    self._skip_heredocs()
                is_line_end = mark == "\n" and not words and before != ")"
                before, words, has_redirection = before if is_line_end else mark, [], False
                yield Operator(start=start, text=mark)
            else:
                word = self._word()
                if before == ")" and not words and not self._is_draft and word.raw not in _AFTER_GROUP:
                    raise Unclear("a word stands behind a group", start)
                if not words and not self._is_draft and _OPEN_SUBSCRIPT.match(word.raw):
                    raise Unclear("an index in it is never closed", start)
                words.append(word)
                yield word
                if self._is_compound and word.raw == "[[" and _are_reserved(words[:-1]):
                    yield from self._test()
        if not self._is_draft:
            if is_inside:
                raise Unclear(_OPEN_SUBSTITUTION, len(self._text))
            if depth or (not words and before in ("&&", "||", "|", "|&", "(")):
                raise Unclear("it ends before its last command", len(self._text))
            if self._heredocs:
                raise Unclear("a here-document in it is never closed", len(self._text))

    def _starts(self, mark: str) -> bool:
        return self._text.startswith(mark, self.at)

    def _skip_blanks(self) -> bool:
        """Move past blanks and continued lines; whether there is more text."""
        while self.at < len(self._text):
            if self._is_blank(self._text[self.at]):
                self.at += 1
            elif continuation := self._continuation():
                self.at += continuation
            else:
                return True
        return False

    def _is_blank(self, char: str) -> bool:
        if char == "\n":
            return not self._is_script
        return char in " \t" or (self._is_draft and char.isspace())

    def _continuation(self) -> int:
        """The length of a backslash and line end here; 0 where there is none."""
        match = _CONTINUATIONS[self._dialect].match(self._text, self.at)
        return match.end() - self.at if match else 0

    def _check_operator(self, mark: str, before: str, words: list[ShellWord], has_redirection: bool) -> None:
        if self._is_draft:
            return
        if _SPLIT_OPERATOR.match(self._text, self.at + len(mark) - 1):
            raise Unclear("an operator in it is spread over two lines", self.at)
        is_empty = not words and not has_redirection
        if mark == "(":
            is_function = self._text.startswith(")", self.at + 1)
            follows_words = has_redirection or (bool(words) and words[-1].raw not in RESERVED)
            if (follows_words and not is_function) or before == ")":
                raise Unclear("a parenthesis stands in it where none may", self.at)
        elif (
            is_empty
            and before != ")"
            and (before in ("&&", "||", "|", "|&") if mark == ")" else mark not in ("\n", ";;", ";&", ";;&"))
        ):
            raise Unclear("a command is missing in it", self.at)

    def _skip_line(self) -> None:
        end = self._text.find("\n", self.at)
        self.at = len(self._text) if end < 0 else end

    def _skip_heredocs(self) -> None:
        for delimiter, is_indented, is_quoted in self._heredocs:
            is_closed = False
            while self.at < len(self._text) and not is_closed:
                row = self._row(is_quoted)
                is_closed = (row.lstrip("\t") if is_indented else row) == delimiter
            if not is_closed and not self._is_draft:
                raise Unclear("a here-document in it is never closed", len(self._text))
        self._heredocs.clear()

    def _row(self, is_quoted: bool) -> str:
        """The next line of a here-document, with those that continue it."""
        row = ""
        while True:
            start = self.at
            self._skip_line()
            row += self._text[start : self.at].rstrip("\r" if self._is_draft else "")
            self.at += 1
            is_continued = not is_quoted and (len(row) - len(row.rstrip("\\"))) % 2
            if not is_continued or self.at >= len(self._text):
                return row
            row = row[:-1]

    def _redirection(self) -> Operator | None:
        start = self.at
        if descriptor := _DESCRIPTOR.match(self._text, start):
            start = descriptor.end()
        mark = _REDIRECTION.match(self._text, start)
        if mark is None or (self._dialect is Dialect.DRAFT and _PLACEHOLDER.match(self._text, start)):
            return None
        begin, self.at = self.at, mark.end()
        if mark[0].endswith("-") and mark[0] != "<<-":
            return Operator(start=begin, text=mark[0], is_redirection=True)
        if not self._is_draft and _SPLIT_OPERATOR.match(self._text, mark.end() - 1):
            raise Unclear("an operator in it is spread over two lines", start)
        while self.at < len(self._text) and (self._text[self.at] in " \t" or self._continuation()):
            self.at += self._continuation() or 1
        if self.at >= len(self._text) or _OPERATOR.match(self._text, self.at) or self._starts("#"):
            self._refuse("a redirection in it goes nowhere", begin)
        else:
            target = self._word()
            if mark[0] in ("<<", "<<-"):
                is_quoted = any(piece.is_quoted for piece in target.pieces)
                if not self._is_draft and not is_quoted and target.text != target.raw:
                    raise Unclear("a here-document in it ends at an unusual word", begin)
                self._heredocs.append((target.text or target.raw, mark[0] == "<<-", is_quoted))
        return Operator(start=begin, text=mark[0], is_redirection=True)

    def _test(self) -> Iterator[ShellWord]:
        """The rest of a `[[ ... ]]`, whose signs are no operators."""
        while self._skip_blanks():
            if self._text[self.at] in "|&()<>\n":
                self.at += 1
                continue
            if self._starts(";"):
                break
            word = self._word()
            yield word
            if word.raw == "]]":
                return
        self._refuse("a test in it is never closed", len(self._text))

    def _arithmetic(self) -> ShellWord:
        """`(( ... ))`, a word that nobody receives."""
        start = self.at
        self._closing("(", ")", 2, 2)
        piece = Piece(start=start, end=self.at, text=None)
        return ShellWord(start=start, end=self.at, raw=self._text[start : self.at], pieces=(piece,))

    def _word(self) -> ShellWord:
        start = self.at
        pieces: list[Piece] = []
        array: tuple[ShellWord, ...] | None = None
        while self.at < len(self._text):
            char = self._text[self.at]
            if self._is_blank(char) or char == "\n":
                break
            if self._is_script and char in ";&|()<>":
                if char == "(" and self._depth < MAX_NESTING and _ARRAY.fullmatch(self._text, start, self.at):
                    self._depth += 1
                    array = self._array()
                    self._depth -= 1
                elif char in "<>" and self._text.startswith("(", self.at + 1):
                    pieces.append(self._expansion(is_quoted=False))
                    continue
                elif self._dialect is Dialect.DRAFT and (placeholder := _PLACEHOLDER.match(self._text, self.at)):
                    pieces.append(self._literal(placeholder.end() - self.at))
                    continue
                break
            if continuation := self._continuation():
                if self._text[self.at + 1 : self.at + 2] != "\n":
                    break  # blanks before the line's end
                self.at += continuation
            elif char == "\\":
                if self.at + 1 == len(self._text) and not self._is_draft:
                    raise Unclear("it ends in a backslash", self.at)
                self.at += self.at + 1 < len(self._text)
                pieces.append(self._literal(1, is_quoted=True))
            elif char == "'":
                pieces.append(self._single_quoted())
            elif char == '"':
                pieces += self._double_quoted()
            elif self._is_script and self._starts("$'"):
                pieces += self._ansi_quoted()
            elif self._starts("$'") or self._starts('$"'):
                self.at += 1
            elif char == "$" or (char == "`" and self._is_script):
                pieces.append(self._expansion(is_quoted=False))
            else:
                run = (_SCRIPT_RUN if self._is_script else _PLAIN_RUN).match(self._text, self.at)
                pieces.append(self._literal(run.end() - self.at if run else 1))
        end = min(self.at, len(self._text))
        return ShellWord(start=start, end=end, raw=self._text[start:end], pieces=tuple(pieces), array=array)

    def _literal(self, length: int, *, is_quoted: bool = False) -> Piece:
        start, self.at = self.at, self.at + length
        return Piece(start=start, end=self.at, text=self._text[start : self.at], is_quoted=is_quoted)

    def _open_quote(self, start: int) -> None:
        if self._dialect in (Dialect.SHELL, Dialect.TEMPLATE):
            raise UnclosedQuote(start)
        self.unclosed = start if self.unclosed is None else self.unclosed

    def _single_quoted(self) -> Piece:
        start = self.at
        end = self._text.find("'", start + 1)
        if end < 0:
            self._open_quote(start)
            end = len(self._text)
        self.at = start + 1
        piece = self._literal(end - self.at, is_quoted=True)
        self.at += 1
        return piece

    def _double_quoted(self) -> Iterator[Piece]:
        """The pieces between double quotes; one without a text at least."""
        start = self.at
        self.at += 1
        yield Piece(start=self.at, end=self.at, text="", is_quoted=True)
        while not self._starts('"'):
            if self.at >= len(self._text):
                self._open_quote(start)
                return
            char = self._text[self.at]
            if self._starts("\\\n"):
                self.at += 2
            elif char == "\\" and self._text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`"):
                self.at += 1
                yield self._literal(1, is_quoted=True)
            elif char == "$" or (char == "`" and self._is_script):
                yield self._expansion(is_quoted=True)
            else:
                run = _QUOTED_RUN.match(self._text, self.at)
                yield self._literal(run.end() - self.at if run else 1, is_quoted=True)
        self.at += 1

    def _ansi_quoted(self) -> Iterator[Piece]:
        """The pieces of `$'...'`, each escape one of its own; one without a text at least."""
        start = self.at
        self.at += 2
        yield Piece(start=self.at, end=self.at, text="", is_quoted=True)
        while piece := _ANSI_PIECE.match(self._text, self.at):
            self.at = piece.end()
            text = piece[0] if piece[0][0] != "\\" else _ansi_text(piece[0][1:])
            yield Piece(start=piece.start(), end=piece.end(), text=text, is_quoted=True)
        if self.at >= len(self._text):
            self._open_quote(start)
        self.at += 1

    def _expansion(self, *, is_quoted: bool) -> Piece:
        """The expansion here; literal where a `$` stands alone."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            self._refuse(_OPEN_SUBSTITUTION, self.at)
            piece = Piece(start=self.at, end=len(self._text), text=None)
            self.at = piece.end
        else:
            piece = self._expansion_within(is_quoted)
        self._depth -= 1
        return piece

    def _expansion_within(self, is_quoted: bool) -> Piece:
        start = self.at
        if self._starts("`"):
            self.at += 1
            while not self._starts("`"):
                if self.at >= len(self._text):
                    self._refuse(_OPEN_SUBSTITUTION, start)
                    break
                self.at += 2 if self._starts("\\") else 1
            self.at = min(self.at + 1, len(self._text))
        elif self._is_script and self._starts("$(("):
            self._closing("(", ")", 3, 2)
        elif self._text.startswith(("$(", "<(", ">("), start):
            self._substitution()
        elif self._starts("${"):
            self._braced(is_quoted=is_quoted)
        elif self._starts("$[") and not self._is_draft:
            self._closing("[", "]", 2, 1)
        elif self._starts("$\\\n") and not self._is_draft:
            raise Unclear("a variable in it is spread over two lines", start)
        elif name := _PARAMETER.match(self._text, start + 1):
            self.at = name.end()
        else:
            return self._literal(1, is_quoted=is_quoted)
        return Piece(start=start, end=self.at, text=None, is_quoted=is_quoted)

    def _refuse(self, reason: str, offset: int) -> None:
        """Refuse what bash refuses; a draft may have it."""
        if not self._is_draft:
            raise Unclear(reason, offset)

    def _substitution(self) -> None:
        """Move past `$( commands )` or `<( commands )`, read as a script is."""
        start = self.at
        if not self._is_script:
            self._closing("(", ")", 2, 1)
            return
        pending, self._heredocs = self._heredocs, []
        self.at += 2
        words = [token.raw for token in self.tokens(is_inside=True) if isinstance(token, ShellWord)]
        if not self._is_draft and ("case" in words or (pending and "\n" in self._text[start : self.at])):
            raise Unclear("a substitution in it can't be followed", start)
        self._heredocs = pending

    def _braced(self, *, is_quoted: bool) -> None:
        """Move past `${...}`."""
        start = self.at
        if not self._is_draft and not _BRACED_START.match(self._text, start):
            raise Unclear("a substitution in it can't be followed", start)
        self.at += 2
        while not self._starts("}"):
            if self.at >= len(self._text):
                self._refuse(_OPEN_SUBSTITUTION, start)
                return
            char = self._text[self.at]
            if char == "\\":
                self.at = min(self.at + 2, len(self._text))
            elif char == "'" and self._is_script:
                if is_quoted and not self._is_draft:
                    raise Unclear("a quote in a variable's default can't be followed", self.at)
                self._single_quoted()
            elif char == '"' and self._is_script:
                for _ in self._double_quoted():
                    pass
            elif char == "$" or (char == "`" and self._is_script):
                self._expansion(is_quoted=is_quoted)
            else:
                self.at += 1
        self.at += 1

    def _closing(self, left: str, right: str, opened: int, count: int) -> None:
        """Move past the sign that closes `count` brackets, `opened` characters from here."""
        start = self.at
        depth = count
        self.at += opened
        while depth:
            if self.at >= len(self._text):
                self._refuse(_OPEN_SUBSTITUTION, start)
                return
            char = self._text[self.at]
            if char in "\\'\"`" and self._is_script and not self._is_draft:
                raise Unclear("arithmetic in it can't be followed", start)
            depth += {left: 1, right: -1}.get(char, 0)
            self.at += 1
        if count == 2 and self._text[self.at - 2] != right and not self._is_draft:
            raise Unclear("arithmetic in it can't be followed", start)

    def _array(self) -> tuple[ShellWord, ...]:
        """The words of `NAME=( words )`, which may span lines."""
        opened = self.at
        self.at += 1
        words: list[ShellWord] = []
        while self._skip_blanks():
            if self._starts(")"):
                self.at += 1
                return tuple(words)
            if self._starts("#"):
                self._skip_line()
            elif self._text[self.at] in "|&;(<>\n":
                if self._text[self.at] != "\n":
                    self._refuse("an operator stands in an array", self.at)
                self.at += 1
            else:
                words.append(self._word())
        self._refuse("an array in it is never closed", opened)
        return tuple(words)


def _are_reserved(words: Sequence[ShellWord]) -> bool:
    """Whether a command may begin behind these words."""
    return all(word.raw in RESERVED or word.raw == "for" for word in words)


def _ansi_text(escape: str) -> str | None:
    """The character of an escape in `$'...'`, without its backslash; None where only the locale tells, or none does."""
    if escape in _ANSI_NAMES:
        return _ANSI_NAMES[escape]
    digits = escape.lstrip("xuU")
    try:
        number = int(digits, base=8 if digits == escape else 16)
    except ValueError:
        return None
    return chr(number) if 0 < number < 128 else None
