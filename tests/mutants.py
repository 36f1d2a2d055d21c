"""Small changes made on purpose to the code: would the tests notice?

    python -m tests.mutants [AREA ...] [--sample N] [--seed S] [--minutes M]      # make mutants

Takes a seeded sample of small changes (a comparison turned, a condition negated, a constant changed, a
statement left out) of each area's modules, runs the area's tests on each in a copy of the tree, and lists the
changes that survive. Fails where fewer than 90 % are noticed. Changes that make no difference anybody could
see are named with their reason in mutants_equivalent.txt and do not count.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
ENOUGH = 0.9


@dataclass(frozen=True)
class Area:
    """`modules` and the `tests` that must notice a change in them, the quick ones first."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _xtml(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/xtml/{name}.py" for name in names)


AREAS = {
    "decode": Area(
        ("gateway/xtml/decode",),
        _xtml(
            *[
                "test_decode",
                "test_decode_repairs",
                "test_json_repair",
                "test_toolschema",
                "test_stop",
                "test_roundtrip",
            ],
            *["test_decode_lossless", "test_decode_json", "test_decode_streams", "test_decode_random"],
            "test_decode_work",
        ),
    ),
    "encode": Area(
        ("gateway/xtml/encode", "gateway/xtml/vocabulary.py", "gateway/xtml/values.py"),
        _xtml("test_encode", "test_injection", "test_roundtrip", "test_render_cache", "test_vocab"),
    ),
    "request": Area(("gateway/xtml/request",), _xtml("test_request", "test_encode")),
    "grammar": Area(
        ("gateway/xtml/grammar", "gateway/xtml/json_schema.py"),
        _xtml("test_json_schema", "test_grammar_classes", "test_grammar", "test_grammar_cost"),
    ),
    "prefix": Area(
        ("gateway/prefix", "gateway/pins"),
        tuple(
            f"tests/prefix/test_{name}.py"
            for name in ("history", "explain", "routing", "stability", "pins", "kv_events", "tenants")
        ),
    ),
    "media": Area(
        ("media/fetch", "media/store.py"),
        tuple(f"tests/media/test_{name}.py" for name in ("addresses", "dataurl", "store", "fetch")),
    ),
    "generation": Area(
        ("gateway/generation", "gateway/wire/chat", "gateway/wire/stream.py", "gateway/wire/sse.py"),
        tuple(
            f"tests/api/test_{name}.py"
            for name in ("replies", "choices", "requests", "model_json", "disconnect", "shutdown")
        ),
    ),
}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, order=True)
class Mutant:
    """`module` with `source[start:end]` (bytes) replaced."""

    module: str
    line: int
    start: int
    end: int
    replacement: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def label(self, source: bytes) -> str:
        """The line before and after, as it stands in mutants_equivalent.txt."""

        def shown(text: bytes) -> str:
            lines = text.decode().splitlines()
            return lines[self.line - 1].strip()

        return f"{self.module} | {shown(source)} | {shown(self.apply(source))}"


class Changes(ast.NodeVisitor):
    """The small changes of one module. Messages of errors, types and declarations are left alone."""

    def __init__(self, module: str, source: bytes) -> None:
        self._module = module
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._source = source
        self.found: list[Mutant] = []

    def _add(self, node: ast.AST, replacement: str) -> None:
        start = self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        if self._source[start:end].decode() != replacement:
            self.found.append(Mutant(self._module, node.lineno, start, end, replacement))  # type: ignore[attr-defined]

    def _write(self, node: ast.expr, changed: ast.expr) -> None:
        self._add(node, f"({ast.unparse(changed)})")

    # What is not looked into.

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Places inside f-strings are not known before Python 3.12."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.value, ast.Name) or node.value.id != "Literal":
            self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    # What is changed.

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            ops = [*node.ops[:at], COMPARISONS[type(operator)](), *node.ops[at + 1 :]]
            self._write(node, ast.Compare(node.left, ops, node.comparators))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.generic_visit(node)
        self._write(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            self._write(node, node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if type(node.op) in OPERATORS:
            self._write(node, ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, str(not value))
        elif isinstance(value, int):
            self._add(node, str(value + 1))
        elif isinstance(value, str) and value.isidentifier():
            self._add(node, repr(value + "_"))

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Compare | ast.Constant):
            self._write(node.test, ast.UnaryOp(ast.Not(), node.test))

    visit_While = visit_If
    visit_IfExp = visit_If

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self.visit(node.guard)
            self._add(node.guard, "True")
        for statement in node.body:
            self.visit(statement)

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._add(node, "return None")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        self.generic_visit(node)
        if isinstance(node.value, ast.Call | ast.Await):
            self._add(node, "pass")

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        if all(isinstance(target, ast.Attribute) for target in node.targets):
            self._add(node, "pass")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self._add(node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")


def mutants_of(area: Area, root: Path) -> list[Mutant]:
    """Every change of the area that still compiles."""
    return sorted(mutant for path in _modules(area, root) for mutant in _changes(path, root))


def _modules(area: Area, root: Path) -> Iterator[Path]:
    for name in area.modules:
        path = root / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _changes(path: Path, root: Path) -> Iterator[Mutant]:
    source = path.read_bytes()
    changes = Changes(str(path.relative_to(root)), source)
    changes.visit(ast.parse(source))
    for mutant in dict.fromkeys(changes.found):
        try:
            compile(mutant.apply(source), str(path), "exec")
        except SyntaxError:
            continue
        yield mutant


class Trial:
    """Runs tests in a copy of the tree."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, files.decode().split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(copy),
            "PYTHONDONTWRITEBYTECODE": "1",  # a change may keep a file's size and second
            "K3_CACHE": os.environ.get("K3_CACHE", str(ROOT / ".cache")),
            "K3_SHARED": os.environ.get("K3_SHARED", str(ROOT.parent / "shared")),
        }

    def notices(self, area: Area, mutant: Mutant | None, limit: float | None) -> bool:
        """Whether the area's tests fail, or take longer than `limit` seconds."""
        path = self._copy / (mutant.module if mutant else area.modules[0])
        source = path.read_bytes() if mutant else b""
        if mutant:
            path.write_bytes(mutant.apply(source))
        try:
            return self._fails(area, limit)
        finally:
            if mutant:
                path.write_bytes(source)

    def _fails(self, area: Area, limit: float | None) -> bool:
        options = [
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",
            "--hypothesis-seed=0",
        ]
        tests = [test for test in area.tests if (self._copy / test).exists()]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self._copy,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(limit) != 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True


def equivalent() -> set[str]:
    """Labels of changes that make no difference; each line ends with its reason."""
    lines = EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []
    return {line.rpartition(" | ")[0] for line in lines if line and not line.startswith("#")}


def run(name: str, n_sample: int, seed: int, minutes: float, copy: Path) -> bool:
    """One area: prints what survives, and says whether enough was noticed, of those tried in `minutes`."""
    area = AREAS[name]
    trial = Trial(copy)
    started = time.monotonic()
    if trial.notices(area, None, None):
        print(f"{name}: the tests fail without any change")
        return False
    limit = 3 * (time.monotonic() - started) + 20
    same = equivalent()
    candidates = mutants_of(area, copy)
    sample = random.Random(seed).sample(candidates, min(n_sample, len(candidates)))
    n_noticed = n_counted = 0
    for mutant in sample:
        if time.monotonic() - started > minutes * 60:
            break
        label = mutant.label((copy / mutant.module).read_bytes())
        if label in same:
            continue
        n_counted += 1
        if trial.notices(area, mutant, limit):
            n_noticed += 1
        else:
            print(f"survives: {mutant.module}:{mutant.line}\n    {label}", flush=True)
        if n_counted % 10 == 0:
            print(f"{name}: {n_noticed} of {n_counted} so far", file=sys.stderr, flush=True)
    share = n_noticed / n_counted if n_counted else 1.0
    print(f"{name}: {n_noticed} of {n_counted} noticed ({share:.0%}), {len(candidates)} possible", flush=True)
    return share >= ENOUGH


def main() -> None:
    parser = argparse.ArgumentParser(description="Would the tests notice small changes?")
    parser.add_argument("areas", nargs="*", choices=[[], *AREAS], help=f"of {', '.join(AREAS)}; default all")
    parser.add_argument("--sample", type=int, default=40, help="changes tried in each area (default 40)")
    parser.add_argument("--minutes", type=float, default=60, help="for each area at most (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    chosen = parser.parse_args()
    enough = True
    for name in chosen.areas or AREAS:
        with tempfile.TemporaryDirectory(prefix="k3-mutants-") as folder:
            enough &= run(name, chosen.sample, chosen.seed, chosen.minutes, Path(folder))
    sys.exit(not enough)


if __name__ == "__main__":
    main()
