"""What spoils the gates of a node, of the launch as written, and of two nodes that are to be alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import container, engine, facts, gib, memory
from tests.unit.operate.launch.gates_docker import row
from tests.unit.operate.launch.gates_support import (
    BOTH,
    FAILED,
    FOUND,
    PASSED,
    UNKNOWN,
    WARNED,
    World,
    case,
    disk,
    fits,
    hub,
    rendered,
)

from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.prospect import Budget, Fit, Lever, NodeBudget, Slice, SliceKind
from sparktop.model.recipe import Requirement, SecretProblem
from sparktop.model.survey import Answer
from sparktop.model.telemetry import Collector, CollectorState, GapReason
from sparktop.operate.launch.gates import node as gates_node
from sparktop.operate.launch.inputs import docker
from sparktop.operate.launch.inputs.downloads import disk_question

# --- driver, linger, port


@case("driver", "spark1", WARNED, "Driver 590.48.01 isn't from the 580 branch", "DGX Dashboard")
def _(world: World) -> None:
    world.view("spark1", facts=facts("spark1", driver_version="590.48.01"))


@case("driver", "spark1", WARNED, "Driver 585.10 isn't from the 580 branch", "DGX Dashboard")
def _(world: World) -> None:
    world.view("spark1", facts=facts("spark1", driver_version="585.10"))


@case("driver", "spark1", WARNED, "Driver 570.124 isn't from the 580 branch", "DGX Dashboard")
def _(world: World) -> None:
    world.view("spark1", facts=facts("spark1", driver_version="570.124"))


@case("driver", "spark1", FAILED, "driver 595.84 is loaded, and the recipe wants branch 580", "Dashboard")
def _(world: World) -> None:
    world.asks_for(requires=Requirement(driver="580"))
    world.view("spark1", facts=facts("spark1", driver_version="595.84"))


@case("driver", "spark1", WARNED, "Driver 580.178.04 waits for a reboot: 580.142", "sparktop act reboot spark1")
def _(world: World) -> None:
    world.view("spark1", facts=facts("spark1", driver_installed="580.178.04"))


@case("driver", "spark1", FAILED, "no container gets the GPU", "sparktop act reboot spark1")
def _(world: World) -> None:
    failed = Collector(name="nvml", state=CollectorState.FAILED)
    world.view("spark1", facts=facts("spark1", driver_installed="580.178.04"), gpu=None, collectors={"nvml": failed})


@case("driver", "spark1", UNKNOWN, "no permission")
def _(world: World) -> None:
    gaps = {"driver_version": GapReason.NO_PERMISSION}
    world.view("spark1", facts=facts("spark1", driver_version=None, gaps=gaps), gpu=None)


def leaves(world: World, **more: Any) -> None:
    world.view("spark2", facts=facts("spark2", is_lingering=False, **more))
    host = {"DeviceRequests": [{}], "IpcMode": "host"}
    world.rendered = rendered(BOTH, user="1000:1000", host=host)


@case(
    "linger",
    "spark2",
    WARNED,
    "spark does not linger and RemoveIPC is on",
    "on spark2: sudo loginctl enable-linger spark",
)
def _(world: World) -> None:
    leaves(world, removes_ipc=True)


@case("linger", "spark2", FAILED, "the recipe wants spark to linger", "enable-linger")
def _(world: World) -> None:
    leaves(world, removes_ipc=True)
    world.asks_for(requires=Requirement(linger=True))


@case("linger", "spark2", PASSED, "RemoveIPC=no")
def _(world: World) -> None:
    leaves(world, removes_ipc=False)


@case("linger", "spark2", PASSED, "runs as root")
def _(world: World) -> None:
    leaves(world, removes_ipc=True)
    world.rendered = rendered(BOTH)


@case("linger", "spark2", PASSED, "no systemd there")
def _(world: World) -> None:
    world.view("spark2", facts=facts("spark2", gaps={"is_lingering": GapReason.NOT_FOUND}))


@case("linger", "spark2", UNKNOWN, "no permission")
def _(world: World) -> None:
    world.view("spark2", facts=facts("spark2", gaps={"is_lingering": GapReason.NO_PERMISSION}))


def listens(world: World, *ports: int) -> None:
    rows = "".join(f"   {n}: 00000000:{port:04X} 00000000:0000 0A 0 0\n" for n, port in enumerate(ports))
    world.answers[gates_node.port_question("spark1", "/proc/net/tcp6")] = Answer(value=f"head\n{rows}")


@case(
    "port",
    "spark1",
    FAILED,
    "port 8000 is held by a process that is not an engine",
    "--set port=8003, or on spark1: sudo ss -ltnp 'sport = :8000'",
)
def _(world: World) -> None:
    listens(world, 8000, 8001, 8002)


@case("port", "spark1", FAILED, "port 8000 is held by", "--set port=8003, or ")
def _(world: World) -> None:
    """What another node has of an engine that loads, and what Docker publishes there, is offered neither."""
    listens(world, 8000)
    box = container("vllm-other", network_mode="bridge", published_ports={8000: 8001})
    world.view("spark2", engines=(engine("vllm-other", container=box),))
    web = row(Names=["/open-webui"], Ports=[{"PrivatePort": 8080, "PublicPort": 8002}])
    world.answers[docker.list_question("spark2")] = Answer(value=[web])


@case("port", "spark1", FAILED, "port 65535 is held by", "--set port=1024, or ")
def _(world: World) -> None:
    """There is none above it."""
    assert world.rendered is not None
    world.rendered = replace(world.rendered, port=65535)
    listens(world, 65535)


@case("port", "spark1", FAILED, "port 8000 is held by vllm-qwen36", "--stop vllm-qwen36, or --set port=8001")
def _(world: World) -> None:
    """It loads still, and will listen."""
    box = container("vllm-qwen36", network_mode="host")
    world.view("spark1", engines=(engine("vllm-qwen36", container=box),))


@case(
    "port",
    "spark1",
    FAILED,
    "held by the container open-webui, which sparktop doesn't know as an engine",
    "--set port=8001, or on spark1: docker stop open-webui",
)
def _(world: World) -> None:
    listens(world, 8000)
    box = row(Names=["/open-webui"], Ports=[{"PrivatePort": 8080, "PublicPort": 8000}])
    world.answers[docker.list_question("spark1")] = Answer(value=[box])


@case("port", "spark1", PASSED, "is free when vllm-qwen36 is stopped")
def _(world: World) -> None:
    listens(world, 8000)
    world.view("spark1", engines=(engine("vllm-qwen36", container=container("vllm-qwen36")),))
    world.order = replace(world.order, stops=(("spark1", "vllm-qwen36"),))


@case("port", "spark1", PASSED, "port 8000 is free")
def _(world: World) -> None:
    """Another's network of its own."""
    box = container("vllm-qwen36", network_mode="bridge", published_ports={8000: 9000})
    world.view("spark1", engines=(engine("vllm-qwen36", container=box),))


@case("port", "spark1", UNKNOWN, "permission denied")
def _(world: World) -> None:
    for path in gates_node._TABLES:
        world.silent(gates_node.port_question("spark1", path), "permission denied")


# --- recipe-lint, memory, secrets


def finding(severity: Severity) -> Finding:
    remedy = Remedy(title="use the host's network", steps=("--network host",))
    return Finding(
        rule="config.host-network", severity=severity, title="It is on a bridge", explanation="", remedies=(remedy,)
    )


@case("recipe-lint", "", FAILED, "It is on a bridge (config.host-network)", "use the host's network: --network host")
def _(world: World) -> None:
    FOUND.append(finding(Severity.CRITICAL))


@case("recipe-lint", "", WARNED, "It is on a bridge", "--network host")
def _(world: World) -> None:
    FOUND.append(finding(Severity.WARNING))


@case("recipe-lint", "", PASSED, "no finding, 1 remark")
def _(world: World) -> None:
    FOUND.append(finding(Severity.INFO))


@case("recipe-lint", "", UNKNOWN, "max_model_len is no number")
def _(world: World) -> None:
    world.rendered, world.unrendered = None, "max_model_len is no number"


@case("memory", "", FAILED, "Does not fit: 7 GiB short", "--set gpu_memory_utilization=0.76; or --stop other")
def _(world: World) -> None:
    levers = (Lever(values={"gpu_memory_utilization": "0.76"}), Lever(stops=("other",)))
    world.budget = Budget(fit=Fit.NO, why="7 GiB short", levers=levers)


@case("memory", "", WARNED, "80.2 GiB", "--set max_model_len=")
def _(world: World) -> None:
    world.budget = fits(Fit.TIGHT)


@case("memory", "", UNKNOWN, "for it; its size is told nowhere")
def _(world: World) -> None:
    world.budget = fits(Fit.UNKNOWN, unknowns=("its size is told nowhere",))


@case("memory", "", UNKNOWN, "it was not computed")
def _(world: World) -> None:
    world.budget = None


@case("secrets", "", FAILED, "needs VLLM_API_KEY from you", "export VLLM_API_KEY=")
def _(world: World) -> None:
    world.asks_for(environment={"VLLM_API_KEY": "$VLLM_API_KEY"})


@case("secrets", "", PASSED, "VLLM_API_KEY is set")
def _(world: World) -> None:
    world.asks_for(environment={"VLLM_API_KEY": "${VLLM_API_KEY}"})
    world.order = replace(world.order, secrets={"VLLM_API_KEY": "not-to-be-seen"})


@case("secrets", "", PASSED, "none needed")
def _(world: World) -> None:
    """The model is there: its token isn't needed."""
    world.asks_for(environment={"HF_TOKEN": "$HF_TOKEN"})


@case("secrets", "", FAILED, "needs HF_TOKEN", "(chmod 600 ~/.config/sparktop/.env)")
def _(world: World) -> None:
    world.asks_for(environment={"HF_TOKEN": "$HF_TOKEN"})
    world.model_is_missing("spark2")


def open_file(world: World, **secrets: str) -> None:
    remedy = "chmod 600 /home/me/.env"
    problem = SecretProblem(
        text=f"/home/me/.env is readable by other users, so sparktop didn't read it: {remedy}", remedy=remedy
    )
    world.order = replace(world.order, secret_problems=(problem,), secrets=secrets)


@case("secrets", "", WARNED, "/home/me/.env is readable by other users", "chmod 600 /home/me/.env")
def _(world: World) -> None:
    """The hub's token may be in it."""
    open_file(world, VLLM_API_KEY="key-of-mine")
    world.model_is_missing("spark1", "spark2", **hub())


@case("secrets", "", FAILED, "/home/me/.env is readable by other users", "chmod 600 /home/me/.env")
def _(world: World) -> None:
    open_file(world)
    world.asks_for(environment={"VLLM_API_KEY": "$VLLM_API_KEY"})


@case("secrets", "", FAILED, "/home/me/.env is readable by other users", "chmod 600 /home/me/.env")
def _(world: World) -> None:
    """The engine's key may be in it, and without that it would serve anybody."""
    open_file(world)


@case("secrets", "", PASSED, "VLLM_API_KEY is set")
def _(world: World) -> None:
    open_file(world, VLLM_API_KEY="key-of-mine")


@case("secrets", "", FAILED, "the value of VLLM_API_KEY is not valid", "give VLLM_API_KEY on one line")
def _(world: World) -> None:
    """It was meant to be asked for."""
    text = "/home/me/.env line 1: the value of VLLM_API_KEY is not valid: it is not NAME=value"
    world.order = replace(world.order, secret_problems=(SecretProblem(text=text, name="VLLM_API_KEY"),))


@case("secrets", "", WARNED, "the value of HF_TOKEN is not valid", "give HF_TOKEN on one line")
def _(world: World) -> None:
    """The model is there: it isn't needed."""
    text = "/home/me/.env line 1: the value of HF_TOKEN is not valid: it is not NAME=value"
    world.order = replace(world.order, secret_problems=(SecretProblem(text=text, name="HF_TOKEN"),))


# --- equal-memory, same-driver


@case(
    "equal-memory",
    "",
    WARNED,
    "116.0 GiB on spark1, 100.0 GiB on spark2 available: 16.0 GiB apart",
    "drop-caches spark2",
)
def _(world: World) -> None:
    sample = world.views["spark2"].sample
    world.view("spark2", sample=replace(sample, memory=memory(100.0)))


@case("equal-memory", "", PASSED, "116.0 GiB on spark1, 116.0 GiB on spark2 available, 0.0 apart")
def _(world: World) -> None:
    """What is stopped first counts as available."""
    sample = world.views["spark2"].sample
    world.view("spark2", sample=replace(sample, memory=memory(100.0)))
    going = Slice(kind=SliceKind.TO_BE_STOPPED, label="vllm", size_bytes=gib(16.0))
    node = NodeBudget(
        node="spark2", total_bytes=gib(121), available_bytes=gib(100), before=(going,), after=(), left_bytes=0,
        fit=Fit.FITS, sentence="",
    )  # fmt: skip
    world.budget = fits(nodes=(node,))


@case("equal-memory", "", UNKNOWN, "how much memory spark2 has")
def _(world: World) -> None:
    world.view("spark2", sample=None)


@case("same-driver", "", WARNED, "driver 580.142 on spark1 and 580.95.05 on spark2", "sparktop act reboot spark2")
def _(world: World) -> None:
    world.view("spark2", facts=facts("spark2", driver_version="580.95.05"))


@case(
    "same-driver", "", WARNED, "kernel 6.11.0-1000-nvidia on spark1 and 6.17.0-1026-nvidia on spark2", "reboot spark1"
)
def _(world: World) -> None:
    world.view("spark1", facts=facts("spark1", kernel="6.11.0-1000-nvidia"))


@case("same-driver", "", PASSED, "DGX OS 7.6.0 on spark1 and 7.5.0 on spark2, harmless by itself")
def _(world: World) -> None:
    world.view("spark2", facts=facts("spark2", dgx_release="7.5.0"))


@case("same-driver", "", UNKNOWN, "which driver")
def _(world: World) -> None:
    world.view("spark2", facts=facts("spark2", driver_version=None), gpu=None)


@case("same-driver", "", UNKNOWN, "spark2 has told nothing yet")
def _(world: World) -> None:
    world.view("spark2", facts=None)


# --- context


def _asks_for_tokens(world: World, tokens: int, **config: Any) -> None:
    world.budget = fits(context_tokens=tokens)
    told = disk()
    told["models"][0]["config"] = config
    for node in world.nodes:
        world.answers[disk_question(node)] = Answer(value=told)


@case(
    "context", "", WARNED, "65,536 tokens are more than the 40,960 that the model was made for", "--set max_model_len="
)
def _(world: World) -> None:
    _asks_for_tokens(world, 65536, max_position_embeddings=40960)


@case("context", "", PASSED, "32,768 tokens of the 40,960")
def _(world: World) -> None:
    _asks_for_tokens(world, 32768, max_position_embeddings=40960)


def _asks_for_slots(world: World, tokens: int, *flags: str) -> None:
    world.asks_for(engine=EngineKind.LLAMA_CPP)
    _asks_for_tokens(world, tokens, max_position_embeddings=40960)
    world.rendered = rendered(world.nodes, argv=("llama-server", "-c", str(tokens), *flags))


@case("context", "", PASSED, "16,384 tokens of the 40,960")
def _(world: World) -> None:
    """llama.cpp's slots share its context."""
    _asks_for_slots(world, 65536, "-np", "4")


@case("context", "", WARNED, "65,536 tokens per request are more than the 40,960", "--set max_model_len=163840")
def _(world: World) -> None:
    """So what is proposed is of all slots."""
    _asks_for_slots(world, 262144, "-np", "4")


@case("context", "", WARNED, "caps requests at 40,960", "--set max_model_len=40960")
def _(world: World) -> None:
    _asks_for_slots(world, 65536, "-np", "4", "--kv-unified")


@case("context", "", PASSED, "as long as the engine chooses")
def _(world: World) -> None:
    world.budget = fits()


@case("context", "", UNKNOWN, "how long the model's context may be is not known")
def _(world: World) -> None:
    _asks_for_tokens(world, 32768)
