"""`POST /v1/media/preview` as it goes over the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class PreviewOptions(BaseModel):
    """How a file is to be seen."""

    detail: Literal["auto", "low", "high"] = Field("auto", description="As in `image_url`.")
    kind: Literal["image", "video"] | None = Field(
        None, description="As what the file would be sent; told from its content if left out."
    )


class PreviewRequest(PreviewOptions):
    """A file by URL."""

    url: str = Field(min_length=1, description="A data, http or https URL.")


class PreviewUpload(PreviewOptions):
    """A file as multipart form data; documents the form, which is read part by part."""

    file: bytes = Field(json_schema_extra={"format": "binary"})


class PixelSize(BaseModel):
    width: int
    height: int


class PreviewedInput(BaseModel):
    """One input of the vision tower: the picture, or a chunk of up to four frames.

    `grid` is (frames, rows, columns) in image patches; `prompt` has the placeholders counted, not spelled
    out; `timestamp` is null for a picture.
    """

    timestamp: str | None
    grid: tuple[int, int, int]
    n_tokens: int
    prompt: str
    identity: str


class MediaPreview(BaseModel):
    """What the model sees of a file.

    width, height:      of the original, upright
    resized, padded:    what the picture or each frame is scaled down to, and filled up to
    n_patches, n_tokens: of all inputs; `n_tokens` counts placeholders, without the text around them
    duration:           seconds; null for a picture
    n_frames:           sampled frames; 1 for a picture
    notes:              what was left out, e.g. sound
    preview:            a PNG as data URL: the picture with a cell for each token, or a contact sheet;
                        shrunk, and of long clips only some chunks
    """

    kind: Literal["image", "video"]
    width: int
    height: int
    resized: PixelSize
    padded: PixelSize
    n_patches: int
    n_tokens: int
    duration: float | None
    n_frames: int
    inputs: list[PreviewedInput]
    notes: list[str]
    preview: str
