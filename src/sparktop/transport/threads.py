"""One call in a daemon thread, awaited from the loop: for libraries that block (the docker SDK, slow imports)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The call's result, or its exception.

    Not asyncio.to_thread: that pool's threads are joined at exit, so one hung Docker Engine would keep the console
    from closing. A cancelled caller leaves the thread to finish by itself; its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def deliver(result: _T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: _T | None = None
        error: BaseException | None = None
        try:
            result = call(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - the awaiting side gets it, whatever it is
            error = raised
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:
            pass  # the loop closed meanwhile: nobody waits any more

    threading.Thread(target=work, name=f"sparktop {getattr(call, '__name__', 'call')}", daemon=True).start()
    return await future
