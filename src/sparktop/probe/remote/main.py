"""The probe's main loop: samples, children, acknowledgements and the lease.

The probe runs on a Spark, sent over the channel and never written to its disk: Python 3.10+ and the standard library
alone, because a monitor must not hurt a dying host. The main process preads /proc files it opened at the start and
forks nothing per sample. Whatever can hang (NVML, per-process files, statvfs, the kernel log) runs in children tied to
it by pipes. A child that is stuck is reported as stuck, and neither killed nor started again: a killed NVML client has
frozen a GPU (docs/facts/reliability.md, section 0, 10). `sparktop.wire` describes the protocol.

On a Spark all parts of the probe run among one set of names, without the imports of one another that they have here
(`probe.bundle`). A child compiles what it alone needs, and the main process the guard when the first order comes.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time

from sparktop.probe.remote.children import LATER_PARTS, RESPAWN_S, Worker, load, uncompiled, unpack
from sparktop.probe.remote.desktop import desktop_child
from sparktop.probe.remote.guard.guard import Guard
from sparktop.probe.remote.host_facts import FACTS_S, host_facts
from sparktop.probe.remote.kernel_log import kernel_child
from sparktop.probe.remote.nvml import nvml_child
from sparktop.probe.remote.outbox import Outbox, encode
from sparktop.probe.remote.pace import SampleInterval, until_beat_s
from sparktop.probe.remote.parsers import parse_cpu, parse_load, parse_meminfo, parse_pressure, parse_vmstat
from sparktop.probe.remote.scanner import scanner_child
from sparktop.probe.remote.system import CLAIM, EVENT, STATE_FOLDERS, boottime

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from typing import NoReturn

PROTOCOL = 1
PAUSE_PRESSURE = 20.0
"""PSI memory full avg10, percent: above it no per-process files are read (their locks slow whoever is being read)."""
NVML_DEADLINE_S = 5.0
SCAN_DEADLINE_S = 10.0
DESKTOP_DEADLINE_S = 20.0
LINE_BYTES = 65536
FILES = ("meminfo", "vmstat", "stat", "loadavg", "pressure/memory", "pressure/io", "pressure/cpu", "self/statm")
"""Of /proc, held open."""


class Probe:
    """One poll over standard input, the children and, while a write waits, the way out."""

    def __init__(self, out: int, digest: str, settings: dict[str, str], interval_s: float, lease_s: float) -> None:
        """`settings` are the "name=value" words of the command line."""
        self.out = out
        self.digest = digest
        self.settings = settings
        self.lease_s = lease_s
        self.pace = SampleInterval(interval_s)
        self.outbox = Outbox(out, lambda: self.leave("the reader is gone", say=False))
        self.files: dict[str, int] = {}
        self.heard_at = time.monotonic()
        self.input = b""
        self.skipped = 0
        """Samples left out because the console hadn't acknowledged earlier ones."""
        self.resident_kb: int | None = None
        self.resident_at = 0.0
        self.pressure = 0.0
        self.gpu_pids = b""
        self.compositors = b""
        """Pids, as the scanner's child saw them; while there are none, no child watches the desktop."""
        self.desktop_turn = False
        self.asks_previous_boot = False
        """The console wants to know how the boot before this one ended."""
        self.facts_at = 0.0
        self.started_at = self.tick_at = self.heard_at
        # By lambdas: the functions are there once a child has compiled its parts.
        self.kernel = Worker("kernel", lambda *pipes: kernel_child(*pipes), None)
        self.desktop = Worker("desktop", lambda *pipes: desktop_child(*pipes), DESKTOP_DEADLINE_S)
        self.scanner = Worker("processes", lambda *pipes: scanner_child(*pipes), SCAN_DEADLINE_S)
        self.workers = [
            Worker("nvml", lambda *pipes: nvml_child(*pipes), NVML_DEADLINE_S),
            self.scanner,
            self.kernel,
            self.desktop,
        ]
        self.poll = select.poll()
        self.guard: Guard | None = None

    # to the console

    def collector(self, worker: Worker, state: str, detail: str = "", since: float | None = None) -> None:
        """Report how a child is, if that is news; `since` in seconds since boot."""
        if worker.state != (state, detail):
            worker.state = (state, detail)
            since = boottime() if since is None else since
            message = {
                "kind": "collector",
                "name": worker.name,
                "state": state,
                "detail": detail,
                "since": round(since, 3),
            }
            self.outbox.put("collector " + worker.name, message)

    def leave(self, reason: str, *, say: bool = True) -> NoReturn:
        """End the process, after the guard has finished where it has to stay; `say` tells the console why."""
        if say:
            try:
                os.write(self.out, self.outbox.unsent + encode({"kind": "bye", "reason": reason}).encode() + b"\n")
            except OSError:
                pass
        if self.guard is not None:
            self.guard.stay()
        os._exit(0)  # closes the children's control pipes; they leave, each as soon as it can

    # from the console

    def hear(self) -> None:
        """Read what the console sent, and follow it; an unknown word is a later version's."""
        try:
            chunk = os.read(0, LINE_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.leave("standard input closed", say=False)
        self.heard_at = time.monotonic()
        *lines, self.input = (self.input + chunk).split(b"\n")
        if len(self.input) > LINE_BYTES:
            self.leave("the input is not sparktop's protocol")
        for line in lines:
            try:
                message = json.loads(line)
                if "ack" in message:
                    self.outbox.acknowledge(int(message["ack"]))
                elif "interval" in message:
                    self.pace.interval_s = min(60.0, max(0.1, float(message["interval"])))
                    self.tick_at = min(self.tick_at, self.next_tick(self.pace.interval_s))
                elif "facts" in message:
                    self.facts_at = self.scanner.due_at = 0.0
                elif "previous" in message:
                    self.asks_previous_boot = True
                elif "guard" in message:
                    self.guarding().take(message["guard"])
                elif "bye" in message:
                    self.leave("asked to")
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                continue
            except (OSError, ImportError) as error:  # the guard lacks something of this machine's
                failure = {"kind": "guard", "phase": "failed", "detail": f"the guard can't be armed here: {error}"}
                self.outbox.put("guard", failure)

    def guarding(self) -> Guard:
        """The guard, compiled when it is first needed."""
        if self.guard is None:
            load(*LATER_PARTS["guard"])
            self.guard = Guard(self)
        return self.guard

    # from the children

    def read_worker(self, worker: Worker) -> None:
        """Take what a child wrote, or its end."""
        chunk = os.read(worker.data, 65536)
        if not chunk:
            self.lost(worker)
            return
        *lines, worker.pending = (worker.pending + chunk).split(b"\n")
        for line in lines:
            tag, _, body = line.partition(b" ")
            if tag == b"data":
                if worker is self.kernel:
                    if not self.outbox.kernel_batches:
                        self.poll.unregister(worker.data)  # let it wait; the journal keeps its place
                    self.outbox.put_kernel_batch(body)
                else:
                    kind = body[9 : body.index(b'"', 9)].decode()  # {"kind":"gpu",...
                    self.outbox.waiting[kind] = body
                    self.collector(worker, "ok")
            elif tag == b"state":
                state = json.loads(body)
                self.collector(worker, state["state"], state["detail"])
            elif tag == b"previous":
                self.outbox.waiting["previous"] = body
            elif tag == b"pids":
                self.gpu_pids = body
            elif tag == b"compositors":
                self.compositors = body
            elif tag == b"cost":
                worker.cost_s = float(body)
                worker.asked_at = None
                worker.is_stuck = False

    def lost(self, worker: Worker) -> None:
        """A child has ended."""
        self.poll.unregister(worker.data)
        os.close(worker.data)
        os.close(worker.control)
        worker.data = worker.control = -1
        worker.asked_at, worker.pending = None, b""
        worker.past_cost_s += worker.cost_s
        worker.cost_s = 0.0
        worker.start_at = time.monotonic() + RESPAWN_S
        if worker.state[0] in ("", "ok", "stuck", "paused"):
            self.collector(worker, "failed", "this part of the probe exited; it restarts in a minute")

    # samples

    def pread(self, name: str, limit: int, until: bytes = b"") -> bytes:
        """A file of FILES from its beginning, read until `until` has come; empty where it can't be read."""
        descriptor = self.files.get(name)
        data = b""
        try:
            while descriptor is not None:
                chunk = os.pread(descriptor, limit, len(data))
                data += chunk
                if not chunk or until in data:  # the kernel gives a page at a time of some files
                    break
        except OSError:  # pressure files exist and refuse where PSI is compiled in and switched off
            pass
        return data

    def sample(self, now: float) -> None:
        """Read the figures of this moment and send them."""
        boot = boottime()
        meminfo = parse_meminfo(self.pread("meminfo", 8192))
        psi = {}
        for name in ("memory", "io", "cpu"):
            row = parse_pressure(self.pread("pressure/" + name, 512))
            if row is not None:
                psi[name] = row
        if now >= self.resident_at:
            self.resident_at = now + 10.0
            words = self.pread("self/statm", 128).split()
            self.resident_kb = int(words[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024) if len(words) > 1 else None
        self.pressure = psi["memory"][2] if "memory" in psi else 0.0
        self.pace.saw(boot, meminfo.get("MemAvailable", 0), meminfo.get("MemTotal", 0))
        spent = time.process_time() + sum(worker.cost_s + worker.past_cost_s for worker in self.workers)
        message = {
            "kind": "sample",
            "boot": round(boot, 4),
            "wall": round(time.time(), 4),
            "interval": self.pace.next_s(boot),
            "meminfo": meminfo,
            "psi": psi,
            "vmstat": parse_vmstat(self.pread("vmstat", 32768, b"\noom_kill ")),
            "cpu": parse_cpu(self.pread("stat", 512)),
            "load": parse_load(self.pread("loadavg", 128)),
            "cost": [round(spent, 4), self.resident_kb],
            "skipped": self.skipped,
        }
        self.outbox.send("sample", encode(message).encode())
        self.outbox.flush()

    def tend(self, worker: Worker, now: float) -> None:
        """Ask a child when it is due, mark it when it doesn't answer, start it again when it has ended."""
        if worker.data < 0:
            if worker.pid:
                try:
                    if os.waitpid(worker.pid, os.WNOHANG)[0]:
                        worker.pid = 0
                except ChildProcessError:
                    worker.pid = 0
            elif now >= worker.start_at and (worker is not self.desktop or self.compositors):
                self.start(worker)
            return
        if worker.deadline_s is None:
            if self.asks_previous_boot and self.pressure <= PAUSE_PRESSURE:  # of the kernel log's child
                self.asks_previous_boot = False
                worker.ask(b"previous", now)
            return
        if worker.asked_at is not None:
            if now - worker.asked_at > worker.deadline_s and not worker.is_stuck:
                worker.is_stuck = True
                detail = f"no answer within {worker.deadline_s:g} s; not asked again until it answers"
                self.collector(worker, "stuck", detail, worker.asked_boot)
            return
        if now < worker.due_at:
            return
        if worker.name == "nvml":
            worker.due_at = now + max(0.9, self.pace.interval_s * 0.9)
            worker.ask(b"g", now)
            return
        paused = worker.state[0] == "paused"
        if self.pressure > (PAUSE_PRESSURE / 2 if paused else PAUSE_PRESSURE):
            self.collector(worker, "paused", "memory pressure is high")
            return
        if worker is self.desktop:  # a look each time, a question every second time
            self.desktop_turn = not self.desktop_turn
            worker.due_at = now + 4.9
            worker.ask(b"d %d %b" % (self.desktop_turn, self.compositors), now)
            return
        worker.due_at = now + (1.9 if now - self.started_at < 20.0 else 4.9)
        facts = now >= self.facts_at
        if facts:
            self.facts_at = now + FACTS_S
        worker.ask(b"s %d %b" % (facts, self.gpu_pids), now)

    def start(self, worker: Worker) -> None:
        """Start a child, or say why not; that is tried again in a minute."""
        try:
            worker.start()
        except OSError as error:  # no memory for a fork, or no more processes
            worker.pid = 0
            worker.start_at = time.monotonic() + RESPAWN_S
            self.collector(worker, "failed", f"this part of the probe couldn't start: {error}")
            return
        self.poll.register(worker.data, select.POLLIN)

    # the loop

    def run(self) -> NoReturn:
        """Say hello, then serve the console until it leaves."""
        facts = host_facts()
        hello = {"kind": "hello", "protocol": PROTOCOL, "pid": os.getpid(), "digest": self.digest, "facts": facts}
        self.outbox.unsent += encode(hello).encode() + b"\n"
        self.outbox.flush()
        for name in FILES:
            try:
                self.files[name] = os.open("/proc/" + name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
        if "meminfo" not in self.files:
            self.leave("/proc/meminfo can't be read here")
        gc.freeze()
        gc.disable()
        self.tick_at = self.next_tick(self.pace.interval_s)
        self.sample(time.monotonic())
        for worker in self.workers[:3]:  # the desktop's child is started when there is a desktop
            self.start(worker)
        self.poll.register(0, select.POLLIN)
        self.look_for_guard(CLAIM, EVENT)
        tending = True
        watched_out = False
        while True:
            now = time.monotonic()
            if tending:
                tending = False
                for worker in self.workers:
                    self.tend(worker, now)
            kernel_waited = bool(self.outbox.kernel_batches)
            self.outbox.send_waiting()
            if kernel_waited and not self.outbox.kernel_batches and self.kernel.data >= 0:
                self.poll.register(self.kernel.data, select.POLLIN)
            if bool(self.outbox.unsent) != watched_out:
                watched_out = not watched_out
                if watched_out:
                    self.poll.register(self.out, select.POLLOUT)
                else:
                    self.poll.unregister(self.out)
            until = min(self.tick_at, self.heard_at + self.lease_s)
            if self.guard is not None:
                until = min(until, self.guard.due_at)
            ready = self.poll.poll(max(0, int((until - now) * 1000) + 1))
            for descriptor, events in ready:
                if descriptor == 0:
                    self.hear()
                elif descriptor == self.out:
                    if events & (select.POLLERR | select.POLLHUP):
                        self.leave("the reader is gone", say=False)
                    self.outbox.flush()
                elif self.guard is not None and descriptor == self.guard.line.descriptor:
                    self.guard.ready()
                else:
                    for worker in self.workers:
                        if worker.data == descriptor:
                            self.read_worker(worker)
            now = time.monotonic()
            if self.guard is not None:
                self.guard.turn(now)
            if now - self.heard_at >= self.lease_s:
                if select.select([0], [], [], 0)[0]:  # this process was stopped; the console did write
                    self.hear()
                else:
                    self.leave(f"nothing arrived for {self.lease_s:g} s")
            if now >= self.tick_at:
                self.tick(now)
                tending = True

    def look_for_guard(self, *names: str) -> None:
        """Report what other probes' guards have left in such files."""
        own = [f"{root}/sparktop-{os.getuid()}/{name}" for root in STATE_FOLDERS for name in names]
        if (self.guard is None or self.guard.is_idle()) and any(map(os.path.lexists, own)):
            self.guarding().look_back()

    def tick(self, now: float) -> None:
        """Take the sample that is due, or leave it out while earlier ones are unacknowledged."""
        if self.outbox.unsent or self.outbox.is_full("sample"):
            self.skipped += 1
        else:
            self.sample(now)
            self.pace.took(time.monotonic() - now)
        self.look_for_guard(CLAIM)
        self.tick_at = self.next_tick(self.pace.next_s(boottime()))

    @staticmethod
    def next_tick(interval_s: float) -> float:
        """When the next sample is due, on the monotonic clock."""
        return time.monotonic() + until_beat_s(interval_s, time.time())


def main(packed: bytes, digest: str, nonce: str, interval_s: float, lease_s: float) -> NoReturn:
    """What stage 0 calls: `packed` holds the parts that are compiled later and nvidia-ml-py's module (`unpack`)."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints, prints to standard error
    os.write(out, f"SPARKTOP {nonce}\n".encode())
    status = 70
    try:
        if not sys.platform.startswith("linux"):
            reason = f"this is {sys.platform}, not Linux: there is no /proc to read"
            os.write(out, encode({"kind": "bye", "reason": reason}).encode() + b"\n")
            status = 95
        else:
            os.set_blocking(out, False)
            # posix_spawnp looks for a program in this process's own PATH, which over SSH may lack these
            os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
            for number in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, lambda *_: os._exit(0))
            uncompiled.update(unpack(packed))
            del packed
            settings = dict(word.partition("=")[::2] for word in sys.argv[6:])
            Probe(out, digest, settings, interval_s, lease_s).run()
    except BaseException as error:
        reason = f"the probe failed: {type(error).__name__}: {error}"
        try:
            os.write(out, encode({"kind": "bye", "reason": reason}).encode() + b"\n")
        except OSError:
            pass
        sys.stderr.write(f"sparktop: {reason}\n")
        sys.stderr.flush()
    os._exit(status)
