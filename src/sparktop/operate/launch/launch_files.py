"""Where launch files lie on a node: compose files and scripts in the folders that what runs there points at.

A script leaves no label: what tells of it is what it mounted, its shell or the client of Docker where they still wait
for the engine, and the service that runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from sparktop.model.fleet import NodeView
from sparktop.model.survey import Output
from sparktop.operate.plan.origin import service_names

SCRIPT_KB = 64
"""A larger script is no launch."""
_SYSTEM = frozenset({"bin", "boot", "dev", "etc", "lib", "proc", "run", "sbin", "sys", "usr", "var"})
"""Folders of / in which nobody keeps a launch."""
_FILES = r"""
pids=$1 units=$2; shift 2
{
  printf '%s\n' "$@"
  for unit in $units; do
    cat "/etc/systemd/system/$unit" "$HOME/.config/systemd/user/$unit"
  done | sed -e ':a' -e '/\\$/N; s/\\\n/ /; ta' | sed -n 's/^ExecStart=//p; s|^WorkingDirectory=.*|&/.sh|p' |
    tr -s ' \t="'\' '\n' | sed -nE 's#^[-@:+!|]*(/.*)/[^/]*\.(sh|ya?ml)$#\1#p'
  for pid in $pids $(grep -lxE 'docker|podman' /proc/[0-9]*/comm | tr -dc '0-9\n'); do
    while [ "${pid:-0}" -gt 1 ]; do
      (
        cd "/proc/$pid/cwd" && pwd -P
        tr '\0' '\n' <"/proc/$pid/cmdline" | grep '\.sh$' | while read -r f; do dirname "$(realpath -e "$f")"; done
      )
      pid=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$pid/status")
    done
  done
} 2>/dev/null | grep '^/.' | while IFS= read -r folder; do
  (cd "$folder" && printf '%s\t%s\n' "$(pwd -P)" "$folder")
done 2>/dev/null | awk -F '\t' '!seen[$1]++ { print $2 }' | while IFS= read -r folder; do
  find -H "$folder" -maxdepth 1 -type f -size "-@KB@k" '(' -name '*.sh' -o -name '*compose*.y*ml' ')' \
    -exec grep -lE 'docker|podman|image:|launch-cluster' '{}' + 2>/dev/null
done
exit 0
""".replace("@KB@", str(SCRIPT_KB))
"""Prints the files that may start a container. Arguments: pids of engines outside containers, services, folders. Of
the processes, and of all that wait for them, the folders that they are in count, and those of their scripts; of a
service its folder, and those of the files that it names by their whole path. A folder under two names counts once."""


def question(view: NodeView, compose_files: Iterable[str]) -> Output:
    """The launch files beside what runs on this node; `paths` reads the answer."""
    engines = [engine for engine in view.engines if engine.pids or engine.container is not None]
    pids = [str(engine.pids[0]) for engine in engines if engine.container is None]
    sources = [mount.partition(":")[0] for each in engines if each.container for mount in each.container.mounts]
    folders = [str(PurePosixPath(path).parent) for path in compose_files]
    folders += [folder for source in sources for folder in _above(source)]
    argv = ("sh", "-c", _FILES, "sh", " ".join(pids), " ".join(service_names(view)), *dict.fromkeys(folders))
    return Output(node=view.name, argv=argv)


def paths(answer: object) -> list[str]:
    """The files of the answer, each once."""
    lines = str(answer or "").splitlines()
    return [path for path in dict.fromkeys(lines) if path.startswith("/") and path.isprintable()]


def _above(source: str) -> Iterator[str]:
    """A bind mount's source and the folders above it, down to a user's home: scripts mount what lies below them."""
    path = PurePosixPath(source)
    if path.is_absolute() and len(path.parts) > 2 and path.parts[1] not in _SYSTEM:
        yield from (str(folder) for folder in (path, *path.parents) if len(folder.parts) > 2)
