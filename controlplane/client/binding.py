"""From the pure requests to methods of a client, with their types, once for each kind of client.

A class of a resource names its requests; the descriptor here makes a method of each that takes the
same arguments and sends:

    class Jobs(Resource):
        get = Sends(calls.get_job)          # client.jobs.get("job_…") -> Job
        list = Pages(calls.list_jobs)       # client.jobs.list(tag="x") -> Iterator[Job]
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, ParamSpec, TypeVar, overload

from controlplane.client.decoding import Document
from controlplane.client.pages import Page
from controlplane.client.transport import AsyncTransport, Transport
from controlplane.client.wire import Call

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound=Document)


def following(call: Call[T], page: Page[Any]) -> Call[T]:
    """The request for the page behind this one."""
    return dataclasses.replace(call, query={**call.query, page.parameter: page.next_cursor or ""})


class Resource:
    """A part of the API, for ordinary code."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class AsyncResource:
    """A part of the API, for coroutines."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport


class Sends(Generic[P, T]):
    """A method that sends one request."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, resource: None, owner: type) -> Sends[P, T]: ...
    @overload
    def __get__(self, resource: Resource, owner: type) -> Callable[P, T]: ...
    def __get__(self, resource: Resource | None, owner: type) -> Any:
        if resource is None:
            return self

        @functools.wraps(self.build)
        def send(*args: P.args, **kwargs: P.kwargs) -> T:
            return resource._transport.send(self.build(*args, **kwargs))

        return send


class AsyncSends(Generic[P, T]):
    """The same as a coroutine."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, resource: None, owner: type) -> AsyncSends[P, T]: ...
    @overload
    def __get__(self, resource: AsyncResource, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, resource: AsyncResource | None, owner: type) -> Any:
        if resource is None:
            return self

        @functools.wraps(self.build)
        async def send(*args: P.args, **kwargs: P.kwargs) -> T:
            return await resource._transport.send(self.build(*args, **kwargs))

        return send


class Pages(Generic[P, D]):
    """A method that walks a list over all its pages, asking for the next one when it is needed."""

    def __init__(self, build: Callable[P, Call[Page[D]]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, resource: None, owner: type) -> Pages[P, D]: ...
    @overload
    def __get__(self, resource: Resource, owner: type) -> Callable[P, Iterator[D]]: ...
    def __get__(self, resource: Resource | None, owner: type) -> Any:
        if resource is None:
            return self

        @functools.wraps(self.build)
        def walk(*args: P.args, **kwargs: P.kwargs) -> Iterator[D]:
            call = self.build(*args, **kwargs)
            while True:
                page = resource._transport.send(call)
                yield from page.items
                if page.last or page.next_cursor is None:
                    return
                call = following(call, page)

        return walk


class AsyncPages(Generic[P, D]):
    """The same for `async for`."""

    def __init__(self, build: Callable[P, Call[Page[D]]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, resource: None, owner: type) -> AsyncPages[P, D]: ...
    @overload
    def __get__(self, resource: AsyncResource, owner: type) -> Callable[P, AsyncIterator[D]]: ...
    def __get__(self, resource: AsyncResource | None, owner: type) -> Any:
        if resource is None:
            return self

        @functools.wraps(self.build)
        async def walk(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[D]:
            call = self.build(*args, **kwargs)
            while True:
                page = await resource._transport.send(call)
                for item in page.items:
                    yield item
                if page.last or page.next_cursor is None:
                    return
                call = following(call, page)

        return walk
