"""Who may import whom (docs/architecture.md), read from the source; and what the command line loads."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gateway", "media", "engine", "patches")

# Folder -> what its modules must not import. `gateway.xtml` is a library of its own inside gateway.
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "gateway.xtml": ("fastapi", "starlette", "vllm", "torch", "media", "engine", "patches"),
    "media": ("fastapi", "starlette", "vllm", "torch", "gateway", "engine", "patches"),
    "gateway": ("vllm", "torch", "engine.plugin"),
    "patches": ("gateway", "media", "engine", "fastapi", "starlette"),
    "engine": ("fastapi", "starlette"),
    "engine.plugin.cpu": ("gateway", "media"),
}
# The rooms of the format know nothing of each other; what they share is on the ground floor.
XTML_ROOMS = ("request", "encode", "decode", "grammar")
# The one module that may look at what it must not know otherwise: it checks, for vLLM, that all is there.
SHADOWS = "gateway.shadows"
# Inside gateway, from the top: a folder or module may import what stands in a line below its own.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("gateway.cli", "gateway.commands"),
    ("gateway.app", "gateway.assembly"),
    ("gateway.api",),
    ("gateway.metrics", "gateway.media_preview"),
    ("gateway.service",),
    ("gateway.wire", "gateway.pins"),
    ("gateway.generation",),
    ("gateway.prefix", "gateway.admission", "gateway.auth", "gateway.parsing"),
    ("gateway.errors", "gateway.shadows", "gateway.settings", "gateway.schema"),
    ("gateway.xtml",),
)
# What the gateway may use of the engine.
ENGINE_DOORS = (
    "engine.client",
    "engine.types",
    "engine.checkpoint",
    "engine.checks",
    "engine.doctor",
    "engine.errors",
    "engine.profiles",
    "engine.mini.build",
)


@cache
def modules() -> dict[str, Path]:
    """Every module of the project by its name; a package is its `__init__`."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = path
    return found


@cache
def imports(path: Path) -> frozenset[str]:
    """Names that the module imports, anywhere in it; `from a import b` counts as a and as a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def own_imports(name: str) -> frozenset[str]:
    """Modules of the project that a module imports: of `from a import b` a.b if that is one, else a."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else node.module)
    return frozenset(found & modules().keys())


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def all_arrows() -> Iterator[tuple[str, str]]:
    for name, path in modules().items():
        for imported in sorted(imports(path)):
            yield name, imported


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_import_only_what_they_may(package: str) -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if within(name, package)
        and not (package == "gateway" and (within(name, "gateway.xtml") or name == SHADOWS))
        and any(within(imported, banned) for banned in FORBIDDEN[package])
    ]
    assert not wrong


def test_only_the_edge_knows_http() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if within(imported, "fastapi") or within(imported, "starlette")
        if not within(name, "gateway.api") and name != "gateway.app"
    ]
    assert not wrong


def test_arrows_in_the_gateway_point_down() -> None:
    floor = {part: number for number, parts in enumerate(FLOORS) for part in parts}

    def place(name: str) -> int | None:
        return next((number for part, number in floor.items() if within(name, part)), None)

    homeless = [n for n in modules() if within(n, "gateway") and n != "gateway" and place(n) is None]
    assert not homeless, "give these a floor in FLOORS and in docs/architecture.md"
    wrong = []
    for name in modules():
        for imported in own_imports(name):
            above, below = place(name), place(imported)
            if above is None or below is None or imported == "gateway":
                continue
            same_part = any(within(name, part) and within(imported, part) for part in floor)
            if below < above or (below == above and not same_part):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_the_engine_uses_the_format_and_nothing_else_of_the_gateway() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if within(name, "engine") and within(imported, "gateway")
        if not (imported == "gateway.xtml" or imported.rpartition(".")[0] == "gateway.xtml")
    ]
    assert not wrong


def test_the_format_has_one_door() -> None:
    import gateway.xtml

    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if not within(name, "gateway.xtml") and imported.startswith("gateway.xtml.")
        if imported.removeprefix("gateway.xtml.") not in gateway.xtml.__all__
    ]
    assert not wrong
    assert sorted(gateway.xtml.__all__) == sorted(set(gateway.xtml.__all__))
    assert all(hasattr(gateway.xtml, name) for name in gateway.xtml.__all__)


def test_the_rooms_of_the_format_know_nothing_of_each_other() -> None:
    wrong = []
    for name in modules():
        room = next((r for r in XTML_ROOMS if within(name, f"gateway.xtml.{r}")), None)
        on_ground_floor = within(name, "gateway.xtml") and name != "gateway.xtml" and room is None
        for imported in own_imports(name):
            other = next((r for r in XTML_ROOMS if within(imported, f"gateway.xtml.{r}")), None)
            if other is not None and ((room is not None and other != room) or on_ground_floor):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_no_module_imports_itself_over_others() -> None:
    graph = {name: own_imports(name) - {name} for name in modules()}
    done: set[str] = set()
    circles: list[str] = []

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            circles.append(" -> ".join([*trail[trail.index(name) :], name]))
            return
        if name not in done:
            for imported in sorted(graph[name]):
                visit(imported, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    assert not circles


def test_the_gateway_reaches_the_model_only_through_the_client() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if within(name, "gateway") and not within(name, "gateway.xtml") and within(imported, "engine")
        if name != SHADOWS
        if not any(within(imported, door) for door in ENGINE_DOORS) and imported != "engine"
    ]
    assert not wrong


def test_schemas_are_only_data() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if within(name, "gateway.schema") and within(imported, "gateway")
        if not within(imported, "gateway.schema")
    ]
    assert not wrong


def test_modules_fit_in_a_head() -> None:
    long = {name: n for name, path in modules().items() if (n := len(path.read_text().splitlines())) > 450}
    assert not long


def test_the_command_line_starts_without_torch() -> None:
    """`k3 render` and `k3 --help` would take seconds longer."""
    code = "import gateway.cli, sys; print(sorted({'torch', 'transformers', 'vllm'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
