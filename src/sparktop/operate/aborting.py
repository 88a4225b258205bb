"""The operator's way out of a run: asked for once, heard by whatever waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Aborted(Exception):
    """What was waited for is given up, because the operator wants out."""


class Abort:
    """Whether the operator wants out."""

    def __init__(self) -> None:
        self._wanted = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        return self._wanted.is_set()

    def want(self) -> None:
        self._wanted.set()

    def heeded(self) -> None:
        """It has been heard, and what follows is the way out; it can be asked for again, out of that."""
        self._wanted.clear()

    async def wanted(self) -> None:
        """Until the operator wants out."""
        await self._wanted.wait()

    async def unless(self, work: Coroutine[Any, Any, _T], *, grace_s: float = 0.0) -> _T:
        """The work's result; the work is cancelled when the operator wants out, `grace_s` later where that is asked.

        Raises:
            Aborted: the operator got out first.
        """
        task = asyncio.ensure_future(work)
        way_out = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait({task, way_out}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and grace_s:
                await asyncio.wait({task}, timeout=grace_s)
            if task.done():
                return task.result()
            raise Aborted
        finally:
            way_out.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
