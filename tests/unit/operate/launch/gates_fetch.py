"""What spoils the gates of the model, the hub, the way from node to node, and the disks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.operate.launch.gates_support import BOTH, CACHE, FAILED, PASSED, UNKNOWN, WARNED, World, case, disk, hub

from sparktop.model.engine import EngineKind
from sparktop.model.survey import Answer
from sparktop.operate.launch.gates import downloads
from sparktop.operate.launch.inputs.downloads import disk_question, programs_question, rsync_question

DRAFT = "org/Draft"

# --- model, hub, ssh, disk


@case("model", "spark1", WARNED, "spark1; it is downloaded first: 34.6 GB", "hf download org/Model-FP8")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2", **hub())


@case("model", "spark2", WARNED, "34.6 GB, from spark1", "on spark2: hf download")
def _(world: World) -> None:
    world.model_is_missing("spark2")


@case("model", "spark2", WARNED, "is only partly on spark2, 10.0 GB, 1 files missing: model-00002", "hf download")
def _(world: World) -> None:
    world.model_is_missing("spark2", whole=False)


@case("model", "spark2", FAILED, "downloads are off (--no-fetch)", "on spark2: hf download")
def _(world: World) -> None:
    world.model_is_missing("spark2")
    world.order = replace(world.order, may_fetch=False)


def _asks_for_a_quant(world: World) -> None:
    world.asks_for(engine=EngineKind.LLAMA_CPP, model="org/M-GGUF:Q8_0")
    files = [{"path": name, "size_bytes": 7 * 10**9} for name in ("M-Q8_0.gguf", "M-Q4_K_M.gguf")]
    world.model_is_missing("spark1", "spark2", **hub(files=files))


@case(
    "model", "spark1", FAILED, "no hf is there to download it, and no image of llama.cpp has Python", "uv tool install"
)
def _(world: World) -> None:
    _asks_for_a_quant(world)


@case("model", "spark1", WARNED, "it is downloaded first: 7.0 GB", "hf download org/M-GGUF M-Q8_0.gguf")
def _(world: World) -> None:
    _asks_for_a_quant(world)
    for node in BOTH:
        world.answers[programs_question(node, "/home/spark")] = Answer(value="/usr/bin/hf\n")


@case("model", "spark1", FAILED, "downloads are off (--no-fetch)", "hf download org/M-GGUF --include '*Q8_0*'")
def _(world: World) -> None:
    _asks_for_a_quant(world)
    world.order = replace(world.order, may_fetch=False)


@case(
    "hub",
    "spark1",
    FAILED,
    "org/M-GGUF has no .gguf model of the quant Q2_K: M-Q4_K_M.gguf, M-Q8_0.gguf",
    "--set model",
)
def _(world: World) -> None:
    _asks_for_a_quant(world)
    world.asks_for(model="org/M-GGUF:Q2_K")


@case("model", "spark2", UNKNOWN, "which models spark2 has is not known: it took more than 20 s")
def _(world: World) -> None:
    world.silent(disk_question("spark2"), "it took more than 20 s")


@case("model", "spark1", FAILED, "there is no model at /models/Mine on spark1", "--set model=ORG/NAME")
def _(world: World) -> None:
    world.asks_for(model="/models/Mine")


@case("model", "spark1", FAILED, "is not writable for its user", 'sudo chown -R "$USER":')
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2", **hub())
    world.answers[disk_question("spark1")] = Answer(value=disk(models=[], writable=False))


@case("model", "spark1", FAILED, "nothing there can download it: no hf", "uv tool install huggingface_hub")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2", **hub())
    world.answers[disk_question("spark1")] = Answer(value=disk(models=[], uid=None))


@case("model", "", FAILED, "'org/Model-FP8@--token' is neither a repository nor a path", "--set model=")
def _(world: World) -> None:
    world.order = replace(world.order, values={"model_revision": "--token"})


@case("model", "", FAILED, "neither a repository nor a path", "--set model=")
def _(world: World) -> None:
    world.asks_for(model="--flag $(reboot)")


@case("hub", "spark1", FAILED, "without a token (HTTP 401)", "https://huggingface.co/org/Model-FP8, then give a token")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2", **hub(status=401, files=[]))


@case("hub", "spark1", FAILED, "to this token (HTTP 403)", "ask for access at https://huggingface.co/org/Model-FP8")
def _(world: World) -> None:
    world.order = replace(world.order, secrets={"HF_TOKEN": "hf_abcdefghijklmnop"})
    world.model_is_missing("spark1", "spark2", **hub(status=403, files=[]))


@case("hub", "spark1", FAILED, "is gated: its files come only with a token", "chmod 600 ~/.config/sparktop/.env")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2", **hub(gated="manual"))


@case("hub", "spark1", PASSED, "34.6 GB in 2 files, gated, with a token")
def _(world: World) -> None:
    world.order = replace(world.order, secrets={"HF_TOKEN": "hf_abcdefghijklmnop"})
    world.model_is_missing("spark1", "spark2", **hub(gated="manual"))


@case("hub", "spark1", FAILED, "the hub has no org/Model-FP8 (HTTP 404)", "--set model=ORG/NAME")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2", **hub(status=404, files=[]))


@case("hub", "spark1", FAILED, "can't be asked from spark1: name not known", "curl -sSI https://huggingface.co")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2", **hub(status=0, files=[], problem="name not known"))


@case("hub", "", FAILED, "complete on no node, downloads are off (--no-fetch)", "hf download")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2")
    world.order = replace(world.order, may_fetch=False)


@case("hub", "spark1", UNKNOWN, "it was not asked")
def _(world: World) -> None:
    world.model_is_missing("spark1", "spark2")


@case("hub", "", PASSED, "not needed: org/Model-FP8 is on spark1")
def _(world: World) -> None:
    world.model_is_missing("spark2")


def draft(world: World, *missing: str, **said: Any) -> None:
    """The recipe has one too; `missing`: the nodes that lack it."""
    world.asks_for(more_models=(DRAFT,), command="sglang {draft_model}", defaults={"port": 8000, "draft_model": DRAFT})
    rows = disk()["models"]
    small = {**rows[0], "name": DRAFT, "folder": f"{CACHE}/hub/models--org--Draft", "size_bytes": 2_000_000_000}
    for node in world.nodes:
        world.answers[disk_question(node)] = Answer(value=disk(models=rows if node in missing else [*rows, small]))
        world.df(node, CACHE, 900 * 10**9)
    if said:
        world.answers[world.looked.models[1].hub_question("spark1")] = Answer(value=said)


SMALL = [{"path": "model.safetensors", "size_bytes": 2_000_000_000}]


@case("model", "spark1", PASSED, "org/Draft is there, 2.0 GB")
def _(world: World) -> None:
    draft(world)


@case("model", "spark2", WARNED, "it is downloaded first: 2.0 GB, from spark1", "org/Draft")
def _(world: World) -> None:
    draft(world, "spark2")


@case("model", "spark1", PASSED, "org/Model-FP8 is there, 34.6 GB")
def _(world: World) -> None:
    draft(world, "spark1", "spark2", **hub(files=SMALL))


@case("model", "", FAILED, "'org/a b' is neither a repository nor a path", "runtime_config: sparktop: models")
def _(world: World) -> None:
    world.asks_for(more_models=("org/a b",))


@case("hub", "spark1", PASSED, "org/Draft is available, 2.0 GB in 1 files")
def _(world: World) -> None:
    draft(world, "spark1", "spark2", **hub(files=SMALL))


@case("hub", "spark1", FAILED, "the hub has no org/Draft (HTTP 404)", "--set draft_model=ORG/NAME")
def _(world: World) -> None:
    draft(world, "spark1", "spark2", **hub(status=404, files=[]))


@case("hub", "spark1", FAILED, "org/Draft is gated", "accept its terms at https://huggingface.co/org/Draft")
def _(world: World) -> None:
    draft(world, "spark1", "spark2", **hub(files=SMALL, gated="manual"))


@case("hub", "", PASSED, "not needed: org/Model-FP8 is on spark1")
def _(world: World) -> None:
    draft(world, "spark1", "spark2", **hub(files=SMALL))


@case("disk", "spark2", FAILED, "1.0 GB free on / for org/Draft, 2.0 GB: 2.2 GB with 10 % over, 1.2 GB short", "docker")
def _(world: World) -> None:
    draft(world, "spark2")
    world.df("spark2", CACHE, 10**9)


@case("disk", "spark1", FAILED, "36.0 GB free on / for the model, 34.6 GB and org/Draft, 2.0 GB: 40.3 GB", "docker")
def _(world: World) -> None:
    """Each alone would go in."""
    draft(world, "spark1", "spark2", **hub(files=SMALL))
    world.model_is_missing("spark1", "spark2", **hub())
    world.df("spark1", CACHE, 36 * 10**9)


def copies(world: World, *, rsync: str = "rsync  version 3.2.7  protocol version 31\n", reach: Answer) -> None:
    world.model_is_missing("spark2")
    looked = world.looked
    ask = looked.models[0].reach_question(looked.contexts[1])
    assert ask is not None
    world.answers[rsync_question("spark2")] = Answer(value=rsync)
    world.answers[ask] = reach


@case("ssh", "spark2", PASSED, "logs in to spark1 at 10.0.0.1 without a password")
def _(world: World) -> None:
    copies(world, reach=Answer(value="rsync  version 3.2.7  protocol version 31\n"))


@case("ssh", "spark2", WARNED, "Permission denied (publickey)", "sparktop act ssh-mesh spark1 spark2")
def _(world: World) -> None:
    copies(world, reach=Answer(problem="ssh ended with 255: Permission denied (publickey)."))


@case("ssh", "spark2", WARNED, "no rsync of 3.2.3 or later", "apt-get install rsync")
def _(world: World) -> None:
    copies(world, rsync="", reach=Answer(value="rsync  version 3.2.7  protocol version 31\n"))


@case("ssh", "spark2", UNKNOWN, "was not asked")
def _(world: World) -> None:
    world.model_is_missing("spark2")


@case(
    "disk",
    "spark2",
    FAILED,
    "20.0 GB free on /data for the model, 34.6 GB: 38.1 GB with 10 % over, 18.1 GB short",
    "image prune",
)
def _(world: World) -> None:
    world.model_is_missing("spark2")
    world.df("spark2", CACHE, 20 * 10**9, "/data")


@case("disk", "spark2", FAILED, "60.0 GB free on / for the model, 34.6 GB and the image, 21.0 GB", "docker system df")
def _(world: World) -> None:
    """Each alone would go in."""
    world.model_is_missing("spark2")
    world.image("spark2", None)
    world.df("spark2", CACHE, 60 * 10**9)
    world.df("spark2", "/var/lib/docker", 60 * 10**9)


@case("disk", "spark2", PASSED, "60.0 GB free on /data for the model, 34.6 GB; 60.0 GB free on / for the image")
def _(world: World) -> None:
    world.model_is_missing("spark2")
    world.image("spark2", None)
    world.df("spark2", CACHE, 60 * 10**9, "/data")
    world.df("spark2", "/var/lib/docker", 60 * 10**9)


@case("disk", "spark1", WARNED, "30.0 GB free on / for the image, of unknown size", "on spark1: df -h /")
def _(world: World) -> None:
    for node in BOTH:
        world.image(node, None)
        world.df(node, "/var/lib/docker", 30 * 10**9)


@case("disk", "spark2", UNKNOWN, "for the model is not known: df ended with 1")
def _(world: World) -> None:
    world.model_is_missing("spark2")
    world.silent(downloads.df_question("spark2", CACHE), "df ended with 1: Permission denied")


@case("disk", "spark2", PASSED, f"70.0 GB free on {CACHE} for the model")
def _(world: World) -> None:
    """A cache that isn't there yet: as the answer on models tells."""
    world.model_is_missing("spark2")
    world.answers[disk_question("spark2")] = Answer(value=disk(there=False, free_bytes=70 * 10**9))
    world.silent(downloads.df_question("spark2", CACHE), "df ended with 1: No such file or directory")


@case("disk", "spark2", UNKNOWN, "which images spark2 has is not known")
def _(world: World) -> None:
    world.image("spark2", None, problem="no socket")
