"""The client for ordinary code.

with Clockhouse() as clockhouse:          # address and key from the environment or the profile
    job = clockhouse.jobs.create(NewJob(schedule=Schedule.now(), target=HttpTarget("tgt_echo")))
"""

from __future__ import annotations

import time
from collections.abc import Iterator
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
from controlplane.client.binding import Pages, Resource, Sends
from controlplane.client.documents import Run
from controlplane.client.erasing import Erasures, OwnErasures
from controlplane.client.evacuating import Regional
from controlplane.client.exporting import Exports, TenantExports
from controlplane.client.notifying import Notifications
from controlplane.client.placing import Cells, Relocations, Topology
from controlplane.client.profiles import find_settings
from controlplane.client.retrying import Retries
from controlplane.client.transport import Transport
from controlplane.client.waiting import check_deadline, pauses
from controlplane.client.workflow_documents import DefinitionChecked, Workflow


class Jobs(Resource):
    """`client.jobs`"""

    create = Sends(calls.create_job)
    batch = Sends(calls.create_jobs)
    put_by_key = Sends(calls.put_job_by_key)
    get_by_key = Sends(calls.get_job_by_key)
    cancel_by_key = Sends(calls.cancel_job_by_key)
    get = Sends(calls.get_job)
    list = Pages(calls.list_jobs)
    page = Sends(calls.list_jobs)
    edit = Sends(calls.edit_job)
    cancel = Sends(calls.cancel_job)
    pause = Sends(calls.pause_job)
    resume = Sends(calls.resume_job)
    trigger = Sends(calls.trigger_job)
    occurrences = Sends(calls.job_occurrences)


class Schedules(Resource):
    """`client.schedules`"""

    preview = Sends(calls.preview_schedule)


class Runs(Resource):
    """`client.runs`"""

    list = Pages(run_calls.list_runs)
    page = Sends(run_calls.list_runs)
    get = Sends(run_calls.get_run)
    cancel = Sends(run_calls.cancel_run)

    def wait(self, run_id: str, *, timeout: float = 300.0) -> Run:
        """The run once it is finished, however it ended. Raises `TimedOut` after `timeout` seconds;
        the run goes on."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            run = self.get(run_id)
            if run.finished:
                return run
            time.sleep(check_deadline(run_id, run.state, pause, deadline - time.monotonic(), timeout))
        raise AssertionError("pauses never end")


class Targets(Resource):
    """`client.targets`"""

    register = Sends(management.register_target)
    get = Sends(management.get_target)
    list = Pages(management.list_targets)
    page = Sends(management.list_targets)
    edit = Sends(management.edit_target)
    delete = Sends(management.delete_target)
    approve = Sends(management.approve_target)
    rotate_secret = Sends(management.rotate_target_secret)
    health = Sends(bulk_calls.get_target_health)
    test = Sends(bulk_calls.test_target)


class Workflows(Resource):
    """`client.workflows`"""

    start = Sends(workflow_calls.start_workflow)
    list = Pages(workflow_calls.list_workflows)
    page = Sends(workflow_calls.list_workflows)
    reconciliation = Pages(workflow_calls.reconciliation)
    reconciliation_page = Sends(workflow_calls.reconciliation)
    get = Sends(workflow_calls.get_workflow)
    timeline = Sends(workflow_calls.workflow_timeline)
    history = Pages(workflow_calls.workflow_history)
    history_page = Sends(workflow_calls.workflow_history)
    signal = Sends(workflow_calls.signal_workflow)
    cancel = Sends(workflow_calls.cancel_workflow)
    terminate = Sends(workflow_calls.terminate_workflow)
    reset = Sends(workflow_calls.reset_workflow)
    migrate = Sends(workflow_calls.migrate_workflow)
    resolve = Sends(workflow_calls.resolve_workflow)

    def wait_for(self, workflow_id: str, *, run_id: str | None = None, timeout: float = 300.0) -> Workflow:
        """The workflow once it has ended, however it did; where it goes on as new, its last execution, unless
        `run_id` names one. Raises `TimedOut` after `timeout` seconds; the workflow goes on."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            found = self.get(workflow_id, run_id=run_id)
            if not found.open:
                return found
            left = deadline - time.monotonic()
            time.sleep(check_deadline(workflow_id, found.status, pause, left, timeout))
        raise AssertionError("pauses never end")


class Definitions(Resource):
    """`client.definitions`"""

    put = Sends(definition_calls.put_definition)
    check = Sends(definition_calls.check_definition)
    get = Sends(definition_calls.get_definition)
    list = Pages(definition_calls.list_definitions)
    page = Sends(definition_calls.list_definitions)

    def check_pages(self, name: str, version: int, text: str | None = None) -> Iterator[DefinitionChecked]:
        """`check` over every open execution, page by page, each asked for when it is wanted."""
        found = self.check(name, version, text)
        yield found
        while found.next_cursor is not None:
            found = self.check(name, version, text, cursor=found.next_cursor)
            yield found


class Selections(Resource):
    """`client.selections`"""

    create = Sends(bulk_calls.select_jobs)
    get = Sends(bulk_calls.get_selection)
    apply = Sends(bulk_calls.apply_selection)


class Operations(Resource):
    """`client.operations`"""

    list = Pages(bulk_calls.list_operations)
    page = Sends(bulk_calls.list_operations)
    get = Sends(bulk_calls.get_operation)
    stop = Sends(bulk_calls.stop_operation)


class TaskQueues(Resource):
    """`client.queues`"""

    list = Pages(queue_calls.list_queues)
    get = Sends(queue_calls.get_queue)
    pause = Sends(queue_calls.pause_queue)
    resume = Sends(queue_calls.resume_queue)


class Calendars(Resource):
    """`client.calendars`"""

    put = Sends(calendar_calls.put_calendar)
    get = Sends(calendar_calls.get_calendar)
    list = Pages(calendar_calls.list_calendars)
    page = Sends(calendar_calls.list_calendars)
    delete = Sends(calendar_calls.delete_calendar)


class Backfills(Resource):
    """`client.backfills`"""

    plan = Sends(calendar_calls.plan_backfill)
    start = Sends(calendar_calls.backfill_job)
    list = Pages(calendar_calls.list_backfills)
    page = Sends(calendar_calls.list_backfills)
    get = Sends(calendar_calls.get_backfill)
    stop = Sends(calendar_calls.stop_backfill)


class DeadLetters(Resource):
    """`client.dlq`"""

    list = Pages(run_calls.list_dead_letters)
    page = Sends(run_calls.list_dead_letters)
    choose = Sends(redrive_calls.choose_letters)
    begin = Sends(redrive_calls.begin)
    redrive_run = Sends(redrive_calls.redrive_run)
    redrives = Pages(redrive_calls.list_redrives)
    redrive = Sends(redrive_calls.get_redrive)
    stop = Sends(redrive_calls.stop_redrive)


class Moves(Resource):
    """`client.moves`: of any tenant, for operators' keys"""

    plan = Sends(move_calls.plan_move)
    start = Sends(move_calls.start_move)
    list = Pages(move_calls.list_moves)
    page = Sends(move_calls.list_moves)
    get = Sends(move_calls.get_move)
    abort = Sends(move_calls.abort_move)


class OwnMoves(Resource):
    """`client.own_moves`: of the key's tenant"""

    plan = Sends(move_calls.plan_own_move)
    start = Sends(move_calls.start_own_move)
    list = Pages(move_calls.list_own_moves)
    page = Sends(move_calls.list_own_moves)
    get = Sends(move_calls.get_own_move)
    abort = Sends(move_calls.abort_own_move)


class Stats(Resource):
    """`client.stats`"""

    read = Sends(run_calls.read_stats)
    metrics = Sends(run_calls.read_metrics)
    herd = Sends(bulk_calls.read_herd)


class Events(Resource):
    """`client.events`"""

    list = Pages(run_calls.list_events)
    page = Sends(run_calls.list_events)


class Tenant(Resource):
    """`client.tenant`"""

    get = Sends(management.get_tenant)
    edit = Sends(management.edit_tenant)
    quotas = Sends(cell_calls.get_quotas)
    delays = Sends(cell_calls.read_delays)


class Members(Resource):
    """`client.members`"""

    list = Pages(management.list_members)
    get = Sends(management.get_member)
    add = Sends(management.add_member)
    edit = Sends(management.edit_member)
    remove = Sends(management.remove_member)


class ApiKeys(Resource):
    """`client.api_keys`"""

    list = Pages(management.list_api_keys)
    get = Sends(management.get_api_key)
    create = Sends(management.create_api_key)
    rotate = Sends(management.rotate_api_key)
    revoke = Sends(management.revoke_api_key)


class Usage(Resource):
    """`client.usage`"""

    read = Sends(management.read_usage)


class Forecasts(Resource):
    """`client.forecasts`"""

    month = Sends(money_calls.month_forecast)
    schedule = Sends(money_calls.schedule_forecast)


class Budget(Resource):
    """`client.budget`"""

    get = Sends(money_calls.get_budget)
    set = Sends(money_calls.set_budget)
    remove = Sends(money_calls.remove_budget)


class Invoices(Resource):
    """`client.invoices`"""

    list = Pages(money_calls.list_invoices)
    get = Sends(money_calls.get_invoice)
    pdf = Sends(money_calls.invoice_pdf)
    credit_note_pdf = Sends(money_calls.credit_note_pdf)
    line_usage = Sends(money_calls.line_usage)


class PriceBooks(Resource):
    """`client.price_books`, for operators' keys"""

    list = Pages(money_calls.list_price_books)
    get = Sends(money_calls.get_price_book)
    preview = Sends(money_calls.preview_price_book)
    create = Sends(money_calls.create_price_book)
    withdraw = Sends(money_calls.withdraw_price_book)


class CostReports(Resource):
    """`client.cost_reports`"""

    daily = Sends(management.daily_cost)


class Clockhouse(Regional):
    """The API. Safe to share between threads; `with` closes its connections.

    Address and key: see `profiles.py`. `timeout` in seconds is for each try; `retries` says how
    often, and only what cannot do harm is repeated. `http` replaces the HTTP client (the caller
    closes it): proxies, certificates, a transport of one's own.
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
        http: httpx.Client | None = None,
        product: str = "client",
    ) -> None:
        self.settings = find_settings(api_url=api_url, api_key=api_key, tenant_id=tenant_id, profile=profile)
        transport = Transport(
            self.settings, timeout=timeout, retries=retries or Retries(), product=product, http=http
        )
        self._transport = transport
        self.jobs = Jobs(transport)
        self.schedules = Schedules(transport)
        self.runs = Runs(transport)
        self.targets = Targets(transport)
        self.queues = TaskQueues(transport)
        self.dlq = DeadLetters(transport)
        self.workflows = Workflows(transport)
        self.definitions = Definitions(transport)
        self.selections = Selections(transport)
        self.operations = Operations(transport)
        self.calendars = Calendars(transport)
        self.backfills = Backfills(transport)
        self.stats = Stats(transport)
        self.events = Events(transport)
        self.tenant = Tenant(transport)
        self.members = Members(transport)
        self.api_keys = ApiKeys(transport)
        self.usage = Usage(transport)
        self.moves = Moves(transport)
        self.cells = Cells(transport)
        self.relocations = Relocations(transport)
        self.topology = Topology(transport)
        self.own_moves = OwnMoves(transport)
        self.cost_reports = CostReports(transport)
        self.forecasts = Forecasts(transport)
        self.budget = Budget(transport)
        self.invoices = Invoices(transport)
        self.price_books = PriceBooks(transport)
        self.exports = Exports(transport)
        self.tenant_exports = TenantExports(transport)
        self.erasure, self.erasures = OwnErasures(transport), Erasures(transport)
        self.notifications = Notifications(transport)

    def close(self) -> None:
        """Give the connections back."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
