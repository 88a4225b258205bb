"""What is normal on a machine, learned by watching it: memory after boot, power at rest with a model, power in decode.

Kept in baselines.json under the state directory by machine, and by boot where that matters. A file that is damaged, of
another version or can't be written costs what was learned, nothing else. Figures: facts/gb10.md sections 0 and 2.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import Baseline, LinkState, NodeView

VERSION = 1
MACHINES_KEPT = 32
WRITE_EVERY_S = 60.0
GIB = 1024**3

OTHERS_BYTES = 8 * GIB
"""With more than this in the hands of GPU processes, or in nobody's, a machine is not as after its boot."""
SETTLED_S = 6.0
"""After the first process table: until then an engine may be there and not found yet."""
IDLE_PERCENT, BUSY_PERCENT = 8.0, 80.0
RESIDENT_BYTES = 1 * GIB
READINGS_KEPT = 240
READINGS_NEEDED = 10
PINNED_MHZ = (500, 850)
"""Of a power controller that wedged: what a GPU draws then is not its normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is kept of one machine."""

    boot_id: str = ""
    available_bytes: int | None = None
    """Of that boot."""
    available_wall_s: float | None = None
    earlier_bytes: int | None = None
    """Of the boot before it that had any."""
    earlier_wall_s: float | None = None
    idle_w: float | None = None
    decode_w: float | None = None
    seen_wall_s: float = 0.0


class BaselineFile:
    """All machines' baselines; with no path they are forgotten at the end."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._machines: dict[str, Machine] = _read(path) if path else {}
        self._touched: set[str] = set()
        self._written_s: float | None = None

    def of(self, key: str) -> Machine:
        """What is known of a machine."""
        return self._machines.get(key, Machine())

    def put(self, key: str, machine: Machine, now_s: float) -> None:
        """Keep this; it reaches the disk within a minute, and soon the first time."""
        self._machines[key] = machine
        self._touched.add(key)
        if self._written_s is None or now_s - self._written_s >= WRITE_EVERY_S:
            self._written_s = now_s
            self.write()

    def write(self) -> None:
        """Write what was learned since, over what another console may have written meanwhile; never raises."""
        if self._path is None or not self._touched:
            return
        merged = _read(self._path) | {key: self._machines[key] for key in self._touched}
        newest = sorted(merged.items(), key=lambda row: -row[1].seen_wall_s)[:MACHINES_KEPT]
        text = json.dumps({"version": VERSION, "machines": {key: asdict(one) for key, one in newest}}, indent=1)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=".baselines-")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                    out.write(text)
                os.replace(name, self._path)
            except OSError:
                os.unlink(name)
                raise
        except OSError:
            return  # a full disk or a read-only home: what was learned lasts as long as this run
        self._touched.clear()


def _read(path: Path) -> dict[str, Machine]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        rows = raw["machines"] if raw["version"] == VERSION else {}
        return {str(key): one for key, row in rows.items() if (one := _machine(row)) is not None}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _machine(row: Any) -> Machine | None:
    """One entry, or None where it isn't as we write them: a wrong normal would be worse than none."""
    known = {one.name for one in fields(Machine)}
    if not isinstance(row, Mapping) or not isinstance(row.get("boot_id", ""), str):
        return None
    numbers = {key: value for key, value in row.items() if key in known and key != "boot_id"}
    for value in numbers.values():
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15
        ):
            return None
    return Machine(boot_id=row.get("boot_id", ""), **{k: v for k, v in numbers.items() if v is not None})


class BaselineLearner:
    """Learns one node's normal from its pictures."""

    def __init__(self, kept: BaselineFile | None = None) -> None:
        self._kept = kept or BaselineFile()
        self._key = ""
        self._machine = Machine()
        self._baseline = Baseline()
        self._idle: deque[float] = deque(maxlen=READINGS_KEPT)
        self._decode: deque[float] = deque(maxlen=READINGS_KEPT)
        self._resting = 0
        self._waiting: list[float] = []
        """Power readings since the last scrape: counted once that scrape says that tokens came."""
        self._scraped: dict[str, float] = {}
        self._last_gpu_boot_s = -1.0
        self._scanned_s: float | None = None

    def saw(self, view: NodeView) -> Baseline:
        """Take in a picture of the node; what is normal there, as far as it is known."""
        if (
            view.facts is None
            or view.sample is None
            or view.sample_at_s is None
            or view.link.state is not LinkState.LIVE
        ):
            return self._baseline
        self._identify(view)
        machine = self._with_memory(view, self._machine)
        machine = self._with_power(view, machine)
        if machine != self._machine:
            self._machine = replace(machine, seen_wall_s=view.sample.wall_s)
            self._kept.put(self._key, self._machine, view.sample_at_s)
            self._baseline = _told(self._machine)
        return self._baseline

    def _identify(self, view: NodeView) -> None:
        facts = view.facts
        assert facts is not None
        # Units were shipped with one machine id (CVE-2026-24218): the name tells those apart.
        key = f"{facts.machine_id_digest or 'unknown'}/{facts.hostname}"
        if key == self._key and facts.boot_id == self._machine.boot_id:
            return
        known = self._kept.of(key)
        if facts.boot_id != known.boot_id:
            earlier = known.available_bytes is not None
            known = replace(
                known,
                boot_id=facts.boot_id,
                available_bytes=None,
                available_wall_s=None,
                earlier_bytes=known.available_bytes if earlier else known.earlier_bytes,
                earlier_wall_s=known.available_wall_s if earlier else known.earlier_wall_s,
            )
            self._scanned_s = None
        if key != self._key:
            self._idle.clear()
            self._decode.clear()
            # What was learned before weighs as much as a minute of watching.
            self._idle.extend([known.idle_w] * 60 if known.idle_w is not None else [])
            self._decode.extend([known.decode_w] * 60 if known.decode_w is not None else [])
        self._key, self._machine, self._baseline = key, known, _told(known)

    def _with_memory(self, view: NodeView, machine: Machine) -> Machine:
        if view.processes is None or view.ledger is None or view.sample is None or view.sample_at_s is None:
            return machine
        if self._scanned_s is None:
            self._scanned_s = view.sample_at_s
        if view.sample_at_s - self._scanned_s < SETTLED_S:
            return machine
        unaccounted = view.ledger.unaccounted_bytes
        engines = any(engine.state is not EngineState.EXITED for engine in view.engines)
        if engines or unaccounted is None or unaccounted > OTHERS_BYTES or _computing_bytes(view) > OTHERS_BYTES:
            return machine
        now, best = view.sample.memory.available_bytes, machine.available_bytes
        if best is not None and now < best + GIB // 4:
            return machine
        return replace(machine, available_bytes=now, available_wall_s=view.sample.wall_s)

    def _with_power(self, view: NodeView, machine: Machine) -> Machine:
        gpu = view.first_gpu
        if view.gpu is None or gpu is None or view.gpu.boot_s == self._last_gpu_boot_s:
            return machine
        self._last_gpu_boot_s = view.gpu.boot_s
        util, power, clock = gpu.utilisation_percent, gpu.power_w, gpu.sm_clock_mhz
        if util is None or power is None:
            return machine
        pinned = clock is not None and PINNED_MHZ[0] <= clock <= PINNED_MHZ[1]
        self._resting = self._resting + 1 if util < IDLE_PERCENT else 0
        if self._resting > 5 and _computing_bytes(view) >= RESIDENT_BYTES:  # power takes some seconds to come down
            self._idle.append(power)
        if util >= BUSY_PERCENT and not pinned and not gpu.throttle_reasons:
            self._waiting.append(power)
        self._count_decode(view.engines)
        return replace(
            machine, idle_w=_median(self._idle, machine.idle_w), decode_w=_median(self._decode, machine.decode_w)
        )

    def _count_decode(self, engines: tuple[Engine, ...]) -> None:
        scraped = {engine.key: engine.metrics.wall_s for engine in engines if engine.metrics is not None}
        if scraped == self._scraped:
            return
        self._scraped = scraped
        flowing = any(
            (engine.rates.generation_tokens_per_s or 0.0) > 1.0 and (engine.rates.progress_age_s or 0.0) < 1.0
            for engine in engines
            if engine.rates is not None
        )
        if flowing:
            self._decode.extend(self._waiting)
        self._waiting.clear()


def _computing_bytes(view: NodeView) -> int:
    gpus = view.gpu.gpus if view.gpu else ()
    return sum(row.used_bytes or 0 for gpu in gpus for row in gpu.processes or () if row.kind == "C")


def _median(readings: deque[float], old: float | None) -> float | None:
    """The median, or the old value while there are too few or it hardly moved: the file is written for a reason."""
    if len(readings) < READINGS_NEEDED:
        return old
    now = round(statistics.median(readings), 1)
    return old if old is not None and abs(now - old) < 1.0 else now


def _told(machine: Machine) -> Baseline:
    here = machine.available_bytes is not None
    return Baseline(
        after_boot_available_bytes=machine.available_bytes if here else machine.earlier_bytes,
        after_boot_wall_s=machine.available_wall_s if here else machine.earlier_wall_s,
        is_earlier_boot=not here and machine.earlier_bytes is not None,
        loaded_idle_power_w=machine.idle_w,
        decode_power_w=machine.decode_w,
    )
