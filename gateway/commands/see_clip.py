"""`k3 see` for clips: a contact sheet of the frames that the model sees."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import typer
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.progress import Progress

from media.config import MediaConfig
from media.container import container_kind
from media.navit import from_patches, target_size
from media.sampling import frame_patch_limit, timestamp
from media.types import Clip, MediaError, MediaItem
from media.video import TEXT_TOKENS_PER_CHUNK, plan_clip, prepare_clip

MAX_THUMBNAIL = 240  # pixels, the longer side
MAX_FRAMES_ON_SHEET = 480
CHUNKS_PER_ROW = 2
BORDER, GAP, LABEL = 3, 4, 14  # pixels
CHUNK_COLOUR, PAPER, INK = (255, 0, 128), (24, 24, 24), (235, 235, 235)


def is_clip(data: bytes) -> bool:
    """Whether `k3 see` shows a file as a clip: any video, and GIFs that move."""
    try:
        kind = container_kind(data)
    except MediaError:
        return False
    if kind != "gif":
        return True
    with contextlib.suppress(OSError, SyntaxError, ValueError), Image.open(io.BytesIO(data)) as image:
        return getattr(image, "n_frames", 1) > 1
    return False


def see_clip(data: bytes, file: Path, out: Path | None, config: MediaConfig) -> None:
    """Print sizes, tokens and prompt text of a clip; write a contact sheet. Raises MediaError, OSError."""
    times = plan_clip(data, config).sampling.times
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"preparing {file.name}", total=len(times))
        clip = prepare_clip(data, config, on_progress=lambda done, _: progress.update(task, completed=done))
    for line in describe_clip(clip, config):
        typer.echo(line)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{file.stem}.seen.png"
        contact_sheet(clip, times).save(path)
        typer.echo(f"written        {path}")
        if clip.n_frames > MAX_FRAMES_ON_SHEET:
            typer.echo(f"               the first {MAX_FRAMES_ON_SHEET} of {clip.n_frames} frames")


def describe_clip(clip: Clip, config: MediaConfig) -> list[str]:
    """What there is to say about a prepared clip, line by line."""
    first = clip.chunks[0]
    _, grid_h, grid_w = first.item.grid
    limit = frame_patch_limit(
        clip.n_frames, per_frame=config.frame_patch_limit, per_video=config.video_patch_limit
    )
    size = target_size(clip.width, clip.height, patch_limit=limit, side_limit=config.side_limit)
    n_pads = sum(chunk.item.n_tokens for chunk in clip.chunks)
    n_text = TEXT_TOKENS_PER_CHUNK * len(clip.chunks)
    return [
        f"shown          {clip.width} x {clip.height} pixels, {clip.duration:.3f} s",
        f"sampled        {clip.n_frames} frames in {len(clip.chunks)} chunks",
        f"resized to     {size.width} x {size.height} pixels",
        f"padded to      {size.padded_width} x {size.padded_height} pixels",
        f"image patches  {grid_w} x {grid_h} = {grid_w * grid_h} a frame",
        f"tokens         {first.item.n_tokens} a chunk, {n_pads} in all, with text some {n_pads + n_text}",
        *(f"prompt text    {line}" for line in _prompt_lines(clip)),
        f"identity       {first.item.identity} (chunk 0)",
        *(f"note           {note}" for note in clip.notes),
    ]


def _prompt_lines(clip: Clip) -> Iterator[str]:
    """The text of the first chunk, and of the last if there are more."""
    shown = clip.chunks[:1] + clip.chunks[1:][-1:]
    for chunk in shown:
        yield (
            f"{chunk.timestamp}<|media_begin|>video<|media_content|>"
            f"<|media_pad|> x {chunk.item.n_tokens}<|media_end|>"
        )
        if chunk is clip.chunks[0] and len(clip.chunks) > 2:
            yield f"... {len(clip.chunks) - 2} more ..."


def contact_sheet(clip: Clip, times: tuple[float, ...]) -> Image.Image:
    """Frames as the model sees them, shrunk to fit, with the time of each; a border around each chunk.

    times: seconds of each sampled frame
    """
    frames_per_chunk = clip.chunks[0].item.grid[0]
    chunks = clip.chunks[: max(MAX_FRAMES_ON_SHEET // frames_per_chunk, 1)]
    width, height = _thumbnail_size(chunks[0].item)
    cell_w, cell_h = width + GAP, height + LABEL + GAP
    block_w, block_h = frames_per_chunk * cell_w + GAP + 2 * BORDER, cell_h + GAP + 2 * BORDER
    n_rows = -(-len(chunks) // CHUNKS_PER_ROW)
    n_columns = min(CHUNKS_PER_ROW, len(chunks))
    sheet = Image.new("RGB", (n_columns * (block_w + GAP) + GAP, n_rows * (block_h + GAP) + GAP), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for index, chunk in enumerate(chunks):
        row, column = divmod(index, CHUNKS_PER_ROW)
        left, top = GAP + column * (block_w + GAP), GAP + row * (block_h + GAP)
        draw.rectangle((left, top, left + block_w - 1, top + block_h - 1), outline=CHUNK_COLOUR, width=BORDER)
        for number, frame in enumerate(frame_pictures(chunk.item)):
            x, y = left + BORDER + GAP + number * cell_w, top + BORDER + GAP
            draw.text((x, y), timestamp(times[index * frames_per_chunk + number]), fill=INK, font=font)
            sheet.paste(frame.resize((width, height), Image.Resampling.BICUBIC), (x, y + LABEL))
    return sheet


def frame_pictures(item: MediaItem) -> Iterator[Image.Image]:
    """Each frame of a vision input, with its padding."""
    n_frames, grid_h, grid_w = item.grid
    for patches in item.patches.reshape(n_frames, grid_h * grid_w, *item.patches.shape[1:]):
        yield Image.fromarray(from_patches(patches, grid_h, grid_w))


def _thumbnail_size(item: MediaItem) -> tuple[int, int]:
    first = next(frame_pictures(item))
    scale = min(1.0, MAX_THUMBNAIL / max(first.size))
    # Wide enough for the time stamp.
    return max(round(first.width * scale), 84), max(round(first.height * scale), 1)
