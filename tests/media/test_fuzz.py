"""Damaged files of every format end in a picture or a MediaError, and in nothing else."""

import random
import re
import warnings

import pytest

from media.picture import prepare_picture
from media.types import MediaError
from tests.media import files

PIXEL_LIMIT = 2_000_000  # enough for the samples; a mutated header asks for far more


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(out))
        if rng.random() < 0.4:
            at = rng.randrange(min(len(out), 200))  # headers decide most
        match rng.randrange(6):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                out[at : at + 4] = rng.choice(
                    (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80")
                )
            case 3:
                del out[at : at + rng.randrange(1, 40)]
            case 4:
                out[at:at] = out[rng.randrange(len(out)) :][: rng.randrange(1, 60)]
            case 5:
                del out[at:]
        if not out:
            return b""
    return bytes(out)


def survive(name: str, seed: int, n_files: int) -> None:
    data = files.SAMPLES[name]()
    rng = random.Random(f"{name} {seed}")
    n_read = 0
    for _ in range(n_files):
        try:
            picture = prepare_picture(mutated(data, rng), pixel_limit=PIXEL_LIMIT)
        except MediaError as error:
            assert not re.search(r"\b0x", str(error)) and len(str(error)) < 400
        else:
            _, grid_h, grid_w = picture.item.grid
            assert picture.item.patches.shape == (grid_h * grid_w, 3, 14, 14)
            n_read += 1
    assert n_read < n_files


@pytest.mark.parametrize("name", files.SAMPLES)
def test_damaged_files_end_in_a_picture_or_an_error(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's TIFF and EXIF readers warn about most of these
        survive(name, seed=0, n_files=200)


@pytest.mark.slow
@pytest.mark.parametrize("name", files.SAMPLES)
def test_many_damaged_files_end_in_a_picture_or_an_error(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        survive(name, seed=1, n_files=5000)
