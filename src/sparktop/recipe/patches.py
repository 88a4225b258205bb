"""The image that a recipe's patches make of another: its name, what is copied into a container, and what runs there.

The same patches of the same image have the same name, so that they are applied once on each node.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.model.recipe import Patch

FOLDER = "/workspace/mods"
"""Where spark-vllm-docker and sparkrun put mods; some name it."""
APPLY = f"{FOLDER}/sparktop-apply.sh"
_PARAMETER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_.-]*)\}(?!\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedImage:
    """An image with patches applied."""

    name: str
    """ "localhost/sparktop/vllm-node:3f0c…": no registry is asked for it."""
    base: str
    patches: tuple[Patch, ...]
    """With their parameters filled in."""

    def archive(self) -> str:
        """What is unpacked at the container's root: a tar.gz, base64."""
        out = io.BytesIO()
        with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tree:
            for path, content, is_program in self._files():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size, entry.mode = len(content), 0o755 if is_program else 0o644
                tree.addfile(entry, io.BytesIO(content))
        return base64.b64encode(out.getvalue()).decode()

    def _files(self) -> Iterator[tuple[str, bytes, bool]]:
        """(path, content, whether it is a program)."""
        # Docker keeps two streams in any order: what a patch said last must stand before its exit code.
        steps = ["exec 2>&1", 'export WORKSPACE_DIR="$PWD"', "shell=$(command -v bash || command -v sh)"]
        for patch, name in zip(self.patches, _folders(self.patches), strict=True):
            folder = f"{FOLDER}/{name}"
            yield from ((f"{folder}/{file.path}", file.content, file.is_program) for file in patch.files)
            if patch.command:
                yield f"{folder}.sh", patch.command.encode(), True
            run = f'"$shell" {folder}.sh' if patch.command else f"(cd {folder} && chmod +x run.sh && ./run.sh)"
            steps.append(f'{run} || {{ echo "{patch.name}: exit code $?"; exit 1; }}')
        yield APPLY, "\n".join((*steps, "")).encode(), True


def patched_image(base: str, patches: Sequence[Patch], values: Mapping[str, str]) -> PatchedImage | None:
    """The image with these patches; None without any."""
    if not patches:
        return None
    filled = tuple(replace(patch, command=filled_command(patch.command, values)) for patch in patches)
    digest = hashlib.sha256(repr((base, *((p.name, p.command) for p in filled))).encode())
    for patch in filled:
        for file in patch.files:
            digest.update(repr((file.path, file.is_program)).encode() + hashlib.sha256(file.content).digest())
    plain = re.sub(r"[^a-z0-9]+", "-", base.rpartition("/")[2].partition("@")[0].partition(":")[0].lower()).strip("-")
    return PatchedImage(
        name=f"localhost/sparktop/{plain or 'image'}:{digest.hexdigest()[:16]}", base=base, patches=filled
    )


def _folders(patches: Sequence[Patch]) -> Iterator[str]:
    """The last part of each patch's name, as its launchers have it; with a number where an earlier one has it too."""
    seen: Counter[str] = Counter()
    for patch in patches:
        name = patch.name.rpartition("/")[2].replace(" ", "-")
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def parameters_in(command: str) -> tuple[str, ...]:
    """What `filled_command` fills in."""
    return tuple(_PARAMETER.findall(command))


def filled_command(command: str, values: Mapping[str, str]) -> str:
    """The command with the parameters that have a value; a shell's own braces stay."""
    return _PARAMETER.sub(lambda match: values.get(match[1], match[0]), command)
