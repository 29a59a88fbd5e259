"""The client for coroutines: the same as `sync.py`, awaited.

async with AsyncClockhouse() as clockhouse:
    async for job in clockhouse.jobs.list(tag="nightly"):
        ...
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import httpx

from controlplane.client import (
    bulk_calls,
    calendar_calls,
    calls,
    cell_calls,
    definition_calls,
    management,
    money_calls,
    move_calls,
    queue_calls,
    redrive_calls,
    run_calls,
    workflow_calls,
)
from controlplane.client.binding import AsyncPages, AsyncResource, AsyncSends
from controlplane.client.documents import Run
from controlplane.client.erasing import AsyncErasures, AsyncOwnErasures
from controlplane.client.evacuating import AsyncRegional
from controlplane.client.exporting import AsyncExports, AsyncTenantExports
from controlplane.client.notifying import AsyncNotifications
from controlplane.client.placing import AsyncCells, AsyncRelocations, AsyncTopology
from controlplane.client.profiles import find_settings
from controlplane.client.retrying import Retries
from controlplane.client.transport import AsyncTransport
from controlplane.client.waiting import check_deadline, pauses
from controlplane.client.workflow_documents import DefinitionChecked, Workflow


class AsyncJobs(AsyncResource):
    """`client.jobs`"""

    create = AsyncSends(calls.create_job)
    batch = AsyncSends(calls.create_jobs)
    put_by_key = AsyncSends(calls.put_job_by_key)
    get_by_key = AsyncSends(calls.get_job_by_key)
    cancel_by_key = AsyncSends(calls.cancel_job_by_key)
    get = AsyncSends(calls.get_job)
    list = AsyncPages(calls.list_jobs)
    page = AsyncSends(calls.list_jobs)
    edit = AsyncSends(calls.edit_job)
    cancel = AsyncSends(calls.cancel_job)
    pause = AsyncSends(calls.pause_job)
    resume = AsyncSends(calls.resume_job)
    trigger = AsyncSends(calls.trigger_job)
    occurrences = AsyncSends(calls.job_occurrences)


class AsyncSchedules(AsyncResource):
    """`client.schedules`"""

    preview = AsyncSends(calls.preview_schedule)


class AsyncRuns(AsyncResource):
    """`client.runs`"""

    list = AsyncPages(run_calls.list_runs)
    page = AsyncSends(run_calls.list_runs)
    get = AsyncSends(run_calls.get_run)
    cancel = AsyncSends(run_calls.cancel_run)

    async def wait(self, run_id: str, *, timeout: float = 300.0) -> Run:
        """The run once it is finished, however it ended. Raises `TimedOut` after `timeout` seconds;
        the run goes on."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            run = await self.get(run_id)
            if run.finished:
                return run
            await asyncio.sleep(
                check_deadline(run.run_id, run.state, pause, deadline - time.monotonic(), timeout)
            )
        raise AssertionError("pauses never end")


class AsyncTargets(AsyncResource):
    """`client.targets`"""

    register = AsyncSends(management.register_target)
    get = AsyncSends(management.get_target)
    list = AsyncPages(management.list_targets)
    page = AsyncSends(management.list_targets)
    edit = AsyncSends(management.edit_target)
    delete = AsyncSends(management.delete_target)
    approve = AsyncSends(management.approve_target)
    rotate_secret = AsyncSends(management.rotate_target_secret)
    health = AsyncSends(bulk_calls.get_target_health)
    test = AsyncSends(bulk_calls.test_target)


class AsyncWorkflows(AsyncResource):
    """`client.workflows`"""

    start = AsyncSends(workflow_calls.start_workflow)
    list = AsyncPages(workflow_calls.list_workflows)
    page = AsyncSends(workflow_calls.list_workflows)
    reconciliation = AsyncPages(workflow_calls.reconciliation)
    reconciliation_page = AsyncSends(workflow_calls.reconciliation)
    get = AsyncSends(workflow_calls.get_workflow)
    timeline = AsyncSends(workflow_calls.workflow_timeline)
    history = AsyncPages(workflow_calls.workflow_history)
    history_page = AsyncSends(workflow_calls.workflow_history)
    signal = AsyncSends(workflow_calls.signal_workflow)
    cancel = AsyncSends(workflow_calls.cancel_workflow)
    terminate = AsyncSends(workflow_calls.terminate_workflow)
    reset = AsyncSends(workflow_calls.reset_workflow)
    migrate = AsyncSends(workflow_calls.migrate_workflow)
    resolve = AsyncSends(workflow_calls.resolve_workflow)

    async def wait_for(
        self, workflow_id: str, *, run_id: str | None = None, timeout: float = 300.0
    ) -> Workflow:
        """The workflow once it has ended, however it did; where it goes on as new, its last execution, unless
        `run_id` names one. Raises `TimedOut` after `timeout` seconds; the workflow goes on."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            found = await self.get(workflow_id, run_id=run_id)
            if not found.open:
                return found
            left = deadline - time.monotonic()
            await asyncio.sleep(check_deadline(workflow_id, found.status, pause, left, timeout))
        raise AssertionError("pauses never end")


class AsyncDefinitions(AsyncResource):
    """`client.definitions`"""

    put = AsyncSends(definition_calls.put_definition)
    check = AsyncSends(definition_calls.check_definition)
    get = AsyncSends(definition_calls.get_definition)
    list = AsyncPages(definition_calls.list_definitions)
    page = AsyncSends(definition_calls.list_definitions)

    async def check_pages(
        self, name: str, version: int, text: str | None = None
    ) -> AsyncIterator[DefinitionChecked]:
        """`check` over every open execution, page by page, each asked for when it is wanted."""
        found = await self.check(name, version, text)
        yield found
        while found.next_cursor is not None:
            found = await self.check(name, version, text, cursor=found.next_cursor)
            yield found


class AsyncSelections(AsyncResource):
    """`client.selections`"""

    create = AsyncSends(bulk_calls.select_jobs)
    get = AsyncSends(bulk_calls.get_selection)
    apply = AsyncSends(bulk_calls.apply_selection)


class AsyncOperations(AsyncResource):
    """`client.operations`"""

    list = AsyncPages(bulk_calls.list_operations)
    page = AsyncSends(bulk_calls.list_operations)
    get = AsyncSends(bulk_calls.get_operation)
    stop = AsyncSends(bulk_calls.stop_operation)


class AsyncTaskQueues(AsyncResource):
    """`client.queues`"""

    list = AsyncPages(queue_calls.list_queues)
    get = AsyncSends(queue_calls.get_queue)
    pause = AsyncSends(queue_calls.pause_queue)
    resume = AsyncSends(queue_calls.resume_queue)


class AsyncCalendars(AsyncResource):
    """`client.calendars`"""

    put = AsyncSends(calendar_calls.put_calendar)
    get = AsyncSends(calendar_calls.get_calendar)
    list = AsyncPages(calendar_calls.list_calendars)
    page = AsyncSends(calendar_calls.list_calendars)
    delete = AsyncSends(calendar_calls.delete_calendar)


class AsyncBackfills(AsyncResource):
    """`client.backfills`"""

    plan = AsyncSends(calendar_calls.plan_backfill)
    start = AsyncSends(calendar_calls.backfill_job)
    list = AsyncPages(calendar_calls.list_backfills)
    page = AsyncSends(calendar_calls.list_backfills)
    get = AsyncSends(calendar_calls.get_backfill)
    stop = AsyncSends(calendar_calls.stop_backfill)


class AsyncDeadLetters(AsyncResource):
    """`client.dlq`"""

    list = AsyncPages(run_calls.list_dead_letters)
    page = AsyncSends(run_calls.list_dead_letters)
    choose = AsyncSends(redrive_calls.choose_letters)
    begin = AsyncSends(redrive_calls.begin)
    redrive_run = AsyncSends(redrive_calls.redrive_run)
    redrives = AsyncPages(redrive_calls.list_redrives)
    redrive = AsyncSends(redrive_calls.get_redrive)
    stop = AsyncSends(redrive_calls.stop_redrive)


class AsyncMoves(AsyncResource):
    """`client.moves`: of any tenant, for operators' keys"""

    plan = AsyncSends(move_calls.plan_move)
    start = AsyncSends(move_calls.start_move)
    list = AsyncPages(move_calls.list_moves)
    page = AsyncSends(move_calls.list_moves)
    get = AsyncSends(move_calls.get_move)
    abort = AsyncSends(move_calls.abort_move)


class AsyncOwnMoves(AsyncResource):
    """`client.own_moves`: of the key's tenant"""

    plan = AsyncSends(move_calls.plan_own_move)
    start = AsyncSends(move_calls.start_own_move)
    list = AsyncPages(move_calls.list_own_moves)
    page = AsyncSends(move_calls.list_own_moves)
    get = AsyncSends(move_calls.get_own_move)
    abort = AsyncSends(move_calls.abort_own_move)


class AsyncStats(AsyncResource):
    """`client.stats`"""

    read = AsyncSends(run_calls.read_stats)
    metrics = AsyncSends(run_calls.read_metrics)
    herd = AsyncSends(bulk_calls.read_herd)


class AsyncEvents(AsyncResource):
    """`client.events`"""

    list = AsyncPages(run_calls.list_events)
    page = AsyncSends(run_calls.list_events)


class AsyncTenant(AsyncResource):
    """`client.tenant`"""

    get = AsyncSends(management.get_tenant)
    edit = AsyncSends(management.edit_tenant)
    quotas = AsyncSends(cell_calls.get_quotas)
    delays = AsyncSends(cell_calls.read_delays)


class AsyncMembers(AsyncResource):
    """`client.members`"""

    list = AsyncPages(management.list_members)
    get = AsyncSends(management.get_member)
    add = AsyncSends(management.add_member)
    edit = AsyncSends(management.edit_member)
    remove = AsyncSends(management.remove_member)


class AsyncApiKeys(AsyncResource):
    """`client.api_keys`"""

    list = AsyncPages(management.list_api_keys)
    get = AsyncSends(management.get_api_key)
    create = AsyncSends(management.create_api_key)
    rotate = AsyncSends(management.rotate_api_key)
    revoke = AsyncSends(management.revoke_api_key)


class AsyncUsage(AsyncResource):
    """`client.usage`"""

    read = AsyncSends(management.read_usage)


class AsyncForecasts(AsyncResource):
    """`client.forecasts`"""

    month = AsyncSends(money_calls.month_forecast)
    schedule = AsyncSends(money_calls.schedule_forecast)


class AsyncBudget(AsyncResource):
    """`client.budget`"""

    get = AsyncSends(money_calls.get_budget)
    set = AsyncSends(money_calls.set_budget)
    remove = AsyncSends(money_calls.remove_budget)


class AsyncInvoices(AsyncResource):
    """`client.invoices`"""

    list = AsyncPages(money_calls.list_invoices)
    get = AsyncSends(money_calls.get_invoice)
    pdf = AsyncSends(money_calls.invoice_pdf)
    credit_note_pdf = AsyncSends(money_calls.credit_note_pdf)
    line_usage = AsyncSends(money_calls.line_usage)


class AsyncPriceBooks(AsyncResource):
    """`client.price_books`, for operators' keys"""

    list = AsyncPages(money_calls.list_price_books)
    get = AsyncSends(money_calls.get_price_book)
    preview = AsyncSends(money_calls.preview_price_book)
    create = AsyncSends(money_calls.create_price_book)
    withdraw = AsyncSends(money_calls.withdraw_price_book)


class AsyncCostReports(AsyncResource):
    """`client.cost_reports`"""

    daily = AsyncSends(management.daily_cost)


class AsyncClockhouse(AsyncRegional):
    """The API. For one event loop; `async with` closes its connections.

    Address and key: see `profiles.py`. `timeout` in seconds is for each try; `retries` says how often, and
    only what cannot do harm is repeated. `http` replaces the HTTP client (the caller closes it).
    """

    def __init__(
        self,
        api_url: str | None = None,
        api_key: str | None = None,
        *,
        tenant_id: str | None = None,
        profile: str | None = None,
        timeout: float = 30.0,
        retries: Retries | None = None,
        http: httpx.AsyncClient | None = None,
        product: str = "client",
    ) -> None:
        self.settings = find_settings(api_url=api_url, api_key=api_key, tenant_id=tenant_id, profile=profile)
        transport = AsyncTransport(
            self.settings, timeout=timeout, retries=retries or Retries(), product=product, http=http
        )
        self._transport = transport
        self.jobs = AsyncJobs(transport)
        self.schedules = AsyncSchedules(transport)
        self.runs = AsyncRuns(transport)
        self.targets = AsyncTargets(transport)
        self.queues = AsyncTaskQueues(transport)
        self.dlq = AsyncDeadLetters(transport)
        self.workflows = AsyncWorkflows(transport)
        self.definitions = AsyncDefinitions(transport)
        self.selections = AsyncSelections(transport)
        self.operations = AsyncOperations(transport)
        self.calendars = AsyncCalendars(transport)
        self.backfills = AsyncBackfills(transport)
        self.stats = AsyncStats(transport)
        self.events = AsyncEvents(transport)
        self.tenant = AsyncTenant(transport)
        self.members = AsyncMembers(transport)
        self.api_keys = AsyncApiKeys(transport)
        self.usage = AsyncUsage(transport)
        self.moves, self.own_moves = AsyncMoves(transport), AsyncOwnMoves(transport)
        self.cells = AsyncCells(transport)
        self.relocations = AsyncRelocations(transport)
        self.topology = AsyncTopology(transport)
        self.cost_reports = AsyncCostReports(transport)
        self.forecasts, self.budget = AsyncForecasts(transport), AsyncBudget(transport)
        self.invoices = AsyncInvoices(transport)
        self.price_books = AsyncPriceBooks(transport)
        self.exports = AsyncExports(transport)
        self.tenant_exports = AsyncTenantExports(transport)
        self.erasure, self.erasures = AsyncOwnErasures(transport), AsyncErasures(transport)
        self.notifications = AsyncNotifications(transport)

    async def close(self) -> None:
        """Give the connections back."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
