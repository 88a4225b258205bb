"""Cut a real engine's /metrics to what a stand-in repeats: python -m tests.real.stand_in_metrics VERSION <IN >OUT.

sim/spark/metrics/*.txt are made so. Histograms that nobody reads, and families about other machines, are left out.
"""

from __future__ import annotations

import re
import sys

READ = ("time_to_first_token_seconds", "inter_token_latency_seconds", "iteration_tokens_total")
LEFT_OUT = re.compile(
    r"(sglang:)?(scheduler_stage|dp_attention|eplb|unfinished|routing_key|startup|swa_|mamba_|num_decode_|num_prefill_"
    r"|prealloc|pending_|spec_|graph_memory|num_unique|num_pages|page_size|prefill_effective)|python_gc"
)


def cut(text: str) -> str:
    """The samples and comments that stay, without what changes with each process."""
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    kept = []
    for line in text.splitlines():
        name = line.split()[2] if line.startswith("#") else re.split(r"[{ ]", line)[0]
        family = re.sub(r"_(bucket|count|sum|created)$", "", name)
        is_unread = types.get(family, types.get(name)) == "histogram" and not family.endswith(READ)
        is_whole = family.endswith("iteration_tokens_total") and name.endswith("_bucket")
        other = 'is_streaming="false"' in line and family.endswith(READ)
        if not (is_unread or is_whole or other or name.endswith("_created") or LEFT_OUT.match(name)):
            kept.append(re.sub(r'pid="\d+"', 'pid="152"', line))
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    sys.stdout.write(f"# {sys.argv[1]} on a CPU with a tiny random model; see tests/real/stand_in_metrics.py.\n")
    sys.stdout.write(cut(sys.stdin.read()))
