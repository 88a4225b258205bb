"""Who holds memory: the parts always sum to the total, and the trapped rest is told apart from the cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support import engine_of
from tests.table import over

from sparktop.model.engine import EngineKind, EngineRates, EngineState
from sparktop.model.telemetry import Gpu, GpuProcess, GpuReading, Memory, Process, ProcessTable
from sparktop.observe.memory_ledger import active_bytes, bandwidth, ledger, level

GIB = 1024**3
TOTAL = int(121.7 * GIB)


def memory(available: float, free: float, cached: float = 0.0, anon: float = 0.0, shared: float = 0.0) -> Memory:
    return Memory(
        total_bytes=TOTAL,
        available_bytes=int(available * GIB),
        free_bytes=int(free * GIB),
        cached_bytes=int(cached * GIB),
        anonymous_bytes=int(anon * GIB),
        shared_bytes=int(shared * GIB),
    )


def process(pid: int, command: str, resident: float = 0.0, shared: float = 0.0) -> Process:
    return Process(
        pid=pid,
        parent_pid=1,
        command=command,
        state="S",
        resident_bytes=int(resident * GIB),
        shared_bytes=int(shared * GIB),
    )


def gb10(*rows: tuple[int, str, float]) -> GpuReading:
    processes = tuple(GpuProcess(pid=pid, name=name, used_bytes=int(used * GIB)) for pid, name, used in rows)
    return GpuReading(boot_s=1.0, gpus=(Gpu(name="NVIDIA GB10", processes=processes),))


def test_an_engine_holds_its_gpu_bytes_and_its_private_pages() -> None:
    table = ProcessTable(
        boot_s=1.0, processes=(process(10, "VLLM::EngineCor", 3.0, 1.0), process(20, "gnome-shell", 0.5)), total_count=2
    )
    engine = engine_of(key="e", kind=EngineKind.VLLM, name="vllm-qwen", pids=(10,))
    reading = gb10((10, "VLLM::EngineCore", 61.0), (20, "/usr/bin/gnome-shell", 0.3), (30, "/opt/asr/python3", 8.0))
    told = ledger(memory(45.0, 30.0, cached=16.0, anon=4.0, shared=1.0), table, reading, [engine])
    held = {holder.label: round(holder.held_bytes / GIB, 1) for holder in told.holders}
    assert held["vllm-qwen"] == 63.0
    assert held["desktop"] == 0.8
    assert held["python3"] == 8.0
    assert held["page cache"] == 15.0
    assert told.unaccounted_bytes is not None
    assert sum(holder.held_bytes for holder in told.holders) == TOTAL


def test_a_level_has_the_ledgers_parts_stacked() -> None:
    mem = memory(45.0, 30.0, cached=16.0, anon=4.0, shared=1.0)
    engine = engine_of(key="e", kind=EngineKind.VLLM, name="vllm-qwen", pids=(10,))
    reading = gb10((10, "VLLM::EngineCore", 61.0), (30, "/opt/asr/python3", 8.0))
    held = ledger(mem, ProcessTable(boot_s=1.0, processes=(), total_count=2), reading, [engine])
    now = level(mem, held)
    assert now == 45.0 * GIB
    assert held.unaccounted_bytes is not None
    engines, processes, used, cache = now.tops
    assert engines == 61 * GIB
    assert used - processes == held.unaccounted_bytes
    assert (cache - used, TOTAL - cache) == (mem.page_cache_bytes, mem.free_bytes)
    unlisted = level(mem, ledger(mem, None, GpuReading(boot_s=1.0, gpus=(Gpu(name="NVIDIA GB10"),)), []))
    assert unlisted.tops[1] == unlisted.tops[2], "what can't be listed is not accused"


def test_memory_that_no_one_holds_is_unaccounted() -> None:
    told = ledger(
        memory(88.0, 86.0, cached=2.0, anon=0.5), ProcessTable(boot_s=1, processes=(), total_count=0), gb10(), []
    )
    assert told.unaccounted_bytes is not None
    assert 33 < told.unaccounted_bytes / GIB < 34


def test_without_a_process_list_the_rest_is_not_called_unaccounted() -> None:
    reading = GpuReading(boot_s=1.0, gpus=(Gpu(name="NVIDIA GB10", processes=None),))
    assert ledger(memory(50.0, 40.0), None, reading, []).unaccounted_bytes is None


def test_a_discrete_cards_memory_is_no_part_of_the_machines() -> None:
    card = Gpu(
        name="NVIDIA H100",
        memory_total_bytes=80 * GIB,
        processes=(GpuProcess(pid=5, name="python3", used_bytes=70 * GIB),),
    )
    told = ledger(memory(100.0, 100.0), None, GpuReading(boot_s=1.0, gpus=(card,)), [])
    assert all(holder.kind != "gpu" for holder in told.holders)


@given(
    available=st.floats(0, 121),
    free=st.floats(0, 121),
    cached=st.floats(0, 121),
    anon=st.floats(0, 200),
    used=st.floats(0, 300),
)
def test_the_parts_sum_to_the_total_whatever_is_claimed(
    available: float, free: float, cached: float, anon: float, used: float
) -> None:
    cached = min(cached, 121.6 - min(free, 121.6))
    told = ledger(memory(available, min(free, 121.6), cached, anon), None, gb10((1, "x", used)), [])
    assert abs(sum(holder.held_bytes for holder in told.holders) - TOTAL) < 10
    assert all(holder.held_bytes >= 0 for holder in told.holders)


def test_active_bytes_come_from_the_name_or_not_at_all() -> None:
    assert active_bytes("Qwen/Qwen3.6-35B-A3B-FP8") == 3e9
    assert active_bytes("openai/gpt-oss-120b") == 5.1e9 * 4.5 / 8
    assert active_bytes("meta-llama/Llama-3.1-8B-Instruct") == 16e9
    assert active_bytes("saricles/MiniMax-M2.7-NVFP4-GB10-AC") == 10e9 * 4.5 / 8
    assert active_bytes("mystery") is None


def test_bandwidth_on_gb10_is_never_a_counter() -> None:
    told = bandwidth(gb10().gpus[0], [])
    assert told.percent is None
    assert told.estimated_bytes_per_s is None
    assert told.reason == "n/a on GB10"
    assert bandwidth(None, []).reason


@over("tokens_per_s, estimate", [(14.0, 14.0 * 16e9), (31.0, None)])
def test_an_estimate_above_what_the_memory_can_do_is_none(tokens_per_s: float, estimate: float | None) -> None:
    """31 tokens/s of a dense model of 16 GB would read 496 GB/s of the 273: it doesn't read all of it for each."""
    engine = engine_of(
        key="vllm",
        kind=EngineKind.VLLM,
        name="vllm",
        state=EngineState.SERVING,
        model="meta-llama/Llama-3.1-8B-Instruct",
        rates=EngineRates(generation_tokens_per_s=tokens_per_s),
    )
    assert bandwidth(gb10().gpus[0], [engine]).estimated_bytes_per_s == estimate
