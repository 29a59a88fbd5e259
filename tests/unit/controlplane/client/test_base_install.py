"""The client needs nothing but what the base install brings."""

from __future__ import annotations

import subprocess
import sys

#: httpx, typer and rich, and what they bring.
_BASE = {
    "_distutils_hack", "annotated_doc", "annotated_types", "anyio", "certifi", "click", "controlplane", "h11",
    "httpcore", "httpx", "idna", "markdown_it", "mdurl", "pygments", "rich", "shellingham", "sniffio",
    "typer", "typing_extensions",
}  # fmt: skip
_PROGRAM = """
import sys
before = set(sys.modules)
import controlplane.client, controlplane.client.cli
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(" ".join(sorted(names - set(sys.stdlib_module_names))))
print(" ".join(sorted(name for name in sys.modules if name.startswith("controlplane."))))
"""


def test_it_imports_nothing_of_the_server() -> None:
    said = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout
    outside, own = (line.split() for line in said.splitlines())
    assert {name for name in outside if not name.startswith("_sysconfigdata")} - _BASE == set()
    assert [name for name in own if not name.startswith("controlplane.client")] == []
