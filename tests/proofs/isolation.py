"""isolation: two tenants, one on the same cell and one on another, send every operation of the
API's document at a third tenant: its ids in paths, queries and bodies, its id as X-Tenant-Id.
They get 401, 403, 404 or their own things, and not one row of the third tenant changes."""

from __future__ import annotations

import re
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.fingerprints import differences, fingerprint
from tests.inhabited import Tenant, inhabit, new_tenant
from tests.stack import Stack

CLOSED = (401, 403, 404)
OPERATORS = "/v1/admin/"
#: Path parameters that are names within a tenant: the same name of two tenants is two things.
NAMES = frozenset({"key", "queue", "calendar_id", "workflow_id", "definition", "version", "signal", "n"}) | {
    *("dataset", "file_name", "report"),
}
#: Queries by which a list is asked for somebody else's things, by parameter.
ASKED_FOR = {
    "target": "target_id",
    "job_id": "job_id",
    "tag": "tag",
    "name_prefix": "job_name",
    "subject": "key_id",
    "definition": "definition",
    "prefix": "workflow_id",
    "rule_id": "rule_id",
}


@dataclass
class Finding:
    """Where the wall has a hole, or where nobody looked."""

    operation: str
    what: str


@dataclass
class Attack:
    """What one intruder does to the victim."""

    http: httpx.Client
    document: dict[str, Any]
    intruder: Tenant
    victim: Tenant
    findings: list[Finding] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    operations: set[str] = field(default_factory=set)
    #: Every request so far: names in it (`NAMES`) may come back, as the intruder's own things have them.
    sent: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Every operation: first what is closed, then what reads, then what makes things of the
        intruder's own, under the victim's names too."""
        operations = [
            (path, method, operation)
            for path, item in self.document["paths"].items()
            for method, operation in item.items()
        ]
        for path, method, operation in sorted(operations, key=lambda o: (not _closed(o[0]), o[1] != "get")):
            self._try(path, method.upper(), operation)

    def _try(self, path: str, method: str, operation: dict[str, Any]) -> None:
        name = f"{method} {path}"
        things = {**self.victim.things, "name": self.victim.cell, "region": "local"}
        parameters = re.findall(r"\{(\w+)\}", path)
        unknown = [p for p in parameters if p not in things]
        bodies = _bodies(things)
        takes_body = bool(operation.get("requestBody", {}).get("required"))
        if unknown or (takes_body and operation["operationId"] not in bodies):
            what = f"path parameter {', '.join(unknown)}" if unknown else "body"
            self.findings.append(Finding(name, f"the proof does not know how to fill its {what}"))
            return
        self.operations.add(operation["operationId"])
        filled = re.sub(r"\{(\w+)\}", lambda match: things[match[1]], path)
        body = bodies.get(operation["operationId"]) if "requestBody" in operation else None
        closed = _closed(path)

        self._send(name, method, filled, body, key=None, expect=(401,))
        self._send(name, method, filled, body, tenant=self.victim.tenant_id, expect=(403,))
        self._send(name, method, filled, body, expect=CLOSED if closed else None)
        if method == "GET" and not closed:
            for query in self._queries(operation):
                self._send(name, method, filled, None, query=query)

    def _queries(self, operation: dict[str, Any]) -> Iterator[dict[str, str]]:
        """The victim's things as filters, and the victim's place in its own list as a cursor."""
        named = [p["name"] for p in operation["parameters"] if p.get("in") == "query"]
        for parameter in named:
            if parameter in ASKED_FOR:
                yield {parameter: self.victim.things[ASKED_FOR[parameter]]}
        if "cursor" in named:
            path = next(
                path
                for path, item in self.document["paths"].items()
                if any(one is operation for one in item.values())
            )
            cursor = self.victim.api.http.get(path, params={"limit": 1}).json().get("next_cursor")
            if cursor:
                yield {"cursor": cursor, "limit": "200"}

    def _send(
        self,
        name: str,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        *,
        key: str | None = "own",
        tenant: str | None = None,
        query: dict[str, str] | None = None,
        expect: tuple[int, ...] | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {self.intruder.key}"} if key else {}
        if tenant:
            headers["X-Tenant-Id"] = tenant
        answer = self.http.request(method, path, headers=headers, json=body, params=query)
        self.answers[answer.status_code] += 1
        if answer.status_code >= 500 or (expect and answer.status_code not in expect):
            self.findings.append(Finding(name, f"{answer.status_code} {answer.text[:300]}"))
        self.sent.append(f"{path} {body} {query}")
        shown = [
            value
            for thing, value in self.victim.things.items()
            if value in answer.text and not (tenant or not key) and not self._named(thing, value)
        ]
        if shown:
            self.findings.append(Finding(name, f"shows {shown}: {answer.text[:300]}"))

    def _named(self, thing: str, value: str) -> bool:
        """Whether the intruder has said the value itself: just now, or ever for a name of its own."""
        said = self.sent if thing in NAMES else self.sent[-1:]
        return any(value in request for request in said)


def _closed(path: str) -> bool:
    """Whether a path is about a thing that only one tenant has, or is for operators."""
    return path.startswith(OPERATORS) or any(p not in NAMES for p in re.findall(r"\{(\w+)\}", path))


def main() -> dict[str, Any]:
    with Stack() as stack:
        return run_isolation(stack)


def run_isolation(stack: Stack) -> dict[str, Any]:
    """The whole proof on a running product."""
    cells = list(stack.info["cells"])
    victim = inhabit(stack, new_tenant(stack, "victim", cell=cells[0]))
    intruders = [new_tenant(stack, "neighbour", cell=cells[0])]
    intruders += [new_tenant(stack, "stranger", cell=cell) for cell in cells[1:2]]
    document = httpx.get(f"{stack.info['api_url']}/v1/openapi.json").raise_for_status().json()
    databases = [
        stack.info["control_database_url"],
        *(c["database_url"] for c in stack.info["cells"].values()),
    ]
    readable = _readable_by_their_owner(document, victim)
    before = fingerprint(databases, victim.tenant_id)
    # At once: each knows only itself and the victim. A connection on which a request was refused before its
    # body had come may be closed by the router: none is used again.
    once = httpx.Limits(max_keepalive_connections=0)
    with (
        httpx.Client(base_url=stack.info["api_url"], timeout=30, limits=once) as http,
        ThreadPoolExecutor(len(intruders)) as pool,
    ):
        attacks = [
            Attack(http=http, document=document, intruder=intruder, victim=victim) for intruder in intruders
        ]
        for done in [pool.submit(attack.run) for attack in attacks]:
            done.result()
    after = fingerprint(databases, victim.tenant_id)
    changed = differences(before, after)
    findings = [f"{finding.operation}: {finding.what}" for a in attacks for finding in a.findings]
    for finding in findings:
        print(finding, file=sys.stderr)
    operations = {o["operationId"] for item in document["paths"].values() for o in item.values()}
    return {
        "holds": not findings
        and not changed
        and all(a.operations == operations for a in attacks)
        and readable > 0,
        "operations": len(operations),
        "intruders": len(attacks),
        "requests": sum(sum(a.answers.values()) for a in attacks),
        "answers": {str(status): sum(a.answers[status] for a in attacks) for status in _statuses(attacks)},
        "things_their_owner_can_read": readable,
        "tables_compared": len(before),
        "rows_compared": sum(digest.rows for digest in before.values()),
        "tables_changed": changed,
        "findings": findings[:20],
    }


def _statuses(attacks: list[Attack]) -> list[int]:
    return sorted({status for attack in attacks for status in attack.answers})


def _readable_by_their_owner(document: dict[str, Any], victim: Tenant) -> int:
    """How many of the paths that are closed to intruders show their owner something: were this 0,
    the ids would be wrong and the proof would prove nothing."""
    readable = 0
    for path, item in document["paths"].items():
        parameters = re.findall(r"\{(\w+)\}", path)
        if "get" in item and parameters and not path.startswith(OPERATORS):
            filled = re.sub(r"\{(\w+)\}", lambda match: victim.things.get(match[1], "-"), path)
            readable += victim.api.http.get(filled).status_code == 200
    return readable


def _bodies(things: dict[str, str]) -> dict[str, dict[str, Any]]:
    """A body that is well formed and names the victim's things wherever it can, by operation id."""
    job = {
        "schedule": {"type": "ONCE", "run_at": "2099-01-01T00:00:00Z"},
        "target": {"target_id": things["target_id"]},
    }
    key = {"name": "intruder", "scopes": ["jobs:read"]}
    rule = {
        "name": "intruder", "kinds": ["run.dead_lettered"], "channel": "WEBHOOK",
        "url": "https://intruder.example/", "filters": {"target_ids": [things["target_id"]]},
    }  # fmt: skip
    held = {"epoch": int(things["epoch"])}
    return {
        "create_job": job,
        "create_jobs": {"jobs": [job]},
        "declare_job": job,
        "edit_job": {"name": "changed"},
        "trigger_job": {},
        "backfill_job": {"from": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z", "dry_run": True},
        "put_calendar": {"name": "intruder", "dates": ["2099-12-25"]},
        "preview_schedule": {"schedule": job["schedule"]},
        "create_selection": {"action": "cancel", "filter": {"job_ids": [things["job_id"]]}},
        "apply_selection": {"hash": things["selection_hash"]},
        "redrive": {"filter": {"run_ids": [things["letter"]]}},
        "purge": {"filter": {"run_ids": [things["letter"]]}},
        "create_target": {"target_id": things["target_id"], "base_url": "https://intruder.example"},
        "edit_target": {"description": "changed"},
        "rotate_secret": {},
        "poll_tasks": {"worker_id": "intruder", "wait_seconds": 0, "max_tasks": 100},
        "leave_queue": {"worker_id": things["worker_id"]},
        "heartbeat_run": held | {"progress": "intruder"},
        "complete_run": held | {"outcome": "SUCCEEDED"},
        "release_run": held,
        "heartbeat_runs": {"items": [{"run_id": things["task_run_id"], **held}]},
        "complete_runs": {"items": [{"run_id": things["task_run_id"], **held, "outcome": "SUCCEEDED"}]},
        "put_workflow_definition": {"steps": [{"id": "nap", "sleep": "1h"}]},
        "check_workflow_definition": {"steps": [{"id": "nap", "sleep": "1h"}]},
        "start_workflow": {"workflow_id": things["workflow_id"], "definition": things["definition"]},
        "signal_workflow": {"signal_id": "intruder"},
        "cancel_workflow": {},
        "terminate_workflow": {},
        "reset_workflow": {"step": "paid"},
        "migrate_workflow": {"version": int(things["version"])},
        "resolve_workflow": {"action": "close"},
        "create_api_key": key,
        "rotate_api_key": {"grace_seconds": 0},
        "revoke_api_key": {"reason": "intruder"},
        "add_member": {"email": f"{secrets.token_hex(4)}@example.com", "role": "viewer"},
        "edit_member": {"role": "admin"},
        "edit_tenant": {"name": "Intruder"},
        "pause_tenant": {},
        "resume_own_tenant": {},
        "set_budget": {"amount": "1"},
        "forecast_schedule": {"occurrences": 1},
        "start_own_move": {"dry_run": True},
        "abort_own_move": {},
        "request_own_erasure": {"confirm": "another"},
        "cancel_own_erasure": {},
        "create_export": {"dataset": "USAGE", "from": "2026-01-01", "to": "2026-01-31"},
        "set_export_schedule": {"cadence": "MONTHLY"},
        "create_tenant_export": {},
        "create_notification_rule": rule,
        "edit_notification_rule": {"enabled": False},
        "test_notification_rule": {},
        "rotate_notification_secret": {},
        "redeliver_notification": {},
        # Operators' own; no tenant's key opens them.
        "create_price_book": {
            "name": "intruder", "currency": "USD", "effective_from": "2099-01-01", "prices": [],
        },
        "preview_price_book": {"currency": "USD", "prices": []},
        "withdraw_price_book": {},
        "create_contract": {
            "tenant_id": things["tenant"], "effective_from": "2099-01-01", "minimum": "1",
        },
        "end_contract": {"effective_until": "2099-01-01"},
        "edit_billing_account": {"legal_name": "Intruder"},
        "draft_invoice": {"tenant_id": things["tenant"], "month": "2026-01"},
        "finalize_invoice": {},
        "pay_invoice": {},
        "void_invoice": {},
        "give_up_invoice": {},
        "credit_invoice": {"reason": "intruder"},
        "create_operator_export": {
            "dataset": "USAGE", "from": "2026-01-01", "to": "2026-01-31", "tenant_id": things["tenant"],
        },
        "set_operator_export_schedule": {"cadence": "DAILY"},
        "create_operator_notification_rule": rule,
        "edit_operator_notification_rule": {"enabled": False},
        "test_operator_notification_rule": {},
        "rotate_operator_notification_secret": {},
        "redeliver_operator_notification": {},
        "create_operator_key": {"name": "intruder", "scopes": ["operator"]},
        "rotate_operator_key": {"grace_seconds": 0},
        "revoke_operator_key": {},
        "register_cell": {
            "name": "intruder", "region": "local", "url": "http://127.0.0.1:1", "key_hex": "00" * 32,
        },
        "add_cell": {
            "name": "intruder", "region": "local", "url": "http://127.0.0.1:1", "key_hex": "00" * 32,
            "database_url": "postgresql://127.0.0.1:1/none", "valkey_url": "redis://127.0.0.1:1/0",
        },
        "check_cell": {},
        "fill_cell": {},
        "register_site": {"keeper_url": "http://127.0.0.1:1"},
        "hand_over_cell": {},
        "rejoin_site": {},
        "override_votes": {"reason": "intruder"},
        "give_up_site": {"reason": "intruder"},
        "start_rehearsal": {"region": "local"},
        "start_evacuation": {"region": "local"},
        "pause_evacuation": {},
        "resume_evacuation": {},
        "abort_evacuation": {},
        "pause_relocation": {},
        "resume_relocation": {},
        "stop_relocation": {},
        "cordon_cell": {},
        "drain_cell": {},
        "open_cell": {},
        "retire_cell": {},
        "start_move": {"tenant_id": things["tenant"]},
        "request_erasure": {"tenant_id": things["tenant"], "confirm": "another"},
        "cancel_erasure": {},
        "abort_move": {},
        "explain_placement": {"region": "local", "job_runs_per_second": 1},
        "register_region": {"name": "intruder"},
        "create_tenant": {"slug": "intruder", "name": "Intruder"},
        "edit_any_tenant": {"name": "Intruder"},
        "suspend_tenant": {},
        "resume_tenant": {},
        "set_quotas": {"quotas": {"job_runs_per_second": 1}},
    }  # fmt: skip
