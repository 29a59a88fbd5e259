"""A cell is emptied and filled again while its tenants work; who owns what, and what runs waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from deploy.home import ROOT
from tests.inhabited import new_tenant, operator_api
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(400)]


def _cli(stack: Stack, *arguments: str, expect: int = 0) -> Any:
    """`clockhouse … --json` with an operator's key."""
    environment = {
        **os.environ,
        "CLOCKHOUSE_API_URL": stack.info["api_url"],
        "CLOCKHOUSE_API_KEY": stack.info["operator_api_key"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.client", *arguments, "--json"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def test_a_cell_is_drained_and_filled_while_its_tenants_work(stack: Stack) -> None:
    operator = operator_api(stack)
    demo = operator.get(f"/v1/admin/tenants/{stack.info['tenant_id']}")["placement"]["cell"]
    cell = next(name for name in stack.info["cells"] if name != demo)
    tenants = [new_tenant(stack, "drained", cell=cell) for _ in range(2)]
    ours = {tenant.tenant_id for tenant in tenants}
    for tenant in tenants:
        target = tenant.api.register_target(stack.echo_url)["target_id"]
        tenant.api.create_job(
            {"schedule": {"type": "RATE", "every_seconds": 5}, "target": {"target_id": target, "path": "/x"}}
        )

    def living(name: str) -> set[str]:
        found = operator.get("/v1/admin/placements", cell=name, limit=200)["items"]
        return {placement["tenant_id"] for placement in found}

    plan = _cli(stack, "cell", "plan", cell)
    assert ours <= {step["tenant_id"] for step in plan["steps"]}
    assert plan["refusal"] is None
    drained = _cli(stack, "cell", "drain", cell, "--yes", "--at-once", "2", "--watch")
    assert drained["state"] == "DONE"
    assert living(cell) == set()
    assert ours <= living(demo)
    assert _cli(stack, "cell", "show", cell)["state"] == "DRAINING"
    for tenant in tenants:  # they work where they are
        seen = len(tenant.api.get("/v1/runs")["items"])
        eventually_sync(lambda t=tenant, n=seen: len(t.api.get("/v1/runs")["items"]) > n, timeout=60)
    _cli(stack, "cell", "open", cell)
    filled = _cli(stack, "cell", "fill", cell, "--yes", "--at-once", "2", "--watch")
    assert filled["state"] == "DONE"
    assert living(cell)

    def agreed() -> bool:
        return all(owned["agreed"] for owned in operator.get("/v1/admin/ownership")["items"])

    eventually_sync(agreed, timeout=120)
    (region,) = _cli(stack, "topology", "show")["regions"]
    assert region["n_plus_one"]["holds"] is True
    assert all(each["used"] is not None for each in region["cells"])
    assert all(site["ready_at"] for each in region["cells"] for site in each["sites"])
    told = tenants[0].api.get("/v1/delays")
    assert told["waited_ms"] == sum(part["ms"] for part in told["parts"])
    uses = {use["name"]: use for use in tenants[0].api.get("/v1/quotas")["items"]}
    assert uses["pending_timers"]["used"] >= 1
