"""`executor_config`: how sparkrun's containers run, as far as Docker on a Spark knows it."""

from __future__ import annotations

from sparktop.recipe.fields import Fields
from sparktop.recipe.hostconfig import options as host_options
from sparktop.recipe.problems import ProblemKind, shown
from sparktop.recipe.rendered import CannotRender, Seat

TEXTS = ("restart_policy", "gpus", "ipc", "shm_size", "network", "user", "entrypoint", "memory_limit")
LISTS = ("security_opt", "cap_add", "ulimit", "devices", "volumes", "labels")
FLAGS = ("auto_remove", "privileged")
_ELSEWHERE = {
    "accelerator_vendor": ("nvidia",),
    "gpu_access_mode": ("gpus", "cdi"),
    "executor_type": ("docker",),
}
_LOCAL = ("working_dir", "log_dir", "log_file", "pid_dir", "pid_file", "env_file", "command_prefix")


def read_options(fields: Fields | None) -> dict[str, object]:
    """The options by sparkrun's names; those that aren't Docker's are refused."""
    if fields is None:
        return {}
    options: dict[str, object] = {}
    for name in FLAGS:
        if name in fields:
            options[name] = fields.flag(name)
        else:
            fields.node(name)
    for name in TEXTS:
        text = fields.text(name, is_any=True).strip()
        if name in fields:
            options[name] = text
    for name in LISTS:
        if name in fields:
            options[name] = list(_many(fields, name))
        else:
            fields.node(name)
    for name, same in _ELSEWHERE.items():
        value = fields.text(name, same[0]).strip()
        if value not in same:
            text = f"`{shown(value)}` is for other machines than a Spark with Docker"
            fields.add(name, text, kind=ProblemKind.UNSUPPORTED, remedy="take it out")
    for name in _LOCAL:
        if fields.text(name):
            text = "is for engines without a container; sparktop starts containers"
            fields.add(name, text, kind=ProblemKind.UNSUPPORTED, remedy="take it out")
    if options.get("restart_policy") not in (None, "", "no") and options.get("auto_remove") is True:
        text = "a container that Docker removes when it ends can't be restarted by it"
        fields.add("restart_policy", text, remedy="set `auto_remove: false`, or leave the policy out")
    for name, option in options.items():
        if not any(problem.key == fields.dotted(name) for problem in fields.sheet.problems):
            _check(fields, name, option)
    fields.finish()
    return options


def _check(fields: Fields, name: str, value: object) -> None:
    """What a launch would refuse of one option, told where it stands."""
    try:
        host_options({name: value}, Seat(node="spark1", home="/home/you"), nodes=1)
    except CannotRender as error:
        text = error.reason.removeprefix("executor_config: ").removeprefix(name).lstrip(": ")
        kind = ProblemKind.UNSUPPORTED if "can't be honoured" in text else ProblemKind.WRONG
        fields.add(name, text, kind=kind, remedy="; ".join(filter(None, error.remedies)))


def _many(fields: Fields, name: str) -> tuple[str, ...]:
    """A list of texts; a mapping is "key=value" of each, as labels and limits are also written."""
    value = fields.plain(name)
    if isinstance(value, dict) and all(not isinstance(each, list | dict) for each in value.values()):
        return tuple(f"{key}={each}" for key, each in value.items())
    if isinstance(value, str):
        return (value,)
    return fields.texts(name)
