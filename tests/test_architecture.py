"""Who may import whom (docs/architecture.md), read from the source; and what the command line loads."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gateway", "media", "engine", "patches")

# Package -> what its modules must not import, unless the importing module is listed as an exception.
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "gateway.xtml": ("fastapi", "starlette", "vllm", "torch", "media", "engine", "patches", "gateway.api"),
    "media": ("fastapi", "starlette", "vllm", "torch", "gateway", "engine", "patches"),
    "gateway": ("vllm", "torch", "engine.plugin.cpu"),
    "patches": ("gateway", "media", "engine"),
    "engine.plugin.cpu": ("gateway", "media"),
}
# gateway.xtml is a library of its own inside gateway.
SUBPACKAGES_OF_THEIR_OWN = {"gateway": ("gateway.xtml",)}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    folder = ROOT / package.replace(".", "/")
    own = SUBPACKAGES_OF_THEIR_OWN.get(package, ())
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not any(name == sub or name.startswith(sub + ".") for sub in own):
            yield name, path


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_import_only_what_they_may(package: str) -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules(package)
        for imported in sorted(imports(path))
        if any(within(imported, banned) for banned in FORBIDDEN[package])
    ]
    assert not wrong


def test_only_the_app_imports_the_routers() -> None:
    wrong = [
        f"{name} imports {imported}"
        for package in PACKAGES
        for name, path in modules(package)
        for imported in sorted(imports(path))
        if within(imported, "gateway.api") and not within(name, "gateway.api") and name != "gateway.app"
    ]
    assert not wrong


def test_the_gateway_reaches_the_model_only_through_the_client() -> None:
    allowed = (
        "engine.client",
        "engine.types",
        "engine.checkpoint",
        "engine.checks",
        "engine.doctor",
        "engine.errors",
        "engine.profiles",
        "engine.mini.build",
    )
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules("gateway")
        for imported in sorted(imports(path))
        if within(imported, "engine")
        and not any(within(imported, ok) for ok in allowed)
        # `from engine import x` lists both engine and engine.x
        and imported != "engine"
    ]
    assert not wrong


def test_schemas_are_only_data() -> None:
    for name, path in modules("gateway.schema"):
        own = {imported for imported in imports(path) if within(imported, "gateway")}
        assert not {i for i in own if not within(i, "gateway.schema")}, name


def test_modules_fit_in_a_head() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (n := len(path.read_text().splitlines())) > 450
    }
    assert not long


def test_the_command_line_starts_without_torch() -> None:
    """`k3 render` and `k3 --help` would take seconds longer."""
    code = "import gateway.cli, sys; print(sorted({'torch', 'transformers', 'vllm'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
