"""fuzz-api: schemathesis reads the API's own document and sends what it allows and what it forbids,
through the router, as a tenant's administrator and as an operator. Every answer is one that the
document declares, in the shape it declares, and none is a 5xx."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from deploy.home import ROOT
from tests.inhabited import Tenant, inhabit, new_tenant
from tests.stack import Stack

SECONDS = 150
OPERATORS = "^/v1/admin/"
HOOKS = "tests.proofs.fuzz_hooks"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
    "missing_required_header",
    "negative_data_rejection",
    "use_after_free",
)
#: What may be said of a request that breaks the schema; 412 where If-Match was looked at first.
REJECTIONS = (400, 401, 403, 404, 405, 409, 412, 413, 415, 422)
#: Values that a grammar of strings never comes upon.
SENSIBLE = {
    "schedule.cron": ["30 2 * * *", "*/7 9-17 * * 1-5"],
    "schedule.time_zone": ["Europe/Berlin", "UTC", "America/New_York"],
    "schedule.run_at": ["2099-03-29T02:30:00Z"],
    "target.path": ["/fuzzed", "/fuzzed?a=b"],
    "base_url": ["https://fuzzed.example/base"],
    "scopes[*]": ["jobs:read", "jobs:write"],
}
#: How often a parameter is a thing that exists, not a fresh invention.
KNOWN = 0.7


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """Some of the paths, with one key."""

    name: str
    key: str
    paths: tuple[str, str]  # an option of schemathesis and its pattern
    spared: str  # never named by a request: without it the rest would find closed doors


def main(seconds: int = SECONDS) -> dict[str, Any]:
    with Stack() as stack:
        return run_fuzz(stack, seconds=seconds)


def run_fuzz(stack: Stack, *, seconds: int) -> dict[str, Any]:
    """Both campaigns, one after the other; the operator's comes second, as it may suspend the tenant."""
    tenant = inhabit(stack, new_tenant(stack, "fuzz", cell=next(iter(stack.info["cells"]))))
    operator = stack.info["operator_api_key"]
    campaigns = (
        Campaign(
            name="tenant",
            key=tenant.key,
            paths=("--exclude-path-regex", OPERATORS),
            spared=tenant.key.split("_")[2],
        ),
        Campaign(
            name="operator",
            key=operator,
            paths=("--include-path-regex", OPERATORS),
            spared=operator.split("_")[2],
        ),
    )
    before = _server_errors(stack)
    document = httpx.get(f"{stack.info['api_url']}/v1/openapi.json").raise_for_status().json()
    found = [
        _run(stack, document, tenant, campaign, seconds=share)
        for campaign, share in zip(campaigns, (seconds * 3 // 5, seconds * 2 // 5), strict=True)
    ]
    findings = sum((Counter(one["findings"]) for one in found), Counter[str]())
    server_errors = _server_errors(stack) - before
    operations = sum(len(item) for item in document["paths"].values())
    accepted = sorted(name for one in found for name in one["accepted"])
    return {
        "holds": not findings
        and server_errors == 0
        and sum(one["operations"] for one in found) == operations
        # Otherwise the doors were closed, and nothing behind them was looked at.
        and len(accepted) >= operations // 2
        and tenant.api.http.get("/v1/tenant").status_code == 200,
        "operations": operations,
        "operations_that_accepted_something": len(accepted),
        "requests": {one["name"]: one["requests"] for one in found},
        "checks": len(CHECKS),
        "findings": dict(findings),
        "answers_5xx": server_errors,
        "seconds": [one["seconds"] for one in found],
    }


def _run(
    stack: Stack, document: dict[str, Any], tenant: Tenant, campaign: Campaign, *, seconds: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "openapi.json").write_text(json.dumps(document))
        (folder / "schemathesis.toml").write_text(_settings(stack, tenant))
        command = [
            sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml"),
            "run", str(folder / "openapi.json"), "--url", stack.info["api_url"],
            "--header", f"Authorization: Bearer {campaign.key}", *campaign.paths,
            "--checks", ",".join(CHECKS), "--max-time", str(seconds), "--continue-on-failure", "--no-shrink",
            "--generation-database", "none", "--request-timeout", "20", "--suppress-health-check", "all",
            "--no-color", "--warnings", "off", "--report", "json",
            "--report-json-path", str(folder / "report.json"),
        ]  # fmt: skip
        ended = subprocess.run(
            command,
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "SCHEMATHESIS_HOOKS": HOOKS,
                "FUZZ_SPARED": campaign.spared,
            },
            capture_output=True,
            text=True,
        )
        report = folder / "report.json"
        if not report.exists():
            raise RuntimeError(
                f"schemathesis made no report:\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
            )
        figures = _figures(json.loads(report.read_text()))
    if figures["findings"]:
        print(ended.stdout, file=sys.stderr)
    return {"name": campaign.name, **figures}


def _settings(stack: Stack, tenant: Tenant) -> str:
    """Things that exist, so that requests get behind "not found"."""
    known = {f"path.{name}": [value] for name, value in tenant.things.items()}
    known["path.name"] = list(stack.info["cells"])
    known["body.target.target_id"] = [tenant.things["target_id"]]
    known |= {f"body.{place}": values for place, values in SENSIBLE.items()}
    lines = [f"[dictionaries.d{n}]\nvalues = {json.dumps(values)}" for n, values in enumerate(known.values())]
    lines.append("[parameters]")
    lines += [
        f'"{place}" = {{ dictionary = "d{n}", probability = {KNOWN} }}' for n, place in enumerate(known)
    ]
    lines += ["[checks.negative_data_rejection]", f"expected-statuses = {list(REJECTIONS)}"]
    # A batch answers for each of its items, and so 200 for those that are wrong, too.
    lines += ["[[operations]]", 'include-operation-id = "create_jobs"']
    lines += ["[operations.checks.negative_data_rejection]", f"expected-statuses = {[200, *REJECTIONS]}"]
    return "\n".join(lines) + "\n"


def _figures(report: dict[str, Any]) -> dict[str, Any]:
    """What the proof needs of schemathesis's report."""
    findings: Counter[str] = Counter()
    for failure in [*report["failures"], *report["errors"]]:
        for operation in failure.get("operations") or ["?"]:
            findings[f"{failure.get('title', failure.get('type'))}: {operation}"] += 1
    return {
        "operations": report["operations"]["tested"],
        "accepted": [
            operation
            for operation, phases in report["valid_rates"].items()
            if any(rates["accepted"] for rates in phases.values())
        ],
        "requests": report["test_cases"]["generated"],
        "findings": findings,
        "seconds": round(report["running_time"], 1),
    }


def _server_errors(stack: Stack) -> int:
    """5xx answers the router has sent so far, by its own count."""
    text = httpx.get(f"{stack.info['api_url']}/metrics").text
    found = re.findall(r'^router_requests_total\{[^}]*status="5xx"\} ([0-9.e+]+)', text, re.MULTILINE)
    return round(sum(map(float, found)))
