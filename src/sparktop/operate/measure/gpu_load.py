"""The program that loads a GPU, and what it prints. Pure.

cuBLAS through ctypes, as hoesing/spark-gpu-throttle-check does: no PyTorch, no image (docs/facts/bringup.md section 5).
The matrices are random: equal numbers draw less power.
"""

from __future__ import annotations

import math

from sparktop import sanitise
from sparktop.bounds import json_of
from sparktop.checks.machine import NO_DEVICE
from sparktop.dataclass import dataclass

SIZE = 4096
MARK = "SPARKTOP-GPU-LOAD "
PACKAGE = "libcublas-13-0"
FOLDERS = ("/usr/local/cuda/lib64", "/usr/lib/aarch64-linux-gnu", "/usr/lib/sbsa-linux-gnu")
PROGRAM = f"""\
import array, ctypes, json, random, sys, time

def call(function, *words):
    code = function(*words)
    if code:
        print("{MARK}" + json.dumps({{"failed": function.__name__, "code": code}}), flush=True)
        sys.exit(1)

size, seconds = {SIZE}, float(sys.argv[2])
try:
    cuda, cublas = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(str(error))
call(cuda.cuInit, 0)
context, handle = ctypes.c_void_p(), ctypes.c_void_p()
call(cuda.cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)
call(cuda.cuCtxSetCurrent, context)
call(cublas.cublasCreate_v2, ctypes.byref(handle))
tile = array.array("f", (random.random() for _ in range(size * 64)))
host = (tile * (size // 64)).tobytes()
matrices = []
for _ in range(3):
    matrix = ctypes.c_uint64()
    call(cuda.cuMemAlloc_v2, ctypes.byref(matrix), ctypes.c_size_t(len(host)))
    call(cuda.cuMemcpyHtoD_v2, matrix, host, ctypes.c_size_t(len(host)))
    matrices.append(ctypes.c_void_p(matrix.value))
one, none = ctypes.c_float(1.0), ctypes.c_float(0.0)
first, second, product = matrices
rounds, began = 0, time.monotonic()
while time.monotonic() - began < seconds:
    for _ in range(10):
        call(cublas.cublasSgemm_v2, handle, 0, 0, size, size, size, ctypes.byref(one), first, size, second, size,
             ctypes.byref(none), product, size)
    call(cuda.cuCtxSynchronize)
    rounds += 10
print("{MARK}" + json.dumps({{"rounds": rounds, "seconds": time.monotonic() - began}}), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReading:
    """What the program did, or why it didn't."""

    tflops: float | None = None
    problem: str = ""


def argv_of(library: str, seconds: int, limit_s: int) -> tuple[str, ...]:
    """The program on the node; `limit_s`: it is ended then, whatever becomes of sparktop."""
    bound = ("timeout", "-k", "10", str(limit_s))
    return (*bound, "python3", "-I", "-S", "-c", PROGRAM, library, str(seconds))


def find_argv() -> tuple[str, ...]:
    """Lists the node's cuBLAS libraries."""
    return ("find", "-L", *FOLDERS, "-maxdepth", "1", "-name", "libcublas.so.*")


def library_in(text: str | None) -> str:
    """The newest cuBLAS among what `find` lists; empty: there is none."""
    paths = [line.strip() for line in (text or "").splitlines()]
    plain = [path for path in paths if path.startswith(FOLDERS) and path.isprintable()]
    return max(plain, key=lambda path: (_major(path), -len(path)), default="")


def _major(path: str) -> int:
    digits = path.rpartition(".so.")[2].partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 5 else 0


def parse_load(text: str, problem: str) -> LoadReading:
    """The result in the program's output; `problem`: how it ended."""
    at = text.rfind(MARK)
    if at < 0:
        return LoadReading(problem=sanitise.line(problem, limit=240) or "the program printed no result")
    try:
        words = json_of(text[at + len(MARK) :].partition("\n")[0])
        if "failed" in words:
            return LoadReading(problem=_failure(words["failed"], words.get("code")))
        tflops = 2 * SIZE**3 * float(words["rounds"]) / float(words["seconds"]) / 1e12
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return LoadReading(problem="its result can't be read")
    if not (math.isfinite(tflops) and tflops > 0):
        return LoadReading(problem="its result can't be read")
    return LoadReading(tflops=round(tflops, 2))


def _failure(function: object, code: object) -> str:
    """Why a call of CUDA or cuBLAS failed."""
    said = f"{sanitise.name(str(function))} failed with {sanitise.name(str(code))}"
    if function == "cuInit" and code == NO_DEVICE:
        return f"{said}: no CUDA program can use the GPU, and a plain reboot cures that"
    return said
