"""The program that runs a collective inside a serving image, and what it and NCCL print. Pure.

It needs what the image has anyway: Python and PyTorch. For two ranks the bus bandwidth of an all-reduce is its size
over its time (docs/facts/bringup.md section 7: 1 GiB; what is shorter can't be judged).
"""

from __future__ import annotations

import math
import re

from sparktop import sanitise
from sparktop.bounds import json_of
from sparktop.dataclass import dataclass

SIZE_BYTES = 1 << 30
ROUNDS = 20
MARK = "SPARKTOP-ALL-REDUCE "
LIMIT_S = 240
"""After so long a rank is ended, whatever becomes of sparktop."""
PORT = 29531
PROGRAM = f"""\
import json, os, time
from datetime import timedelta
import torch
import torch.distributed as dist

def counted(name):
    total = 0
    for device in os.environ["SPARKTOP_HCAS"].split(","):
        try:
            with open("/sys/class/infiniband/" + device + "/ports/1/counters/" + name) as file:
                total += 4 * int(file.read())
        except (OSError, ValueError):
            return None
    return total

torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=timedelta(seconds=90))
data = torch.zeros({SIZE_BYTES} // 4, dtype=torch.float32, device="cuda")
for _ in range(5):
    dist.all_reduce(data)
torch.cuda.synchronize()
sent, began = counted("port_xmit_data"), time.perf_counter()
for _ in range({ROUNDS}):
    dist.all_reduce(data)
torch.cuda.synchronize()
seconds, now = time.perf_counter() - began, counted("port_xmit_data")
moved = None if sent is None or now is None else now - sent
result = {{"seconds": seconds, "rounds": {ROUNDS}, "bytes": {SIZE_BYTES}, "sent": moved}}
print("{MARK}" + json.dumps(result), flush=True)
dist.destroy_process_group()
"""
_TRANSPORT = re.compile(r"NCCL INFO (?:.*\b)?Using network (\w+)")
_USING = re.compile(r"NCCL INFO NET/(IB|Socket) : Using \[")
_TROUBLE = re.compile(r"\bNCCL WARN (.*)|^(\w*(?:Error|Exception)\b.*)|(DistStoreError.*)")
PROBLEM_CHARS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveReading:
    """What a rank's log says."""

    gbps: float | None = None
    """Bus bandwidth; None: see `problem`."""
    transport: str = ""
    """"IB" or "Socket", by NCCL's own line; empty: it printed none."""
    counted_percent: float | None = None
    """Of the bytes that the rank had to send, what its RDMA ports have counted; None: not read."""
    problem: str = ""


def parse_collective(log: str) -> CollectiveReading:
    """The result in a rank's log, with NCCL's line on its transport."""
    transport = _transport(log)
    at = log.rfind(MARK)
    if at < 0:
        return CollectiveReading(transport=transport, problem=_problem(log))
    try:
        words = json_of(log[at + len(MARK) :].partition("\n")[0])
        seconds, rounds, size = (float(words[name]) for name in ("seconds", "rounds", "bytes"))
        sent = None if words.get("sent") is None else float(words["sent"])
        gbps = 8 * rounds * size / seconds / 1e9
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return CollectiveReading(transport=transport, problem="its result can't be read")
    if not (math.isfinite(gbps) and gbps > 0):
        return CollectiveReading(transport=transport, problem="its result can't be read")
    counted = None if sent is None else round(100 * sent / (rounds * size), 1)
    return CollectiveReading(gbps=round(gbps, 2), transport=transport, counted_percent=counted)


def _transport(log: str) -> str:
    names = _TRANSPORT.findall(log) or _USING.findall(log)
    return sanitise.name(str(names[-1])) if names else ""


def _problem(log: str) -> str:
    """NCCL's last warning, else the last error, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    warnings = [match for line in lines if (match := _TROUBLE.search(line))]
    said = next(filter(None, warnings[-1].groups()), "") if warnings else lines[-1] if lines else ""
    return sanitise.line(said, limit=PROBLEM_CHARS) or "it printed nothing that can be read"
