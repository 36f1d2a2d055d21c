"""Tables of figures beside each other, with ratios to vLLM's front end in Rust."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.serve.measure import SATURATED, Table

REFERENCE = "vllm-rs"


def print_table(table: Table, servers: Sequence[str]) -> None:
    """The medians of `table.columns`; for the first column also this service's ratio to the reference."""
    if not table.rows:
        return
    print(f"\n{table.title}")
    compared = "ours" in servers and REFERENCE in servers
    for column in table.columns:
        print(
            f"  {column:38}" + "".join(f"{name:>12}" for name in servers) + ("     ratio" if compared else "")
        )
        for row in table.rows:
            values = [table.median(row, name, column) for name in servers]
            line = "".join(f"{_figure(value):>12}" for value in values)
            ratio = _ratio(table, row, column) if compared else ""
            print(f"    {row:36}{line}{ratio:>10}{_saturated(table, row, servers)}")


def ratio(table: Table, row: str, column: str) -> float | None:
    """This service's median over the reference's."""
    ours, theirs = (table.median(row, name, column) for name in ("ours", REFERENCE))
    return ours / theirs if ours is not None and theirs else None


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of log(y) over log(x) by least squares: 1 = grows as x does, 0 = does not grow."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, 1e-9)) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def _ratio(table: Table, row: str, column: str) -> str:
    found = ratio(table, row, column)
    return "" if found is None else f"{found:.2f}"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _saturated(table: Table, row: str, servers: Sequence[str]) -> str:
    """Which servers did not keep up: several tokens went into one frame."""
    slow = [
        name
        for name in servers
        if (frames := table.median(row, name, "frames_per_token")) is not None and frames < SATURATED
    ]
    return f"  saturated: {', '.join(slow)}" if slow else ""
