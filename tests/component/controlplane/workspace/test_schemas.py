"""Workspace schemas: the template is what the migrations make; the pool; the migrator."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django_tenants.utils import schema_context

from controlplane.identity import new_id
from controlplane.tenants.models import WorkspaceSchema
from controlplane.workspace import migrator, pool, template
from controlplane.workspace.template import Step
from tests.component.controlplane.factories import TenantFactory

pytestmark = pytest.mark.django_db

_SHAPE = """
SELECT 'column', table_name, column_name,
       concat_ws(' ', data_type, character_maximum_length, is_nullable, column_default, is_identity)
FROM information_schema.columns WHERE table_schema = %(schema)s
UNION ALL
SELECT 'index', tablename, indexname, replace(indexdef, %(schema)s || '.', '')
FROM pg_indexes WHERE schemaname = %(schema)s
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace AND contype <> 'n'
ORDER BY 1, 2, 3
"""


def _shape(schema: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(_SHAPE, {"schema": schema})
        return [tuple(str(part).replace(f"{schema}.", "") for part in row) for row in cursor.fetchall()]


def _made_by_migrations(schema: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE SCHEMA "{schema}"')
    call_command("migrate_schemas", tenant=True, schema_name=schema, interactive=False, verbosity=0)
    connection.set_schema_to_public()


def test_the_template_is_what_the_migrations_make(control: None) -> None:
    from controlplane.tenants.models import Tenant

    made = pool.make_schema()
    tenant = TenantFactory()
    Tenant.objects.filter(pk=tenant.pk).update(schema_name="by_migrations")
    _made_by_migrations("by_migrations")
    assert len(_shape(made)) > 30
    assert _shape(made) == _shape("by_migrations")


def test_the_template_on_disk_is_current() -> None:
    assert template.TEMPLATE.read_text() == template.render(), "run manage.py workspace_template"


def test_django_sees_nothing_to_do_in_a_pooled_schema(control: None) -> None:
    from django.db.migrations.executor import MigrationExecutor

    with schema_context(pool.make_schema()):
        executor = MigrationExecutor(connection)
        assert executor.migration_plan([("workspace", template.target_version())]) == []


def test_workspace_migrations_are_plain_ddl() -> None:
    assert template.steps()
    for step in template.steps():
        assert step.statements, f"{step.version} has no SQL: a workspace migration holds no Python"


def test_workspace_models_stay_small() -> None:
    from django.apps import apps

    assert len(list(apps.get_app_config("workspace").get_models())) <= 6


def test_a_claim_takes_the_oldest_of_the_pool(control: None) -> None:
    first, second = pool.make_schema(), pool.make_schema()
    one, two = new_id(), new_id()
    assert (pool.claim(one), pool.claim(two)) == (first, second)
    assert set(WorkspaceSchema.objects.values_list("schema", "tenant_id", "state")) == {
        (first, one, "CLAIMED"), (second, two, "CLAIMED"),
    }  # fmt: skip


def test_an_empty_pool_makes_one_at_once(control: None) -> None:
    schema = pool.claim(new_id())
    assert ("column", "workspace_note", "text", "text NO NO") in _shape(schema)


def test_the_pool_is_topped_up_to_its_size(control: None) -> None:
    assert pool.top_up(3) == 3
    assert pool.top_up(3) == 0
    pool.claim(new_id())
    assert pool.top_up(3) == 1


class TestMigrator:
    """A newer version, invented: one more column."""

    @pytest.fixture(autouse=True)
    def newer(self, control: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        schemas = [pool.make_schema() for _ in range(3)]
        versions = (*template.versions(), "0002_more")
        steps = (
            *template.steps(),
            Step(version="0002_more", statements=("ALTER TABLE workspace_tag ADD COLUMN rank integer",)),
        )
        monkeypatch.setattr(template, "versions", lambda: versions)
        monkeypatch.setattr(template, "steps", lambda: steps)
        return schemas

    def test_every_schema_is_brought_along(self, newer: list[str]) -> None:
        report = migrator.migrate_all(batch=2)
        assert (report.migrated, report.skipped, report.failed) == (3, 0, [])
        for schema in newer:
            assert ("column", "workspace_tag", "rank", "integer YES NO") in _shape(schema)
        assert migrator.migrate_all().migrated == 0
        assert set(WorkspaceSchema.objects.values_list("version", flat=True)) == {"0002_more"}

    def test_one_that_fails_stops_no_other_and_is_tried_again(self, newer: list[str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {newer[1]}.workspace_tag ADD COLUMN rank text")
        report = migrator.migrate_all()
        assert (report.migrated, report.failed) == (2, [newer[1]])
        broken = WorkspaceSchema.objects.get(schema=newer[1])
        assert broken.version == template.versions()[-2]
        assert "rank" in broken.last_error
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {newer[1]}.workspace_tag DROP COLUMN rank")
        assert migrator.migrate_all().migrated == 1
        assert WorkspaceSchema.objects.get(schema=newer[1]).last_error == ""

    def test_old_schemas_are_not_given_to_tenants(self, newer: list[str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {newer[0]}.workspace_tag ADD COLUMN rank text")
        migrator.migrate_all()
        assert pool.claim(new_id()) in newer[1:]
