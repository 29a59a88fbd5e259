"""Everything that is stored, as one value: to prove that nothing changed."""

from __future__ import annotations

from django.apps import apps
from django.db import connection
from psycopg.sql import SQL, Identifier


def contents() -> dict[str, str]:
    """A digest of each shared table of ours."""
    digests = {}
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            if model._meta.app_label in ("workspace", "sessions"):
                continue
            table = Identifier(model._meta.db_table)
            cursor.execute(
                SQL("SELECT coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '') FROM {} t").format(
                    table
                )
            )
            digests[model._meta.db_table] = cursor.fetchone()[0]
    return digests
