"""A machine with a kernel of its own: qemu's emulation of all its hardware, woken in seconds as it was after its boot.

    with Guest.up("spark1") as guest:   # all of tests.real.machine's, but its root
        guest.run("sh", "-c", "echo c >/proc/sysrq-trigger")

Its own are the kernel's log, panics, cgroup v2's limits, soft-RoCE over the cable. It takes a core while it works, and
minutes for a boot.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import shutil
import socket
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.real.machine import CABLE, NETPLAN, Machine, free_number, make_ground
from tests.real.parts import FOLDER, done, load_stand_in
from tests.support import PATIENCE_S

VM = FOLDER / "vm"
BOOTED, MEMORY = "booted", "memory"
"""What a guest wrote on the disk until it had booted, and its memory then."""
BOOT_S = 900.0
DISK_SIZE = "6G"
LAN, LAN_MAC = 3, "52:54:00:00:77:01"
"""Slot on the PCI bus. A guest that is woken has no address yet but the one that its kernel makes from this."""
LAN_FIRST = "fe80::5054:ff:fe00:7701"
KERNEL = "root=/dev/vda rw console=ttyS0 panic=10 apparmor=0 net.ifnames=0"
LINK = "[Match]\nPath=pci-0000:00:{slot:02}.0\n\n[Link]\nName={name}\n"
PING = "net.ipv4.ping_group_range = 0 2147483647\n"
"""As DGX OS has it: everybody may."""
RESEED = "import fcntl; fcntl.ioctl(open('/dev/urandom', 'w'), 0x5207)  # RNDRESEEDCRNG"


@dataclass
class Guest(Machine):
    """One of them."""

    part: ClassVar[str] = "vm"
    source: Path = VM
    """The folder of its kernel, and of the disk and memory that it is woken from."""
    is_asleep: bool = True
    """Woken, not booted, when it gets power first."""
    has_its_own: bool = False
    """Its address and keys, not those that all are woken with."""

    @property
    def host_key(self) -> Path:
        return self.folder / "host_key"

    @property
    def monitor(self) -> Path:
        return self.folder / "monitor"

    @property
    def disk(self) -> Path:
        """Gone with it, but for the first one's, which the others wake on."""
        return self.folder / "disk" if self.source == VM else self.source / BOOTED

    # -- made once

    @classmethod
    def write_disk(cls, tree: Path, folder: Path) -> None:
        """Into `folder`, from a tree; whoever wakes it may log in as root by the key that lies beside it."""
        for slot, name in ((LAN, "host0"), (LAN + 1, CABLE)):
            (tree / f"etc/systemd/network/10-{name}.link").write_text(LINK.format(slot=slot, name=name))
        plan = tree / "etc/netplan/01-lan.yaml"
        plan.write_text(NETPLAN.format(subnet="10.77.1"))
        plan.chmod(0o600)
        (tree / "etc/hostname").write_text("spark\n")
        (tree / "etc/sysctl.d/50-ping.conf").write_text(PING)
        (tree / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
        done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tree / "etc/ssh/ssh_host_ed25519_key"))
        done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
        (tree / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(folder / "key.pub", tree / "root/.ssh/authorized_keys")
        for service in ("avahi-daemon", "lldpd", "apt-daily.timer", "apt-daily-upgrade.timer", "man-db.timer"):
            done("chroot", str(tree), "systemctl", "--quiet", "disable", service)
        raw = folder / "disk"
        done("truncate", f"--size={DISK_SIZE}", str(raw))
        done("mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(raw))

    @classmethod
    def save_booted(cls, source: Path) -> None:
        """Boot a guest from the disk in `source`, and keep there what it has written, and its memory."""
        done("qemu-img", "create", "-q", "-f", "qcow2", "-b", "disk", "-F", "raw", str(source / BOOTED))
        number, lock = free_number()
        one = cls("spark", number, None, True, lock, source=source, is_asleep=False)
        one._forget()
        one.folder.mkdir(parents=True)
        try:
            make_ground()
            one._start()
            one.answers(BOOT_S, one.first_address)
            started = "until systemctl is-active --quiet multi-user.target docker; do sleep 1; done"
            one.run("timeout", str(BOOT_S), "sh", "-c", started)
            load_stand_in(one)
            one.run("sync")
            one.tell("stop")
            one.tell(f'migrate "exec:cat >{source / MEMORY}"')
        finally:
            one.kill()
            one._forget()
            lock.close()

    # -- how it is reached

    @property
    def first_address(self) -> str:
        """Before it has been given one of its own."""
        return f"{LAN_FIRST}%{self._port('lan')}"

    def inside(self, *argv: str) -> tuple[str, ...]:
        key, address = (self.key, self.address) if self.has_its_own else (self.source / "key", self.first_address)
        known = ("-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR")
        ends = ("-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=24")
        return ("ssh", "-F", "none", "-i", str(key), *known, *ends, f"root@{address}", shlex.join(argv))

    def tell(self, command: str, within_s: float = PATIENCE_S) -> str:
        """A command to the emulator itself; what it answers."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(within_s)
            line.connect(str(self.monitor))
            said = b""
            for words in ("", f"{command}\n"):  # it says what it is first
                line.sendall(words.encode())
                said = line.recv(4096)
                while not said.endswith(b"(qemu) "):
                    said += line.recv(4096)
        return said.decode(errors="replace")

    # -- its disk and its power

    def again(self) -> None:
        self._start()
        if self.is_asleep:
            self.until(self._has_its_memory, what="its memory")
            self.tell("cont")
            self.answers(address=self.first_address)
            self._give_what_is_its_own()
            self.is_asleep = False
        self.answers(BOOT_S)

    def _has_its_memory(self) -> bool:
        with contextlib.suppress(OSError):  # the monitor comes first
            return "VM status: paused\r" in self.tell("info status")
        return False

    def _start(self) -> None:
        self.runs = threading.Thread(target=self._run, daemon=True)
        self.runs.start()

    def _make_disk(self) -> None:
        self._forget()
        self.folder.mkdir(parents=True)
        below = ("-b", str(self.source / BOOTED), "-F", "qcow2")
        done("qemu-img", "create", "-q", "-f", "qcow2", *below, str(self.disk))
        for key in (self.key, self.host_key):
            done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))

    def _run(self) -> None:
        """Wake or boot it; it boots again by itself after a reboot."""
        argv = [
            # Before whatever else runs here: its time doesn't wait, and a login or a ping has a limit.
            *("setpriv", "--pdeathsig", "KILL", "nice", "-n", "-10"),
            *("qemu-system-x86_64", "-M", "q35", "-cpu", "max", "-smp", "2"),
            *("-accel", "tcg,thread=multi", "-m", "1536", "-nodefaults", "-display", "none"),
            *("-monitor", f"unix:{self.monitor},server=on,wait=off", "-serial", "stdio"),
            *("-kernel", str(self.source / "vmlinuz"), "-initrd", str(self.source / "initrd.img"), "-append", KERNEL),
            *("-drive", f"if=none,id=disk,format=qcow2,cache=unsafe,file={self.disk}"),
            *("-device", "virtio-blk-pci,drive=disk,addr=2", "-device", "virtio-rng-pci,addr=5"),
        ]
        for slot, (cable, mac) in enumerate((("lan", LAN_MAC), ("cable", self.cable_mac)), LAN):
            argv += ["-netdev", f"tap,id={cable},ifname={self._port(cable)},script=no,downscript=no"]
            argv += ["-device", f"virtio-net-pci,netdev={cable},mac={mac},addr={slot},romfile="]
        if self.is_asleep:
            argv += ["-incoming", f"exec:cat {self.source / MEMORY}"]
        with (self.folder / "console").open("ab") as console:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
            self._connect()
            self.init = self.process.pid
            self.process.wait()
        self.init = 0

    @property
    def cable_mac(self) -> str:
        """Of its second port: two of them lie on one cable."""
        return f"52:54:00:00:78:{self.number:02x}"

    def _give_what_is_its_own(self) -> None:
        """Name, address, keys and time, now and for its next boot; and randomness, which all have saved the same."""
        own = {
            "/etc/hostname": f"{self.hostname}\n",
            "/etc/hosts": f"127.0.0.1 localhost\n{self.address} {self.hostname}\n",
            "/etc/netplan/01-lan.yaml": NETPLAN.format(subnet=f"10.77.{self.number}"),
            "/etc/ssh/ssh_host_ed25519_key": self.host_key.read_text(),
            "/etc/ssh/ssh_host_ed25519_key.pub": Path(f"{self.host_key}.pub").read_text(),
            "/root/.ssh/authorized_keys": Path(f"{self.key}.pub").read_text(),
        }
        lines = [f"date --set @{time.time():.2f} >/dev/null", f"echo {secrets.token_hex(32)} >/dev/urandom"]
        lines += [f"python3 -c {shlex.quote(RESEED)}"]
        lines += [f"printf %s {shlex.quote(text)} >{path}" for path, text in own.items()]
        lines += [
            "install -d -m 700 -o spark -g spark /home/spark/.ssh",
            "install -m 600 -o spark -g spark /root/.ssh/authorized_keys /home/spark/.ssh",
            f"hostname {self.hostname}",
            f"ip link set {CABLE} down address {self.cable_mac}",
            f"ip link set {CABLE} up",
            "ip -4 address flush dev host0",
            f"ip address add {self.address}/24 dev host0",
            f"ip route replace default via 10.77.{self.number}.1",
            "systemctl reload ssh",
        ]
        self.run("sh", "-e", said="\n".join(lines))
        self.has_its_own = True

    def becomes_another(self) -> None:
        """Another machine and another boot than those that were woken from the same memory."""
        boot = "/run/boot_id"
        self.run("sh", "-c", f"echo {uuid.uuid4().hex} >/etc/machine-id; echo {uuid.uuid4()} >{boot}")
        self.run("mount", "--bind", boot, "/proc/sys/kernel/random/boot_id")
