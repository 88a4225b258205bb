"""GPU readings from stand-ins of nvidia-ml-py's module: gaps, losses, and how often processes are listed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.table import over

from sparktop.probe.remote.nvml import GpuReader, nvml_gap


class Refusal(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@over(
    "error, reason",
    [
        (Refusal(3), "not supported"),
        (Refusal(4), "no permission"),
        (Refusal(6), "not found"),
        (Refusal(10), "timed out"),
        (Refusal(13), "not supported"),
        (Refusal(999), "failed"),
        (AttributeError("nvmlNew"), "not supported"),
        (Refusal(25), "not supported"),
        (Refusal(26), "not supported"),
        (OSError("x"), "failed"),
    ],
)
def test_gap_reasons(error: Exception, reason: str) -> None:
    assert nvml_gap(error) == reason


def stand_in(**changes: object) -> SimpleNamespace:
    """A module where everything but the essentials fails, changed as a test wants."""

    def refuse(*_: object) -> None:
        raise Refusal(15)

    functions = [
        *("nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion", "nvmlDeviceGetMaxClockInfo"),
        *("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo"),
        *("nvmlDeviceGetTemperature", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetCurrentClocksEventReasons"),
        *("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"),
        *("nvmlDeviceGetGraphicsRunningProcesses", "nvmlSystemGetProcessName"),
    ]
    base: dict[str, object] = dict.fromkeys(functions, refuse)
    base.update(nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=lambda index: index)
    base["nvmlDeviceGetName"] = lambda handle: b"NVIDIA GB10"
    base.update(changes)
    return SimpleNamespace(**base)


def test_a_lost_gpu_is_an_error_and_not_a_row_of_gaps() -> None:
    reader = GpuReader(stand_in())
    with pytest.raises(Refusal):
        reader.read()


def test_a_gpu_that_says_little_is_a_row_with_gaps() -> None:
    reader = GpuReader(stand_in(nvmlDeviceGetPowerUsage=lambda handle: 15200))
    gpu = reader.read()["gpus"][0]
    assert gpu["power_mw"] == 15200
    assert gpu["gaps"]["util"] == "failed"
    assert gpu["gaps"]["procs"] == "failed"
    assert "procs" not in gpu


def test_no_device_at_all_is_said() -> None:
    with pytest.raises(RuntimeError, match="no devices"):
        GpuReader(stand_in(nvmlDeviceGetCount=lambda: 0))


def test_processes_are_listed_every_second_time_and_shown_each_time() -> None:
    asked: list[int] = []

    def compute(handle: int) -> list[SimpleNamespace]:
        asked.append(handle)
        return [SimpleNamespace(pid=7, usedGpuMemory=1 << 30)]

    module = stand_in(
        nvmlDeviceGetComputeRunningProcesses=compute,
        nvmlDeviceGetGraphicsRunningProcesses=lambda handle: [SimpleNamespace(pid=7, usedGpuMemory=None)],
        nvmlSystemGetProcessName=lambda pid: b"VLLM::Worker_TP0",
        nvmlDeviceGetPowerUsage=lambda handle: 1,
    )
    reader = GpuReader(module)
    for _ in range(4):
        assert reader.read()["gpus"][0]["procs"] == [[7, "VLLM::Worker_TP0", 1 << 30, "C"]]
    assert len(asked) == 2
