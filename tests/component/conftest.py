"""What all component tests share."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pytest_django.plugin import blocking_manager_key


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """A test that commits ends with every table emptied, those that migrations fill included (the
    feed's identity, the first price book). Put their rows back: under xdist other tests follow."""
    yield
    if nextitem is None or "transactional_db" not in getattr(item, "fixturenames", ()):
        return
    from django.db import connection

    with item.config.stash[blocking_manager_key].unblock():
        connection.creation.deserialize_db_from_string(connection._test_serialized_contents)
        connection.close()
