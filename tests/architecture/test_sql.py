"""SQL lives in .sql files as named, described statements, and never forgets whose row it touches."""

from __future__ import annotations

import hashlib
import re

from tests.architecture.sources import PRODUCT, ROOT, Block, blocks, python, relative, strings, tree

_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)\n\)", re.DOTALL)
_TOUCHED = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|ONLY)\s+\"?(\w+)", re.IGNORECASE)

#: Blocks that speak about rows of all tenants on purpose, and why that is right.
ACROSS_TENANTS = {
    "cells/ownership/sql/cell.sql:fresh_leases": "no worker could reach anybody, whoever's it is",
    "cells/store/sql/hosts.sql:hosts_bury": "asks whether a host holds any run at all, whoever's",
    "cells/store/sql/pull.sql:purge_workers": "whatever is over goes, whoever's",
    "cells/store/sql/upkeep.sql:purge_idempotency_keys": "whatever is over goes, whoever's",
    "cells/store/sql/upkeep.sql:purge_meters": "whatever is over goes, whoever's",
    "cells/store/sql/upkeep.sql:purge_events": "whatever is over goes, whoever's",
    "cells/store/sql/upkeep.sql:purge_target_stats": "whatever is over goes, whoever's",
    "cells/store/sql/upkeep.sql:purge_secrets": "whatever is over goes, whoever's",
    "cells/store/sql/lake.sql:lake_dead_letters": "whatever is over goes, whoever's",
    "cells/store/sql/workflow_lake.sql:lake_workflow_ids_expire": "whatever is over goes, whoever's",
    "cells/store/sql/meters.sql:meters_sealed_until": "how far the cell is shipped, over all tenants",
    "cells/store/sql/transfer.sql:link_sync_slots_drop": "asks whether anybody is copied at all",
    "cells/store/sql/crowding.sql:cell_meters_open": "what the cell has not shipped, over all tenants",
    "cells/store/sql/status.sql:status_vitals": "how many dead letters the cell has, over all tenants",
    "cells/store/sql/status.sql:status_oldest": "how late the cell is, over all tenants",
}

#: What billing's migrations run, by the beginning of its SHA-256. New files are added, none is changed.
RAN = {
    "0002_append_only.sql": "34302976c2136811",
    "0011_keep_closed.sql": "cfc0b6244b54c3e5",
    "0021_charging_rules.sql": "7d91d6cbb442f40f",
    "0040_months_of_nothing.sql": "2ab54fb368eaa95e",
}
#: Files that compose definitions no .sql file can hold, and why.
MAKES_DEFINITIONS = {
    "controlplane/workspace/template.py": "makes the workspace template from migrations",
}

#: A string that begins like this is a statement.
_STATEMENT = re.compile(
    r"\s*(?:SELECT\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|MERGE\s+INTO\s|WITH\s+\w+\s+AS\s"
    r"|TRUNCATE\s|LOCK\s+TABLE\s|COPY\s+\w+\s|(?:CREATE|ALTER|DROP)\s+(?:TABLE|INDEX|SCHEMA|DATABASE|VIEW"
    r"|FUNCTION|TRIGGER|TYPE|SEQUENCE|ROLE|EXTENSION)\s|LISTEN\s|NOTIFY\s|SET\s+(?:LOCAL\s+)?\w+\s*(?:=|TO)\s)"
)


def tenant_tables() -> set[str]:
    """The cell's tables whose rows belong to a tenant."""
    tables = set()
    for migration in sorted((ROOT / "cells" / "store" / "migrations").glob("*.sql")):
        for name, columns in _TABLE.findall(migration.read_text()):
            if re.search(r"^\s+tenant_id\s", columns, re.MULTILINE):
                tables.add(name)
    return tables


def _forgets_the_tenant(block: Block, tables: set[str]) -> bool:
    touched = {name.lower() for name in _TOUCHED.findall(block.sql)}
    return bool(touched & tables) and "tenant_id" not in block.sql


def test_the_tables_are_found() -> None:
    assert {"jobs", "runs", "targets", "job_versions", "dlq"} <= tenant_tables()
    assert not {"hosts", "shard_leases", "cell"} & tenant_tables()


def test_every_statement_on_tenant_rows_names_the_tenant() -> None:
    tables = tenant_tables()
    forgetful = {
        f"{block.file}:{block.name}" for block in blocks("cells") if _forgets_the_tenant(block, tables)
    }
    assert forgetful - ACROSS_TENANTS.keys() == set()
    assert ACROSS_TENANTS.keys() - forgetful == set(), "exceptions that are none any more"


def test_a_forgetful_statement_would_be_found() -> None:
    block = Block(
        file="x", name="y", description="z", sql="UPDATE jobs SET state = 'PAUSED' WHERE job_id = 1"
    )
    assert _forgets_the_tenant(block, tenant_tables())


def test_every_block_has_a_description_and_one_statement() -> None:
    """The definitions that Django's migrations run (schema.sql) need no more than their name."""
    wrong = []
    for block in blocks(*PRODUCT):
        body = re.sub(r"\$(\w*)\$.*?\$\1\$|'[^']*'", "", block.sql, flags=re.DOTALL)
        if (not block.description and not block.file.endswith("/schema.sql")) or len(
            [part for part in body.split(";") if part.strip()]
        ) != 1:
            wrong.append(f"{block.file}:{block.name}")
    assert wrong == []


def test_what_a_migration_runs_is_its_own_and_never_changes() -> None:
    """Else databases that ran it would differ from those that will."""
    folder = ROOT / "billing" / "migrations"
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in folder.glob("*.sql")}
    assert found == RAN
    assert all((folder / name).with_suffix(".py").exists() for name in RAN)
    shared = [file.name for file in folder.glob("*.py") if "named_sql" in file.read_text()]
    assert shared == []


def test_names_of_blocks_are_unique_in_their_file() -> None:
    names = [(block.file, block.name) for block in blocks(*PRODUCT)]
    assert sorted(names) == sorted(set(names))


def test_no_sql_in_python() -> None:
    found = [
        f"{relative(file)}:{line}: {text.strip()[:60]}"
        for file in python(*PRODUCT)
        if relative(file) not in MAKES_DEFINITIONS
        for line, text in strings(tree(file))
        if _STATEMENT.match(text)
    ]
    assert found == []


def test_sql_in_python_would_be_found() -> None:
    for text in ("SELECT 1", "  UPDATE jobs SET x = 1", "SET LOCAL synchronous_commit = on", "DROP TABLE x "):
        assert _STATEMENT.match(text), text
    for text in ("Select a target", "SET_A", "Update jobs", "WITHIN", "set the time"):
        assert not _STATEMENT.match(text), text
