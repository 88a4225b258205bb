"""Parity: what differs between the nodes, what of it matters, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, combinations

from sparktop.bringup.access import memlock_question
from sparktop.bringup.card import (
    Card,
    CheckInputs,
    NodeQuestion,
    Outcome,
    Scope,
    by_hand,
    card,
    command,
    each,
    file,
    passed,
    unknown,
    warning,
)
from sparktop.bringup.machine import (
    guards_question,
    guards_text,
    header_question,
    header_questions,
    smi_question,
    swap_text,
)
from sparktop.checks.node_facts import COMPONENTS
from sparktop.model.survey import Question
from sparktop.operate.launch.gates.docker import toolkit_question
from sparktop.operate.launch.inputs.docker import (
    image_on,
    image_parity,
    image_question,
    images_question,
    info,
    info_question,
    serving_images,
)

Value = Callable[[CheckInputs, str], str | None]
"""A component's value on a node, as it is shown; None: not known."""


def _printed(question: NodeQuestion) -> Value:
    def value(seen: CheckInputs, node: str) -> str | None:
        text = seen.text(question(node))
        return text.strip() if text is not None else None

    return value


def _version(component: str) -> Value:
    return lambda seen, node: COMPONENTS[component][1](seen.view(node)) or None


def _vbios(seen: CheckInputs, node: str) -> str | None:
    row = seen.words(smi_question(node)).partition("\n")[0]
    return row.rpartition(",")[2].strip() if row.count(",") == 2 else None


def _docker(seen: CheckInputs, node: str) -> str | None:
    version = info(seen.survey, node).get("ServerVersion")
    return str(version) if version else None


def _toolkit(seen: CheckInputs, node: str) -> str | None:
    return seen.words(toolkit_question(node)).partition("\n")[0].rpartition(" ")[2] or None


_LOCAL_WORDS = ("root=", "BOOT_IMAGE=", "initrd=", "resume=")
"""Of the kernel's command line: they differ between machines by their nature."""
_command_line_question = file("/proc/cmdline")


def _command_line(seen: CheckInputs, node: str) -> str | None:
    text = seen.text(_command_line_question(node))
    return None if text is None else " ".join(word for word in text.split() if not word.startswith(_LOCAL_WORDS))


_CACHES = (
    "import os\n"
    "for one in '~/.cache/vllm/torch_compile_cache', '~/.cache/flashinfer', '~/.cache/triton', '~/.triton/cache':\n"
    "    if os.path.isdir(os.path.expanduser(one)) and os.listdir(os.path.expanduser(one)):\n"
    "        print(one)\n"
)
_caches_question = command("python3", "-I", "-S", "-c", _CACHES)


def _caches(seen: CheckInputs, node: str) -> str | None:
    question = _caches_question(node)
    return ", ".join(seen.words(question).split()) or "none" if seen.has_answer(question) else None


def _headers(seen: CheckInputs, node: str) -> str | None:
    question = header_question(seen, node)
    code = seen.code(question) if question is not None else None
    return None if code is None else {0: "there", 1: "missing"}.get(code)


_package_question = command("dpkg-query", "-W", "-f", "${Version}", "dgx-spark-ota-update-meta")
_asked = each(
    smi_question,
    _package_question,
    info_question,
    toolkit_question,
    guards_question,
    memlock_question,
    _command_line_question,
    _caches_question,
)


def _questions(seen: CheckInputs) -> Iterator[Question | None]:
    return chain(_asked(seen), header_questions(seen))


def _look_at(name: str, value: Value, matters: str, remedy: str, seen: CheckInputs) -> Outcome:
    values = {node: value(seen, node) for node in seen.nodes}
    known = {node: shown for node, shown in values.items() if shown is not None}
    if len(set(known.values())) > 1:
        found = ", ".join(f"{node} {shown}" for node, shown in known.items())
        if not _is_problem(name, matters, tuple(known.values())):
            return passed(f"differs, which harms nothing by itself: {found}")
        return warning(f"{found}: {matters}", *((by_hand("Make them equal", remedy),) if remedy else ()))
    if len(known) < len(values):
        silent = " and ".join(node for node in values if node not in known)
        return unknown(f"not known on {silent}")
    return passed(f"{next(iter(known.values()), '')} on all")


def _is_problem(name: str, matters: str, values: Sequence[str]) -> bool:
    """Whether the difference matters: by the check that live rules and launches have of it, where there is one."""
    if name not in COMPONENTS:
        return bool(matters)
    judge = COMPONENTS[name][0]
    return any(judge((first, second)).is_problem for first, second in combinations(values, 2))


def _card(name: str, value: Value, matters: str = "", remedy: str = "") -> Card:
    """The check of one thing that should be the same on all nodes.

    `matters` is what a difference does; empty: it is worth knowing, and harms nothing by itself.
    """
    return Card(
        id=f"parity.{name.lower().replace(' ', '-')}",
        title=f"{name[0].upper()}{name[1:]}",
        looks_at=f"{name}, on all nodes",
        why=f"Where it differs, {matters}." if matters else "Worth knowing when a pair misbehaves.",
        sources=("capetron/gb10-cluster-bench", "anakronox/spark-fleet-updates"),
        look=partial(_look_at, name, value, matters, remedy),
        questions=_questions,
        scope=Scope.FLEET,
        root="to change it" if remedy else "",
    )


IMAGES_AT_MOST = 8
"""Of one name on all nodes, those compared."""


def _common_images(seen: CheckInputs) -> tuple[str, ...]:
    listed = [serving_images(seen.survey, node) or {} for node in seen.nodes]
    return tuple(sorted(set.intersection(*map(set, listed))))[:IMAGES_AT_MOST]


def _images_questions(seen: CheckInputs) -> Iterator[Question | None]:
    yield from map(images_question, seen.nodes)
    yield from (image_question(node, name) for name in _common_images(seen) for node in seen.nodes)


def _images(seen: CheckInputs) -> Outcome:
    if silent := [node for node in seen.nodes if serving_images(seen.survey, node) is None]:
        return unknown(f"not listed on {' and '.join(silent)}")
    names = _common_images(seen)
    for name in names:
        images = [image for node in seen.nodes if (image := image_on(seen.survey, node, name)) is not None]
        if len(images) < len(seen.nodes):
            return unknown(f"{name} was not read on all")
        if any(image_parity(first, second).is_problem for first, second in combinations(images, 2)):
            builds = ", ".join(f"{image.node} {image.short_id}" for image in images)
            pull = f"docker pull {name}   # on {' and on '.join(seen.nodes)}"
            return warning(f"{name} is of another build: {builds}", by_hand("Pull it anew on all", pull))
    return passed(f"{', '.join(names)} of one build" if names else "no serving image is on all")


CARDS = (
    _card(
        "driver",
        _version("driver"),
        "collectives and CUDA graphs of one don't fit the other",
        "update DGX OS on all, to one release",
    ),
    _card(
        "kernel",
        _version("kernel"),
        "memory, network driver and NVIDIA module differ with it",
        "update DGX OS on all, and reboot all",
    ),
    _card("DGX OS", _version("DGX OS")),
    _card("VBIOS", _vbios),
    _card(
        "dgx-spark-ota-update-meta",
        _printed(_package_question),
        "limits, lldpd and the kexec setting come with it",
        "sudo apt install dgx-spark-ota-update-meta, on all",
    ),
    _card("Docker", _docker),
    _card("container toolkit", _toolkit),
    _card(
        "swap",
        swap_text,
        "a rank that swaps stalls the others",
        "the same on all: sudo swapoff -a, or a swap file of one size",
    ),
    _card(
        "out-of-memory daemon",
        guards_text,
        "it ends a rank on one node alone, which the others wait for",
        "the same on all: sudo systemctl disable --now earlyoom",
    ),
    _card(
        "locked memory",
        _printed(memlock_question),
        "RDMA fails on the node with the smaller limit",
        "sudo apt install nvidia-spark-limits, on all",
    ),
    _card(
        "kernel command line",
        _command_line,
        "kho=off on one node alone spoils a comparison",
        "the same package on all: sudo apt install nvidia-spark-grub-kho",
    ),
    _card(
        "JIT caches",
        _caches,
        "one rank compiles, and the other waits silently for minutes",
        "copy the folder to the other node, or wait: it is no hang",
    ),
    _card(
        "Python headers",
        _headers,
        "Triton compiles on one node, and the other waits 601 s",
        "sudo apt install python3-dev, on all",
    ),
    card("parity.images", look=_images, questions=_images_questions, scope=Scope.FLEET),
)
