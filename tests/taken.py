"""Reads every recipe and launch file below folders: `python -m tests.taken FOLDER...`.

Prints each file with what refuses it, then how many are taken and what refuses the others: of each reason how often it
occurs, and how often it is the only one. Of the launch files, each engine in a container is made into a recipe: adopted
as it stands, or with a number of values that the person gives (it is rendered with made-up ones), or why not. Files
with the same text count once. `--source FOLDER` is a source of recipes, in which mods are found too, as their owners
have it: a checkout of spark-vllm-docker. `--sparkrun PYTHON` (an interpreter that has sparkrun) also compares the argv
of each recipe that is taken with the one that sparkrun's renderer makes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sparktop.cmdline.engine_argv import values_of
from sparktop.errors import SparktopError
from sparktop.launchspec.read import configuration
from sparktop.launchspec.spec import LaunchSpec
from sparktop.model.recipe import Recipe, RecipeSource, SourceKind
from sparktop.recipe.container_spec import CannotRender, Rendered
from sparktop.recipe.problems import Problem
from sparktop.recipe.read import shelf
from sparktop.recipe.read.adopt import adopted, engines
from sparktop.recipe.read.recipe_file import render_made_up

ENDINGS = {".yaml", ".yml", ".sh", ".service"}
_RECIPE = ("recipe_version:", "sparkrun_version:", "runtime:", "defaults:")
_NODES = ("min_nodes", "defaults.tensor_parallel", "defaults.pipeline_parallel", "defaults.data_parallel")


def files(folders: Sequence[str]) -> Iterator[Path]:
    """The files below the folders, one of each text."""
    texts = set()
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*")):
        if path.suffix in ENDINGS and path.is_file() and (text := path.read_bytes()) not in texts:
            texts.add(text)
            yield path


def is_recipe(path: Path) -> bool:
    """Whether it has a model, and one more key that only recipes have."""
    lines = path.read_text("utf-8", "replace").splitlines()
    return path.suffix in shelf.ENDINGS and all(
        any(line.startswith(keys) for line in lines) for keys in (("model:", "container:"), _RECIPE)
    )


def reason(problem: Problem) -> str:
    """What it is about: its kind and key, without what only this file has."""
    return "needs more Sparks" if problem.key in _NODES else f"{problem.kind}: {problem.key.partition('[')[0]}"


def source(folder: str) -> RecipeSource:
    """The folder as a source, named as it is."""
    path = Path(folder).absolute()
    return RecipeSource(
        name=path.name, kind=SourceKind.FOLDER, place=str(path), tree=str(path), folders=(str(path),), is_trusted=True
    )


def tell_recipes(paths: Sequence[Path], sources: Sequence[RecipeSource]) -> dict[str, dict[int, Rendered]]:
    """Prints how each recipe reads; returns the renders of those that are taken, by the number of nodes."""
    reasons: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    taken: dict[str, dict[int, Rendered]] = {}
    for path in paths:
        reading = shelf.read_file(path, sources)
        why = {reason(problem) for problem in reading.errors}
        reasons.update(why)
        alone.update(why if len(why) == 1 else ())
        print(f"{'; '.join(sorted(why)) or 'taken'}: {path}")
        if reading.recipe is not None:
            taken[str(path)] = dict(_renders(reading.recipe))
    more = alone["needs more Sparks"]
    print(
        f"\n{len(paths)} recipes, {len(taken)} taken ({len(taken) / max(1, len(paths)):.0%}), {more} need more Sparks"
    )
    for name, count in reasons.most_common():
        print(f"{count:5} {alone[name]:4} alone   {name}")
    return taken


def _renders(recipe: Recipe) -> Iterator[tuple[int, Rendered]]:
    for nodes in range(recipe.min_nodes, recipe.max_nodes + 1):
        try:
            yield nodes, render_made_up(recipe, nodes)
        except CannotRender as error:
            print(f"not on {nodes}: {error.reason}: {recipe.path}")


def adoption(spec: LaunchSpec, path: Path) -> str:
    """What becomes of an engine: "adopted", "adopted, needs 2 values", or why it is none."""
    found = adopted(spec, folder=str(path.parent)).reading
    if found.recipe is None:
        return "; ".join(f"{error.key} {error.text}".strip() for error in found.errors)
    recipe = found.recipe
    try:
        render_made_up(recipe, recipe.min_nodes)
    except CannotRender as error:
        return f"doesn't render: {error.reason}"
    if not recipe.settings:
        return "adopted"
    return f"adopted, needs {len(recipe.settings)} value{'s' if len(recipe.settings) > 1 else ''}"


def tell_others(paths: Sequence[Path]) -> None:
    """Prints which launch files are read: with an engine and its image or program; and which engines are adopted."""
    kinds: Counter[tuple[str, bool]] = Counter()
    ends: Counter[str] = Counter()
    for path in paths:
        try:
            reading = configuration.read_file(path, path.read_text("utf-8", "replace"))
        except SparktopError as error:
            print(f"unreadable: {path}: {error}")
            continue
        for spec in engines(reading.specs):
            if spec.has_container or spec.has_command:  # else a unit that runs something else
                end = adoption(spec, path) if spec.has_container is not False else "without a container"
                print(f"{end}: {path}:{spec.line_of(None)}")
                ends[end if end.startswith(("adopted", "without")) else "refused"] += 1
        if reading.specs or reading.note:
            kinds[path.suffix, bool(reading.specs)] += 1
        if not reading.specs:
            print(f"no engine read: {path}: {reading.note}")
    for (ending, is_read), count in sorted(kinds.items()):
        print(f"{count:5} {ending} {'read' if is_read else 'not read, or without an engine'}")
    inside = {end: count for end, count in ends.items() if end != "without a container"}
    taken = sum(count for end, count in inside.items() if end != "refused")
    print(f"{sum(inside.values())} engines in containers, {taken} adopted ({taken / max(1, sum(inside.values())):.0%})")
    for end, count in sorted(ends.items()):
        print(f"{count:5} {end}")


_RANK_FLAGS = {"nnodes", "node-rank", "master-addr", "master-port", "headless", "dist-init-addr"}
_ALONE_FLAGS = {"distributed-executor-backend"}
"""Without an effect on one node; sparktop leaves it out there."""
_SPARKRUN = r"""
import json, shlex, sys
from sparkrun.core.bootstrap import get_runtime, init_sparkrun
from sparkrun.core.recipe import Recipe
shell = init_sparkrun()
for path, counts in json.load(sys.stdin):
    for nodes in counts:
        try:
            recipe = Recipe.load(path)
            axes = {"tensor_parallel": 1, "pipeline_parallel": 1} if nodes == 1 else {}
            values = {name: 1 for name in axes if name in recipe.defaults}
            runtime = get_runtime(recipe.runtime, shell)
            made = runtime.generate_command(recipe, values, nodes > 1, nodes, "spark1-fabric" if nodes > 1 else None)
            print(json.dumps([path, nodes, shlex.split(made.replace("\\\n", " "))]))
        except Exception as error:
            print(json.dumps([path, nodes, f"{type(error).__name__}: {error}"]))
"""


def compare(taken: Mapping[str, Mapping[int, Rendered]], python: str) -> None:
    """Prints where sparkrun renders another command: flags that only one of the two has."""
    asked = json.dumps([(path, list(renders)) for path, renders in taken.items()])
    done = subprocess.run([python, "-c", _SPARKRUN], input=asked, text=True, capture_output=True)
    same = total = 0
    for line in done.stdout.splitlines():
        if not line.startswith("["):
            continue
        path, nodes, theirs = json.loads(line)
        if isinstance(theirs, str):
            print(f"sparkrun refuses {path} on {nodes}: {theirs[:200]}")
            continue
        total += 1
        ours, left_out = taken[path][nodes], _RANK_FLAGS | (_ALONE_FLAGS if nodes == 1 else set())
        flags = set(_flags(ours.head.argv))
        if "--served-model-name" in theirs:  # sparkrun says it also where it is the model's own
            flags.add(("served-model-name", ours.served_name))
        differences = sorted(flag for flag in flags ^ set(_flags(theirs)) if flag[0] not in left_out)
        same += not differences
        if differences:
            print(f"differs on {nodes}: {differences}: {path}")
    print(f"{same} of {total} have sparkrun's flags{': ' + done.stderr[-300:] if done.returncode else ''}")


def _flags(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Its flags; numbers as numbers."""
    for name, value in values_of(argv).items():
        yield name, f"{float(value):g}" if value.replace(".", "", 1).isdigit() else value


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--sparkrun", metavar="PYTHON")
    parser.add_argument("--source", metavar="FOLDER", action="append", default=[])
    words = parser.parse_args()
    paths = list(files(words.folders))
    recipes = [path for path in paths if is_recipe(path)]
    taken = tell_recipes(recipes, tuple(map(source, words.source)))
    tell_others([path for path in paths if path not in recipes])
    if words.sparkrun:
        compare(taken, words.sparkrun)


if __name__ == "__main__":
    main()
