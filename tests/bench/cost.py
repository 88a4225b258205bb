"""What watching costs: CPU and memory of the probe on each node, and of the console."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.bench.lab import Lab, both_live, wait_s
from tests.bench.processes import family, process_cpu_ns, proportional_mb, resident_mb, spent
from tests.bench.table import Row, median, ratio, spread

HOW_NODE = (
    "While the console of the row below runs: nanoseconds on a CPU from /proc/PID/task/*/schedstat at both ends of "
    "a window of {window:g} s, of the probe's main process and of all that descend from it, with the time of "
    "children that ended. A process that ended shows in its parent's count of its children's page faults (cminflt, "
    "cmajflt) however short it lived, and one that stayed shows as a new pid: where neither changed, nothing was "
    "forked. NVML's own cost is not in it (stand-in module)."
)
HOW_CONSOLE = (
    "SparktopApp as the command line builds it, two hosts at 1 Hz, 120x40; {settle:g} s to settle, then user and "
    "system time of the process over {window:g} s. In turn with a Textual app of one Static that "
    "changes at 1 Hz, started by the same interpreter and measured in the same way."
)
HOW_MEMORY = (
    "PSS, in which a page shared with others counts by its share, of `sparktop HOST HOST` as a user starts it (with "
    "recording, and with what acts), {settle:g} s after the data of both hosts; in turn with the same bare app."
)


def rows(lab: Lab) -> Iterator[Row]:
    window, settle, runs = (8.0, 4.0, 1) if lab.quick else (24.0, 8.0, 3)
    main_cpu, all_cpu, forks, samples = [], [], 0, 0.0
    main_rss, all_rss, all_pss, counts = [], [], [], []
    console_cpu, console_pss, bare_cpu, bare_pss = [], [], [], []
    for _ in range(runs):
        console = lab.console("--gpu")
        try:
            console.expect(both_live, what="data of both hosts")
            wait_s(settle)
            mains = [node.probe() for node in lab.nodes]
            assert all(mains), "no probe under an sshd"
            families = [family(main) for main in mains if main]
            begun, began_ns = time.monotonic(), process_cpu_ns(console.pid)
            before = [(spent(pids[:1]), spent(pids)) for pids in families]
            wait_s(window)
            after = [(spent(pids[:1]), spent(pids)) for pids in families]
            took_s, took_ns = time.monotonic() - begun, process_cpu_ns(console.pid) - began_ns
            console_cpu.append(took_ns / 1e7 / took_s)
            for pids, (main_0, all_0), (main_1, all_1) in zip(families, before, after, strict=True):
                main_cpu.append(sum(main_1.by_pid.values()) - sum(main_0.by_pid.values()))
                new = set(family(pids[0])) - set(pids)
                gone_and_waited_for = all_1.reaped_faults != all_0.reaped_faults
                forks += len(new) + gone_and_waited_for
                of_all = sum(all_1.by_pid.values()) - sum(all_0.by_pid[pid] for pid in all_1.by_pid)
                all_cpu.append(of_all + all_1.reaped_ns - all_0.reaped_ns)
                main_cpu[-1] /= took_s * 1e7
                all_cpu[-1] /= took_s * 1e7
                samples += took_s
                main_rss.append(resident_mb(pids[0]))
                all_rss.append(sum(map(resident_mb, pids)))
                all_pss.append(sum(map(proportional_mb, pids)))
                counts.append(len(pids))
        finally:
            console.quit()
        command = lab.sparktop()
        try:
            command.expect(both_live, what="data of both hosts")
            wait_s(settle)
            console_pss.append(proportional_mb(command.pid))
        finally:
            command.quit()
        bare = lab.bare()
        try:
            bare.expect(lambda screen: "t" in screen.text(), what="the bare app")
            wait_s(settle / 2)
            begun, began_ns = time.monotonic(), process_cpu_ns(bare.pid)
            wait_s(window)
            bare_cpu.append((process_cpu_ns(bare.pid) - began_ns) / 1e7 / (time.monotonic() - begun))
            bare_pss.append(proportional_mb(bare.pid))
        finally:
            bare.end()
    how_node = HOW_NODE.format(window=window)
    how = HOW_CONSOLE.format(settle=settle, window=window)
    yield Row(
        measure="CPU on the node at 1 Hz, base probe, % of a core",
        result=spread(main_cpu, "{:.3f}"),
        goal="0.1",
        met=median(main_cpu) <= 0.1,
        how=how_node,
    )
    yield Row(
        measure=f"CPU on the node at 1 Hz, all {median(counts):.0f} of its processes",
        result=spread(all_cpu, "{:.3f}"),
        goal="0.3",
        met=median(all_cpu) <= 0.3,
        how=how_node,
    )
    yield Row(
        measure="forks per sample",
        result=f"{forks / samples:.3f} ({forks} in {samples:.0f} samples)",
        goal="0",
        met=forks == 0,
        how=how_node,
    )
    yield Row(
        measure="memory on the node, base probe, MB",
        result=spread(main_rss, "{:.1f}"),
        baseline=f"all: RSS {median(all_rss):.1f}, PSS {median(all_pss):.1f}",
        goal="16",
        met=median(main_rss) <= 16,
        how="VmRSS of the main process; of all, RSS counts a shared page in each process and PSS its share.",
    )
    yield Row(
        measure="console CPU at 1 Hz, two hosts, % of a core",
        result=spread(console_cpu),
        baseline=f"bare Textual {spread(bare_cpu)}, {ratio(median(console_cpu), median(bare_cpu))}",
        goal="2, x 4.0",
        met=median(console_cpu) <= 2 and round(median(console_cpu) / median(bare_cpu), 1) <= 4,
        how=how,
    )
    yield Row(
        measure="console memory, MB",
        result=spread(console_pss, "{:.1f}"),
        baseline=f"bare Textual {spread(bare_pss, '{:.1f}')}, {ratio(median(console_pss), median(bare_pss))}",
        goal="60",
        met=median(console_pss) <= 60,
        how=HOW_MEMORY.format(settle=settle),
    )
