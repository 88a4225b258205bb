"""What a finding shows beside its title."""

from __future__ import annotations

from tests.table import over

from sparktop.model.event import Severity
from sparktop.model.finding import Finding


@over(
    "title, brief, shown",
    [
        ("The drivers differ: 580.142 on spark1, 580.95.05 on spark2", "580.142 and 580.95.05", False),
        ("vllm-coder is in a restart loop: 8 restarts", "8 restarts", False),
        ("The KV cache is full, and 1 request waits", "KV cache 100 %, 1 waiting", True),
        ("a on spark2 exited; spark1 waits for it", "spark2: killed (SIGKILL)", True),
        ("The container has no RDMA device", "no RDMA device", False),
    ],
)
def test_its_figures_stand_beside_its_title_where_they_say_more(title: str, brief: str, shown: bool) -> None:
    finding = Finding(rule="a.b", severity=Severity.WARNING, title=title, brief=brief)
    assert finding.figures == (brief if shown else "")
