"""The rules of docs/architecture.md, held by the syntax trees of the source."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "hyrlo"
ORDER = [
    "core", "distances", "data", "envs", "forward", "backward", "baselines", "theory", "foobar", "runs", "diagnostics",
    "experiments", "cli",
]  # fmt: skip
"""A package imports only from itself and from those before it."""
LONGEST_FUNCTION = 50
FILES = sorted(SRC.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports(tree: ast.Module):
    """(module, names) of every import of hyrlo's own modules, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "hyrlo":
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "hyrlo":
                    yield alias.name, []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_one_way_and_stay_public(path):
    here = package_of(path)
    for module, names in imports(ast.parse(path.read_text())):
        parts = module.split(".")[1:] or names
        private = [name for name in [*parts, *names] if name.startswith("_") and not name.startswith("__")]
        assert not private, f"imports {private} of {module}"
        if here in ORDER:
            for there in [parts[0]] if module != "hyrlo" else names:
                allowed = there.startswith("__") or ORDER.index(there) <= ORDER.index(here)
                assert allowed, f"{here} imports {module}, which comes later"


def test_every_class_has_a_name_of_its_own():
    homes = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SRC)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_functions_are_short():
    long = [
        f"{path.relative_to(SRC)}:{node.name} {node.end_lineno - node.lineno + 1}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and body_lines(node) > LONGEST_FUNCTION
    ]
    assert long == []


def body_lines(node: ast.FunctionDef) -> int:
    """Lines of code, without the docstring."""
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if is_docstring else 0
    return node.end_lineno - node.lineno + 1 - docstring


def test_the_top_level_is_small():
    assert len(list(SRC.glob("*.py"))) <= 5
    assert {p.name for p in SRC.iterdir() if p.is_dir() and p.name != "__pycache__"} == set(ORDER) - {"foobar"}


def test_no_behaviour_depends_on_the_name_of_an_environment():
    """Names of tasks are for their environments, experiments and the registry."""
    for path in FILES:
        if package_of(path) in ("envs", "experiments", "theory"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare | ast.Call):
                words = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
                assert not [w for w in words if w in ("lock", "hammer-binary") or w.startswith("gym:")], path
