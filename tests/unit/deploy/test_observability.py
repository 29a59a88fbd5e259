"""Alerts and dashboard speak of metrics and labels that exist."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).resolve().parents[3]
_FOLDER = _ROOT / "deploy" / "observability"
_WORDS = {"by", "abs", "time", "sum", "max", "rate", "increase", "histogram_quantile"}
_NAME = re.compile(r"[a-z_:][a-z0-9_:]*")


@cache
def _declared() -> dict[str, set[str]]:
    """Every metric of a cell and of the control plane, as Prometheus sees it, with its labels."""
    found: dict[str, set[str]] = {}
    others = [_ROOT / "controlplane" / "operations.py", _ROOT / "controlplane" / "regions" / "pages.py"]
    for file in [*(_ROOT / "cells").rglob("*.py"), *others]:
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            kind = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            arguments = node.args
            if kind not in ("counter", "gauge", "histogram") or not arguments:
                continue
            name = arguments[0]
            if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                continue
            constants = [
                part.value
                for arg in node.args[2:3]
                for part in ast.walk(arg)
                if isinstance(part, ast.Constant)
            ]
            labels = {label for label in constants if isinstance(label, str)}
            for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
                found[name.value + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def _alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((_FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    board = json.loads((_FOLDER / "dashboard.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def _expressions() -> list[str]:
    shown = [target["expr"] for panel in _panels() for target in panel["targets"]]
    return [rule["expr"] for rule in _alerts()] + shown


def _faults(expression: str) -> list[str]:
    """Names that are no metric, and labels that the metric does not have."""
    declared = _declared()
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)", " ", expression)
    metrics = [name for name in _NAME.findall(bare) if name not in _WORDS]
    faults = [name for name in metrics if name not in declared]
    known = {"cell", "instance"}.union(*(declared.get(name, set()) for name in metrics))
    asked = [
        part.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for part in group.split(",")
    ]
    asked += re.findall(r'([a-z_]+)(?:=~|!~|!=|=)"', expression)
    return faults + [f"{label} in {expression}" for label in asked if label not in known]


def test_every_metric_and_label_exists() -> None:
    expressions = _expressions()
    assert len(expressions) > 40
    assert [fault for expression in expressions for fault in _faults(expression)] == []


def test_what_does_not_exist_would_be_found() -> None:
    assert _faults("sum by (cell) (rate(no_such_total[5m])) > 1") == ["no_such_total"]
    assert _faults('max by (tenant) (lake_days_overdue{cell="x"})') != []


def test_alerts_have_a_name_a_severity_and_say_where_to_look() -> None:
    names = [rule["alert"] for rule in _alerts()]
    assert len(names) == len(set(names))
    for rule in _alerts():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "look"}


def test_panels_lie_beside_each_other() -> None:
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in _panels()]
    assert len(places) == len(set(places))
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in _panels())


def test_a_tenant_is_no_label_of_any_metric() -> None:
    assert [name for name, labels in _declared().items() if labels & {"tenant", "tenant_id"}] == []
