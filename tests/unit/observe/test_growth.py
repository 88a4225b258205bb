"""Which processes take GPU memory now, and what goes through swap."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.pictures_support import GIB, engine, node
from tests.table import over

from sparktop.model.telemetry import Gpu, GpuProcess, GpuReading, Sample
from sparktop.observe.history import GrowthWatch, swap_rate


def reading(**held_gib: float) -> GpuReading:
    """p77352=40.0 is the process of that pid."""
    rows = tuple(
        GpuProcess(pid=int(name[1:]), name=f"/usr/bin/{name}", used_bytes=int(size * GIB))
        for name, size in held_gib.items()
    )
    return GpuReading(boot_s=0.0, gpus=(Gpu(name="NVIDIA GB10", processes=rows),))


def test_what_grew_is_named_by_its_engine_fastest_first() -> None:
    watch = GrowthWatch()
    for second in range(5):
        watch.saw(float(second), reading(p77352=40.0 + 6 * second, p9=2.0 + second, p11=3.0))
    fast, slow = watch.growing((engine(),))
    assert (fast.label, fast.pid) == ("vllm-qwen36", 77352)
    assert fast.bytes_per_s == pytest.approx(6 * GIB)
    assert fast.held_bytes == 64 * GIB
    assert (slow.label, slow.bytes_per_s) == ("p9", pytest.approx(GIB))


def test_a_new_process_has_grown_from_nothing_and_an_old_stretch_is_forgotten() -> None:
    watch = GrowthWatch()
    for second in range(20):
        watch.saw(float(second), reading(p5=min(30.0, 3.0 * second)))
    assert not watch.growing(())
    watch.saw(20.0, reading(p5=30.0, p6=12.0))
    assert [one.pid for one in watch.growing(())] == [6]


def test_one_reading_or_one_that_comes_late_says_nothing() -> None:
    watch = GrowthWatch()
    watch.saw(5.0, reading(p5=1.0))
    watch.saw(4.0, reading(p5=90.0))
    assert not watch.growing(())


def test_compute_and_graphics_of_one_process_are_one() -> None:
    both = reading(p5=4.0)
    rows = both.gpus[0].processes or ()
    twice = replace(both, gpus=(replace(both.gpus[0], processes=(*rows, replace(rows[0], kind="G"))),))
    watch = GrowthWatch()
    watch.saw(0.0, reading(p5=4.0))
    watch.saw(2.0, twice)
    assert not watch.growing(())


def sample(boot_s: float, out_pages: int | None, in_pages: int | None = 0) -> Sample:
    made = node().sample
    assert made is not None
    return replace(made, boot_s=boot_s, swap_out_pages=out_pages, swap_in_pages=in_pages)


@over(
    "before, now, rate",
    [
        (sample(10.0, 1000), sample(12.0, 3000, 500), 2500 * 4096 / 2),
        (sample(10.0, 1000), sample(12.0, 1000), 0.0),
        (sample(10.0, 1000), sample(12.0, 200), 0.0),
        (sample(10.0, 1000), sample(10.0, 2000), None),
        (sample(10.0, None), sample(12.0, 2000), None),
        (sample(10.0, 1000), sample(12.0, None), None),
    ],
)
def test_swap_s_traffic_is_both_ways_and_never_negative(before: Sample, now: Sample, rate: float | None) -> None:
    assert swap_rate(before, now) == rate
