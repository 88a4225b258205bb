"""A Spark without its GPU, booted by systemd in a second: systemd-nspawn on the tree of tests.real.parts, no emulation.

    with Machine.up("spark1") as spark:
        spark.run("docker", "ps")          # as root, without ssh
        spark.freeze(); spark.thaw()       # every process at once, as a hung kernel looks from outside
        spark.cut("lan"); spark.plug("lan")
        spark.kill(); spark.again()        # without power; booted again from its disk
        spark.gb10(sm=96, power_mw=15_000)

It has a network, a boot ID, a disk and host keys of its own, a second port `enp1s0f0np0` that `cable` puts on one
bridge with those of this process's others, and reboots when told to inside. Shared with this machine: the kernel with
its log and memory figures. By hand: `python -m tests.real.machine spark1 spark2` holds two until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar, Self

from tests.real.parts import FOLDER, CanNotBeHad, done, missing
from tests.support import PATIENCE_S, poll

IMAGES = FOLDER / "images"
BANNER_S = 20.0
REBOOTS = 133
"""The exit code by which systemd-nspawn says that the machine asks to be booted again."""
BRIDGE = f"spk-{os.getpid()}"
"""What a cable leads to: another process's machines have these names and addresses too."""
CABLE = "enp1s0f0np0"
"""The second port of each, as it is called on a Spark."""
NETPLAN = """network:
  version: 2
  renderer: networkd
  ethernets:
    host0: {{addresses: [{subnet}.2/24], routes: [{{to: default, via: {subnet}.1}}]}}
    enp1s0f0np0: {{optional: true}}
"""


@dataclass
class Machine:
    """One of them."""

    part: ClassVar[str] = "machine"
    hostname: str
    number: int
    """Of its network, 10.77.NUMBER.0/24, its disk and its ports."""
    images: Path | None
    has_kernel_log: bool
    lock: IO[str]
    process: subprocess.Popen[bytes] | None = None
    """systemd-nspawn, or the emulator (tests.real.vm)."""
    init: int = 0
    """Its first process, numbered as here; 0 while it is down."""
    runs: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        return FOLDER / "machines" / str(self.number)

    @property
    def root(self) -> Path:
        """Its file system, seen from here: the common tree below, its own changes above."""
        return self.folder / "root"

    @property
    def docker(self) -> Path:
        """Its Docker's folder: a plain one, because overlays can't lie on an overlay."""
        return self.folder / "docker"

    @property
    def address(self) -> str:
        return f"10.77.{self.number}.2"

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def host_key(self) -> Path:
        """What its sshd shows."""
        return self.root / "etc/ssh/ssh_host_ed25519_key"

    # -- power

    @classmethod
    @contextlib.contextmanager
    def up(cls, hostname: str, *, images: Path | None = IMAGES, has_kernel_log: bool = False) -> Iterator[Self]:
        """Boot one with a fresh disk, and with the images that were built for its Docker; its disk goes with it.

        The kernel log is that of this machine, where others write too: without it, it has none.
        """
        if why := missing(cls.part):
            raise CanNotBeHad(why)
        number, lock = free_number()
        one = cls(hostname, number, images if images is not None and images.exists() else None, has_kernel_log, lock)
        try:
            make_ground()
            one._make_disk()
            one.again()
            yield one
        finally:
            one.kill()
            one._forget()
            lock.close()
            _wait(lambda: not any(map(os.path.exists, one._ports())))
            _leave_ground()

    def again(self) -> None:
        """Boot it from its disk, and wait until its sshd says its banner."""
        self.runs = threading.Thread(target=self._run, daemon=True)
        self.runs.start()
        self.answers()

    def answers(self, within_s: float = PATIENCE_S, address: str = "") -> None:
        """Wait until its sshd says its banner."""
        at = (address or self.address, 22)
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(at, timeout=BANNER_S) as line:
                if line.recv(4) == b"SSH-" and self.init:
                    return
            if self.runs is not None and not self.runs.is_alive():
                break
            time.sleep(0.05)
        said = (self.folder / "console").read_text(errors="replace").strip().splitlines()[-5:]
        raise CanNotBeHad(f"{self.hostname} does not boot here: {' | '.join(said)}")

    def kill(self) -> None:
        """Take its power away."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.runs is not None:
            self.runs.join(PATIENCE_S / 10)

    def reboot(self) -> None:
        """As somebody at its keyboard does; returns once it is up with another boot ID."""
        before = self.boot_id()
        self.run("systemctl", "reboot", "--no-block")
        self.until(lambda: self.boot_id() not in ("", before), what="another boot")
        self.answers()

    def boot_id(self) -> str:
        """Empty while it is down."""
        asked = self.inside("cat", "/proc/sys/kernel/random/boot_id")
        with contextlib.suppress(subprocess.TimeoutExpired):  # as it goes down
            return subprocess.run(asked, capture_output=True, text=True, timeout=BANNER_S, check=False).stdout.strip()
        return ""

    # -- what is done to it

    def inside(self, *argv: str) -> tuple[str, ...]:
        """What runs a program in it, as root."""
        return ("nsenter", "--target", str(self.init), "--all", "--", *argv)

    def run(self, *argv: str, said: str = "") -> str:
        """Run a program in it as root, `said` on its input; what it prints."""
        ended = subprocess.run(
            self.inside(*argv), input=said, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert ended.returncode == 0, (argv, ended.stdout[-500:], ended.stderr[-500:])
        return ended.stdout

    def gb10(self, *processes: str, **figures: int) -> None:
        """What its NVML says from now on (nvml.c): sm, power_mw, clock_mhz, temperature, fail; each of `processes` as
        "PID BYTES NAME". Without any it idles."""
        lines = [f"{name} {value}\n" for name, value in figures.items()]
        lines += [f"process {one}\n" for one in processes]
        self.run("sh", "-c", "cat >/run/gb10.new && mv /run/gb10.new /run/gb10", said="".join(lines))

    def freeze(self) -> None:
        """Stop every process of it, those in its containers too; what forks meanwhile is stopped in the next round."""
        stopped: set[int] = set()
        while new := set(self.pids()) - stopped:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= new

    def thaw(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def cut(self, cable: str) -> None:
        """Take a cable out: "lan", or "cable" between two of them."""
        done("ip", "link", "set", self._port(cable), "down")

    def plug(self, cable: str) -> None:
        done("ip", "link", "set", self._port(cable), "up")

    def pids(self) -> list[int]:
        """Of everything that runs in it, numbered as here."""
        out: list[int] = []
        waiting = [self.init]
        while waiting:
            pid = waiting.pop()
            out.append(pid)
            waiting += _children(pid)
        return out

    def pids_of(self, name: str) -> list[int]:
        """Of the processes in it whose command name begins so, numbered as here."""
        return [pid for pid in self.pids() if _read(f"/proc/{pid}/comm").startswith(name)]

    def until(self, condition: Callable[[], object], *, what: str) -> None:
        """Wait for a condition by asking."""
        poll(condition, what=f"{what} on {self.hostname}")

    # -- how it is reached

    def alias(self, name: str = "", user: str = "spark") -> None:
        """Write it into the home's ssh configuration and known_hosts, under its name."""
        folder = Path.home() / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        with (folder / "config").open("a") as config:
            config.write(f"Host {name or self.hostname}\n  HostName {self.address}\n  User {user}\n")
            config.write(f"  IdentityFile {self.key}\n")
        with (folder / "known_hosts").open("a") as known:
            known.write(f"{self.address} {Path(f'{self.host_key}.pub').read_text()}")

    # -- its disk and its power

    def _make_disk(self) -> None:
        self._forget()
        for name in ("upper", "work", "root", "docker"):
            (self.folder / name).mkdir(parents=True)
        below, above, work = FOLDER / "machine", self.folder / "upper", self.folder / "work"
        layers = f"lowerdir={below},upperdir={above},workdir={work}"
        done("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        (self.root / "etc/hostname").write_text(f"{self.hostname}\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.hostname}\n")
        quick = self.root / "etc/systemd/system.conf.d/quick.conf"  # the end of a login's scope is missed at times
        quick.parent.mkdir()
        quick.write_text("[Manager]\nDefaultTimeoutStopSec=20\n")
        plan = self.root / "etc/netplan/01-lan.yaml"
        plan.write_text(NETPLAN.format(subnet=f"10.77.{self.number}"))
        plan.chmod(0o600)
        done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.host_key))
        for home in (self.root / "root", self.root / "home/spark"):
            (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
            shutil.copy(f"{self.key}.pub", home / ".ssh/authorized_keys")
            done("chown", "--recursive", "--reference", str(home), str(home / ".ssh"))
        if self.images is not None:
            left_out = [f"--exclude=./overlay2/{layer.name}/diff/*" for layer in self._layers()]
            pack = ["tar", "--create", *left_out, f"--directory={self.images}", "."]
            with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
                done_with = ["tar", "--extract", f"--directory={self.docker}"]
                subprocess.run(done_with, stdin=packing.stdout, check=True)

    def _layers(self) -> list[Path]:
        """Of its images; they are read only, so that all machines share them."""
        if self.images is None:
            return []
        return [layer for layer in (self.images / "overlay2").iterdir() if (layer / "diff").is_dir()]

    def _run(self) -> None:
        """Boot it, and again after each reboot, until it is shut down or its power goes."""
        ways = [f"--bind={self.docker}:/var/lib/docker"]
        ways += [f"--bind={layer}/diff:/var/lib/docker/overlay2/{layer.name}/diff" for layer in self._layers()]
        for name, place in (("models", "/models"), ("sglang", "/opt/sglang"), ("llama", "/opt/llama")):
            if (FOLDER / name).exists():
                ways.append(f"--bind-ro={FOLDER / name}:{place}")
        argv = [
            # With the tests goes everything, also when they are killed; systemd-nspawn alone would leave its init.
            *("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", f"--directory={self.root}"),
            *(f"--machine=spk{self.number}", f"--hostname={self.hostname}", "--console=pipe", "--network-veth"),
            *(f"--network-veth-extra={self._port('cable')}:{CABLE}", "--capability=all"),
            *("--system-call-filter=add_key keyctl bpf", *ways),
        ]
        argv.append("--bind=/dev/kmsg" if self.has_kernel_log else "--system-call-filter=~syslog")
        unified = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1"}
        with (self.folder / "console").open("ab") as console:
            while True:
                _wait(lambda: not any(map(os.path.exists, self._ports())))  # the kernel removes the last ones later
                process = self.process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env={**os.environ, **unified}
                )
                self._connect()
                # unshare, its child systemd-nspawn, and of that the machine's first process
                first = lambda: [pid for child in _children(process.pid) for pid in _children(child)]  # noqa: B023, E731
                _wait(lambda: first() or process.poll() is not None)  # noqa: B023
                self.init = next(iter(first()), 0)
                ended = process.wait()
                self.init = 0
                if ended != REBOOTS:
                    break

    def _connect(self) -> None:
        """Give its ports their other ends, once they are there."""
        process = self.process
        _wait(lambda: all(map(os.path.exists, self._ports())) or process is None or process.poll() is not None)
        lan, cable = self._port("lan"), self._port("cable")
        for words in (
            ("addr", "replace", f"10.77.{self.number}.1/24", "dev", lan),
            ("link", "set", lan, "up"),
            ("link", "set", cable, "mtu", "9000", "master", BRIDGE, "up"),
        ):
            subprocess.run(["ip", *words], capture_output=True, check=False)

    def _port(self, cable: str) -> str:
        """The end outside of one of its two ports."""
        return {"lan": f"ve-spk{self.number}", "cable": f"cx-spk{self.number}"}[cable]

    def _ports(self) -> list[str]:
        return [f"/sys/class/net/{self._port(cable)}" for cable in ("lan", "cable")]

    def _forget(self) -> None:
        """What it, or one that had its number before and was killed, has left."""
        for cable in ("lan", "cable"):
            subprocess.run(["ip", "link", "delete", self._port(cable)], capture_output=True, check=False)
        subprocess.run(["umount", str(self.root)], capture_output=True, check=False)
        if not os.path.ismount(self.root):
            shutil.rmtree(self.folder, ignore_errors=True)


def free_number() -> tuple[int, IO[str]]:
    """A number that no other machine has, and the open file that keeps it so."""
    (FOLDER / "machines").mkdir(parents=True, exist_ok=True)
    for number in range(140, 250):
        lock = (FOLDER / "machines" / f"{number}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return number, lock
    raise CanNotBeHad("a hundred machines are up")


def make_ground() -> None:
    """What all machines share on this one. One that is cut off is not looked for by way of the default route."""
    folder = Path("/run/systemd/nspawn")
    folder.mkdir(parents=True, exist_ok=True)
    if not folder.is_mount():
        done("mount", "-t", "tmpfs", "tmpfs", str(folder))
    done("ip", "route", "replace", "unreachable", "10.77.0.0/16", "metric", "9999")
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], capture_output=True, check=False)
        done("ip", "link", "set", BRIDGE, "mtu", "9000", "type", "bridge", "group_fwd_mask", "0x4000")  # LLDP too
        done("ip", "link", "set", BRIDGE, "up")


def _leave_ground() -> None:
    """With the last machine goes what was made for them all."""
    ports = Path(f"/sys/class/net/{BRIDGE}/brif")
    if ports.exists() and not os.listdir(ports):
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def _wait(condition: Callable[[], object]) -> None:
    """What needs it says so itself when it hasn't come true."""
    deadline = time.monotonic() + PATIENCE_S / 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """A process that does nothing until the block is left: what it has said of itself stays so."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    """Of all its threads."""
    out: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            out += [int(word) for word in _read(f"/proc/{pid}/task/{task}/children").split()]
    return out


def _read(path: str) -> str:
    """Empty where its process is gone."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def main(names: list[str]) -> None:
    """Hold machines until Ctrl-C, and say how to reach them."""
    with contextlib.ExitStack() as stack:
        for name in names:
            one = stack.enter_context(Machine.up(name))
            print(f"ssh -i {one.key} spark@{one.address}   # {name}", flush=True)
        signal.pause()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:] or ["spark1"])
