"""The reader of shell text against the real bash, on random texts: of what it takes nothing is wrong."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import Path

import pytest

from sparktop.cmdline.shell import Edit, ShellWord, Unclear, edited, simple_commands

TEXTS = 600
Command = list[tuple[str | None, bool]]
"""(text of a word, whether it may become several or none)."""

_BLANKS = (" ", " ", " ", "  ", "\t", " \\\n ", "\\\n")
_ATOMS = (
    "a", "b7", "--flag", "--x=1", "-O3", "/m/d", "é", "0", "a=b", "=", ",", ":", "..", "%", "@", "+", "!", "^",
    "]", "}",
    "'q r'", "''", "'\"$x`\\'", "'a\nb'", "'#'", '""', '"d e"', '"\\"\\\\\\$\\`"', '"\\a\\\nb"', '"it\'s"', '"$"',
    '"$ "',
    '"a\nb"', '"{1,2}"', '"*"', "\\ ", "\\'", '\\"', "\\\\", "\\$", "\\#", "\\a", "\\*", "\\~", "\\\n", "\\;", "\\&",
    "\\<",
    "$'a\\tb'", "$'\\'\\\"\\\\'", "$'\\x41\\101\\u42'", "$'q r'", '$"l m"', '$"\\$"', '"$\'n\'"', "$", "$%", "#", "a#",
    "$X", "${X}", '"$X"', '"${X}"', "${X:-d e}", '"${X:-d e}"', "${X:-'}'}", '"${X:-}}"', "${X:+y}", '"$@"', "$@",
    '"$*"',
    "$1", "$1a", "$?", "$#", "$(c9)", '"$(c9 "x y")"', "$(c9 ')')", "`c9`", '"`c9 x`"', "$((1+2))", '"$((1<<2))"',
    "*", "?", "[ab]", "[", "{a,b}", "{1..3}", "{a}", "{", "{}", '{"a":1}', "{'a','b'}", "~", "~/a", "a=~", "x:~",
)  # fmt: skip
_ENDS = ("; ", ";", " ;", " && ", "&&", "\n", "\n\n", "\n  ", " | ", "|", " |& ", " & ", " # a 'comment\n", " #x\n")
_REDIRECTIONS = (
    ">o1", "> o1", ">>o1", "2>&1", "2>o2", "&>o3", ">&o3", "&>>o3", "</dev/null", "<<<w", "<<< 'w x'", ">|o1", "<>o1",
    "2>&-", "2>&-a", ">'o 4'", '>"o5"', "{fd}>o6", "12>o7", "a2>o8", ">o\\ 9",
)  # fmt: skip
_HEREDOC_ENDS = (
    ("E", "E", True), ("'E F'", "E F", False), ("\\E", "E", False), ('E"F"', "EF", False), ("-E", "E", True),
)  # fmt: skip
_HEREDOC_ROWS = ("$(", "`", "c8 no", "'", "\\\\", "a\\", "\tE2", "# x")
COMPOUND = (
    "case x in y) c9;; x|z) c0 a ;; esac; c1",
    "case x in\n  (x) c0 'a)' # )\nesac",
    "f() { c9; }; c2 b",
    "if [ a = a ]; then c0 a; fi; c1",
    "if [[ a < b && (x =~ (x|y)) ]]; then c0; fi",
    "for x in 1; do c0 $x; done",
    "for ((i=0; i<1; i++)); do c0 a; done",
    "while (( 0 << 1 )); do c9; done; c0",
    "(c0 a); ( c1 b ) && c2",
    "{ c0 a; } | c1",
    "! c0 a & c1",
    "X=(a 'b c' # d\n e); c0 \"${X[@]}\" ${#X[@]}",
    "X+=(a); X[1]=b c0 d",
    "c0 <(c9 a) >(c9)",
    "c0 $(c9 <<E\n)\nE\n) b",
    "c0 $(( (1+2) * 3 )) $[1+2] b",
    "A=1 B='x y' c0 $A \\\n # no\nc1",
    "c0 a)", "(c0 a", "c0 ;; c1", "c0 && && c1", "; c0", "c0 (a)", "c0 |", "c0 >", "(c0) a", "c0 'a", "c0 `a", "c0 ${a",
)  # fmt: skip
"""What random texts don't have; the last ones are refused."""
_DRIVER = r"""
command_not_found_handle() { printf '%s\0' "${@//$'\n'/$'\x02'}" $'\x01' >&250; }
for number in {1..COUNT}; do
    IFS= read -r -d '' text <$number.sh
    (cd $number && exec 250>../$number.out 2>../$number.err >/dev/null </dev/null && eval "$text"; wait)
done
"""


def random_text(rng: random.Random) -> str:
    """One to three commands, each beginning with a plain name that no program has."""
    text, bodies = "", list[str]()
    for index in range(rng.choice((1, 1, 2, 3))):
        text += f"c{index} "
        for _ in range(rng.randrange(6)):
            if rng.random() < 0.12:
                text += " " + rng.choice(_REDIRECTIONS) + " "
            elif rng.random() < 0.05:
                mark, end, is_expanded = rng.choice(_HEREDOC_ENDS)
                rows = rng.choices(_HEREDOC_ROWS[2:] if is_expanded else _HEREDOC_ROWS, k=rng.randrange(3))
                text += f" <<{mark} "
                bodies.append("".join(f"{row}\n" for row in rows) + ("\t" if mark[0] == "-" else "") + f"{end}\n")
            else:
                text += rng.choice(_BLANKS) + "".join(rng.choice(_ATOMS) for _ in range(rng.choice((1, 1, 2, 3))))
        text += "\n" + "".join(bodies) if bodies else rng.choice(_ENDS)
        bodies.clear()
    return text if rng.random() < 0.1 else text.rstrip("\n ;&|")


def bash_commands(texts: Sequence[str], folder: Path) -> list[list[list[str]] | None]:
    """The commands that bash runs for each text; None where it refuses the text."""
    for number, text in enumerate(texts, 1):
        (folder / str(number)).mkdir()
        (folder / f"{number}.sh").write_text(text)
    subprocess.run(
        [shutil.which("bash") or "bash", "--norc", "-c", _DRIVER.replace("COUNT", str(len(texts)))],
        cwd=folder, env={"PATH": "/nonexistent", "HOME": "/h", "LC_ALL": "C.UTF-8"}, check=True, timeout=60,
    )  # fmt: skip
    readings: list[list[list[str]] | None] = []
    for number in range(1, len(texts) + 1):
        rows = (folder / f"{number}.out").read_text().replace("\x02", "\n").split("\x01\0")[:-1]
        errors = (folder / f"{number}.err").read_text()
        is_refused = re.search("syntax error|unexpected EOF|bad substitution|delimited by end-of-file", errors)
        readings.append(None if is_refused else [row.split("\0")[:-1] for row in rows])
    return readings


def words_of(text: str) -> list[list[ShellWord]]:
    """The commands as read here, without what stands before a command."""
    before = ("if", "then", "do", "!", "{", "while")
    commands = (
        list(dropwhile(lambda word: word.assigned or word.raw in before, command)) for command in simple_commands(text)
    )
    return [command for command in commands if command]


def read(text: str) -> list[Command] | None:
    """The same as bash_commands; None where it is refused."""
    try:
        return [[(word.text, word.is_open) for word in command] for command in words_of(text)]
    except Unclear:
        return None


def is_same(command: Command, words: Sequence[str]) -> bool:
    """Whether bash's words are those that were read: an unknown word is any one word, an open one any number."""
    pattern = "".join(
        re.escape(text) + "\0" if text is not None else "(?:[^\0]*\0)*" if is_open else "[^\0]*\0"
        for text, is_open in command
    )
    return re.fullmatch(pattern, "".join(f"{word}\0" for word in words), re.DOTALL) is not None


def judged(commands: list[Command] | None, bash: list[list[str]] | None) -> str:
    """Whether a reading is right; commands inside substitutions (c9), and what a comment's end begins, don't count."""
    if commands is None:
        return "refused" if bash is not None else "both refuse"
    if bash is None:
        return "wrong"
    remaining = [words for words in bash if re.match("c[0-8]", words[0])]
    for command in sorted(commands, key=lambda command: command[0][0] is None):
        if not re.match("c[0-8]", command[0][0] or "c0"):
            continue
        match = next((words for words in remaining if is_same(command, words)), None)
        if match is None and command[0][0] is None:
            continue
        if match is None:
            return "wrong"
        remaining.remove(match)
    return "wrong" if remaining else "right"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_nothing_that_is_read_is_wrong(tmp_path: Path) -> None:
    rng = random.Random(20)
    texts = [*COMPOUND, *(random_text(rng) for _ in range(TEXTS))]
    counts, wrong, known, unknown = Counter[str](), list[str](), 0, 0
    for text, bash in zip(texts, bash_commands(texts, tmp_path), strict=True):
        commands = read(text)
        judgement = judged(commands, bash)
        counts[judgement] += 1
        if judgement == "wrong":
            wrong.append(f"{text!r}: bash {bash}, read {commands}")
        for command in commands or ():
            known += sum(word is not None for word, _ in command)
            unknown += sum(word is None for word, _ in command)
    assert not wrong, "\n".join(wrong[:5])
    assert counts["right"] > 0.85 * TEXTS, counts
    assert known > 2 * unknown


def test_a_word_that_is_replaced_is_the_only_one_that_changes() -> None:
    rng = random.Random(21)
    for text in (random_text(rng) for _ in range(TEXTS)):
        commands = read(text)
        words = [word for command in words_of(text) for word in command] if commands is not None else []
        if not words or "<<" in text:
            continue
        position = rng.randrange(len(words))
        after = read(edited(text, [Edit(word=words[position], words=("it's new",))]))
        expected = [pair for command in commands or () for pair in command]
        expected[position] = ("it's new", False)
        assert after is not None
        assert [pair for command in after for pair in command] == expected
