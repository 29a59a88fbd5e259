"""Makes the databases if they are missing and brings everything in them to this version.

Run it before a new version starts: public schema, ownership database, cache table, workspace
schemas and their pool. Does nothing where nothing is to do; several at once wait for each other.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from controlplane.ownership import installed
from controlplane.sql import named_sql
from controlplane.workspace import migrator, pool

_SQL = named_sql(Path(__file__).parent / "setup_database.sql")


def _query(text: str) -> LiteralString:
    return cast(LiteralString, text)  # from our own file


def ensure_database(url: str) -> bool:
    """Creates the database a URL names, if the server lacks it."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
        return False
    except psycopg.OperationalError as e:
        if "does not exist" not in str(e):
            raise CommandError(f"PostgreSQL cannot be reached: {e}") from e
    name = str(conninfo_to_dict(url)["dbname"])
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as admin:
        try:
            admin.execute(SQL(_query(_SQL["create"])).format(database=Identifier(name)))
        except (errors.DuplicateDatabase, errors.UniqueViolation):  # somebody was faster
            return False
    return True


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        configuration = settings.CONFIGURATION
        ensure_database(configuration.database_url)
        if not installed.is_dynamo(configuration.ownership_url):
            ensure_database(configuration.ownership_url)
        with psycopg.connect(configuration.database_url, autocommit=True) as guard:
            guard.execute(_query(_SQL["lock"]))  # held until this connection closes
            installed.prepare(configuration.ownership_url)
            call_command("migrate_schemas", shared=True, interactive=False, verbosity=0)
            call_command("createcachetable", verbosity=0)
            report = migrator.migrate_all()
            made = pool.top_up()
        connection.close()
        if report.failed:
            raise CommandError(f"workspace schemas not migrated: {', '.join(report.failed[:20])}")
        self.stdout.write(
            f"databases ready in {time.monotonic() - began:.1f} s"
            f" ({report.migrated} workspace schemas migrated, {made} made)"
        )
