"""What all component tests share."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pytest_django.plugin import blocking_manager_key


def _commits(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("django_db")
    asked = marker is not None and bool(marker.kwargs.get("transaction"))
    return asked or "transactional_db" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that commits asks for the rows of migrations too: without, the tables are emptied in
    another way, and every test of Django that follows in this process finds them wrong.

    Modules with slow tests come first, so that no worker has one left when the others are done.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    for item in items:
        marker = item.get_closest_marker("django_db")
        if _commits(item) and not (marker and marker.kwargs.get("serialized_rollback")):
            raise pytest.UsageError(f"{item.nodeid} commits: it needs serialized_rollback=True")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """A test that commits ends with every table emptied, those that migrations fill included (the
    feed's identity, the first price book). Put their rows back: under xdist other tests follow."""
    yield
    if nextitem is None or not _commits(item):
        return
    from django.db import connection

    with item.config.stash[blocking_manager_key].unblock():
        connection.creation.deserialize_db_from_string(connection._test_serialized_contents)
        connection.close()
