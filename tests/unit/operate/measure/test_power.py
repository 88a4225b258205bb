"""A GPU under load: what loads it, what is read of it, and where that is refused."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pictures_support import engine, gpu, picture
from tests.plan_golden import compare_plan
from tests.runner_support import NODE, Bench, bench, is_alive, until
from tests.table import over
from tests.unit.operate.machine.machine_support import ids, planned, refused
from tests.unit.operate.measure.test_link import idle

from sparktop.model.request import Request
from sparktop.model.telemetry import GpuReading
from sparktop.operate.measure import power
from sparktop.operate.measure.gpu_load import PROGRAM, library_in, parse_load
from sparktop.operate.measure.power_run import (
    BUSY,
    CLOCK,
    HEAT,
    POWER,
    THROTTLED,
    MeasurePower,
    power_result,
)

LIBRARY = "/usr/local/cuda/lib64/libcublas.so.13"
FOUND = {"find -L /usr/local/cuda/lib64": f"{LIBRARY}\n"}
REQUEST = Request(action="measure-power", nodes=("spark1", "spark2"))


def test_one_gpu_after_the_other_is_loaded() -> None:
    plan = planned(power, REQUEST, picture(idle(), idle("spark2")), outputs=FOUND)
    compare_plan("measure-power", plan)
    assert ids(plan) == ["load@spark1", "load@spark2"]


def test_it_is_refused_where_an_engine_is_loaded_or_nothing_loads_the_gpu() -> None:
    loaded = idle(engines=(engine("vllm-a", running=0.0),))
    assert "vllm-a is loaded on spark1" in refused(planned(power, REQUEST, picture(loaded, idle("spark2"))))
    plan = planned(power, REQUEST, picture(idle(), idle("spark2")), outputs={"find": ""})
    assert refused(plan) == "spark1 and spark2 have no cuBLAS to load the GPU with"


@over(
    "listed, library",
    [
        (f"{LIBRARY}.1.0.3\n{LIBRARY}\n/usr/local/cuda/lib64/libcublas.so.12\n", LIBRARY),
        ("/usr/lib/aarch64-linux-gnu/libcublas.so.9\n", "/usr/lib/aarch64-linux-gnu/libcublas.so.9"),
        ("/tmp/libcublas.so.99\n", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_the_newest_library_of_the_usual_folders_is_taken(listed: str | None, library: str) -> None:
    assert library_in(listed) == library


@over(
    "said, problem, tflops, why",
    [
        ('SPARKTOP-GPU-LOAD {"rounds": 1200, "seconds": 12.04}\n', "", 13.70, ""),
        ("", "timeout exited with 1: libcublas.so.13: cannot open shared object file", None, "cannot open shared"),
        ('SPARKTOP-GPU-LOAD {"failed": "cublasCreate_v2", "code": 3}\n', "", None, "cublasCreate_v2 failed with 3"),
        ('SPARKTOP-GPU-LOAD {"failed": ["x"], "code": {}}\n', "", None, "failed with"),
        ('SPARKTOP-GPU-LOAD {"rounds": 0, "seconds": 12.04}\n', "", None, "can't be read"),
        ('SPARKTOP-GPU-LOAD {"rounds": 5', "", None, "can't be read"),
        ("", "", None, "printed no result"),
    ],
)
def test_what_the_program_printed(said: str, problem: str, tflops: float | None, why: str) -> None:
    reading = parse_load(said, problem)
    assert reading.tflops == tflops
    assert why in reading.problem


@given(st.text(max_size=100))
def test_any_output_is_a_figure_or_a_reason(text: str) -> None:
    for said in (text, f"SPARKTOP-GPU-LOAD {text}"):
        reading = parse_load(said, text)
        assert (reading.tflops is None) == bool(reading.problem)


def test_the_highest_figures_under_load_are_kept() -> None:
    reading = parse_load('SPARKTOP-GPU-LOAD {"rounds": 1200, "seconds": 12.0}', "")
    seen = [gpu(0.0, 11.0, 2800), gpu(96.0, 12.4, 611), gpu(95.0, 12.0, 650, throttle_reasons=("hw thermal slowdown",))]
    result = power_result(reading, seen)
    assert result.ok
    assert {name: result.figures[name] for name in (BUSY, CLOCK, POWER, HEAT, THROTTLED)} == {
        BUSY: 96.0, CLOCK: 650, POWER: 12.4, HEAT: 56, THROTTLED: "hw thermal slowdown",
    }  # fmt: skip
    assert not power_result(reading, []).ok
    assert not power_result(reading, [gpu(sm_clock_mhz=None)]).ok


# --- the program, on libraries that stand in for NVIDIA's

CUDA = "".join(
    f"int {name}() {{ return FAIL; }}\n"
    for name in ("cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemcpyHtoD_v2", "cuCtxSynchronize")
)
ALLOC = "int cuMemAlloc_v2(unsigned long long *at, unsigned long size) { *at = size; return size != 4096ul*4096*4; }\n"
CUBLAS = """
#include <unistd.h>
int cublasCreate_v2(void **handle) { *handle = (void *)1; return 0; }
int cublasSgemm_v2(void *handle, int a, int b, int m, int n, int k, const float *one, const void *x, int lx,
                   const void *y, int ly, const float *none, void *out, int lo) {
    usleep(1000);
    return handle != (void *)1 || m != 4096 || lo != 4096 || *one != 1.0f || *none != 0.0f || x == 0 || out == 0;
}
"""


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder with libcuda.so.1, libcublas.so.13 and a python3 that finds the first."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here: apt-get install gcc")
    for name, text in (("libcuda.so.1", CUDA + ALLOC), ("libcublas.so.13", CUBLAS)):
        source = tmp_path / f"{name}.c"
        source.write_text(text)
        define = "-DFAIL=0"
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", define, "-o", str(tmp_path / name), str(source)], check=True)
    wrapper = tmp_path / "python3"
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={tmp_path} exec /usr/bin/python3 "$@"\n')
    wrapper.chmod(0o755)
    return tmp_path


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "state") as made:
        yield made


def act_of(libraries: Path, seconds: int = 1, limit_s: int = 20) -> MeasurePower:
    return MeasurePower(library=str(libraries / "libcublas.so.13"), seconds=seconds, limit_s=limit_s)


async def test_the_program_loads_and_the_samples_are_read_meanwhile(
    stage: Bench, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{libraries}:/usr/bin:/bin")
    line = await stage.line()
    looks = 0

    def seen() -> Any:
        nonlocal looks
        looks += 1
        made = gpu(util=0.0, processes=()) if looks == 1 else gpu(util=96.0, sm_mhz=2398, power_w=83.5)
        return replace(picture(idle(NODE)), nodes=(idle(NODE, gpu=GpuReading(boot_s=float(looks), gpus=(made,))),))

    result = await act_of(libraries).load(line, seen, lambda detail, ratio: None)
    assert result.ok, result.detail
    assert (result.figures[CLOCK], result.figures[POWER]) == (2398, 83.5)


async def test_an_abort_ends_the_program(stage: Bench, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{libraries}:/usr/bin:/bin")
    (libraries / "python3").write_text(
        '#!/bin/sh\ncase "$*" in *cublas*) echo $$ >' + f"{libraries}/pid;; esac\n"
        f'LD_LIBRARY_PATH={libraries} exec /usr/bin/python3 "$@"\n'
    )
    line = await stage.line()
    work = act_of(libraries, 60, 90).load(line, lambda: picture(idle(NODE)), lambda detail, ratio: None)
    loading = asyncio.create_task(work)
    await until(lambda: (libraries / "pid").exists() and (libraries / "pid").read_text().strip())
    pid = int((libraries / "pid").read_text())
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await until(lambda: not is_alive(pid))


def test_a_dead_engine_is_named(libraries: Path) -> None:
    (libraries / "libcuda.so.1.c").write_text(CUDA + ALLOC)
    subprocess.run(
        ["gcc", "-w", "-shared", "-fPIC", "-DFAIL=100", "-o", str(libraries / "libcuda.so.1"),
         str(libraries / "libcuda.so.1.c")], check=True,
    )  # fmt: skip
    out = subprocess.run(
        [str(libraries / "python3"), "-I", "-S", "-c", PROGRAM, str(libraries / "libcublas.so.13"), "1"],
        capture_output=True,
        text=True,
    )
    assert out.returncode == 1
    reading = parse_load(out.stdout, "timeout exited with 1")
    assert reading.problem == "cuInit failed with 100: no CUDA program can use the GPU, and a plain reboot cures that"
