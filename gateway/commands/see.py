"""`k3 see`: look at a picture or a clip as the model sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

from gateway.commands.see_clip import is_clip, see_clip
from media.config import K3_MEDIA_CONFIG, MediaConfig, MediaConfigError
from media.image import patch_limit_of, prepare_picture, set_pillow_limit
from media.navit import MERGE, PATCH, Size, from_patches, target_size
from media.types import MediaError, MediaItem, Picture

GRID_COLOUR = (255, 0, 128)


def register(app: typer.Typer) -> None:
    app.command("see")(see)


def see(
    file: Annotated[Path, typer.Argument(help="A picture or a clip in any format that the service takes.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for PNGs of what the model sees, one cell of the grid a token."),
    ] = None,
    detail: Annotated[str, typer.Option(help="auto, low or high, as in a request.")] = "auto",
    model: Annotated[
        Path | None, typer.Option(help="Checkpoint whose picture settings hold; default: the published K3's.")
    ] = None,
) -> None:
    """Print sizes, image patches, tokens and prompt text of a picture or clip; write what the model sees."""
    try:
        config = K3_MEDIA_CONFIG if model is None else MediaConfig.load(model)
        data = file.read_bytes()
        if is_clip(data):
            return see_clip(data, file, out, config)
        set_pillow_limit()
        picture = prepare_picture(data, config, detail)
    except (OSError, MediaConfigError, MediaError) as error:
        typer.echo(f"{file.name}: {error.strerror if isinstance(error, OSError) else error}", err=True)
        raise typer.Exit(1) from error
    size = target_size(
        picture.width,
        picture.height,
        patch_limit=patch_limit_of(detail, config),
        side_limit=config.side_limit,
    )
    for line in describe_picture(picture, size):
        typer.echo(line)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{file.stem}.seen.png"
        with_grid(picture.item).save(path)
        typer.echo(f"written        {path}")


def describe_picture(picture: Picture, size: Size) -> list[str]:
    """What there is to say about a prepared picture, line by line."""
    n_tokens = picture.item.n_tokens
    return [
        f"original       {picture.width} x {picture.height} pixels",
        f"resized to     {size.width} x {size.height} pixels",
        f"padded to      {size.padded_width} x {size.padded_height} pixels",
        f"image patches  {size.grid_w} x {size.grid_h} = {size.n_patches}",
        f"tokens         {size.grid_w // MERGE} x {size.grid_h // MERGE} = {n_tokens}",
        f"prompt text    <|media_begin|>image {picture.width}x{picture.height}<|media_content|>"
        f"<|media_pad|> x {n_tokens}<|media_end|>",
        f"identity       {picture.item.identity}",
    ]


def with_grid(item: MediaItem, frame: int = 0) -> Image.Image:
    """One frame of a vision input as a picture, with a line around each token's square of 28 pixels."""
    _, grid_h, grid_w = item.grid
    n_patches = grid_h * grid_w
    pixels = from_patches(item.patches[frame * n_patches : (frame + 1) * n_patches], grid_h, grid_w)
    pixels[:: PATCH * MERGE] = GRID_COLOUR
    pixels[:, :: PATCH * MERGE] = GRID_COLOUR
    return Image.fromarray(pixels)
