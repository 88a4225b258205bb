"""Shell text as simple commands of words, each with its places in the file; variables set in it are filled in.

No shell is run: command substitutions, and variables set elsewhere, stay as they are written. Two modes: a script
(comments, operators, here-documents) and plain words (a compose file's `command`, a unit's ExecStart), where a line's
end is a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence

from sparktop.diagnose.lint.place import Word

Variables = MutableMapping[str, Sequence[Word]]
"""Of each variable its words: one for a plain one, several for an array."""

MAX_DEFAULTS = 4
"""A default within a default within a default: so deep they are filled in."""
MAX_VALUE_CHARS = 65536
"""A variable that grows beyond (a=$a$a ...) is left as it is written."""

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!-]")
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9@*#])(\[[@*]\])?(?:(:?[-=?+])(.*))?\Z", re.DOTALL)
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]{0,40}>")
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\Z")
_SCRIPT_RUN = re.compile(r"[^\s|&;()<>\\'\"$`]+")
_PLAIN_RUN = re.compile(r"[^\s\\'\"$]+")
_REDIRECTION = re.compile(r"<<<|<<-?|<>|<\(|>\(|>>|>\||[<>]&?")
_OPERATORS = "|&;()"


class UnclosedQuote(ValueError):
    """A quote that is opened and never closed; `offset` is where."""

    def __init__(self, offset: int) -> None:
        super().__init__("unclosed quote")
        self.offset = offset


def commands(source: Word, variables: Variables, *, strict: bool = False) -> Iterator[list[Word]]:
    """The simple commands of a script, one by one: what the caller sets in `variables` fills the later ones.

    Raises:
        UnclosedQuote: with `strict`, where a shell would not run the text either.
    """
    reader = _Reader(source, variables, is_script=True, strict=strict)
    while (words := reader.command()) is not None:
        if words:
            yield words


def plain_words(source: Word, variables: Variables) -> list[Word]:
    """The words of a text that no shell reads."""
    reader = _Reader(source, variables, is_script=False, strict=False)
    return reader.command() or []


def filled(source: Word, variables: Variables, *, depth: int = 0) -> Word:
    """One value with its variables filled in: quotes and spaces are its own. `depth`: within so many defaults."""
    if depth > MAX_DEFAULTS:
        return source
    reader = _Reader(source, variables, is_script=False, strict=False, depth=depth)
    text: list[str] = []
    at: list[int] = []
    while reader.position < len(source.text):
        for piece in reader.expansion() if reader.here == "$" else [reader.take()]:
            text.append(piece.text)
            at += piece.at
    return Word("".join(text), at)


class _Reader:
    """Reads one text from its start to its end."""

    def __init__(self, source: Word, variables: Variables, *, is_script: bool, strict: bool, depth: int = 0) -> None:
        self._source = source
        self._text = source.text
        self._variables = variables
        self._is_script = is_script
        self._strict = strict
        self._depth = depth
        self._heredocs: list[tuple[str, bool]] = []
        self.position = 0

    @property
    def here(self) -> str:
        return self._text[self.position : self.position + 1]

    def take(self, count: int = 1) -> Word:
        """The next characters, and past them."""
        piece = self._source.part(self.position, self.position + count)
        self.position += count
        return piece

    def command(self) -> list[Word] | None:
        """The words up to the next operator or line's end; None at the end of the text."""
        if self.position >= len(self._text):
            return None
        words: list[Word] = []
        while self.position < len(self._text):
            char = self.here
            if char == "\\" and self._text[self.position + 1 : self.position + 2] in ("\n", "\r"):
                self.position += 3 if self._text.startswith("\r\n", self.position + 1) else 2
            elif char == "\n" and self._is_script:
                self.position += 1
                self._skip_heredocs()
                return words
            elif char.isspace():
                self.position += 1
            elif char == "#" and self._is_script:
                self._skip_line()
            elif char in _OPERATORS and self._is_script:
                self.position += 1
                return words
            elif char in "<>" and self._is_script and not _PLACEHOLDER.match(self._text, self.position):
                self._redirection()
            else:
                words += self._word()
        return words

    def _skip_line(self) -> None:
        end = self._text.find("\n", self.position)
        self.position = len(self._text) if end < 0 else end

    def _skip_heredocs(self) -> None:
        for delimiter, is_indented in self._heredocs:
            while self.position < len(self._text):
                start = self.position
                self._skip_line()
                row = self._text[start : self.position].rstrip("\r")
                self.position += 1
                if (row.lstrip("\t") if is_indented else row) == delimiter:
                    break
        self._heredocs.clear()

    def _redirection(self) -> None:
        mark = _REDIRECTION.match(self._text, self.position)
        self.position = mark.end() if mark else self.position + 1
        while self.here in (" ", "\t") and self.here:
            self.position += 1
        target = self._word() if self.here and not self.here.isspace() and self.here not in _OPERATORS else []
        if mark and mark[0] in ("<<", "<<-") and target:
            self._heredocs.append((target[0].text, mark[0] == "<<-"))

    def _word(self) -> list[Word]:
        """One word as written, which variables may turn into none or several."""
        fields: list[tuple[list[str], list[int]]] = []
        is_begun = is_quoted = False

        def add(piece: Word) -> None:
            nonlocal is_begun
            if not is_begun:
                fields.append(([], []))
                is_begun = True
            fields[-1][0].append(piece.text)
            fields[-1][1].extend(piece.at)

        while char := self.here:
            if char.isspace() or (self._is_script and char in _OPERATORS):
                if char == "(" and self._is_script and len(fields) == 1:
                    match = _ARRAY.match("".join(fields[0][0]))
                    if match and not is_quoted:
                        self._array(match[1], is_longer=bool(match[2]))
                        return []
                break
            if char in "<>" and self._is_script:
                placeholder = _PLACEHOLDER.match(self._text, self.position)
                if not placeholder:
                    if len(fields) == 1 and "".join(fields[0][0]).isdecimal() and not is_quoted:
                        return []  # the descriptor of `2>`
                    break
                add(self.take(placeholder.end() - self.position))
            elif char == "\\":
                if self._text.startswith("\n", self.position + 1):
                    self.position += 2
                    continue
                self.position += 1
                add(self.take() if self.here else self._source.part(self.position - 1))
            elif char == "'":
                is_quoted = True
                add(self._single_quoted())
            elif char == '"':
                is_quoted = True
                for index, piece in enumerate(self._double_quoted()):
                    if index:
                        is_begun = False
                    add(piece)
            elif char == "$":
                if self._text.startswith("$'", self.position):
                    self.position += 1
                    continue
                for index, field in enumerate(self._split(self.expansion())):
                    if index:
                        is_begun = False
                    add(field)
            elif char == "`" and self._is_script:
                end = self._text.find("`", self.position + 1)
                add(self.take((end + 1 if end > 0 else len(self._text)) - self.position))
            else:
                run = (_SCRIPT_RUN if self._is_script else _PLAIN_RUN).match(self._text, self.position)
                add(self.take(run.end() - self.position if run else 1))
        return [Word("".join(text), at, is_quoted) for text, at in fields]

    def _split(self, pieces: list[Word]) -> list[Word]:
        """An unquoted expansion's fields."""
        if len(pieces) != 1:
            return pieces
        piece = pieces[0]
        if piece.text.startswith("$"):  # not known: it stays one word
            return [piece]
        return [piece.part(match.start(), match.end()) for match in re.finditer(r"\S+", piece.text)]

    def _single_quoted(self) -> Word:
        start = self.position
        end = self._text.find("'", start + 1)
        if end < 0:
            return self._unclosed(start)
        self.position = end + 1
        return self._source.part(start + 1, end)

    def _unclosed(self, start: int) -> Word:
        if self._strict:
            raise UnclosedQuote(start)
        self.position = len(self._text)
        return self._source.part(start + 1)

    def _double_quoted(self) -> list[Word]:
        """What stands between double quotes: one piece, several where an array is in it."""
        start = self.position
        self.position += 1
        done: list[Word] = []
        text: list[str] = []
        at: list[int] = []
        while (char := self.here) != '"':
            if not char:
                if self._strict:
                    raise UnclosedQuote(start)
                break
            if char == "\\" and self._text[self.position + 1 : self.position + 2] in ('"', "\\", "$", "`", "\n"):
                self.position += 1
                piece = self.take()
                pieces = [piece] if piece.text != "\n" else []
            elif char == "$":
                pieces = self.expansion()
            else:
                pieces = [self.take()]
            for index, piece in enumerate(pieces):
                if index:
                    done.append(Word("".join(text), at))
                    text, at = [], []
                text.append(piece.text)
                at.extend(piece.at)
        self.position += 1
        return [*done, Word("".join(text), at)]

    def expansion(self) -> list[Word]:
        """What a `$` stands for: a known variable's words, else the text as it is written."""
        start = self.position
        if self._text.startswith("$$", start):
            if self._is_script:
                return [self.take(2)]
            self.position += 2  # compose's and systemd's way to write one
            return [Word("$", [self._source.at[start]] if self._source.at else ())]
        if self._text.startswith("$(", start):
            return [self.take(self._closing(start + 1, "(", ")") - start)]
        if self._text.startswith("${", start):
            end = self._closing(start + 1, "{", "}")
            inside = self._source.part(start + 2, end - 1)
            match = _BRACED.match(inside.text)
            if match:
                known = self._known(match[1])
                rest = inside.part(match.start(4)) if match[4] is not None else Word("")
                if match[3] in (":-", "-", ":=", "=") and (known is None or (":" in match[3] and _is_empty(known))):
                    known = [filled(rest, self._variables, depth=self._depth + 1)]
                elif match[3] in (":+", "+"):
                    known = [rest] if known and not _is_empty(known) else None
                if known is not None:
                    self.position = end
                    return list(known)
            return [self.take(end - start)]
        name = _NAME.match(self._text, start + 1)
        if not name:
            return [self.take()]
        known = self._known(name[0])
        if known is None:
            return [self.take(name.end() - start)]
        self.position = name.end()
        return list(known)

    def _known(self, name: str) -> Sequence[Word] | None:
        words = self._variables.get(name)
        return None if words is None or sum(len(word.text) for word in words) > MAX_VALUE_CHARS else words

    def _closing(self, opened: int, left: str, right: str) -> int:
        depth = 0
        for index in range(opened, len(self._text)):
            if self._text[index] == left:
                depth += 1
            elif self._text[index] == right:
                depth -= 1
                if depth == 0:
                    return index + 1
        return len(self._text)

    def _array(self, name: str, *, is_longer: bool) -> None:
        """`NAME=( words )`, over several lines as they come."""
        self.position += 1
        words: list[Word] = []
        while self.here and self.here != ")":
            if self.here.isspace() or self.here in "|&;(<>":
                self.position += 1
            elif self.here == "#":
                self._skip_line()
            elif self.here == "\\" and self._text[self.position + 1 : self.position + 2] == "\n":
                self.position += 2
            else:
                words += self._word()
        self.position += 1
        before = self._variables.get(name, ()) if is_longer else ()
        self._variables[name] = [*before, *words]


def _is_empty(words: Sequence[Word]) -> bool:
    return not any(word.text for word in words)
