"""Kernel lines as machines with trouble write them, and folded events of them, for pictures of a node."""

from __future__ import annotations

from tests.pictures_support import BOOT_S, WALL_S

from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.kernel.incident import IncidentGrouper
from sparktop.model.event import KernelEvent
from sparktop.model.telemetry import LogLine

XID = "NVRM: Xid (PCI:000f:01:00): "
XID_13 = XID + "13, pid=77352, name=VLLM::EngineCor, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Illegal"
XID_43 = XID + "43, pid=77352, name=VLLM::EngineCor, channel 0x00000002"
XID_79 = XID + "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_119 = XID + "119, pid=91, name=KMS thread, Timeout after 45s of waiting for RPC response from GPU0 GSP!"
XID_120 = XID + "120, pid=91, name=python3, GSP task exception: load access fault"
ASKS_REBOOT = XID + "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
ASKS_NOTHING = XID + "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"
NO_MEMORY = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x"
KILL = "Out of memory: Killed process 4711 (dockerd) total-vm:2kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB, UID:0"
LINK = "mlx5_core 0000:01:00.0 enp1s0f0np0: Link "
NOT_STARTED = "NVRM: RmInitAdapter failed! (0x62:0x65:2028)"
DISK = "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"
STUCK = "INFO: task python3:1234 blocked for more than 120 seconds."
SEGFAULT = "bash[91]: segfault at 10 ip 00007f sp 00007e error 4 in libc.so[7f+1]"
CORRECTED = "nvme 0004:01:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)"

HOUR_S = 3600.0


def log(*lines: tuple[str, float] | str, ago_s: float = 5.0, every_s: float = 0.1) -> tuple[KernelEvent, ...]:
    """Folded events of lines so many seconds ago: (text, seconds ago), or all of `ago_s` and one after the other."""
    folder = IncidentGrouper()
    for index, line in enumerate(lines):
        text, ago = line if isinstance(line, tuple) else (line, ago_s - index * every_s)
        event = kernel.read(LogLine(text=text, boot_s=BOOT_S - ago, wall_s=WALL_S - ago))
        assert event is not None, text
        folder.add(event)
    return folder.events
