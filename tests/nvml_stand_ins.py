"""Stand-ins for nvidia-ml-py, sent to a probe in its place; here alone, so that a bench needs no pytest for them."""

from __future__ import annotations

GB10_NVML = '''
"""Answers as nvidia-ml-py does on a GB10 (docs/facts/gb10.md section 1): no memory, the counter at 0, figures else."""
import os, time
HOLD = {hold!r}
class NVMLError(Exception):
    def __init__(self, value):
        super().__init__("error %d" % value); self.value = value
class Row:
    def __init__(self, **fields): self.__dict__.update(fields)
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(h): return "NVIDIA GB10"
def nvmlDeviceGetUUID(h): return "GPU-4e847c30-3500-f40c-2152-17cc7b272fd4"
def nvmlSystemGetDriverVersion(): return b"580.142"
def nvmlDeviceGetMaxClockInfo(h, kind): return 3003
def nvmlDeviceGetUtilizationRates(h):
    while HOLD and os.path.exists(HOLD): time.sleep(0.02)
    return Row(gpu=96, memory=0)
def nvmlDeviceGetPowerUsage(h): return 38250
def nvmlDeviceGetClockInfo(h, kind): return 2405
def nvmlDeviceGetTemperature(h, sensor): return 55
def nvmlDeviceGetPerformanceState(h): return 0
def nvmlDeviceGetCurrentClocksEventReasons(h): return 0x20
def nvmlDeviceGetMemoryInfo(h): raise NVMLError(3)
def nvmlDeviceGetComputeRunningProcesses(h): return [Row(pid=os.getppid(), usedGpuMemory=107610112000)]
def nvmlDeviceGetGraphicsRunningProcesses(h): return [Row(pid=1, usedGpuMemory=None)]
def nvmlSystemGetProcessName(pid): raise NVMLError(6)
'''

BROKEN_NVML = """
class NVMLError(Exception):
    def __init__(self, value):
        super().__init__("error %d" % value); self.value = value
def nvmlInit(): raise NVMLError({value})
"""
