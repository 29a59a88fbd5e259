"""Tenants that have one of everything, for proofs and tests that go through the whole API."""

from __future__ import annotations

import json
import secrets
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import psycopg

from cells.domain.ids import TENANT, decode, encode
from controlplane.rehearsals.report import report_of
from tests.api import Api
from tests.stack import Stack
from tests.waiting import eventually_sync


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A tenant on a cell. `things` are its own ids and words, by the path parameter they fill."""

    tenant_id: str
    cell: str
    api: Api
    key: str
    things: dict[str, str] = field(default_factory=dict)


def operator_api(stack: Stack, *, tenant_id: str | None = None) -> Api:
    """The API with the operator's key."""
    return Api(stack.info["api_url"], stack.info["operator_api_key"], tenant_id=tenant_id)


def new_tenant(stack: Stack, name: str, *, cell: str) -> Tenant:
    """A fresh tenant with an administrator's key, ready to use, with allowances nothing runs into."""
    made = operator_api(stack).call(
        "POST",
        "/v1/admin/tenants",
        {
            "slug": f"{name}-{secrets.token_hex(4)}",
            "name": name.capitalize(),
            "cell": cell,
            "owner_email": f"{name}-{secrets.token_hex(4)}@example.com",
            "quotas": {"api_requests_per_second": 100_000, "job_runs_per_second": 1000},
        },
    )
    issued = operator_api(stack, tenant_id=made["tenant_id"]).call(
        "POST", "/v1/api-keys", {"name": name, "scopes": ["admin"]}
    )
    api = Api(stack.info["api_url"], issued["api_key"])
    eventually_sync(lambda: api.http.get("/v1/jobs").status_code == 200, timeout=30)
    return Tenant(tenant_id=made["tenant_id"], cell=cell, api=api, key=issued["api_key"])


def inhabit(stack: Stack, tenant: Tenant) -> Tenant:
    """Give a tenant a job, runs, a dead letter, a target, a member, a key, a bulk change and a choice
    of jobs for another one: `things` names them."""
    api, mark = tenant.api, secrets.token_hex(4)
    target = api.register_target(stack.echo_url)["target_id"]
    job = api.create_job(
        {
            "schedule": {"type": "CRON", "cron": "0 3 1 1 *", "time_zone": "Europe/Berlin"},
            "target": {"target_id": target, "path": "/yearly"},
            "name": f"yearly {mark}",
            "key": f"yearly-{mark}",
            "tags": [f"tag-{mark}"],
            "payload": {"secret": f"payload-{mark}"},
        }
    )
    calendar = f"cal_{mark}"
    api.call("PUT", f"/v1/calendars/{calendar}", {"name": f"closed {mark}", "dates": ["2099-12-24"]})
    backfill = _backfilled(api, target)
    chosen = {"action": "pause", "filter": {"job_ids": [job["job_id"]]}}
    selection = api.call("POST", "/v1/selections", chosen)
    operation = _paused_in_bulk(api, target)
    run_id = _ran(api, target, "/once", "SUCCEEDED")
    letter = _ran(api, target, "/status/418", "FAILED")
    done_with = _ran(api, target, "/status/418", "FAILED")
    purge = api.call("POST", "/v1/dlq:purge", {"filter": {"run_ids": [done_with]}})["redrive_id"]
    eventually_sync(lambda: api.get(f"/v1/redrives/{purge}")["state"] == "DONE", timeout=30)
    key = api.call("POST", "/v1/api-keys", {"name": "spare", "scopes": ["jobs:read"]})
    member = api.call(
        "POST", "/v1/members", {"email": f"{secrets.token_hex(4)}@example.com", "role": "viewer"}
    )
    tenant.things.update(
        tenant=tenant.tenant_id,
        job_id=job["job_id"],
        key=job["key"],
        job_name=job["name"],
        tag=job["tags"][0],
        payload=f"payload-{mark}",
        run_id=run_id,
        target_id=target,
        key_id=key["key_id"],
        member_id=member["member_id"],
        selection_id=selection["selection_id"],
        selection_hash=selection["hash"],
        operation_id=operation,
        letter=letter,
        redrive_id=purge,
        **_under_way(api, f"queue-{mark}"),
        calendar_id=calendar,
        **_waiting(api, mark),
        backfill_id=backfill,
        **_told(stack, api),
        **_billed(stack, tenant),
        move=_given_up_move(stack, tenant),
        erasure=_spared(api),
        relocation=_drained_cell(stack),
        **_rehearsed(stack, tenant),
    )
    return tenant


def _told(stack: Stack, api: Api) -> dict[str, str]:
    """A notification rule with a message that nobody takes, and a rule of operators."""
    rule = {
        "name": "on call",
        "kinds": ["api_key.expiring"],
        "channel": "WEBHOOK",
        "url": "http://127.0.0.1:9/",
    }
    made = api.call("POST", "/v1/notification-rules", rule)["rule_id"]
    delivery = api.call("POST", f"/v1/notification-rules/{made}:test", {}, expect=(202,))["delivery_id"]
    path = f"/v1/notification-deliveries/{delivery}"
    eventually_sync(lambda: api.get(path)["state"] == "DEAD", timeout=60)
    theirs = operator_api(stack).call("POST", "/v1/admin/notification-rules", rule)["rule_id"]
    whole = api.call("POST", "/v1/tenant-exports", {}, expect=(202,))["tenant_export_id"]
    eventually_sync(lambda: api.get(f"/v1/tenant-exports/{whole}")["state"] == "DONE", timeout=60)
    return {"tenant_export_id": whole, "rule_id": made, "delivery_id": delivery, "operator_rule_id": theirs}


#: A month that every test's installation is behind, and that no price book is older than.
_BILLED_MONTH = date(2026, 1, 1)


def _billed(stack: Stack, tenant: Tenant) -> dict[str, str]:
    """A contract, a budget, a final invoice with a credit note, and a price book."""
    operator, month = operator_api(stack), _BILLED_MONTH
    contract = operator.call(
        "POST",
        "/v1/admin/contracts",
        {"tenant_id": tenant.tenant_id, "effective_from": month.isoformat(), "minimum": "30"},
    )
    _closed_month(stack, tenant, month)
    tenant.api.call("PUT", "/v1/budget", {"amount": "100000"})
    draft = {"tenant_id": tenant.tenant_id, "month": f"{month:%Y-%m}"}
    invoice = operator.call("POST", "/v1/admin/invoices", draft)["invoice_id"]
    operator.call("POST", f"/v1/admin/invoices/{invoice}:finalize", {})
    credited = {"reason": "wrong", "lines": [{"n": 1, "amount": "1"}]}
    note = operator.call("POST", f"/v1/admin/invoices/{invoice}:credit", credited)
    return {
        **_exported(tenant.api),
        "invoice_id": invoice,
        "n": "1",
        "credit_note_id": note["credit_note_id"],
        "contract_id": contract["contract_id"],
        "price_book_id": operator.get("/v1/admin/price-books")["items"][0]["price_book_id"],
    }


def _exported(api: Api) -> dict[str, str]:
    """An export that is done with one of its files, a scheduled one, and the name of a report."""
    days = {"from": "2026-01-01", "to": "2026-01-31"}
    export = api.call("POST", "/v1/exports", {"dataset": "INVOICE_LINES", **days})["export_id"]
    eventually_sync(lambda: api.get(f"/v1/exports/{export}")["state"] == "DONE", timeout=60)
    api.call("PUT", "/v1/export-schedules/INVOICE_LINES", {"cadence": "MONTHLY"})
    return {
        "export_id": export,
        "file_name": api.get(f"/v1/exports/{export}")["files"][0]["name"],
        "dataset": "INVOICE_LINES",
        "report": "failed-runs",
    }


def _closed_month(stack: Stack, tenant: Tenant, month: date) -> None:
    """A month with usage that closed long ago: written where rollups would have."""
    tenant_id = decode(TENANT, tenant.tenant_id)
    with psycopg.connect(stack.info["control_database_url"]) as connection:
        connection.execute(
            "INSERT INTO billing_usage_day (tenant_id, day, metric, region_policy, cell, quantity, records)"
            " VALUES (%s, %s, 'job_runs', 'STRICT', %s, 1000000, 1)",
            (tenant_id, month, tenant.cell),
        )
        connection.execute(
            "INSERT INTO billing_period (tenant_id, month, state, closed_at, waits_for)"
            " VALUES (%s, %s, 'CLOSED', now(), '[]')",
            (tenant_id, month),
        )


def _rehearsed(stack: Stack, tenant: Tenant) -> dict[str, str]:
    """An evacuation and a rehearsal that are over: written where a second region would have had them be."""
    ids = {"evacuation": uuid.uuid4(), "rehearsal": uuid.uuid4()}
    report = report_of(cell=tenant.cell, region="local", cut_at=0.0, facts={}, counted={})
    with psycopg.connect(stack.info["control_database_url"]) as connection:
        connection.execute(
            "INSERT INTO evacuations_evacuation (id, region_id, kind, state, why, at_once, calm_lag_ms,"
            " calm_seconds, hand_back, plan, started_by, reason)"
            " VALUES (%s, 'local', 'EVACUATE', 'DONE', 'done', 1, 2000, 10, false, '{}', 'tests', 'a test')",
            (ids["evacuation"],),
        )
        connection.execute(
            "INSERT INTO evacuations_evacuatedcell (evacuation_id, cell_id, position, source, target, state,"
            ' why, "returning", state_before, epoch, lifts, progress, facts)'
            " VALUES (%s, %s, 0, 'local', 'elsewhere', 'DONE', 'done', false, 'OPEN', 1, 0,"
            """ '{"behind_bytes": 12, "lag_ms": 3}', '{"handed_over_ms": 900}')""",
            (ids["evacuation"], tenant.cell),
        )
        connection.execute(
            "INSERT INTO rehearsals_rehearsal (id, region_id, state, why, seconds, started_by, reason)"
            " VALUES (%s, 'local', 'DONE', 'done', 60, 'tests', 'a test')",
            (ids["rehearsal"],),
        )
        connection.execute(
            "INSERT INTO rehearsals_rehearsedcell (rehearsal_id, cell_id, epoch, facts, report)"
            " VALUES (%s, %s, 1, '{}', %s)",
            (ids["rehearsal"], tenant.cell, json.dumps(report)),
        )
    return {
        "evacuation": encode("evc", ids["evacuation"]),
        "rehearsal": encode("reh", ids["rehearsal"]),
    }


def _given_up_move(stack: Stack, tenant: Tenant) -> str:
    """A move to another cell that was aborted at once."""
    operator = operator_api(stack)
    begun = operator.call("POST", "/v1/admin/moves", {"tenant_id": tenant.tenant_id}, expect=(202,))
    move = str(begun["move_id"])
    operator.call("POST", f"/v1/admin/moves/{move}:abort", {"reason": "only a look"}, expect=(202, 409))

    def over() -> bool:
        return bool(operator.get(f"/v1/admin/moves/{move}")["finished_at"])

    eventually_sync(over, timeout=60)
    return move


def _spared(api: Api) -> str:
    """An erasure that was asked for and cancelled."""
    wish = {"confirm": api.get("/v1/tenant")["slug"]}
    made = str(api.call("POST", "/v1/tenant/erasure", wish, expect=(202,))["erasure_id"])
    api.call("POST", "/v1/tenant/erasure:cancel", {})
    return made


def _drained_cell(stack: Stack) -> str:
    """A cell without tenants that was drained, and is gone for good."""
    operator, name = operator_api(stack), f"spare-{secrets.token_hex(4)}"
    region = operator.get("/v1/admin/regions")["items"][0]["name"]
    made = {"name": name, "region": region, "url": "http://127.0.0.1:1", "key_hex": "00" * 32}
    operator.call("POST", "/v1/admin/cells", made)
    drained = operator.call("POST", f"/v1/admin/cells/{name}:drain", {})
    relocation = str(drained["relocation"]["relocation_id"])

    def over() -> bool:
        return bool(operator.get(f"/v1/admin/relocations/{relocation}")["state"] == "DONE")

    eventually_sync(over, timeout=60)
    operator.call("POST", f"/v1/admin/cells/{name}:retire", {})
    return relocation


def _under_way(api: Api, queue: str) -> dict[str, str]:
    """A task queue, and a task of it that a worker holds."""
    api.create_job(
        {
            "schedule": {"type": "NOW"},
            "target": {"type": "TASK_QUEUE", "task_queue": queue, "lease_seconds": 86_400},
        }
    )
    worker = f"worker of {queue}"
    body = {"worker_id": worker, "wait_seconds": 20}
    (task,) = api.call("POST", f"/v1/task-queues/{queue}/tasks:poll", body)["tasks"]
    return {
        "queue": queue,
        "worker_id": worker,
        "task_run_id": task["run_id"],
        "epoch": str(task["epoch"]),
    }


def _waiting(api: Api, mark: str) -> dict[str, str]:
    """A workflow that waits for a signal, and its definition."""
    things = {
        "definition": f"order_{mark}",
        "version": str(100_000_000 + secrets.randbelow(100_000_000)),
        "workflow_id": f"order-{mark}",
        "signal": f"paid_{mark}",
    }
    text = {"steps": [{"id": "paid", "wait_for_signal": {"name": things["signal"]}}]}
    api.call("PUT", f"/v1/workflow-definitions/{things['definition']}/versions/{things['version']}", text)
    start = {"workflow_id": things["workflow_id"], "definition": things["definition"]}
    run_id = api.call("POST", "/v1/workflows", start)["run_id"]
    return {**things, "workflow_run_id": run_id}


def _paused_in_bulk(api: Api, target: str) -> str:
    """The id of a bulk change that has ended."""
    job = api.create_job(
        {"schedule": {"type": "RATE", "every_seconds": 86_400}, "target": {"target_id": target}}
    )
    selection = api.call(
        "POST", "/v1/selections", {"action": "pause", "filter": {"job_ids": [job["job_id"]]}}
    )
    operation = api.call(
        "POST", f"/v1/selections/{selection['selection_id']}:apply", {"hash": selection["hash"]}
    )["operation_id"]
    eventually_sync(lambda: api.get(f"/v1/operations/{operation}")["state"] == "DONE", timeout=30)
    return str(operation)


def _backfilled(api: Api, target: str) -> str:
    """The id of a backfill that has ended."""
    started = datetime.now(UTC) - timedelta(hours=3)
    start_at = started.strftime("%Y-%m-%dT%H:%M:%SZ")
    job = api.create_job(
        {
            "schedule": {"type": "RATE", "every_seconds": 3600, "start_at": start_at},
            "target": {"target_id": target},
        }
    )
    stretch = {"from": (started - timedelta(minutes=1)).isoformat(), "until": datetime.now(UTC).isoformat()}
    made = api.call("POST", f"/v1/jobs/{job['job_id']}:backfill", stretch)["backfill_id"]
    eventually_sync(lambda: api.get(f"/v1/backfills/{made}")["state"] == "DONE", timeout=30)
    return str(made)


def _ran(api: Api, target: str, path: str, state: str) -> str:
    """The id of a run that ended so."""
    job_id = api.create_job(
        {
            "schedule": {"type": "NOW"},
            "target": {"target_id": target, "path": path},
            "retry_policy": {"max_attempts": 1},
        }
    )["job_id"]

    def ended() -> str | None:
        runs = api.get("/v1/runs", job_id=job_id)["items"]
        return runs[0]["run_id"] if runs and runs[0]["state"] == state else None

    return eventually_sync(ended, timeout=30) or ""
