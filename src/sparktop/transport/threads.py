"""Run one blocking call in a daemon thread and await it: for the docker SDK and slow imports."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The call's result, or its exception.

    Not asyncio.to_thread: that pool's threads are joined at exit, so one hung Docker Engine would keep the console
    from closing. A cancelled caller leaves the thread to finish by itself; its result is dropped.
    """
    outcome: Future[_T] = Future()
    outcome.set_running_or_notify_cancel()  # from here on it can't be cancelled

    def work() -> None:
        try:
            result = call(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the awaiting side gets it, whatever it is
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=work, name=f"sparktop {getattr(call, '__name__', 'call')}", daemon=True).start()
    return await asyncio.wrap_future(outcome)
