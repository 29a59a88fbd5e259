"""Questions to Parquet files, answered by DuckDB in a thread and within bounded time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from cells.named_sql import load
from cells.ports import Retryable

QUERIES = load(Path(__file__).parent / "sql")
#: What one process's questions may take of memory, together; more goes to the scratch folder.
_MEMORY = "512MB"


class Engine:
    """One database without tables; each question has a cursor of its own."""

    def __init__(self, scratch: Path) -> None:
        self._connection = duckdb.connect(
            config={
                "memory_limit": _MEMORY,
                "threads": 1,
                "temp_directory": str(scratch / "duckdb"),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        )

    async def ask(
        self,
        name: str,
        files: Sequence[Path],
        parameters: Mapping[str, object] | None = None,
        *,
        seconds: float,
    ) -> list[dict[str, Any]]:
        """The rows of a named statement. `TimeoutError` when it took longer; `Retryable` when a file
        cannot be read."""
        cursor = self._connection.cursor()
        over = threading.Event()

        def asked() -> list[dict[str, Any]]:
            try:
                cursor.execute(
                    QUERIES[name].decode(), {"files": [str(file) for file in files], **(parameters or {})}
                )
                names = [column[0] for column in cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            except duckdb.InterruptException:
                raise TimeoutError(f"{name} took longer than {seconds} s") from None
            except duckdb.Error as fault:
                raise Retryable(f"the lake cannot be read: {fault}") from fault
            finally:
                over.set()
                cursor.close()

        def interrupt() -> None:
            if not over.is_set():
                cursor.interrupt()

        timer = asyncio.get_running_loop().call_later(seconds, interrupt)
        try:
            return await asyncio.to_thread(asked)
        finally:
            timer.cancel()

    def close(self) -> None:
        """Forget it."""
        self._connection.close()
