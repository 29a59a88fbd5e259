"""Waiting for a condition instead of sleeping for a guess."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def _message(condition: Callable[[], object], timeout: float, last: object) -> str:
    try:
        source = inspect.getsource(condition).strip()
    except (OSError, TypeError):
        source = repr(condition)
    return f"not within {timeout} s: {source}\nlast: {last!r}"


async def eventually(
    condition: Callable[[], T | Awaitable[T]], timeout: float = 10.0, interval: float = 0.02
) -> T:
    """The first truthy value of `condition`, polled. `AssertionError`s inside count as "not yet"."""
    deadline = time.monotonic() + timeout
    while True:
        last: Any
        try:
            last = condition()
            if inspect.isawaitable(last):
                last = await last
        except AssertionError as not_yet:
            last, failed = not_yet, True
        else:
            failed = False
        if last and not failed:
            return cast(T, last)
        if time.monotonic() > deadline:
            raise AssertionError(_message(condition, timeout, last)) from (last if failed else None)
        await asyncio.sleep(interval)


def eventually_sync(condition: Callable[[], T], timeout: float = 10.0, interval: float = 0.05) -> T:
    """`eventually` for tests that are not coroutines."""
    deadline = time.monotonic() + timeout
    while True:
        last: Any
        try:
            last, failed = condition(), False
        except AssertionError as not_yet:
            last, failed = not_yet, True
        if last and not failed:
            return cast(T, last)
        if time.monotonic() > deadline:
            raise AssertionError(_message(condition, timeout, last)) from (last if failed else None)
        time.sleep(interval)
