from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from cells.observability import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_is_json_with_what_was_bound(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO", cell="local-1")
    logs.logger("cells.test").bind(tenant="tnt_1").info("claimed", epoch=7)
    logs.logger("cells.test").debug("not shown")
    (line,) = said(capsys)
    assert line.pop("at")
    assert line == {
        "message": "claimed",
        "level": "info",
        "logger": "cells.test",
        "cell": "local-1",
        "tenant": "tnt_1",
        "epoch": 7,
    }


def test_libraries_log_alike(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO", cell="local-1")
    logging.getLogger("psycopg").warning("lost %d connections", 3)
    (line,) = said(capsys)
    assert (line["message"], line["level"], line["cell"]) == ("lost 3 connections", "warning", "local-1")


def test_tracebacks_carry_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO")
    secret = "whsec_" + "x" * 20
    try:
        raise ValueError(len(secret))
    except ValueError:
        logs.logger("cells.test").exception("failed")
    (line,) = said(capsys)
    assert "ValueError" in json.dumps(line["exception"])
    assert secret not in json.dumps(line)
