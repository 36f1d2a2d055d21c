"""Packs encoded conversations into rows of equal length, and media items into padded groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.mini.chunked_kda import CHUNK
from engine.mini.places import first_place
from media.types import MediaItem

IGNORED = -100
PATCH_BUCKETS = (64, 144, 256)
LABELS = ("color", "shape", "count", "place", "background", "direction")
"""What the auxiliary heads learn to see in a media item."""


@dataclass(frozen=True)
class Encoded:
    """A conversation as ids.

    n_prompt: ids before the completion, which alone is learned
    media:    (offset of the first placeholder, item, label name -> class) per item
    weight:   what the conversation counts in the loss
    """

    skill: str
    ids: Sequence[int]
    n_prompt: int
    media: Sequence[tuple[int, MediaItem, dict[str, int]]] = ()
    weight: float = 1.0


@dataclass
class MediaGroup:
    """Items padded to the same number P of image patches; F is 1 for pictures and 4 for chunks of clips.

    patches (n, P, 588) uint8; places, times, rows, columns (n, P); real (n, P) bool
    merge (tokens, 4, F): which patches, counted over the group, make a token
    frame_weights (tokens, F): one over the number of frames, 0 where a frame is missing
    """

    patches: Tensor
    places: Tensor
    times: Tensor
    rows: Tensor
    columns: Tensor
    real: Tensor
    merge: Tensor
    frame_weights: Tensor

    @cached_property
    def bias(self) -> Tensor:
        """(n, 1, 1, P) additive attention mask."""
        return torch.zeros(self.real.shape, device=self.real.device).masked_fill(~self.real, -torch.inf)[
            :, None, None
        ]

    def rotation(self, head: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (n, P, head / 2); column and row angles take turns."""
        steps = torch.arange(0, head, 4, device=self.rows.device) / head
        frequencies = 10000.0**-steps
        angles = torch.stack(
            [self.columns[..., None] * frequencies, self.rows[..., None] * frequencies], -1
        ).flatten(-2)
        return angles.cos(), angles.sin()


@dataclass
class Batch:
    """Rows of packed conversations; each begins at a multiple of 16 tokens.

    ids, targets, segments, positions (rows, T); targets are the next ids, IGNORED where nothing is learned
    weights (rows, T): what each target counts; chunk_starts (rows, T / 16); is_token (rows, T)
    media_positions (tokens): flat index into (rows * T) of every placeholder, in the order of `media`
    labels: (items, 6) classes of LABELS, IGNORED where unknown
    spans: (skill, row, start of the completion, end) of every conversation
    """

    ids: Tensor
    targets: Tensor
    weights: Tensor
    segments: Tensor
    positions: Tensor
    chunk_starts: Tensor
    is_token: Tensor
    media_positions: Tensor
    labels: Tensor
    media: list[MediaGroup]
    spans: list[tuple[str, int, int, int]] = field(default_factory=list)

    @cached_property
    def attention_bias(self) -> Tensor:
        """(rows, 1, T, T) additive mask: earlier tokens of the same conversation."""
        same = self.segments[:, :, None] == self.segments[:, None, :]
        allowed = same.tril()
        bias = torch.zeros(allowed.shape, device=allowed.device, dtype=torch.bfloat16)
        return bias.masked_fill_(~allowed, -torch.inf)[:, None]

    def to(self, device: torch.device | str) -> Batch:
        """A copy on `device`."""
        return Batch(**{f.name: _moved(getattr(self, f.name), device) for f in fields(self)})


def _moved(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, MediaGroup):
        return MediaGroup(**{f.name: _moved(getattr(value, f.name), device) for f in fields(value)})
    if isinstance(value, list) and value and isinstance(value[0], MediaGroup):
        return [_moved(group, device) for group in value]
    return value


class Packer:
    """Fills rows first-fit; a batch is ready when a conversation fits nowhere."""

    def __init__(self, n_rows: int, row_length: int, pad_id: int) -> None:
        if row_length % CHUNK:
            raise ValueError(f"row length must be a multiple of {CHUNK}, not {row_length}")
        self.n_rows, self.row_length, self.pad_id = n_rows, row_length, pad_id
        self._rows: list[list[Encoded]] = [[] for _ in range(n_rows)]
        self._used = [0] * n_rows

    def add(self, sample: Encoded) -> Batch | None:
        """Takes a conversation; returns the batch before it if it no longer fits there.

        Raises ValueError for a conversation longer than a row.
        """
        length = _padded(len(sample.ids))
        if length > self.row_length:
            raise ValueError(f"{len(sample.ids)} tokens do not fit a row of {self.row_length}")
        batch = None
        row = next((r for r in range(self.n_rows) if self._used[r] + length <= self.row_length), None)
        if row is None:
            batch, row = self.flush(), 0
        self._rows[row].append(sample)
        self._used[row] += length
        return batch

    def flush(self) -> Batch:
        """The batch of what was taken so far; the packer is empty afterwards."""
        batch = _batch(self._rows, self.row_length, self.pad_id)
        self._rows = [[] for _ in range(self.n_rows)]
        self._used = [0] * self.n_rows
        return batch


def _padded(length: int) -> int:
    return -(-length // CHUNK) * CHUNK


def _batch(rows: list[list[Encoded]], length: int, pad_id: int) -> Batch:
    shape = (len(rows), length)
    ids = np.full(shape, pad_id, np.int64)
    targets = np.full(shape, IGNORED, np.int64)
    weights = np.zeros(shape, np.float32)
    segments = np.zeros(shape, np.int32)
    positions = np.zeros(shape, np.int32)
    is_token = np.zeros(shape, np.float32)
    chunk_starts = np.zeros((len(rows), length // CHUNK), bool)
    spans: list[tuple[str, int, int, int]] = []
    groups: defaultdict[tuple[bool, int], list[tuple[int, MediaItem, dict[str, int]]]] = defaultdict(list)
    for r, samples in enumerate(rows):
        start = 0
        for number, sample in enumerate(samples):
            n, n_prompt = len(sample.ids), sample.n_prompt
            ids[r, start : start + n] = sample.ids
            targets[r, start + n_prompt - 1 : start + n - 1] = sample.ids[n_prompt:]
            weights[r, start + n_prompt - 1 : start + n - 1] = sample.weight * (n - n_prompt) ** -0.5
            padded = _padded(n)
            segments[r, start : start + padded] = number + 1
            positions[r, start : start + padded] = np.arange(padded)
            is_token[r, start : start + n] = 1
            chunk_starts[r, start // CHUNK] = True
            spans.append((sample.skill, r, start + n_prompt - 1, start + n - 1))
            for offset, item, labels in sample.media:
                n_patches = int(np.prod(item.grid))
                bucket = next(size for size in PATCH_BUCKETS if size >= n_patches)
                groups[item.grid[0] > 1, bucket].append((r * length + start + offset, item, labels))
            start += padded
        positions[r, start:] = np.arange(length - start)
        if start < length:
            chunk_starts[r, start // CHUNK] = True
    placed = [groups[key] for key in sorted(groups)]
    media_positions = [
        np.arange(offset, offset + item.n_tokens) for group in placed for offset, item, _ in group
    ]
    label_rows = [[labels.get(name, IGNORED) for name in LABELS] for g in placed for _, _, labels in g]
    return Batch(
        ids=torch.from_numpy(ids),
        targets=torch.from_numpy(targets),
        weights=torch.from_numpy(weights),
        segments=torch.from_numpy(segments),
        positions=torch.from_numpy(positions),
        chunk_starts=torch.from_numpy(chunk_starts),
        is_token=torch.from_numpy(is_token),
        media_positions=torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *media_positions])),
        labels=torch.tensor(label_rows, dtype=torch.int64).view(-1, len(LABELS)),
        media=[
            _media_group([item for _, item, _ in groups[key]], is_clip=key[0], size=key[1])
            for key in sorted(groups)
        ],
        spans=spans,
    )


def _media_group(items: list[MediaItem], is_clip: bool, size: int) -> MediaGroup:
    n, n_frames = len(items), 4 if is_clip else 1
    patches = np.zeros((n, size, 588), np.uint8)
    places, times, rows, columns = (np.zeros((n, size), np.int64) for _ in range(4))
    real = np.zeros((n, size), bool)
    merge: list[NDArray[np.int64]] = []
    frame_weights: list[NDArray[np.float32]] = []
    for i, item in enumerate(items):
        t, h, w = item.grid
        count, plane = t * h * w, h * w
        patches[i, :count] = item.patches.reshape(count, 588)
        real[i, :count] = True
        index = np.arange(count)
        places[i, :count] = first_place(h, w) + index % plane
        times[i, :count] = 1 + index // plane if t > 1 else 0
        rows[i, :count] = index % plane // w
        columns[i, :count] = index % w
        squares = np.arange(plane).reshape(h // 2, 2, w // 2, 2).transpose(0, 2, 1, 3).reshape(-1, 4)
        frames = np.minimum(np.arange(n_frames), t - 1) * plane  # a missing frame repeats the last, weight 0
        merge.append(i * size + squares[:, :, None] + frames)
        share = np.where(np.arange(n_frames) < t, 1 / t, 0).astype(np.float32)
        frame_weights.append(np.repeat(share[None], len(squares), 0))
    arrays = (
        patches,
        places,
        times,
        rows,
        columns,
        real,
        np.concatenate(merge),
        np.concatenate(frame_weights),
    )
    return MediaGroup(*map(torch.from_numpy, arrays))
