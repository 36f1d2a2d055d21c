import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from media.navit import from_patches, target_size, to_patches
from tests.media import reference_picture

# docs/format.md#picture-examples: upload, resized, grid (height, width), tokens.
WORKED = """
1x1 1x1 2x2 1
13x13 13x13 2x2 1
14x14 14x14 2x2 1
28x28 28x28 2x2 1
29x29 29x29 4x4 4
100x100 100x100 8x8 16
224x224 224x224 16x16 64
225x223 225x223 16x18 72
640x480 640x480 36x46 414
1024x768 1024x768 56x74 1036
1536x1024 1536x1024 74x110 2035
1920x1080 1920x1080 78x138 2691
3840x2160 3840x2160 156x276 10764
3584x3584 3584x3584 256x256 16384
3585x3585 3585x3585 258x258 16641
3599x3599 3584x3584 256x256 16384
4000x3000 4000x3000 216x286 15444
6000x4000 4397x2931 210x316 16590
7168x1792 7168x1792 128x512 16384
7168x7168 3584x3584 256x256 16384
8000x8000 3586x3586 258x258 16641
10000x100 7168x71 6x512 768
100x10000 71x7168 512x6 768
20000x20 7168x7 2x512 256
1x20000 1x7168 512x2 256
7169x50 7168x49 4x512 512
12000x9000 4141x3106 222x296 16428
16384x16384 3584x3584 256x256 16384
"""


def pair(text: str) -> tuple[int, int]:
    first, second = text.split("x")
    return int(first), int(second)


@pytest.mark.parametrize("line", WORKED.split("\n")[1:-1])
def test_sizes_are_those_worked_out_in_the_spec(line: str) -> None:
    upload, resized, grid, n_tokens = line.split()
    size = target_size(*pair(upload), patch_limit=65_536, side_limit=512)
    assert (size.width, size.height) == pair(resized)
    assert (size.grid_h, size.grid_w) == pair(grid)
    assert size.n_tokens == int(n_tokens)
    assert size.n_patches == 4 * int(n_tokens)
    assert (size.padded_width % 28, size.padded_height % 28) == (0, 0)


@given(st.integers(1, 30_000), st.integers(1, 30_000), st.sampled_from([137, 1024, 16_384, 65_536]))
def test_any_size_equals_the_plain_formula(width: int, height: int, patch_limit: int) -> None:
    size = target_size(width, height, patch_limit=patch_limit, side_limit=512)
    assert (size.width, size.height) == reference_picture.resized(width, height, patch_limit)
    assert size.width <= width and size.height <= height


def test_a_resized_picture_may_be_resized_again() -> None:
    first = target_size(6000, 4000, patch_limit=65_536, side_limit=512)
    second = target_size(first.width, first.height, patch_limit=65_536, side_limit=512)
    assert (second.width, second.height) == (4393, 2928)


@pytest.mark.parametrize("width, height", [(0, 5), (5, 0), (-1, 5)])
def test_a_picture_without_extent_is_refused(width: int, height: int) -> None:
    with pytest.raises(ValueError, match="has no size"):
        target_size(width, height, patch_limit=65_536, side_limit=512)


@pytest.mark.parametrize(
    "width, height", [(1, 1), (14, 14), (15, 13), (27, 29), (57, 3), (300, 15), (28, 28 * 9), (500, 333)]
)
def test_patches_are_cut_row_by_row_with_channels_first_and_black_padding(width: int, height: int) -> None:
    rgb = np.random.default_rng(width).integers(1, 255, (height, width, 3), dtype=np.uint8)
    size = target_size(width, height, patch_limit=65_536, side_limit=512)
    patches = to_patches(rgb, size)
    assert patches.shape == (size.n_patches, 3, 14, 14) and patches.flags.c_contiguous
    for n in range(size.n_patches):
        top, left = n // size.grid_w * 14, n % size.grid_w * 14
        want = np.zeros((14, 14, 3), np.uint8)
        part = rgb[top : top + 14, left : left + 14]
        want[: part.shape[0], : part.shape[1]] = part
        assert np.array_equal(patches[n], want.transpose(2, 0, 1))


def test_patches_go_where_the_caller_wants_them_and_come_back_as_a_picture() -> None:
    rgb = np.random.default_rng(0).integers(0, 255, (90, 70, 3), dtype=np.uint8)
    size = target_size(70, 90, patch_limit=65_536, side_limit=512)
    room = np.full((size.n_patches, 3, 14, 14), 7, np.uint8)
    assert to_patches(rgb, size, room) is room
    back = from_patches(room, size.grid_h, size.grid_w)
    assert np.array_equal(back[:90, :70], rgb) and not back[90:].any() and not back[:, 70:].any()


def test_pixels_of_another_size_are_refused() -> None:
    size = target_size(70, 90, patch_limit=65_536, side_limit=512)
    with pytest.raises(ValueError, match="do not fit 70x90"):
        to_patches(np.zeros((70, 90, 3), np.uint8), size)
