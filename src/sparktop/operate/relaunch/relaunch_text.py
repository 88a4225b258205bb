"""Review text of a relaunch: differences, effect, warnings and equivalent commands."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence

from sparktop import sanitise
from sparktop.cmdline.container_body import with_options
from sparktop.cmdline.engine_flag_edits import FlagChange
from sparktop.model.plan import Difference, Request
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.operate.secrets.masking import shown_value


def proof(request: Request) -> str:
    """The findings that must be gone after the relaunch; empty where it isn't meant to fix one."""
    if request.finding is None:
        return ""
    if request.also:
        others = f"{len(request.also)} more must be gone afterwards; the run says which remain"
        return f' "{request.finding.title}" and {others}.'
    return f' "{request.finding.title}" must be gone afterwards, or it did not help.'


def change_differences(rank_change: RankChange, flags: Sequence[FlagChange]) -> Iterator[Difference]:
    """What the change makes different from the running engine."""
    change = rank_change.change
    pairs = rank_change.config.get("Env") if rank_change.raw else rank_change.rank.engine.environment
    before = dict(str(pair).partition("=")[::2] for pair in sanitise.items(pairs))
    for name, value in change.environment.items():
        if before.get(name) != value:
            yield Difference(
                what="environment",
                name=sanitise.name(name),
                before=shown(name, before.get(name)),
                after=shown(name, value),
            )
    for flag in flags:
        yield Difference(
            what="flag",
            name=sanitise.name(flag.name),
            before=shown(flag.name, flag.before),
            after=shown(flag.name, flag.after),
        )
    host = dict(rank_change.host)
    changed_host = dict(host)
    with_options(changed_host, change.options)
    for name in change.options:
        if host.get(name) != changed_host.get(name):
            yield Difference(
                what="option", name=name, before=_json(host.get(name)), after=_json(changed_host.get(name))
            )
    if change.image and (rank_change.new_image or {}).get("Id") != rank_change.image_id:
        yield Difference(
            what="image",
            name="image",
            before=sanitise.line(rank_change.image_name, limit=200),
            after=sanitise.line(change.image, limit=200),
        )


def file_lines(path: str, before: str | None, after: str) -> Iterator[Difference]:
    """Removed and added lines of a file."""
    name = sanitise.line(path, limit=200)
    old, new = (before or "").splitlines(), after.splitlines()
    # Not ndiff: to find out which line became which, it compares every two of them character by character.
    for _, old_from, old_to, new_from, new_to in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if old[old_from:old_to] != new[new_from:new_to]:
            for row in old[old_from:old_to]:
                yield Difference(what="file", name=name, before=sanitise.line(row, limit=8000), after=None)
            for row in new[new_from:new_to]:
                yield Difference(what="file", name=name, before=None, after=sanitise.line(row, limit=8000))


def shown(name: str, value: str | None) -> str | None:
    """A value safe for the screen: masked and sanitised."""
    safe = shown_value(name, value)
    return None if safe is None else sanitise.line(safe, limit=300)


def _json(value: object) -> str | None:
    return None if value is None else sanitise.line(json.dumps(value, ensure_ascii=False, default=str), limit=300)


_TEMPORARY = ("/tmp/", "/run/", "/var/run/", "/var/log/", "/var/tmp/", "/dev/", "/proc/", "/sys/")  # noqa: S108


_COMPILED = re.compile(r"/torch_compile_cache(/|$)|/\.triton/|/\.?cache/(triton|flashinfer)(/|$)|/\.nv/")
"""Caches of compiled code: what is lost of them is made again."""


_NAMED_AT_MOST = 3


def summary(differences: Sequence[Difference]) -> str:
    """ "with --gpu-memory-utilization 0.70, --enforce-eager" for the title."""
    if not differences:
        return "as it is"
    words = []
    for difference in differences:
        if difference.after is None:
            words.append(f"no {difference.name}")
        elif difference.after == "":
            words.append(difference.name)
        else:
            words.append(f"{difference.name}{' ' if difference.what == 'flag' else '='}{difference.after}"[:60])
    hidden_count = len(words) - _NAMED_AT_MOST
    return "with " + ", ".join(words[:_NAMED_AT_MOST]) + (f" and {hidden_count} more" if hidden_count > 0 else "")


def lost_files(rank_change: RankChange, *, uncounted: str, fate: str, tag: str = "") -> Iterator[str]:
    """Files in the container's writable layer, which the new container won't have.

    Args:
        uncounted: the end of the sentence where they is not known.
        fate: what becomes of them, as the end of a sentence.
        tag: of the image that would keep them.
    """
    name, node, paths = rank_change.rank.name, rank_change.rank.node, written_paths(rank_change.written)
    if paths is None:
        yield f"What {name} has written into its own file system on {node} is not known{uncounted}"
        return
    compiled = [path for path in paths if _COMPILED.search(path)]
    if compiled:
        yield f"The new container on {node} has no compiled code yet ({_some(compiled)}): its start takes longer."
    files = [path for path in paths if not _COMPILED.search(path)]
    if files:
        count = f"{len(files)} files" if len(files) > 1 else "1 file"
        yield (
            f"{count} in the writable layer of {name} on {node} ({_some(files)}){fate} To keep what was installed or "
            f"patched there: docker commit {name} {name.lower()}-kept{tag}, and relaunch with that image."
        )


def _some(paths: Sequence[str]) -> str:
    return ", ".join(sanitise.line(path, limit=60) for path in paths[:3]) + (" ..." if len(paths) > 3 else "")


def written_paths(paths: Sequence[str] | None) -> tuple[str, ...] | None:
    """Written files worth a warning: without parent folders, bytecode and temporary files."""
    if paths is None:
        return None
    above = {path.rpartition("/")[0] for path in paths}
    while True:
        parents = {path.rpartition("/")[0] for path in above} - above
        if not parents:
            break
        above |= parents
    return tuple(
        path
        for path in paths
        if path not in above and not f"{path}/".startswith(_TEMPORARY) and "/__pycache__/" not in path
    )
