"""Frame selection, time stamps and chunks against the worked examples of docs/format.md#clip-examples."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import pytest

from media.sampling import (
    chunk_ranges,
    frame_patch_limit,
    sample_constant_rate,
    sample_count,
    sample_variable_rate,
    timestamp,
)


@dataclass(frozen=True)
class Example:
    n_frames: int
    rate: float
    n_sampled: int
    patch_limit: int
    n_chunks: int
    n_last: int
    first: list[int]
    second: list[int]
    stamps: list[str]
    last_stamp: str


FIVE_AND_SEVEN = [
    Example(
        300, 30.0, 80, 8192, 20, 4, [0, 4, 8, 11], [15, 19, 23, 26],
        ["00:00:00.000", "00:00:00.500", "00:00:01.000"], "00:00:09.599",
    ),
    Example(
        240, 24.0, 80, 8192, 20, 4, [0, 3, 6, 9], [12, 15, 18, 21],
        ["00:00:00.000", "00:00:00.500", "00:00:01.000"], "00:00:09.583",
    ),
    Example(
        250, 25.0, 80, 8192, 20, 4, [0, 3, 6, 9], [13, 16, 19, 22],
        ["00:00:00.000", "00:00:00.520", "00:00:01.000"], "00:00:09.599",
    ),
    Example(
        31, 30.0, 8, 16384, 2, 4, [0, 4, 9, 13], [17, 21, 26, 30],
        ["00:00:00.000", "00:00:00.566"], "00:00:00.566",
    ),
    Example(
        10, 5.0, 10, 16384, 3, 2, [0, 1, 2, 3], [4, 5, 6, 7],
        ["00:00:00.000", "00:00:00.800", "00:00:01.600"], "00:00:01.600",
    ),
    Example(1, 30.0, 1, 16384, 1, 1, [0], [], ["00:00:00.000"], "00:00:00.000"),
    Example(
        1800, 29.97, 480, 1365, 120, 4, [0, 4, 8, 11], [15, 19, 23, 26],
        ["00:00:00.000", "00:00:00.500", "00:00:01.001"], "00:00:59.659",
    ),
    Example(
        7200, 60.0, 960, 683, 240, 4, [0, 8, 15, 23], [30, 38, 45, 53],
        ["00:00:00.000", "00:00:00.500", "00:00:01.000"], "00:01:59.599",
    ),
    Example(
        18000, 30.0, 4800, 137, 1200, 4, [0, 4, 8, 11], [15, 19, 23, 26],
        ["00:00:00.000", "00:00:00.500", "00:00:01.000"], "00:09:59.600",
    ),
    Example(
        30, 8.0, 30, 16384, 8, 2, [0, 1, 2, 3], [4, 5, 6, 7],
        ["00:00:00.000", "00:00:00.500", "00:00:01.000"], "00:00:03.500",
    ),
]  # fmt: skip


@pytest.mark.parametrize("example", FIVE_AND_SEVEN, ids=lambda e: f"{e.n_frames}@{e.rate}")
def test_worked_example(example: Example):
    sampling = sample_constant_rate(example.n_frames, example.rate, 8.0)
    chunks = list(chunk_ranges(len(sampling), 4))
    stamps = [timestamp(sampling.times[chunk[0]]) for chunk in chunks]

    assert len(sampling) == example.n_sampled
    assert frame_patch_limit(len(sampling), per_frame=16384, per_video=655360) == example.patch_limit
    assert len(chunks) == example.n_chunks
    assert len(chunks[-1]) == example.n_last
    assert [sampling.positions[i] for i in chunks[0]] == example.first
    assert [sampling.positions[i] for chunk in chunks[1:2] for i in chunk] == example.second
    assert stamps[: len(example.stamps)] == example.stamps
    assert stamps[-1] == example.last_stamp


def test_count_rounds_half_to_even():
    assert sample_count(5, 16.0, 8.0) == 2  # 2.5
    assert sample_count(7, 16.0, 8.0) == 4  # 3.5


def test_at_least_one_frame_is_taken():
    assert sample_count(1, 240.0, 8.0) == 1


def test_cap_from_the_checkpoint_bounds_the_count():
    sampling = sample_constant_rate(300, 30.0, 8.0, max_frames=10)
    assert len(sampling) == 10
    assert (sampling.positions[0], sampling.positions[-1]) == (0, 299)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float):
    with pytest.raises(ValueError, match="frame rate"):
        sample_count(10, rate, 8.0)


def test_no_frame_is_refused():
    with pytest.raises(ValueError, match="no frame"):
        sample_count(0, 30.0, 8.0)
    with pytest.raises(ValueError, match="no frame"):
        sample_variable_rate([], Fraction(1), 8.0)


@pytest.mark.parametrize("n_frames", [1, 2, 3, 17, 299, 300, 1001])
@pytest.mark.parametrize("rate", [0.1, 1.0, 7.99, 8.0, 12.5, 23.976, 30000 / 1001, 59.94, 240.0])
def test_positions_rise_from_first_to_last(n_frames: int, rate: float):
    positions = sample_constant_rate(n_frames, rate, 8.0).positions
    assert all(earlier < later for earlier, later in pairwise(positions))
    assert positions[0] == 0
    assert positions[-1] == n_frames - 1 or len(positions) == 1


def test_below_the_sample_rate_every_frame_is_taken():
    assert sample_constant_rate(23, 5.0, 8.0).positions == tuple(range(23))


def test_timestamp_is_cut_not_rounded_and_wraps_after_a_day():
    assert timestamp(288 / 30) == "00:00:09.599"
    assert timestamp(0.9999) == "00:00:00.999"
    assert timestamp(3661.25) == "01:01:01.250"
    assert timestamp(86400 + 5.5) == "00:00:05.500"


def seconds(*milliseconds: int) -> list[Fraction]:
    return [Fraction(ms, 1000) for ms in milliseconds]


def test_variable_rate_takes_the_frame_shown_at_each_sample_time():
    # One second: two seconds' worth of frames in the first half, sparse ones after.
    shown_at = seconds(0, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 700, 900)
    sampling = sample_variable_rate(shown_at, Fraction(1), 8.0)
    # Eight times from 0 to 900 ms: 0, 128.6, 257.1, 385.7, 514.3, 642.9, 771.4, 900.
    assert sampling.times == (0.0, 0.1, 0.25, 0.35, 0.5, 0.7, 0.9)
    assert sampling.positions == (0, 2, 5, 7, 10, 11, 12)


def test_variable_rate_takes_a_frame_that_stays_only_once():
    shown_at = seconds(0, 2000, 2100, 2200)
    assert sample_variable_rate(shown_at, Fraction(23, 10), 8.0).times == (0.0, 2.0, 2.2)


def test_variable_rate_counts_from_the_first_frame():
    sampling = sample_variable_rate(seconds(5000, 5300, 6000), Fraction(2), 8.0)
    assert sampling.times == (0.0, 0.3, 1.0)


def test_a_sample_time_on_a_frame_time_finds_that_frame():
    shown_at = [Fraction(i, 3) for i in range(7)]  # thirds have no exact float
    assert sample_variable_rate(shown_at, Fraction(7, 8), 8.0).positions == tuple(range(7))


def test_variable_rate_of_one_frame():
    assert sample_variable_rate([Fraction(3)], Fraction(0), 8.0).times == (0.0,)


def test_variable_rate_obeys_the_cap():
    assert len(sample_variable_rate([Fraction(i * i, 100) for i in range(40)], Fraction(16), 8.0, 5)) == 5
