"""The commands `unit`, `expose` and `forward`: an engine served on and on, to others, and to this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparktop.cli.launch import add_recipe_options, once_each, ordered
from sparktop.cli.options import HOST_HELP, add_run_options, add_timeout, parser, settings
from sparktop.errors import ConfigError, UsageError

_UNIT_USAGE = (
    "sparktop unit RECIPE|CONTAINER HOST... [--user]\n"
    "                     [--set NAME=VALUE] [--env-file FILE]\n"
    "       sparktop unit RECIPE|CONTAINER HOST... --install [--user]\n"
    "                     [--dry-run | --yes] [--json]\n"
    "       sparktop unit CONTAINER HOST... --remove [--dry-run | --yes] [--json]"
)


_EXPOSE_USAGE = (
    "sparktop expose NAME HOST... [--engine ENGINE] [--with nginx|caddy]\n"
    "       sparktop expose NAME --upstream IP:PORT [--upstream IP:PORT]\n"
    "       sparktop expose NAME HOST... --on PROXYHOST [--env-file FILE]\n"
    "                     [--dry-run | --yes] [--json]\n"
    "       sparktop expose NAME --on PROXYHOST --remove"
)


def unit(words: list[str]) -> int:
    """`sparktop unit`."""
    options = unit_arguments().parse_args(words)
    config = settings(options)
    if not options.recipe:
        raise UsageError("of which recipe or container?", hint="sparktop unit vllm spark1")
    is_change = options.install or options.remove
    if options.install and options.remove:
        raise UsageError("--install and --remove can't be used together")
    if options.dry_run and options.yes:
        raise UsageError("--dry-run and --yes can't be used together")
    if not is_change and (options.dry_run or options.yes or options.as_json):
        raise UsageError("without --install or --remove the unit is only printed: no other flag is needed")
    if not config.hosts:
        raise UsageError("on which Spark?", hint=f"sparktop unit {options.recipe} spark1")
    order = None
    if not options.remove:
        try:
            order, _ = ordered(options)
        except (ConfigError, UsageError):
            if options.recipe.endswith((".yaml", ".yml")) or _is_recipe(options.recipe):
                raise
    if order is None and (options.set or options.env_file):
        raise UsageError("--set and --env-file go with a recipe", hint="sparktop recipes list names all")
    import asyncio

    from sparktop.cli.composition import distinct, session_for_command
    from sparktop.headless.serve.unit import UnitCommand, Verb
    from sparktop.headless.serve.unit import unit as carry_out

    once_each(distinct(config.hosts), config.hosts)
    make, secret, output = session_for_command(config, options)
    verb = Verb.INSTALL if options.install else Verb.REMOVE if options.remove else Verb.PRINT
    command = UnitCommand(name=options.recipe, order=order, verb=verb, is_own=options.user)
    return asyncio.run(carry_out(make, command, output=output, secret=secret))


def _is_recipe(name: str) -> bool:
    from sparktop.recipe.read.shelf import names

    return name in names()


def unit_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop unit`."""
    argument_parser = parser("unit", _UNIT_USAGE)
    argument_parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE|CONTAINER", help="a recipe (see `sparktop recipes list`), or an engine"
    )
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=HOST_HELP)
    argument_parser.add_argument("--install", action="store_true", help="install, enable and start it on HOST")
    argument_parser.add_argument("--remove", action="store_true", help="stop and disable it on HOST, and remove it")
    argument_parser.add_argument(
        "--user", action="store_true", help="a unit of your own on HOST (systemctl --user), without root"
    )
    add_recipe_options(argument_parser)
    argument_parser.set_defaults(may_fetch=True)
    add_run_options(argument_parser)
    return argument_parser


def expose(words: list[str]) -> int:
    """`sparktop expose`."""
    options = expose_arguments().parse_args(words)
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
    if options.dry_run and options.yes:
        raise UsageError("--dry-run and --yes can't be used together")
    if not options.on and (options.dry_run or options.yes or options.as_json):
        raise UsageError("without --on the file is only printed: no other flag is needed")
    if not 0 < options.listen < 65536:
        raise UsageError("--listen takes a port from 1 to 65535")
    hosts = hosts or (() if upstreams or options.remove else config.hosts)
    if not (hosts or upstreams or options.remove):
        raise UsageError("which engine?", hint=f"sparktop expose {name} spark1, or --upstream IP:PORT")
    if hosts and upstreams:
        raise UsageError("HOST and --upstream can't be used together")
    proxy = Proxy(options.proxy)
    if upstreams and not options.on:
        from sparktop.headless.serve.expose import print_site

        return print_site(Site(name=name, upstreams=upstreams, port=options.listen), proxy)
    import asyncio
    from dataclasses import replace

    from sparktop.cli.composition import distinct, session_for_command
    from sparktop.headless.serve.expose import expose as carry_out
    from sparktop.model.request import Request
    from sparktop.operate.serve.proxy import REMOVE
    from sparktop.operate.serve.unit import PRINT

    on = distinct((options.on,)) if options.on else ()
    names = distinct(hosts)
    once_each(names, hosts)
    make, secret, output = session_for_command(replace(config, hosts=tuple(dict.fromkeys((*hosts, *on)))), options)
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
    return asyncio.run(carry_out(make, request, output=output, secret=secret))


def _key(options: argparse.Namespace) -> str:
    """The key that clients must send, from the environment, else from a file that only the operator can read."""
    from sparktop.recipe.operator_secrets import client_key

    key, problems = client_key(options.env_file)
    if options.env_file is not None and not options.env_file.is_file():
        raise ConfigError(f"{options.env_file}: there is no such file")
    if problems and not key:
        raise ConfigError("\n  ".join(problem.text for problem in problems))
    return key


def expose_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop expose`."""
    argument_parser = parser("expose", _EXPOSE_USAGE)
    argument_parser.add_argument("name", metavar="NAME", help="the host name that clients use: llm.example.org")
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=f"the engine's: {HOST_HELP}")
    argument_parser.add_argument("--engine", default="", metavar="ENGINE", help="the engine, if a HOST has several")
    argument_parser.add_argument(
        "--upstream", action="append", default=[], metavar="IP:PORT", help="an engine by its address, without a HOST"
    )
    argument_parser.add_argument("--on", default="", metavar="HOST", help="install it on this host, where the proxy is")
    argument_parser.add_argument("--remove", action="store_true", help="with --on: remove it")
    argument_parser.add_argument(
        "--with", dest="proxy", default="nginx", choices=("nginx", "caddy"), help="the proxy (default nginx)"
    )
    argument_parser.add_argument(
        "--listen", type=int, default=80, metavar="PORT", help="the port for plain HTTP (default 80)"
    )
    argument_parser.add_argument(
        "--env-file",
        type=Path,
        metavar="FILE",
        help="a file with the key, SPARKTOP_API_KEY=..., mode 0600; else it is taken from your environment",
    )
    add_run_options(argument_parser)
    return argument_parser


def forward(words: list[str]) -> int:
    """`sparktop forward`."""
    options = forward_arguments().parse_args(words)
    config = settings(options)
    if not 0 <= options.port < 65536:
        raise UsageError("--port takes a port from 1 to 65535")
    import asyncio
    from dataclasses import replace

    from sparktop.cli.composition import watch_for_command
    from sparktop.headless.serve.forward import forward as carry_out

    make = watch_for_command(replace(config, hosts=(options.host,)))
    return asyncio.run(carry_out(make, options.engine, options.port, timeout_s=options.timeout))


def forward_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop forward`."""
    argument_parser = parser("forward", "sparktop forward HOST [ENGINE] [--port N]")
    argument_parser.add_argument("host", metavar="HOST", help=HOST_HELP)
    argument_parser.add_argument(
        "engine", nargs="?", default="", metavar="ENGINE", help="the engine, if it has several"
    )
    argument_parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="the local port (default the engine's, or any that is free)"
    )
    add_timeout(argument_parser, default_s=30.0)
    return argument_parser
