"""House rules that a reader can rely on everywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.sources import PRODUCT, ROOT, python, relative, tracked, tree

_LONGEST_FILE = 400
_LONGEST_README = 80
#: Longer files, and why they are not split.
_MAY_BE_LONG: dict[str, str] = {}
_VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}
#: Calls that make the domain's answers depend on when, or how luckily, they are asked.
_IMPURE = re.compile(
    r"\b(?:datetime\.(?:now|utcnow|today)|date\.today|time\.(?:time|monotonic|time_ns|monotonic_ns|sleep)"
    r"|random\.\w+|secrets\.\w+|uuid\.uuid[14]|os\.urandom|os\.environ|asyncio\.sleep)\b"
)
_SCHEMA_SWITCH = {"schema_context", "tenant_context", "set_tenant", "set_schema", "set_schema_to_public"}
_MAY_SWITCH = ("controlplane/console/", "controlplane/workspace/")
#: Hosts of package registries: the project installs from whatever its environment is set up for.
_REGISTRIES = re.compile(
    r"(?:pypi\.(?:org|python)|files\.python" + r"hosted\.org|registry\.(?:npm|yarn)|--(?:extra-)?index-url)",
)
#: Where billing rounds, and what.
_ROUNDS = {
    "billing/api.py": "a zero that is shown like the others",
    "billing/charging/money.py": "what is charged",
    "billing/exports/focus.py": "prices of a FOCUS row, once",
    "billing/exports/slices.py": "quantities and shares of a FOCUS row, once",
    "billing/rating.py": "what things cost us",
}
_MARKS = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def _packages() -> list[Path]:
    """Folders of the product and of deploy that hold Python modules, tests and migrations apart."""
    folders = {file.parent for file in python(*PRODUCT, "deploy")}
    inner = {"actions", "commands", "management", "templatetags", "views"}
    return sorted(folder for folder in folders if folder.name not in inner)


@pytest.mark.parametrize("package", _packages(), ids=relative)
def test_every_package_says_what_it_is(package: Path) -> None:
    readme = package / "README.md"
    assert readme.exists(), "a package says what it owns, does not own, keeps true, and how one enters it"
    assert len(readme.read_text().splitlines()) <= _LONGEST_README


def test_files_stay_short() -> None:
    lengths = {
        relative(file): len(file.read_text().splitlines()) for file in python(*PRODUCT, "deploy", "tests")
    }
    longer = {file: lines for file, lines in lengths.items() if lines > _LONGEST_FILE}
    assert longer.keys() == _MAY_BE_LONG.keys(), longer


def test_files_are_named_after_what_they_hold() -> None:
    assert [relative(file) for file in python(*PRODUCT, "deploy", "tests") if file.name in _VAGUE_NAMES] == []


def test_the_domain_asks_no_clock_and_no_chance() -> None:
    found = [
        f"{relative(file)}:{node.lineno}: {ast.unparse(node)}"
        for file in python("cells")
        if relative(file).startswith("cells/domain/")
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Attribute) and _IMPURE.search(ast.unparse(node))
    ]
    assert found == []


def test_only_the_console_enters_a_tenants_schema() -> None:
    found = []
    for file in python(*PRODUCT):
        if relative(file).startswith(_MAY_SWITCH):
            continue
        for node in ast.walk(tree(file)):
            name = (
                node.attr
                if isinstance(node, ast.Attribute)
                else node.id
                if isinstance(node, ast.Name)
                else ""
            )
            if name in _SCHEMA_SWITCH:
                found.append(f"{relative(file)}:{node.lineno}: {name}")  # type: ignore[attr-defined]
    assert found == []


def _texts() -> list[tuple[Path, str]]:
    texts = []
    for file in tracked():
        try:
            texts.append((file, file.read_text()))
        except UnicodeDecodeError:
            continue
    return texts


def test_no_file_names_a_package_registry() -> None:
    this = Path(__file__)
    allowed = {ROOT / "deploy" / "requirements" / "compile.sh"}  # tells the compiler to leave them out
    found = [
        relative(f) for f, text in _texts() if f != this and f not in allowed and _REGISTRIES.search(text)
    ]
    assert found == []


def test_nothing_is_left_for_later() -> None:
    this = Path(__file__)
    code = {".py", ".sql", ".lua", ".sh", ".html", ".js", ".css"}
    assert [
        relative(f) for f, text in _texts() if f != this and f.suffix in code and _MARKS.search(text)
    ] == []


def test_nobody_swallows_every_error() -> None:
    found = []
    for file in python(*PRODUCT, "deploy"):
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ExceptHandler) and all(isinstance(line, ast.Pass) for line in node.body):
                caught = "" if node.type is None else ast.unparse(node.type)
                if caught in ("", "Exception", "BaseException"):
                    found.append(f"{relative(file)}:{node.lineno}")
    assert found == []


def test_money_is_rounded_in_few_places_and_is_never_binary() -> None:
    billing = [file for file in python("billing") if "migrations" not in file.parts]
    assert {relative(f) for f in billing if ".quantize(" in f.read_text()} == _ROUNDS.keys()
    binary = [
        f"{relative(file)}:{node.lineno}"
        for file in billing
        if (file.parent.name in ("charging", "invoices", "pricing") or file.name == "rating.py")
        and file.name != "pdf.py"  # lengths on paper
        for node in ast.walk(tree(file))
        if (isinstance(node, ast.Name) and node.id == "float")
        or (isinstance(node, ast.Constant) and isinstance(node.value, float))
    ]
    assert binary == []
