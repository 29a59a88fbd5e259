"""Named statements: each described, used, one place only, and about a tenant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cells.store.queries import QUERIES, parse
from cells.store.upkeep import KEPT

FOLDER = Path(__file__).resolve().parents[4] / "cells" / "store"
USERS = (FOLDER, *(FOLDER.parent / name for name in ("transfer", "erasure", "lake")))
#: Asks one statement of a database that may be a standby, where no store can be opened.
PASSIVE = FOLDER.parent / "passive.py"
#: Statements about the cell as a whole: its schema, hosts, shards, cursors, minutes and what ends.
CELL_WIDE = re.compile(
    r"^(migrations|cell|partitions|host|hosts|shards|journal|fold|seal|status|purge|lake|link)_|^engine_hosts$"
    r"|^(gauge|stored|job_usage)_(take|dated|due|patience|done|lock|state|span)$|^meters_sealed_until$"
)


def test_every_statement_is_used_and_every_use_exists() -> None:
    files = (PASSIVE, *(path for folder in USERS for path in folder.glob("*.py")))
    code = "\n".join(path.read_text() for path in files)
    used = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', code)) | {f"purge_{what}" for what in KEPT}
    used |= {f"returned_put_{table}" for table in re.findall(r'"([a-z]+(?:_[a-z]+)*)"', code)}
    assert [name for name in QUERIES if name not in used] == []


def test_a_statement_names_its_tenant() -> None:
    of_tenants = [name for name in QUERIES if not CELL_WIDE.match(name)]
    assert [name for name in of_tenants if b"tenant" not in QUERIES[name]] == []


def test_no_statement_outside_the_sql_files() -> None:
    pattern = re.compile(r'"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s')
    assert [path.name for path in FOLDER.glob("*.py") if pattern.search(path.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "-- name: a\nSELECT 1;",
        "-- name: a\n-- what\n",
        "-- name: a\n-- x\nSELECT 1;\n-- name: a\n-- x\nSELECT 2;",
    ],
)
def test_a_block_without_description_or_statement_or_own_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a "):
        parse(text, "file.sql")


def test_a_block_is_read_without_its_comments() -> None:
    assert parse("-- name: a\n-- what it does,\n-- and why\nSELECT 1;\n", "f") == {"a": b"SELECT 1"}
