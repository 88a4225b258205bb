"""GPU readings by nvidia-ml-py, in a child, because a call of the driver may never return."""

from __future__ import annotations

import gc
import sys
import time

from sparktop.probe.remote.children import RESPAWN_S, part_source, requests, tell, tell_state
from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.system import boottime, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Row = list[Any]

_NVML_GAPS = {
    2: "failed", 4: "no permission", 6: "not found", 10: "timed out", **dict.fromkeys((3, 13, 25, 26), "not supported"),
}  # fmt: skip
"""Why a field is missing, by NVMLError.value (nvml.h); 13 is FUNCTION_NOT_FOUND, an older driver, 25 an older version
of its argument, 26 a deprecated function."""
_NVML_STATES = {
    4: ("denied", "NVML denies access: may this user open /dev/nvidia*?"),
    9: ("failed", "the NVIDIA kernel driver isn't loaded: `sudo modprobe nvidia`, or check the kernel log"),
    12: ("missing", "libnvidia-ml.so.1 is missing: no NVIDIA driver is installed"),
    18: ("failed", "NVIDIA driver and library versions differ, as after an update: reboot this machine"),
}
"""Why NVML can't be read at all, by NVMLError.value: (collector state, sentence)."""


def nvml_gap(error: BaseException) -> str:
    """Why a field is missing, as the protocol names it."""
    if isinstance(error, AttributeError):  # nvidia-ml-py lacks the function
        return "not supported"
    return _NVML_GAPS.get(getattr(error, "value", None) or 0, "failed")


def nvml_failure(error: BaseException) -> tuple[str, str]:
    """Why NVML can't be read at all: (collector state, sentence)."""
    known = _NVML_STATES.get(getattr(error, "value", None) or 0)
    return known or ("failed", f"NVML: {type(error).__name__}: {error}")


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _nvml_process_name(nvml: Any, pid: int) -> str:
    try:
        return _as_text(nvml.nvmlSystemGetProcessName(pid))
    except Exception:
        try:
            return _as_text(read_file(f"/proc/{pid}/comm")).strip()
        except OSError:
            return ""


def gpu_processes(nvml: Any, handle: Any) -> list[Row]:
    """[[pid, name, bytes or None, "C" or "G"]]; a process listed as both appears once, as compute.

    Raises whatever NVML does when neither list can be read.
    """
    rows: dict[int, Row] = {}
    failure: Exception | None = None
    listed = False
    for kind, function in (
        ("C", "nvmlDeviceGetComputeRunningProcesses"),
        ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ):
        try:
            processes = getattr(nvml, function)(handle)
        except Exception as error:
            failure = error
            continue
        listed = True
        for process in processes[:256]:
            if process.pid not in rows:
                name = _nvml_process_name(nvml, process.pid)[:256]
                rows[process.pid] = [process.pid, name, process.usedGpuMemory, kind]
    if not listed and failure is not None:
        raise failure
    return list(rows.values())


class GpuReader:
    """NVML, opened once: fixed facts are read at the start, the process list at every second reading."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
        if not count:
            raise RuntimeError("no devices were found")
        self.handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(min(count, 16))]
        self.fixed = [self._fixed(handle) for handle in self.handles]
        self.listed: list[tuple[list[Row] | None, str]] = [(None, "not read yet")] * len(self.handles)
        self.turn = 0

    def _fixed(self, handle: Any) -> dict[str, Any]:
        nvml = self.nvml
        row: dict[str, Any] = {"name": _as_text(nvml.nvmlDeviceGetName(handle))}
        row["gaps"] = _take(
            row,
            uuid=lambda: _as_text(nvml.nvmlDeviceGetUUID(handle)),
            driver=lambda: _as_text(nvml.nvmlSystemGetDriverVersion()),
            sm_max_mhz=lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, 1)),
        )
        return row

    def read(self) -> dict[str, Any]:
        """The `gpu` message; fields that can't be read are gaps. Raises NVML's error when a GPU gives none."""
        gpus = []
        for index, handle in enumerate(self.handles):
            if self.turn % 2 == 0:
                try:
                    self.listed[index] = gpu_processes(self.nvml, handle), ""
                except Exception as error:
                    self.listed[index] = None, nvml_gap(error)
            gpus.append(self._row(self.fixed[index], handle, *self.listed[index]))
        self.turn += 1
        return {"kind": "gpu", "boot": round(boottime(), 3), "gpus": gpus}

    def _row(self, fixed: dict[str, Any], handle: Any, listed: list[Row] | None, reason: str) -> dict[str, Any]:
        nvml = self.nvml
        row = dict(fixed)
        errors: list[BaseException] = []

        def throttle() -> int:
            read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            return int((read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))

        def pstate() -> int:
            state = int(nvml.nvmlDeviceGetPerformanceState(handle))
            if state > 15:
                raise AttributeError("unknown")
            return state

        def both(names: tuple[str, str], read: Callable[[], Any], fields: tuple[str, str]) -> None:
            try:
                value = read()
                row[names[0]], row[names[1]] = int(getattr(value, fields[0])), int(getattr(value, fields[1]))
            except Exception as error:
                errors.append(error)
                gaps[names[0]] = gaps[names[1]] = nvml_gap(error)

        gaps = dict(fixed["gaps"])
        gaps.update(
            _take(
                row,
                errors,
                power_mw=lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)),
                sm_mhz=lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 1)),
                temp_c=lambda: int(nvml.nvmlDeviceGetTemperature(handle, 0)),
                pstate=pstate,
                throttle=throttle,
            )
        )
        both(("util", "mem_util"), lambda: nvml.nvmlDeviceGetUtilizationRates(handle), ("gpu", "memory"))
        both(("mem_total", "mem_used"), lambda: nvml.nvmlDeviceGetMemoryInfo(handle), ("total", "used"))
        if len(errors) == 7 and gaps.get("util") == "failed":  # all failed: the GPU is lost
            raise errors[0]
        if listed is None:
            gaps["procs"] = reason
        else:
            row["procs"] = listed
        row["gaps"] = gaps
        return row


def _take(row: dict[str, Any], errors: list[BaseException] | None = None, **reads: Callable[[], Any]) -> dict[str, str]:
    """Fill a row field by field; returns the gaps of those that fail, and adds their errors to `errors`."""
    gaps = {}
    for field, read in reads.items():
        try:
            row[field] = read()
        except Exception as error:
            gaps[field] = nvml_gap(error)
            if errors is not None:
                errors.append(error)
    return gaps


def _give_back_memory() -> None:
    """Return to the kernel the 11 MB that compiling nvidia-ml-py's 8,000 lines leaves behind."""
    gc.collect()
    try:
        import ctypes  # nvidia-ml-py has imported it

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):  # a C library without it
        pass


def nvml_child(control: int, data: int) -> None:
    """Answer every request with a reading, or with why there is none; try NVML again a minute after it failed.

    nvidia-ml-py's module is compiled at the first request.
    """
    reader: GpuReader | None = None
    nvml: Any = None
    retry_at = 0.0
    for _ in requests(control, data):
        try:
            if nvml is None:
                import types

                nvml = types.ModuleType("pynvml")
                sys.modules["pynvml"] = nvml  # its classes look for their module there
                exec(compile(part_source("pynvml"), "pynvml.py", "exec"), nvml.__dict__)
                _give_back_memory()
            if reader is None and time.monotonic() >= retry_at:
                retry_at = time.monotonic() + RESPAWN_S
                reader = GpuReader(nvml)
            if reader is not None:
                message = reader.read()
                pids = {row[0] for gpu in message["gpus"] for row in gpu.get("procs") or ()}
                tell(data, "pids", ",".join(map(str, sorted(pids))))
                tell(data, "data", encode(message))
        except BrokenPipeError:
            return
        except Exception as error:
            reader = None
            retry_at = time.monotonic() + RESPAWN_S
            tell_state(data, *nvml_failure(error))
