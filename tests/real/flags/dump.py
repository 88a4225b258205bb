"""What an installed engine's own argument parser has, and what it makes of an argv; run by the engine's interpreter.

    PYTHON dump.py vllm < /dev/null > vllm-0.32.0.json   its flags, and the metrics that its source names
    PYTHON dump.py vllm < argvs.json > readings.json     what each argv sets: {flag: value}, or the parser's error

Only the standard library and the engine are imported; its source on PYTHONPATH serves as well as an install.
`argvs.json` is a list of command lines, or the readings of an earlier version.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import sys
from typing import Any

_QUIET = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "CRITICAL", "SGLANG_USE_CPU_ENGINE": "1"}
_MODEL = "(model)"
"""The positional argument's name in what is printed."""


def vllm_parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser, str]:
    """(the parser of `vllm`, that of `vllm serve`, the version)."""
    import vllm

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # up to 0.11
        from vllm.utils import FlexibleArgumentParser
    from vllm.entrypoints.cli.serve import ServeSubcommand

    main = FlexibleArgumentParser(prog="vllm")
    return main, ServeSubcommand().subparser_init(main.add_subparsers()), vllm.__version__


def sglang_parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser, str]:
    """(the parser of `sglang.launch_server`, the same, the version)."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang")
    ServerArgs.add_cli_args(parser)
    try:
        from sglang.version import __version__ as version
    except ImportError:
        version = os.environ["SGLANG_VERSION"]
    return parser, parser, version


def flags_of(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Every option of a parser, hidden spellings too."""
    spelled: dict[int, list[str]] = {}
    for option, action in parser._option_string_actions.items():
        spelled.setdefault(id(action), []).append(option)
    return [
        {
            "opts": spelled[id(action)],
            "off": [option for option in spelled[id(action)] if _turns_off(parser, action, option)],
            "nargs": action.nargs,
            "kind": type(action).__name__,
            "switch": action.nargs == 0,
            "default": action.default if isinstance(action.default, bool | int | float | str | None) else "(object)",
        }
        for action in parser._actions
        if action.option_strings
    ]


def _turns_off(parser: argparse.ArgumentParser, action: argparse.Action, option: str) -> bool:
    """Whether this spelling sets a switch to False."""
    if not isinstance(action, argparse.BooleanOptionalAction):
        return False
    namespace = argparse.Namespace()
    action(parser, namespace, None, option)
    return getattr(namespace, action.dest) is False


def metrics_of(engine: str) -> list[str]:
    """The names of metrics in its source, without what Prometheus' client adds to them."""
    names: set[str] = set()
    for folder, _, files in os.walk(os.path.dirname(sys.modules[engine].__file__ or "")):
        for name in files:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as source:
                    names.update(re.findall(rf"[\"']({engine}:[a-z0-9_]+)[\"']", source.read()))
    return sorted({name.removesuffix("_total") for name in names})


def reading(main: argparse.ArgumentParser, parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, Any]:
    """What an argv sets: {first long name: its value as typed, True or False}; {"error": why} if refused."""
    names = {}
    for action in parser._actions:
        long_names = [option for option in action.option_strings if option.startswith("--")]
        names[action.dest] = long_names[0] if long_names else _MODEL
        action.default, action.type, action.choices, action.required = argparse.SUPPRESS, None, None, False
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            namespace = main.parse_args(argv)
    except (SystemExit, ValueError) as error:
        return {"error": (errors.getvalue().strip().splitlines() or [str(error)])[-1][:200]}
    return {names[dest]: value for dest, value in vars(namespace).items() if dest in names}


def main() -> None:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    engine = sys.argv[1]
    given = json.loads(sys.stdin.read() or "{}")
    lines = [line for line, _ in given["readings"]] if isinstance(given, dict) and given else list(given)
    prefix = ["serve"] if engine == "vllm" else []
    sys.argv = ["vllm", "serve"]
    printed = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # an import may print
        main_parser, parser, version = vllm_parsers() if engine == "vllm" else sglang_parsers()
        what = "readings" if lines else "flags"
        rows: list[Any] = flags_of(parser) if not lines else [
            [line, reading(main_parser, parser, [*prefix, *shlex.split(line)])] for line in lines
        ]  # fmt: skip
    text = ",\n".join(json.dumps(row) for row in rows)
    metrics = "" if lines else f'"metrics": {json.dumps(metrics_of(engine))}, '
    named = f'"engine": "{engine}", "version": "{version.partition("+")[0]}", {metrics}'
    printed.write(f'{{{named}"{what}": [\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
