"""The commands that start an engine, keep it served, and lead to it: `launch`, `unit`, `expose`, `forward`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.cli.options import (
    HOST_HELP,
    HOSTS,
    RUN,
    ExitCode,
    argument,
    need_spark,
    refuse_secrets,
    set_pairs,
    settings,
    takes,
    timeout,
)
from sparktop.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from sparktop.model.recipe import Order, Recipe
    from sparktop.recipe.operator_secrets import SecretValues
    from sparktop.recipe.read.adopt import Adopted

PORTS = (1, 65_535)
NEAR = 0.85
"""How similar to a recipe's name, from 0 to 1, what may also be a container's is taken for a slip."""
EXPORTS = ("compose", "run", "systemd")
RECIPE_OPTIONS = (
    argument("--set", "set a parameter of the recipe", "NAME=VALUE", repeats=True),
    argument("--env-file", "a file of secrets, NAME=value lines, mode 0600", "FILE", type=Path, default=None),
)
"""What is wanted of a recipe."""


@takes(
    argument(
        "recipe",
        "a recipe's name (see `sparktop recipes list`); a recipe file, a compose file, a `docker run` script or a "
        "unit (FILE#NAME where it starts several engines), here or by its whole path on HOST; or a container there",
        "RECIPE|FILE|CONTAINER",
        nargs="?",
    ),
    argument("hosts", f"{HOST_HELP}; the first is the head", "HOST", nargs="*"),
    *RECIPE_OPTIONS,
    argument("--stop", "stop this engine first, on each HOST that runs it", "ENGINE", repeats=True),
    argument("--no-fetch", "download nothing: use what is on the disks"),
    argument(
        "--grace",
        "time between SIGTERM and SIGKILL for stopped engines, 1 to 600",
        "SECONDS",
        type=int,
        within=(1, 600),
        default=None,
    ),
    argument(
        "--export",
        "print a file that launches it, and change nothing",
        choices=EXPORTS,
        against=("--dry-run", "--yes"),
    ),
    *RUN,
    usage="sparktop launch RECIPE|FILE|CONTAINER HOST... [--set NAME=VALUE]\n"
    "                       [--stop ENGINE] [--env-file FILE] [--no-fetch] [--json]\n"
    "                       [--dry-run | --yes | --export compose|run|systemd]",
)
def launch(options: argparse.Namespace) -> ExitCode:
    config = settings(options)
    if not options.recipe:
        raise UsageError("which recipe?", hint="sparktop recipes list names all")
    if options.export and options.json:
        raise UsageError("--export prints a file: --json goes with --dry-run or --yes")
    from sparktop.headless.launch import Launch, needs_node
    from sparktop.headless.launch import launch as carry_out
    from sparktop.recipe.read.shelf import is_there, names, near_names

    order, notes = (None, ()) if config.hosts and needs_node(options.recipe) else ordered(options)
    need_spark(options, config, f"sparktop launch {options.recipe}")
    from sparktop.cli.composition import invocation, once_each

    once_each(config.hosts)
    if order is None and not is_there(options.recipe) and (near := near_names(options.recipe, names(), least=NEAR)):
        notes = (f"there is no recipe {options.recipe}: did you mean {' or '.join(near)}? Looking for a container",)
    command = Launch(
        order=order,
        name=options.recipe,
        order_of=lambda adopted: order_of(adopted.reading.recipe, options, adopted),
        stops=tuple(options.stop),
        options={"grace_s": str(options.grace)} if options.grace else {},
        export=options.export,
        notes=notes,
    )
    return carry_out(invocation(config, options), command)


def ordered(options: argparse.Namespace) -> tuple[Order, tuple[str, ...]]:
    """(what is wanted of the recipe, where its secrets come from), from the arguments of a command that takes one."""
    from sparktop.recipe.read.shelf import launchable

    entry = launchable(options.recipe)
    adopted = entry.adopted
    order, notes = order_of(entry.recipe, options, adopted)
    taken = f"{options.recipe} is a {adopted.kind}: made into a recipe and launched" if adopted is not None else ""
    return order, (*filter(None, [taken]), *notes)


def order_of(
    chosen_recipe: Recipe | None, options: argparse.Namespace, adopted: Adopted | None
) -> tuple[Order, tuple[str, ...]]:
    """(what is wanted of the recipe, where its secrets come from); `adopted`: what it was made of, with its secrets."""
    from sparktop.model.recipe import Order

    assert chosen_recipe is not None  # its errors were raised
    values = _values(options.set)
    secrets = _secrets(chosen_recipe, options.env_file)
    if adopted is not None:
        secrets = adopted.secrets_over(secrets)
    order = Order(
        recipe=chosen_recipe,
        values=values,
        secrets=secrets.values,
        secret_problems=secrets.problems,
        may_fetch=not getattr(options, "no_fetch", False),
    )
    if hub := os.environ.get("HF_ENDPOINT", "").rstrip("/"):
        order = replace(order, hub=hub)
    _check(order, options)
    sources = ", ".join(f"{name} {source}" for name, source in secrets.sources.items() if source)
    return order, (f"taken: {sources}",) if sources else ()


def _values(texts: Sequence[str]) -> Mapping[str, str]:
    """The parameters given with `--set`; refuses secrets, as other users can see arguments."""
    pairs = set_pairs(texts)
    refuse_secrets(pairs, "give it in your environment, or with --env-file: HF_TOKEN, VLLM_API_KEY")
    return dict(pairs)


def _check(order: Order, options: argparse.Namespace) -> None:
    """Check the parameters before connecting to any node.

    Raises:
        UsageError: a parameter's name or value is not valid; with the remedies.
    """
    from sparktop.recipe import parameters
    from sparktop.recipe.container_spec import CannotRender
    from sparktop.recipe.settings import line_that_sets, not_set

    if (unset := not_set(order)) is not None:
        raise UsageError(unset.reason, hint=line_that_sets(order, options.recipe, options.hosts or ["HOST"]))
    try:
        parameters.resolve(order).checked()
    except CannotRender as error:
        raise UsageError(error.reason, hint="\n  ".join(filter(None, error.remedies)) or None) from error


def _secrets(recipe: Recipe, named: Path | None) -> SecretValues:
    """The secrets that the recipe takes, from the environment, else from files that only the operator can read.

    Raises:
        ConfigError: the file `named` doesn't exist or can't be read; for other files a gate reports it.
    """
    from sparktop.recipe.operator_secrets import read_secrets

    if named is not None and not named.is_file():
        raise ConfigError(f"{named} is no file" if named.exists() else f"{named}: there is no such file")
    secrets = read_secrets(recipe, named)
    if named is not None and secrets.problems:
        raise ConfigError("\n  ".join(problem.text for problem in secrets.problems))
    return secrets


@takes(
    argument("recipe", "a recipe (see `sparktop recipes list`), or an engine", "RECIPE|CONTAINER", nargs="?"),
    HOSTS,
    argument("--install", "install, enable and start it on HOST"),
    argument("--remove", "stop and disable it on HOST, and remove it", against=("--install",)),
    argument("--user", "a unit of your own on HOST (systemctl --user), without root"),
    *RECIPE_OPTIONS,
    *RUN,
    usage="sparktop unit RECIPE|CONTAINER HOST... [--user]\n"
    "                     [--set NAME=VALUE] [--env-file FILE]\n"
    "       sparktop unit RECIPE|CONTAINER HOST... --install [--user]\n"
    "                     [--dry-run | --yes] [--json]\n"
    "       sparktop unit CONTAINER HOST... --remove [--dry-run | --yes] [--json]",
)
def unit(options: argparse.Namespace) -> ExitCode:
    config = settings(options)
    if not options.recipe:
        raise UsageError("of which recipe or container?", hint="sparktop unit vllm spark1")
    is_change = options.install or options.remove
    if not is_change and (options.dry_run or options.yes or options.json):
        raise UsageError("without --install or --remove the unit is only printed: no other flag is needed")
    if not config.hosts:
        raise UsageError("on which Spark?", hint=f"sparktop unit {options.recipe} spark1")
    from sparktop.recipe.read.shelf import names

    order = None
    if not options.remove:
        try:
            order, _ = ordered(options)
        except (ConfigError, UsageError):
            if options.recipe.endswith((".yaml", ".yml")) or options.recipe in names():
                raise
    if order is None and (options.set or options.env_file):
        raise UsageError("--set and --env-file go with a recipe", hint="sparktop recipes list names all")
    from sparktop.cli.composition import invocation, once_each
    from sparktop.headless.serve import Verb
    from sparktop.headless.serve import unit as carry_out

    once_each(config.hosts)
    verb = Verb.INSTALL if options.install else Verb.REMOVE if options.remove else Verb.PRINT
    return carry_out(invocation(config, options), options.recipe, order, verb, is_own=options.user)


@takes(
    argument("name", "the host name that clients use: llm.example.org", "NAME"),
    argument("hosts", f"the engine's: {HOST_HELP}", "HOST", nargs="*"),
    argument("--engine", "the engine, if a HOST has several", "ENGINE"),
    argument("--upstream", "an engine by its address, without a HOST", "IP:PORT", repeats=True),
    argument("--on", "install it on this host, where the proxy is", "HOST"),
    argument("--remove", "with --on: remove it"),
    argument("--with", "the proxy (default nginx)", dest="proxy", default="nginx", choices=("nginx", "caddy")),
    argument("--listen", "the port for plain HTTP (default 80)", "PORT", type=int, within=PORTS, default=80),
    argument(
        "--env-file",
        "a file with the key, SPARKTOP_API_KEY=..., mode 0600; else it is taken from your environment",
        "FILE",
        type=Path,
        default=None,
    ),
    *RUN,
    usage="sparktop expose NAME HOST... [--engine ENGINE] [--with nginx|caddy]\n"
    "       sparktop expose NAME --upstream IP:PORT [--upstream IP:PORT]\n"
    "       sparktop expose NAME HOST... --on PROXYHOST [--env-file FILE]\n"
    "                     [--dry-run | --yes] [--json]\n"
    "       sparktop expose NAME --on PROXYHOST --remove",
)
def expose(options: argparse.Namespace) -> ExitCode:
    hosts = tuple(options.hosts)
    config = settings(options)
    from sparktop.operate.serve.proxy_config import Proxy, Site, server_name, upstream

    try:
        name = server_name(options.name)
        upstreams = tuple(upstream(text) for text in options.upstream)
    except ValueError as error:
        raise UsageError(str(error), hint="sparktop expose llm.example.org --upstream 192.168.0.50:8000") from error
    if options.remove and not options.on:
        raise UsageError("--remove: on which host is the proxy?", hint=f"sparktop expose {name} --on HOST --remove")
    if not options.on and (options.dry_run or options.yes or options.json):
        raise UsageError("without --on the file is only printed: no other flag is needed")
    hosts = hosts or (() if upstreams or options.remove else config.hosts)
    if not (hosts or upstreams or options.remove):
        raise UsageError("which engine?", hint=f"sparktop expose {name} spark1, or --upstream IP:PORT")
    if hosts and upstreams:
        raise UsageError("HOST and --upstream can't be used together")
    proxy = Proxy(options.proxy)
    if upstreams and not options.on:
        from sparktop.headless.serve import print_site

        return print_site(Site(name=name, upstreams=upstreams, port=options.listen), proxy)
    from sparktop.cli.composition import distinct, invocation, once_each
    from sparktop.headless.serve import expose as carry_out
    from sparktop.model.request import Request
    from sparktop.operate.serve.proxy import REMOVE
    from sparktop.operate.serve.unit import PRINT

    on = distinct((options.on,)) if options.on else ()
    once_each(hosts)
    names = distinct(hosts)
    call = invocation(replace(config, hosts=tuple(dict.fromkeys((*hosts, *on)))), options)
    flags = {
        "on": "".join(on),
        "from": " ".join(names),
        "upstream": " ".join(map(str, upstreams)),
        "name": name,
        "with": options.proxy,
        "listen": "" if options.listen == 80 else str(options.listen),
        PRINT: "" if on else "yes",
        REMOVE: "yes" if options.remove else "",
    }
    request = Request(
        action="expose",
        nodes=tuple(dict.fromkeys((*names, *on))),
        target=options.engine,
        options={key: value for key, value in flags.items() if value},
        secret=_key(options) if on and not options.remove else "",
    )
    return carry_out(call, request)


def _key(options: argparse.Namespace) -> str:
    """The key that clients must send, from the environment, else from a file that only the operator can read."""
    from sparktop.recipe.operator_secrets import client_key

    key, problems = client_key(options.env_file)
    if options.env_file is not None and not options.env_file.is_file():
        raise ConfigError(f"{options.env_file}: there is no such file")
    if problems and not key:
        raise ConfigError("\n  ".join(problem.text for problem in problems))
    return key


@takes(
    argument("host", HOST_HELP, "HOST"),
    argument("engine", "the engine, if it has several", "ENGINE", nargs="?", default=""),
    argument(
        "--port",
        "the local port (default the engine's, or any that is free)",
        "N",
        type=int,
        within=(0, PORTS[1]),
        default=0,
    ),
    timeout(30.0),
)
def forward(options: argparse.Namespace) -> ExitCode:
    config = settings(options)
    from sparktop.cli.composition import watch_for_command
    from sparktop.headless.serve import forward as carry_out

    make = watch_for_command(replace(config, hosts=(options.host,)))
    return carry_out(make, options.engine, options.port, timeout_s=options.timeout)
