"""What schemathesis is told about this API besides its document (it loads this module by name)."""

from __future__ import annotations

import os
from typing import Any

import schemathesis

#: The key the campaign itself uses: revoked or rotated away, it would only find closed doors.
_SPARED = os.environ["FUZZ_SPARED"]


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Without X-Tenant-Id: an invented one only ever meets the router's 403."""
    for item in raw_schema["paths"].values():
        for operation in item.values():
            operation["parameters"] = [
                parameter
                for parameter in operation["parameters"]
                if "TenantId" not in parameter.get("$ref", "")
            ]


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Another key instead of the campaign's own; and nobody waits for tasks that will not come."""
    if isinstance(case.body, dict) and case.operation.path.endswith("tasks:poll"):
        # Who does not say how long it waits does so as long as a request may take here.
        wait = case.body.setdefault("wait_seconds", 0)
        if type(wait) is int:
            case.body["wait_seconds"] = min(wait, 0)
    if case.path_parameters.get("key_id") == _SPARED:
        case.path_parameters["key_id"] = "aaaaaaaaaaaaaaaa"
