"""The faults: each is over when its function returns, and the machine answers again or will."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from tests.real.machine import Machine


def _cut(seconds: float) -> Callable[[Machine], None]:
    def strike(spark: Machine) -> None:
        spark.cut("lan")
        time.sleep(seconds)
        spark.plug("lan")

    return strike


def _freeze(spark: Machine) -> None:
    spark.freeze()
    time.sleep(20)
    spark.thaw()


def _reboot(spark: Machine) -> None:
    before = spark.boot_id()
    spark.run("sh", "-c", "systemctl reboot --no-block || true")  # it may be rebooting already
    spark.until(lambda: spark.boot_id() not in ("", before), what="another boot")
    spark.answers()


def _power(spark: Machine) -> None:
    spark.kill()
    spark.again()


def _dockerd_killed(spark: Machine) -> None:
    for pid in spark.pids_of("dockerd"):
        os.kill(pid, signal.SIGKILL)


def _dockerd_stopped(spark: Machine) -> None:
    pids = spark.pids_of("dockerd")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(20)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


CONSOLE = {"ctrl-c": signal.SIGINT, "kill": signal.SIGKILL}
FAULTS: dict[str, Callable[[Machine], None] | None] = {
    "ctrl-c": None,
    "kill": None,
    "lan 5 s": _cut(5),
    "lan 60 s": _cut(60),
    "lan 150 s": _cut(150),
    "freeze": _freeze,
    "reboot": _reboot,
    "power": _power,
    "dockerd killed": _dockerd_killed,
    "dockerd stopped": _dockerd_stopped,
}
