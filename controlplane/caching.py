"""The cache all processes share: Valkey, and the database while Valkey is away.

It holds the counters of sign-in throttling. Losing them must neither let anybody guess without
end nor keep anybody out, so an engine that does not answer is replaced, not ignored.
"""

from __future__ import annotations

import time
from typing import Any

import redis
import structlog
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.redis import RedisCache

_LOG = structlog.get_logger(__name__)
#: How long the database stands in before Valkey is asked again.
REST_SECONDS = 10.0
_AWAY = (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)


class SharedCache(BaseCache):
    """`LOCATION` is Valkey's URL; `OPTIONS["instead"]` names the cache that stands in."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        options = dict(params.get("OPTIONS", {}))
        self._instead = options.pop("instead")
        super().__init__(params)
        self._location = location
        wait = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
        self._valkey = RedisCache(location, {**params, "OPTIONS": {**wait, **options}})
        self._ask_again = 0.0

    def _call(self, verb: str, *args: Any, **more: Any) -> Any:
        if time.monotonic() >= self._ask_again:
            try:
                return getattr(self._valkey, verb)(*args, **more)
            except _AWAY as e:
                self._ask_again = time.monotonic() + REST_SECONDS
                _LOG.warning("the database stands in for the cache", error=str(e))
        return getattr(caches[self._instead], verb)(*args, **more)

    def add(self, *args: Any, **more: Any) -> Any:
        return self._call("add", *args, **more)

    def get(self, *args: Any, **more: Any) -> Any:
        return self._call("get", *args, **more)

    def set(self, *args: Any, **more: Any) -> Any:
        return self._call("set", *args, **more)

    def touch(self, *args: Any, **more: Any) -> Any:
        return self._call("touch", *args, **more)

    def delete(self, *args: Any, **more: Any) -> Any:
        return self._call("delete", *args, **more)

    def has_key(self, *args: Any, **more: Any) -> Any:
        return self._call("has_key", *args, **more)

    def incr(self, *args: Any, **more: Any) -> Any:
        return self._call("incr", *args, **more)

    def clear(self) -> None:
        """Forgets what is under our prefix: others keep things in the same Valkey."""
        try:
            client = redis.Redis.from_url(self._location, socket_timeout=5, socket_connect_timeout=0.5)
            with client:
                for key in client.scan_iter(f"{self.key_prefix}:*"):
                    client.delete(key)
        except _AWAY as e:
            _LOG.warning("the cache was not cleared", error=str(e))
        caches[self._instead].clear()
