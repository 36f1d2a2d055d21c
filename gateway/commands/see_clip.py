"""`k3 see` for clips: a contact sheet of the frames that the model sees."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress

from gateway.generation.media_prompts import media_prompt, shown_prompt
from media.clip import TEXT_TOKENS_PER_CHUNK, prepare_clip
from media.config import MediaConfig
from media.navit import target_size
from media.sampling import frame_patch_limit
from media.types import Clip


def prepare_with_progress(data: bytes, name: str, config: MediaConfig) -> Clip:
    """The prepared clip; progress is shown on stderr where that is a terminal. Raises MediaError."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"preparing {name}", total=None)
        return prepare_clip(
            data, config, on_progress=lambda done, total: progress.update(task, completed=done, total=total)
        )


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
    first, *others = media_prompt(clip).spans
    yield shown_prompt(first)
    if len(others) > 1:
        yield f"... {len(others) - 1} more ..."
    if others:
        yield shown_prompt(others[-1])
