"""`k3 see`: look at a picture or a clip as the model sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

from gateway.commands.see_clip import describe_clip, prepare_with_progress
from gateway.generation.media_prompts import media_prompt, shown_prompt
from media.config import K3_MEDIA_CONFIG, MediaConfig, MediaConfigError
from media.navit import MERGE, target_size
from media.picture import patch_limit_of, prepare_picture, set_pillow_limit
from media.preview import MAX_FRAMES_ON_SHEET, contact_sheet, is_clip, token_grid
from media.types import MediaError, Picture


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
    set_pillow_limit()
    try:
        config = K3_MEDIA_CONFIG if model is None else MediaConfig.load(model)
        data = file.read_bytes()
        if is_clip(data):
            clip = prepare_with_progress(data, file.name, config)
            lines, seen = describe_clip(clip, config), contact_sheet(clip)
            if clip.n_frames > MAX_FRAMES_ON_SHEET:
                lines.append(f"contact sheet  every few chunks of the {len(clip.chunks)}")
        else:
            picture = prepare_picture(data, config, detail)
            lines, seen = describe_picture(picture, config, detail), token_grid(picture.item)
    except (OSError, MediaConfigError, MediaError) as error:
        raise _failed(file.name, error) from error
    for line in lines:
        typer.echo(line)
    if out is not None:
        try:
            path = _write(seen, out, file.stem)
        except OSError as error:
            raise _failed(str(out), error) from error
        typer.echo(f"written        {path}")


def describe_picture(picture: Picture, config: MediaConfig, detail: str) -> list[str]:
    """What there is to say about a prepared picture, line by line."""
    size = target_size(
        picture.width,
        picture.height,
        patch_limit=patch_limit_of(detail, config),
        side_limit=config.side_limit,
    )
    (span,) = media_prompt(picture).spans
    return [
        f"original       {picture.width} x {picture.height} pixels",
        f"resized to     {size.width} x {size.height} pixels",
        f"padded to      {size.padded_width} x {size.padded_height} pixels",
        f"image patches  {size.grid_w} x {size.grid_h} = {size.n_patches}",
        f"tokens         {size.grid_w // MERGE} x {size.grid_h // MERGE} = {picture.item.n_tokens}",
        f"prompt text    {shown_prompt(span)}",
        f"identity       {picture.item.identity}",
        *(f"note           {note}" for note in picture.notes),
    ]


def _write(seen: Image.Image, folder: Path, stem: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.seen.png"
    seen.save(path)
    return path


def _failed(name: str, error: Exception) -> typer.Exit:
    """Say on stderr what went wrong; the command ends with status 1."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else error
    typer.echo(f"{name}: {words}", err=True)
    return typer.Exit(1)
