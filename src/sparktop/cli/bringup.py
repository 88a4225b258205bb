"""The command `bringup`."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path

from sparktop.cli.options import HOST_HELP, add_timeout, parser, settings
from sparktop.errors import UsageError

_USAGE = (
    "sparktop bringup HOST [HOST ...] [--only CHAPTER|CHECK] [--again]\n                        [--page FILE] [--json]"
)


def bringup(words: list[str]) -> int:
    """`sparktop bringup`."""
    options = bringup_arguments().parse_args(words)
    config = settings(options)
    from sparktop.bringup.catalogue import BY_ID
    from sparktop.model.bringup import Chapter

    chapters, checks = [], []
    for name in options.only:
        if name in BY_ID:
            checks.append(name)
            chapters.append(BY_ID[name].chapter)
        elif name in {chapter.value for chapter in Chapter}:
            chapters.append(Chapter(name))
            checks += [card.id for card in BY_ID.values() if card.chapter == name]
        else:
            near = get_close_matches(name, [*Chapter, *BY_ID], n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"the chapters: {', '.join(Chapter)}"
            raise UsageError(f"there is no chapter and no check {name!r}", hint=hint)
    if not config.hosts:
        raise UsageError("on which Spark?", hint="sparktop bringup spark1 spark2")
    import asyncio

    from sparktop.bringup.kept import ResultFile
    from sparktop.cli.composition import proven_path, session_for_command
    from sparktop.headless.bringup import BringUp, bring_up

    make, _, output = session_for_command(config, options, asks_more=True)
    command = BringUp(chapters=chapters, checks=checks, again=options.again or bool(checks), page=options.page)
    return asyncio.run(bring_up(make, command, ResultFile(proven_path(is_demo=False)), output=output))


def bringup_arguments() -> argparse.ArgumentParser:
    """The arguments of `sparktop bringup`."""
    from sparktop.model.bringup import Chapter

    argument_parser = parser("bringup", _USAGE)
    argument_parser.add_argument("hosts", nargs="*", metavar="HOST", help=HOST_HELP)
    argument_parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CHAPTER|CHECK",
        help=f"only this chapter ({', '.join(Chapter)}), or this check, such as machine.cuda",
    )
    argument_parser.add_argument(
        "--again",
        action="store_true",
        help="look also at what an earlier look has proven and nothing has changed since",
    )
    argument_parser.add_argument("--page", type=Path, metavar="FILE", help="write the page to keep: Markdown, or HTML")
    argument_parser.add_argument("--json", action="store_true", dest="as_json", help="print the checks as JSON")
    argument_parser.set_defaults(dry_run=False, yes=False)
    add_timeout(argument_parser, default_s=30.0)
    return argument_parser
