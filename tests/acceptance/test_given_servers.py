"""With servers of one's own no engine is started, and installations share them without meeting."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import redis

from tests.engines import TestEngines
from tests.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]


def test_given_servers_are_used_beside_another_installation(stack: Stack, engines: TestEngines) -> None:
    environment = {
        "CLOCKHOUSE_DATABASE_URL": engines.postgres.url,
        "CLOCKHOUSE_VALKEY_URL": engines.valkey_url(3),
        "CLOCKHOUSE_DEMO_JOBS": "0",
    }
    for number in range(3, 8):
        with redis.Redis.from_url(engines.valkey_url(number)) as client:
            client.flushdb()
    with Stack(environment=environment) as other:
        info = other.info
        assert not [name for name in info["processes"] if name.startswith(("postgres-", "valkey-"))]
        assert info["api_url"] != stack.info["api_url"]
        assert info["tenant_id"] != stack.info["tenant_id"]

        databases = {urlsplit(cell["database_url"]).path.strip("/") for cell in info["cells"].values()}
        with psycopg.connect(engines.postgres.url) as admin:
            made = {name for (name,) in admin.execute("SELECT datname FROM pg_database").fetchall()}
        assert databases < made
        assert len([name for name in made if name.startswith("clockhouse_")]) == 4
        numbers = {urlsplit(cell["valkey_url"]).path for cell in info["cells"].values()}
        assert numbers == {"/5", "/6"}

        for key, status in ((info["api_key"], 200), (stack.info["api_key"], 401)):
            answer = httpx.get(f"{info['api_url']}/v1/jobs", headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == status

        with (
            pytest.raises(RuntimeError, match="logical database 3 is not empty and not ours"),
            Stack(environment=environment),
        ):
            pass
