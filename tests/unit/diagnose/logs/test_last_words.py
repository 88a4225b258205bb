"""The error that ended a program, by its tracebacks and its error lines."""

from __future__ import annotations

from tests.table import over

from sparktop.diagnose.logs.last_words import WORDS_CHARS, last_words
from sparktop.text.expression import Expression

ELSEWHERE = Expression("see above", is_tested=True)
TRACE = ["Traceback (most recent call last):", '  File "/x/vllm/a.py", line 3, in b', "    raise FooError("]
CORE, WORKER = (
    "(EngineCore pid=26) ERROR 11-28 00:59:26 [core.py:1510] ",
    "(Worker pid=38) ERROR 11-28 00:59:25 [m.py:9] ",
)
API = "(APIServer pid=1) INFO 11-28 00:54:14 [core_client.py:770] "
LOADS = "(Worker pid=38) INFO 11-28 00:59:27 [gpu_model_runner.py:36] Model loading took 29.04 GiB memory"
SERVES = "INFO:     Application startup complete."
LLAMA = [
    "0.00.004.009 I srv    load_model: loading model '/models/magic.gguf'",
    "0.00.007.918 E gguf_init_from_reader: invalid magic characters: 'PK??', expected 'GGUF'",
    "0.00.008.264 E llama_model_load_from_file_impl: failed to load model",
    "0.00.008.575 I srv    operator(): operator(): cleaning up before exit...",
    "0.00.009.326 E srv  llama_server: exiting due to model loading error",
]


GO = [
    "goroutine 8 [running]:",
    "main.scrape(0x4000)",
    "\t/src/gauge.go:7 +0x5c",
    "main.main()",
    "\t/src/main.go:9 +0x1a",
]
OLLAMA = 'time=2026-04-09T10:00:00Z level={} source=server.go:3 msg="{}" error="{}"'
NESTED = r"no tensor \"b\""
RUNS = "main: server is listening on http://127.0.0.1:8080"
GDB = [f"#{n}  0x00007f00 in frame_{n} ()" for n in range(30)]


def traced(prefix: str, end: str) -> list[str]:
    return [prefix + line for line in [*TRACE, end]]


@over(
    "lines, said",
    [
        (traced("", "OSError: [Errno 99] No"), "OSError: [Errno 99] No"),
        (traced("", "pkg.sub.FooError: it"), "FooError: it"),
        ([*traced("", "KeyError: 'a'"), "", "During handling of the above exception, another exception occurred:", "",
          *traced("", "OSError: no config")], "OSError: no config"),
        # Said by the innermost process, whoever ends last.
        ([*traced(WORKER, "ValueError: w"), *traced(CORE, "OSError: c"), *traced("", "RuntimeError: see above")],
         "ValueError: w"),
        # Without words the code that failed; with a message on its own line that.
        ([WORKER + '  File "/x/vllm/a.py", line 3, in b', WORKER + "    assert lines >= batch",
          WORKER + "           ^^^^^^", WORKER + "AssertionError"], "AssertionError: assert lines >= batch"),
        # A terse one with the code, of the program rather than of Python's library.
        (
            [
                *TRACE[:2],
                "    return Mode[value]",
                '  File "/usr/lib/python3.11/enum.py", line 790, in __getitem__',
                "    return cls._member_map_[name]",
                "KeyError: 'NOPE'",
            ],
            "KeyError: 'NOPE', in return Mode[value]",
        ),
        (
            [*TRACE, "yaml.ParserError: while parsing a flow sequence", '  in "/m/bad.yaml", line 1, column 8', "more"],
            'ParserError: while parsing a flow sequence in "/m/bad.yaml", line 1, column 8',
        ),
        # Its siblings write in between, and a progress bar comes late.
        ([*TRACE, API + "[shutdown] MPClient: complete", "ValueError: a"], "ValueError: a"),
        ([*traced(WORKER, "ValueError: w"), "Loading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?"],
         "ValueError: w"),
        (LLAMA, "invalid magic characters: 'PK??', expected 'GGUF'"),
        (["error: invalid argument: --max-model-len"], "invalid argument: --max-model-len"),
        (["sudo: nvq: command not found"], "nvq: command not found"),
        (["OperationalError: no such row"], "OperationalError: no such row"),
        # Go's, Rust's and C++'s: the message goes on in the next lines, a stack is none of it.
        (["panic: no room for the batch", "", *GO, 'x level=ERROR msg="gone"'], "no room for the batch"),
        (["thread 'main' panicked at src/a.rs:7:5:", "the map is empty", "note: run with `RUST_BACKTRACE=1`"],
         "thread 'main' panicked at src/a.rs:7:5: the map is empty"),
        (["terminate called after throwing an instance of 'kern::PlanError'", "  what():  no plan for 7 heads",
          *GDB], "PlanError: no plan for 7 heads"),
        (["Error: no store: it is shut", "", "Caused by:", "    no such folder (os error 2)"],
         "no store: it is shut Caused by: no such folder (os error 2)"),
        (["Error: listen EADDRINUSE: :::1", "    at Server.listen (node:net:1:1)"], "listen EADDRINUSE: :::1"),
        # A crash is told from a server that ran, and from below its stack; what its client did wrong isn't.
        ([RUNS, "x.cu:7: GGML_ASSERT(n < 9) failed", *GDB], "x.cu:7: GGML_ASSERT(n < 9) failed"),
        ([RUNS, "CUDA error: out of memory", "  in function alloc", "x.cu:9: bad", "Aborted (core dumped)", *GDB],
         "CUDA error: out of memory in function alloc"),
        ([RUNS, OLLAMA.format("ERROR", "bad request", "no such id"), OLLAMA.format("ERROR", "runner died", "signal 6")],
         "runner died: signal 6"),
        # An exit status or a lost connection says less than the error beside it.
        ([OLLAMA.format("INFO", "starts", ""), OLLAMA.format("ERROR", "do load", "Post /load: EOF"),
          OLLAMA.format("ERROR", "runner ended", "exit status 2"), OLLAMA.format("ERROR", "load", NESTED)],
         'load: no tensor "b"'),
        ([OLLAMA.format("ERROR", "runner ended", "exit status 2")], "runner ended: exit status 2"),
        ([f"0.00.1{n:02}.000 E srv  start: fault {n}" for n in range(9)], "fault 0"),
        # Shown by another program, indented, between lines that only say that it ended.
        (["  error: subprocess-exited-with-error", *traced("      ", "RuntimeError: no compiler"),
          "      [end of output]", "ERROR: Failed building wheel for fold"], "RuntimeError: no compiler"),
        (["nvcc fatal   : Value 'sm_999' is not defined", "make[1]: *** [all] Error 2", "make: *** [all] Error 2"],
         "nvcc fatal : Value 'sm_999' is not defined"),
        (["  × No solution found:", "  ╰─▶ Because fold is old"], "× No solution found: ╰─▶ Because fold is old"),
        # Without a level, where nothing else is said: what failed, and hints after it.
        (["2026/04/09 10:00:00 Failed to fold: no map", *["2026/04/09 10:00:00 If you like, read"] * 6],
         "Failed to fold: no map"),
        (["Failed to fold: no map", "error: invalid argument: --fold"], "invalid argument: --fold"),
        (["Failed to fold", "Fold 7 exited before it was flat: code 1"], "Fold 7 exited before it was flat: code 1"),
        (["E0110 21:30:54.801122 60 a.cc:9] no map", *["| a | b |"] * 9, "error: none folded"], "no map"),
        (["  nvcc -c fold.cu", "  Killed", "  ninja: build stopped"], "Killed"),
    ],
)  # fmt: skip
def test_what_it_said(lines: list[str], said: str) -> None:
    words = last_words(lines, ELSEWHERE)
    assert words is not None
    assert words.said == said
    assert said.partition(": ")[0] in lines[words.index]


@over(
    "lines",
    [
        [],
        ["nothing of the kind"],
        traced("", "RuntimeError: see above"),
        traced("WARNING 05-05 10:00:00 [import_utils.py:408] ", "RuntimeError: of an optional part"),
        [*traced(WORKER, "ValueError: retried"), LOADS],
        [*traced("", "ValueError: of a request"), SERVES],
        [
            "0.00.488.785 I srv  llama_server: listening on http://127.0.0.1:1",
            "0.07.957.827 E srv send_error: too long",
        ],
        ["error: of a build", *["and on it went"] * 20],
        ["Failed to fold: no map", *["and on it went"] * 6],
        ["Failed to fold the map, falling back to none"],
        ["-- Could not find a map"],
        ["Error while folding: timed out", "map: 100%|#######| 3.44G/3.44G [02:10<00:00, 26.4MB/s]"],
        ["| 7 | failed to fold |"],
        ["    If the map couldn't be folded."],
    ],
)
def test_what_says_nothing_of_an_end(lines: list[str]) -> None:
    assert last_words(lines, ELSEWHERE) is None


def test_a_traceback_that_was_cut_off_tells_where_and_one_that_is_being_written_nothing() -> None:
    lines = [*TRACE[:2], "    self.plan(batch)"]
    words = last_words(lines, ELSEWHERE)
    assert words is not None
    assert (words.said, words.index) == ("an error whose words are cut off, in self.plan(batch)", 2)
    assert last_words(lines, ELSEWHERE, is_over=False) is None
    assert last_words([*lines, *["another program's line"] * 9], ELSEWHERE) is None


def test_long_words_are_cut() -> None:
    words = last_words([*LLAMA[:1], "0.00.007.918 E llama_model_load: " + "word " * 60], ELSEWHERE)
    assert words is not None
    assert len(words.said) <= WORDS_CHARS
    assert " … word" in words.said


def test_of_long_words_the_end_is_told_without_folders_and_whole_symbols() -> None:
    where = "/opt/venv/lib/python3.12/site-packages/fold/" + "deep/" * 12 + "_C.abi3.so"
    words = last_words(
        [f"ImportError: the compiled part can't be had, {where}: undefined symbol: _ZN3foldEv"], ELSEWHERE
    )
    assert words is not None
    assert words.said.endswith("_C.abi3.so: undefined symbol: _ZN3foldEv")
