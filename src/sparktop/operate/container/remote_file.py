"""A file of a node that a plan changes: checked, written, restored and compared in one way. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import field, replace

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.operation import Command, Privilege
from sparktop.operate.secrets.sudo import program
from sparktop.operate.step.plan import Difference

LIMIT_S = 60.0
FOR_ALL = ("-m", "0644")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """The file as it is, and as it is to be."""

    path: str
    before: str | None = field(default=None, repr=False)
    """Its text as it was read; None: it isn't there."""
    after: str = field(default="", repr=False)
    privilege: Privilege = Privilege.USER
    mode: tuple[str, ...] = FOR_ALL
    """Options of `install`."""

    def check(self) -> Command:
        """Fails where the file isn't as it was read; may need to be able to read it."""
        if self.before is None:
            return Command(argv=("test", "!", "-e", self.path), limit_s=LIMIT_S)
        return Command(argv=("cmp", "--", "{content}", self.path), content=self.before, limit_s=LIMIT_S)

    def write(self) -> Command:
        """Replaces it at once; its folders are made."""
        return self._install(self.after)

    def restore(self) -> Command:
        """The file as it was; where every user may see it and it is so already, nothing is done."""
        undone = remove(self.path, privilege=self.privilege) if self.before is None else self._install(self.before)
        return replace(undone, done_when=self.check()) if self.mode == FOR_ALL else undone

    def differences(self) -> Iterator[Difference]:
        """Removed and added lines."""
        name = sanitise.line(self.path, limit=200)
        old, new = (self.before or "").splitlines(), self.after.splitlines()
        # Not ndiff: to find out which line became which, it compares every two of them character by character.
        for _, old_from, old_to, new_from, new_to in difflib.SequenceMatcher(None, old, new).get_opcodes():
            if old[old_from:old_to] != new[new_from:new_to]:
                for row in old[old_from:old_to]:
                    yield Difference(what="file", name=name, before=sanitise.line(row, limit=8000), after=None)
                for row in new[new_from:new_to]:
                    yield Difference(what="file", name=name, before=None, after=sanitise.line(row, limit=8000))

    def _install(self, text: str) -> Command:
        argv = (program("install"), *self.mode, "-D", "-T", "--", "{content}", self.path)
        return Command(argv=argv, content=text, privilege=self.privilege, limit_s=LIMIT_S)


def remove(*paths: str, privilege: Privilege = Privilege.USER) -> Command:
    """Removes files; those that aren't there are no failure."""
    return Command(argv=(program("rm"), "-f", "--", *paths), privilege=privilege, limit_s=LIMIT_S)
