"""`client.exports`, for ordinary code and for coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from controlplane.client import export_calls, tenant_export_calls
from controlplane.client.binding import AsyncPages, AsyncResource, AsyncSends, Pages, Resource, Sends
from controlplane.client.export_calls import Export
from controlplane.client.tenant_export_calls import TenantExport
from controlplane.client.waiting import check_deadline, pauses


class Exports(Resource):
    """`client.exports`"""

    create = Sends(export_calls.create_export)
    get = Sends(export_calls.get_export)
    list = Pages(export_calls.list_exports)
    page = Sends(export_calls.list_exports)
    schedules = Sends(export_calls.list_schedules)
    set_schedule = Sends(export_calls.set_schedule)
    remove_schedule = Sends(export_calls.remove_schedule)

    def wait(
        self, export_id: str, *, timeout: float = 3600.0, told: Callable[[Export], None] = lambda seen: None
    ) -> Export:
        """The export once it is over, however it ended; `told` hears of it in between. Raises `TimedOut`
        after `timeout` seconds; the export goes on."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            found = self.get(export_id)
            told(found)
            if found.over:
                return found
            left = deadline - time.monotonic()
            time.sleep(check_deadline(export_id, found.state, pause, left, timeout))
        raise AssertionError("pauses never end")

    def download(
        self, export: Export, folder: Path, *, told: Callable[[int], None] = lambda bytes_: None
    ) -> Sequence[Path]:
        """Writes all files of an export that is done into a folder, each verified by its SHA-256 before it
        has its name; `told` hears how many bytes came."""
        for file in export.files:
            call = export_calls.get_export_file(export.export_id, file.name)
            with export_calls.arriving(file, folder) as content:
                self._transport.fetch(call, content, told)
        return [folder / file.name for file in export.files]


class AsyncExports(AsyncResource):
    """`client.exports`"""

    create = AsyncSends(export_calls.create_export)
    get = AsyncSends(export_calls.get_export)
    list = AsyncPages(export_calls.list_exports)
    page = AsyncSends(export_calls.list_exports)
    schedules = AsyncSends(export_calls.list_schedules)
    set_schedule = AsyncSends(export_calls.set_schedule)
    remove_schedule = AsyncSends(export_calls.remove_schedule)

    async def wait(
        self, export_id: str, *, timeout: float = 3600.0, told: Callable[[Export], None] = lambda seen: None
    ) -> Export:
        """The export once it is over, however it ended; `told` hears of it in between. Raises `TimedOut`
        after `timeout` seconds; the export goes on."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            found = await self.get(export_id)
            told(found)
            if found.over:
                return found
            await asyncio.sleep(
                check_deadline(export_id, found.state, pause, deadline - time.monotonic(), timeout)
            )
        raise AssertionError("pauses never end")

    async def download(
        self, export: Export, folder: Path, *, told: Callable[[int], None] = lambda bytes_: None
    ) -> Sequence[Path]:
        """Writes all files of an export that is done into a folder, each verified by its SHA-256 before it
        has its name; `told` hears how many bytes came."""
        for file in export.files:
            call = export_calls.get_export_file(export.export_id, file.name)
            with export_calls.arriving(file, folder) as content:
                await self._transport.fetch(call, content, told)
        return [folder / file.name for file in export.files]


class TenantExports(Resource):
    """`client.tenant_exports`"""

    create = Sends(tenant_export_calls.create_export)
    get = Sends(tenant_export_calls.get_export)
    list = Pages(tenant_export_calls.list_exports)
    page = Sends(tenant_export_calls.list_exports)
    file = Sends(tenant_export_calls.get_file)

    def download(
        self, export: TenantExport, folder: Path, *, told: Callable[[int], None] = lambda bytes_: None
    ) -> Sequence[Path]:
        """Writes all files of an export that is done into a folder, piece by piece, each verified by its
        SHA-256 before it has its name; `told` hears how many bytes came."""
        for file in export.files:
            call = tenant_export_calls.get_file(export.tenant_export_id, file.name)
            with export_calls.arriving(file, folder) as content:
                self._transport.fetch(call, content, told)
        return [folder / file.name for file in export.files]


class AsyncTenantExports(AsyncResource):
    """`client.tenant_exports`"""

    create = AsyncSends(tenant_export_calls.create_export)
    get = AsyncSends(tenant_export_calls.get_export)
    list = AsyncPages(tenant_export_calls.list_exports)
    page = AsyncSends(tenant_export_calls.list_exports)
    file = AsyncSends(tenant_export_calls.get_file)

    async def download(
        self, export: TenantExport, folder: Path, *, told: Callable[[int], None] = lambda bytes_: None
    ) -> Sequence[Path]:
        """Writes all files of an export that is done into a folder, piece by piece, each verified by its
        SHA-256 before it has its name; `told` hears how many bytes came."""
        for file in export.files:
            call = tenant_export_calls.get_file(export.tenant_export_id, file.name)
            with export_calls.arriving(file, folder) as content:
                await self._transport.fetch(call, content, told)
        return [folder / file.name for file in export.files]
