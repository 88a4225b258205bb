"""Apply a recipe's patches to an image, once: in a container of it, which is committed as an image of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.operation import DockerCall, Expect
from sparktop.operate.acts.remote import Remote
from sparktop.recipe.patches import APPLY, FOLDER, PatchedImage

APPLY_LIMIT_S = 3600.0
"""Mods install packages, and some compile."""
COMMIT_LIMIT_S = 900.0
_SHOWN_LINES = 200
"""Of one file."""
_PATH = "/containers/{PATCH}"
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchImage(Remote):
    """Make the patched image of another. What is half done is removed on the node itself."""

    image: PatchedImage

    def text(self) -> Iterator[str]:
        yield f"in a container of {self.image.base}, which becomes the image {self.image.name}:"
        for patch in self.image.patches:
            yield f"{patch.name}:"
            yield from (f"  {line}" for line in script_lines(patch.command.encode(), is_run=True))
            for file in patch.files:
                yield f"  {sanitise.line(file.path)} ({len(file.content):,} bytes)"
                yield from (f"    {line}" for line in script_lines(file.content, is_run=file.path == "run.sh"))

    def commands(self) -> tuple[str, ...]:
        name = container_name(self.image)
        return (
            f"docker create --name {name} … {self.image.base} sh {APPLY}",
            f"docker cp MODS {name}:{FOLDER}",
            f"docker start -a {name}",
            f"docker commit {name} {self.image.name}",
            f"docker rm {name}",
        )

    def undoing(self) -> tuple[str, ...]:
        return (f"docker rmi {self.image.name}",)

    @property
    def is_kept(self) -> bool:
        return False


def patch_image(image: PatchedImage, body: Mapping[str, Any]) -> PatchImage:
    """The act; `body` is Docker's create request for the container."""
    name, (repository, _, tag) = container_name(image), image.name.rpartition(":")
    remove = {"force": "true", "v": "true"}
    return PatchImage(
        image=image,
        operations=(
            DockerCall(method="DELETE", path=f"/containers/{name}", query=remove, accepts=(204, 404), limit_s=90.0),
            DockerCall(method="POST", path="/containers/create", query={"name": name}, body=body, saves="PATCH"),
            DockerCall(method="PUT", path=f"{_PATH}/archive", query={"path": "/"}, archive=image.archive()),
            DockerCall(method="POST", path=f"{_PATH}/start", limit_s=120.0),
            DockerCall(
                method="POST",
                path=f"{_PATH}/wait",
                limit_s=APPLY_LIMIT_S,
                done_when=Expect(path=f"{_PATH}/json", equals={"State.Running": False}),
            ),
            Expect(path=f"{_PATH}/json", equals={"State.ExitCode": 0}, otherwise="a patch failed", has_log=True),
            DockerCall(
                method="POST",
                path="/commit",
                query={"container": name, "repo": repository, "tag": tag},
                limit_s=COMMIT_LIMIT_S,
                done_when=Expect(path=f"/images/{image.name}/json", equals={}),
            ),
            DockerCall(method="DELETE", path=_PATH, query=remove, accepts=(204, 404), limit_s=90.0),
        ),
        undo=(DockerCall(method="DELETE", path=_PATH, query=remove, accepts=(204, 404), limit_s=90.0),),
    )


def container_name(image: PatchedImage) -> str:
    """The name of the container in which the patches are applied."""
    return f"sparktop-patch-{image.name.rpartition(':')[2]}"


def script_lines(content: bytes, *, is_run: bool) -> list[str]:
    """A file's first lines, and how many more there are. What a shell runs is shown whatever bytes are in it."""
    if b"\0" in content and not is_run:
        return ["not shown: it is no text"]
    # A terminal takes what stands between an escape and its end for its own: a shell runs it.
    lines = [_CONTROLS.sub("\ufffd", line) for line in content.decode("utf-8", "replace").splitlines()]
    shown, more = lines[:_SHOWN_LINES], len(lines) - _SHOWN_LINES
    return [*map(sanitise.line, shown), *([f"… {more} more lines"] if more > 0 else [])]
