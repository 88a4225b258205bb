"""Recognises a log that ends in the middle of CUDA graph capture.

Pure. A stall shows in missing lines, which no rule on lines can match. Only a complete text has an end; live rules use
figures and times to tell whether a capture still moves.
"""

from __future__ import annotations

from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.change import WITHOUT_GRAPHS
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.sanitise import line as sanitise_line
from sparktop.text.expression import expression

UNFINISHED = Rule(
    id="engine.graph-capture-unfinished",
    kind=RuleKind.DOCUMENT,
    title="The log ends during CUDA graph capture",
    severity=Severity.WARNING,
    scope="vLLM and SGLang logs as a whole",
    sources=("field report 003", "vllm-project/vllm#52504", "eugr/spark-vllm-docker#35"),
)
CARDS = (UNFINISHED,)

_TAIL_CHARS = 20_000
_NEAR_LINES = 6
_COUNT = r"\d{1,3}%\|[^|]*\|\s*(?P<done>\d{1,9})/(?P<total>\d{1,9})\b"
_BAR = expression(rf"Captur[^|]{{0,170}}?{_COUNT}")
_BARE = expression(rf"^\s*{_COUNT}")
"""Older SGLang doesn't name what its bar counts; the line before does."""
_BEGUN = expression(r"Captur[^|]*graphs? begin")


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """A suspected stall if the last lines are capture bars that aren't full; None for any other text.

    A bar that moved within the last two lines was only cut off, and so was a single bar unless it is at 0.
    """
    tail = text[-_TAIL_CHARS:].rstrip()
    lines = tail.split("\n")
    begun = any(_BEGUN.search(line) for line in lines[-_NEAR_LINES:])
    last = _last_bar(lines[-1], begun)
    if last is None:
        return None
    done, total = last
    before = _last_bar(lines[-2], begun) if len(lines) > 1 else None
    if done >= total or (done and (before is None or before[0] != done)):
        return None
    return (_finding(done, total, lines[-1].split("\r")[-1], text.rstrip().count("\n") + 1, source),)


def _last_bar(line: str, begun: bool) -> tuple[int, int] | None:
    """How far the last bar of a line has come, and how far it goes."""
    state = line.rstrip("\r").split("\r")[-1]
    bars = [*_BAR.finditer(state)] or ([*_BARE.finditer(state)] if begun else [])
    if not bars:
        return None
    figures = bars[-1].groups  # redrawn bars share one line
    return int(figures["done"] or 0), int(figures["total"] or 0)


def _finding(done: int, total: int, text: str, line: int, source: str) -> Finding:
    return Finding(
        rule=UNFINISHED.id,
        severity=UNFINISHED.severity,
        confidence=Confidence.SUSPECTED,
        title=f"The log ends during CUDA graph capture, at {done} of {total}",
        explanation=(
            "The log ends with this progress bar, which isn't full. If the engine has been here for over five "
            "minutes, the capture hangs: several ranks wait for one another in an NCCL collective inside the graph. "
            "Compiling the first graph takes two or three minutes and looks the same; so does a log that was copied "
            "too early."
        ),
        settles=(
            "Whether the count changes within five minutes, and the GPU's power: near idle power with the SM busy is "
            "a deadlock, the power of real work is compilation."
        ),
        evidence=(Evidence(source=source, text=sanitise_line(text.strip(), limit=400), line=line),),
        remedies=(
            Remedy(
                title="Start without graphs: SGLang `--disable-cuda-graph`, vLLM `-cc.cudagraph_mode=NONE`",
                steps=(
                    "SGLang 0.5.23: --cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled",
                    "the variable SGLANG_DISABLE_CUDA_GRAPH does nothing",
                ),
                cost="some decode speed",
                action="relaunch",
                change=WITHOUT_GRAPHS,
            ),
            Remedy(
                title="Use NCCL 2.30.4 or later, and remove `--enable-symm-mem`",
                cost="needs a newer image",
            ),
        ),
        references=UNFINISHED.sources,
    )
