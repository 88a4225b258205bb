"""Baselines learned by watching a machine: memory after boot, idle power with a model loaded, power in decode, and
what engines took of its memory as they served.

Kept in baselines.json in the state directory, by machine, and by boot where that matters. If the file is damaged, of
another version or not writable, only the learned figures are lost. Figures: docs/facts/gb10.md sections 0 and 2.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.engines.memory_taken import taken_by
from sparktop.files import read_json, write_private
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import Baseline, Ledger, LinkState, NodeView, ServedOn, Taken
from sparktop.model.telemetry import HostFacts
from sparktop.text.units import GIB

VERSION = 1
MACHINES_KEPT = 32
MACHINES_OF_ONE_NODE = 4
"""One that says it is another machine every second would push every other one out of the file."""
WRITE_EVERY_S = 60.0
OTHERS_BYTES = 8 * GIB
"""With more memory than this held by GPU processes or unaccounted for, a machine is not in its state after boot."""
SETTLED_S = 6.0
"""Wait after the first process table: an engine may be running but not discovered yet."""
IDLE_PERCENT, BUSY_PERCENT = 8.0, 80.0
RESIDENT_BYTES = 1 * GIB
READINGS_KEPT = 240
READINGS_NEEDED = 10
ENGINES_KEPT = 16
SERVED_EVERY_S = 3600.0
"""How old the time may be at which an engine last served on what it runs on now."""
TEXT_CHARS = 4000
FLAGS_KEPT = 200
TAKEN_STEP_BYTES = GIB // 4
"""More beyond its share than before by less than this isn't worth a write."""
PINNED_MHZ = (500, 850)
"""Clock range of a wedged power controller: power readings at these clocks are not normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The baseline figures kept for one machine."""

    boot_id: str = ""
    available_bytes: int | None = None
    """Available memory after that boot."""
    available_wall_s: float | None = None
    earlier_bytes: int | None = None
    """Available memory after the last earlier boot that has a figure."""
    earlier_wall_s: float | None = None
    least_unaccounted_bytes: int | None = None
    """The least memory that nothing accounted for in that boot."""
    idle_w: float | None = None
    decode_w: float | None = None
    seen_wall_s: float = 0.0
    served_on: Mapping[str, ServedOn] = field(default_factory=dict)
    """By the engine's name, ENGINES_KEPT at most."""
    taken: tuple[Taken, ...] = ()
    """The newest first, ENGINES_KEPT at most."""


class BaselineFile:
    """Baselines of all machines, in a file; without a path they are lost at exit."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._machines: dict[str, Machine] = _read_file(path) if path else {}
        self._touched: set[str] = set()
        self._written_s: float | None = None

    def of(self, key: str) -> Machine:
        """The baseline figures of a machine, empty if unknown."""
        return self._machines.get(key, Machine())

    def put(self, key: str, machine: Machine, now_s: float) -> None:
        """Store a machine's figures; written to disk at once the first time, then at most once a minute."""
        self._machines[key] = machine
        self._touched.add(key)
        if self._written_s is None or now_s - self._written_s >= WRITE_EVERY_S:
            self._written_s = now_s
            self.write()

    def write(self) -> None:
        """Write changed machines, merged with what another console may have written; never raises."""
        if self._path is None or not self._touched:
            return
        merged = _read_file(self._path) | {key: self._machines[key] for key in self._touched}
        newest = sorted(merged.items(), key=lambda row: -row[1].seen_wall_s)[:MACHINES_KEPT]
        text = json.dumps({"version": VERSION, "machines": {key: asdict(machine) for key, machine in newest}}, indent=1)
        try:
            write_private(self._path, text)
        except OSError:
            return  # a full disk or a read-only home: the figures last as long as this run
        self._touched.clear()


def _read_file(path: Path) -> dict[str, Machine]:
    kept = read_json(path)
    rows = sanitise.mapping(kept.get("machines")) if kept.get("version") == VERSION else {}
    return {str(key): machine for key, row in rows.items() if (machine := _machine(row)) is not None}


def _machine(row: Any) -> Machine | None:
    """Parse one entry; None where it is malformed: a wrong baseline would be worse than none."""
    names = {each.name for each in fields(Machine)}
    if not isinstance(row, Mapping) or not isinstance(row.get("boot_id", ""), str):
        return None
    served_on = {
        str(name): served
        for name, kept in sanitise.mapping(row.get("served_on")).items()
        if (served := _served_on(kept)) is not None
    }
    taken = tuple(one for kept in sanitise.items(row.get("taken")) if (one := _taken(kept)) is not None)
    others = ("boot_id", "served_on", "taken")
    numbers = {key: value for key, value in row.items() if key in names and key not in others}
    for value in numbers.values():
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15
        ):
            return None
    known = {key: value for key, value in numbers.items() if value is not None}
    return Machine(boot_id=row.get("boot_id", ""), served_on=served_on, taken=taken[:ENGINES_KEPT], **known)


def _served_on(row: Any) -> ServedOn | None:
    row = sanitise.mapping(row)
    wall_s, texts = row.get("wall_s"), {key: value for key, value in row.items() if key != "wall_s"}
    known = {each.name for each in fields(ServedOn)}
    if not isinstance(wall_s, int | float) or isinstance(wall_s, bool) or not 0 <= wall_s < 1e15:
        return None
    if not texts.keys() <= known or not all(isinstance(value, str) for value in texts.values()):
        return None
    return ServedOn(wall_s=wall_s, **texts)


def _taken(row: Any) -> Taken | None:
    row = sanitise.mapping(row)
    texts = {name: row.get(name) for name in ("kind", "model", "image", "version")}
    flags = row.get("flags")
    numbers = {name: value for name, value in row.items() if name not in (*texts, "flags")}
    if not isinstance(flags, list) or not all(isinstance(one, str) for one in (*texts.values(), *flags)):
        return None
    if not numbers.keys() <= {each.name for each in fields(Taken)}:
        return None
    for name, value in numbers.items():
        kinds = int | float if name in ("wall_s", "share") else int
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < 1e15):
            return None
    return Taken(**texts, flags=tuple(flags), **{name: value for name, value in numbers.items() if value is not None})


class BaselineLearner:
    """Learns one node's baseline from its views."""

    def __init__(self, kept: BaselineFile | None = None) -> None:
        self._file = kept or BaselineFile()
        self._key = ""
        self._keys: set[str] = set()
        self._machine = Machine()
        self._baseline = Baseline()
        self._idle: deque[float] = deque(maxlen=READINGS_KEPT)
        self._decode: deque[float] = deque(maxlen=READINGS_KEPT)
        self._idle_readings = 0
        self._pending_power: deque[float] = deque(maxlen=READINGS_KEPT)
        """Power readings since the last scrape: counted once that scrape shows generated tokens."""
        self._scraped: dict[str, float] = {}
        self._last_gpu_boot_s = -1.0
        self._scanned_s: float | None = None

    def saw(self, view: NodeView) -> Baseline:
        """Learn from a view of the node; returns its baseline so far."""
        if (
            view.facts is None
            or view.sample is None
            or view.sample_at_s is None
            or view.link.state is not LinkState.LIVE
        ):
            return self._baseline
        self._load_machine(view)
        if len(self._keys) > MACHINES_OF_ONE_NODE:
            return Baseline()
        machine = self._with_memory(view, self._machine)
        machine = _with_taken(view, _with_served(view, self._with_power(view, machine)))
        if machine != self._machine:
            self._machine = replace(machine, seen_wall_s=view.sample.wall_s)
            self._file.put(self._key, self._machine, view.sample_at_s)
            self._baseline = _baseline_of(self._machine)
        return self._baseline

    def last_boot(self, facts: HostFacts) -> tuple[str, float]:
        """(the boot that this machine was watched in last, "" where it never was; when, node time)."""
        machine = self._file.of(_key_of(facts))
        return machine.boot_id, machine.seen_wall_s

    def _load_machine(self, view: NodeView) -> None:
        facts = view.facts
        assert facts is not None
        key = _key_of(facts)
        if key == self._key and facts.boot_id == self._machine.boot_id:
            return
        if len(self._keys) <= MACHINES_OF_ONE_NODE:
            self._keys.add(key)
        machine = self._file.of(key)
        if facts.boot_id != machine.boot_id:
            earlier = machine.available_bytes is not None
            machine = replace(
                machine,
                boot_id=facts.boot_id,
                available_bytes=None,
                available_wall_s=None,
                least_unaccounted_bytes=None,
                earlier_bytes=machine.available_bytes if earlier else machine.earlier_bytes,
                earlier_wall_s=machine.available_wall_s if earlier else machine.earlier_wall_s,
            )
            self._scanned_s = None
        if key != self._key:
            self._idle.clear()
            self._decode.clear()
            # Figures from earlier runs weigh as much as a minute of readings.
            self._idle.extend([machine.idle_w] * 60 if machine.idle_w is not None else [])
            self._decode.extend([machine.decode_w] * 60 if machine.decode_w is not None else [])
        self._key, self._machine, self._baseline = key, machine, _baseline_of(machine)

    def _with_memory(self, view: NodeView, machine: Machine) -> Machine:
        if view.processes is None or view.ledger is None or view.sample is None or view.sample_at_s is None:
            return machine
        if self._scanned_s is None:
            self._scanned_s = view.sample_at_s
        if view.sample_at_s - self._scanned_s < SETTLED_S:
            return machine
        machine = _with_unaccounted(view.ledger, machine)
        unaccounted = view.ledger.unaccounted_bytes
        engines = any(engine.state is not EngineState.EXITED for engine in view.engines)
        if engines or unaccounted is None or unaccounted > OTHERS_BYTES or _computing_bytes(view) > OTHERS_BYTES:
            return machine
        available_bytes, best_bytes = view.sample.memory.available_bytes, machine.available_bytes
        if best_bytes is not None and available_bytes < best_bytes + GIB // 4:
            return machine
        return replace(machine, available_bytes=available_bytes, available_wall_s=view.sample.wall_s)

    def _with_power(self, view: NodeView, machine: Machine) -> Machine:
        gpu = view.first_gpu
        if view.gpu is None or gpu is None or view.gpu.boot_s == self._last_gpu_boot_s:
            return machine
        self._last_gpu_boot_s = view.gpu.boot_s
        util, power, clock = gpu.utilisation_percent, gpu.power_w, gpu.sm_clock_mhz
        if util is None or power is None:
            return machine
        pinned = clock is not None and PINNED_MHZ[0] <= clock <= PINNED_MHZ[1]
        self._idle_readings = self._idle_readings + 1 if util < IDLE_PERCENT else 0
        if self._idle_readings > 5 and _computing_bytes(view) >= RESIDENT_BYTES:  # power comes down in some seconds
            self._idle.append(power)
        if util >= BUSY_PERCENT and not pinned and not gpu.throttle_reasons:
            self._pending_power.append(power)
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
            self._decode.extend(self._pending_power)
        self._pending_power.clear()


def _key_of(facts: HostFacts) -> str:
    # Units were shipped with one machine id (CVE-2026-24218): the name tells those apart.
    return f"{facts.machine_id_digest or 'unknown'}/{facts.hostname}"


def _with_served(view: NodeView, machine: Machine) -> Machine:
    """The machine with what its engines run on whose tokens flow."""
    served_on = dict(machine.served_on)
    for engine in view.engines:
        if engine.rates is None or (engine.rates.generation_tokens_per_s or 0.0) <= 1.0:
            continue
        now = ServedOn(
            wall_s=view.sample.wall_s if view.sample else 0.0,
            kernel=view.facts.kernel if view.facts else "",
            driver=view.driver_version,
            image_id=engine.container.image_id if engine.container else "",
            version=engine.version or "",
            command=sanitise.line(" ".join(engine.argv), limit=TEXT_CHARS),
        )
        old = served_on.get(engine.name)
        if old is None or replace(old, wall_s=now.wall_s) != now or now.wall_s - old.wall_s > SERVED_EVERY_S:
            served_on[engine.name] = now
    if served_on == machine.served_on:
        return machine
    newest = sorted(served_on.items(), key=lambda row: -row[1].wall_s)[:ENGINES_KEPT]
    return replace(machine, served_on=dict(newest))


def _with_taken(view: NodeView, machine: Machine) -> Machine:
    """The machine with what its engines take whose tokens flow."""
    taken = list(machine.taken)
    for engine in view.engines:
        if engine.rates is None or (engine.rates.generation_tokens_per_s or 0.0) <= 1.0:
            continue
        now = taken_by(engine, view)
        if now is None or len(now.flags) > FLAGS_KEPT or sum(map(len, now.flags)) > TEXT_CHARS:
            continue
        old = next((one for one in taken if _is_same(one, now)), None)
        if old is not None:
            now = _with_figures_of(old, now)
            if not _is_news(old, now):
                continue
            taken.remove(old)
        taken.append(now)
    newest = tuple(sorted(taken, key=lambda one: -one.wall_s)[:ENGINES_KEPT])
    return machine if newest == machine.taken else replace(machine, taken=newest)


def _is_same(one: Taken, other: Taken) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("kind", "model", "image", "version", "flags"))


def _with_figures_of(old: Taken, now: Taken) -> Taken:
    """What it takes now, the most that it held, and what only its log told, which may not reach back to its load."""
    beyond = [size for size in (now.beyond_bytes, old.beyond_bytes) if size is not None]
    cached = old if now.context_bytes is None else now
    return replace(
        now,
        weights_bytes=old.weights_bytes if now.weights_bytes is None else now.weights_bytes,
        context_tokens=cached.context_tokens,
        context_bytes=cached.context_bytes,
        beyond_bytes=max(beyond, default=None),
    )


def _is_news(old: Taken, now: Taken) -> bool:
    is_more = (now.beyond_bytes or 0) >= (old.beyond_bytes or 0) + TAKEN_STEP_BYTES
    is_old = now.wall_s - old.wall_s > SERVED_EVERY_S
    return is_more or is_old or replace(now, wall_s=old.wall_s, beyond_bytes=old.beyond_bytes) != old


def _with_unaccounted(ledger: Ledger, machine: Machine) -> Machine:
    unaccounted, least = ledger.unaccounted_bytes, machine.least_unaccounted_bytes
    # Claims that had to be shrunk are of different moments: what they leave over is too little.
    if unaccounted is None or any(holder.estimated for holder in ledger.holders):
        return machine
    if least is not None and unaccounted > least - GIB // 4:
        return machine
    return replace(machine, least_unaccounted_bytes=unaccounted)


def _computing_bytes(view: NodeView) -> int:
    gpus = view.gpu.gpus if view.gpu else ()
    return sum(row.used_bytes or 0 for gpu in gpus for row in gpu.processes or () if row.kind == "C")


def _median(readings: deque[float], old: float | None) -> float | None:
    """The median; the old value while there are too few readings or it hardly moved, to avoid writing the file."""
    if len(readings) < READINGS_NEEDED:
        return old
    from statistics import median as median_of  # with fractions and random numbers of its own, first after minutes

    median = round(median_of(readings), 1)
    return old if old is not None and abs(median - old) < 1.0 else median


def _baseline_of(machine: Machine) -> Baseline:
    has_own = machine.available_bytes is not None
    return Baseline(
        after_boot_available_bytes=machine.available_bytes if has_own else machine.earlier_bytes,
        after_boot_wall_s=machine.available_wall_s if has_own else machine.earlier_wall_s,
        is_earlier_boot=not has_own and machine.earlier_bytes is not None,
        least_unaccounted_bytes=machine.least_unaccounted_bytes,
        loaded_idle_power_w=machine.idle_w,
        decode_power_w=machine.decode_w,
        served_on=machine.served_on,
        taken=machine.taken,
    )
