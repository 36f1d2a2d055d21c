"""`POST /v1/media/preview`: what the model would see of a picture or clip, for front ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from gateway.api.body import read_body, read_json
from gateway.api.deps import Admitted, Authorised
from gateway.api.disconnect import unless_disconnected
from gateway.api.openapi import bodies_of, error_responses
from gateway.errors import bad_request, decoders_lost, errors_of, from_validation
from gateway.media_preview import preview_of
from gateway.schema.media import MediaPreview, PreviewOptions, PreviewRequest, PreviewUpload
from gateway.service import Service
from media.preview import is_clip
from media.process import WorkerError
from media.types import Clip, FileBytes, MediaError, Picture

router = APIRouter(tags=["media"])
log = logging.getLogger(__name__)

_MULTIPART = "multipart/form-data"
_FORM_PIECE = 256 * 1024


@router.post(
    "/v1/media/preview",
    response_model=MediaPreview,
    openapi_extra=bodies_of({"application/json": PreviewRequest, _MULTIPART: PreviewUpload}),
    responses=error_responses(400, 401, 413, 415, 429, 503),
    summary="Show what the model sees of a picture or clip",
)
async def preview(request: Request, caller: Authorised, place: Admitted) -> Any:
    """Show what the model sees of a picture or clip: sizes, tokens, prompt text, and a picture of it.

    Takes JSON with a `url`, or a form with the file itself in the field `file`. Needs no engine.
    """
    service = caller.service
    limit = service.settings.max_body_bytes
    if request.headers.get("content-type", "").lower().startswith(_MULTIPART):
        param = "file"
        options, data = await _form(request.headers, await read_body(request, limit))
    else:
        param = "url"
        options, data = await read_json(request, PreviewRequest, limit), None
    salt = caller.tenant().salt or ""
    return await unless_disconnected(request, _preview(service, options, data, param, salt))


async def _preview(
    service: Service, options: PreviewOptions, data: FileBytes | None, param: str, salt: str
) -> JSONResponse:
    """Raises InvalidRequest that names `param`, Unavailable."""
    library = service.renderer.media
    try:
        if data is None:
            assert isinstance(options, PreviewRequest)
            data = await library.fetch(options.url, options.kind or "video")
        kind = options.kind or ("video" if await asyncio.to_thread(is_clip, data) else "image")
        media: Picture | Clip
        if kind == "video":
            media = await library.clip_of(data, salt)
        else:
            media = await library.picture_of(data, options.detail, salt)
    except MediaError as error:
        raise bad_request(f"{param}: {error}", param) from None
    except WorkerError as error:
        log.error("a preview could not be made: %s", error)
        raise decoders_lost(param) from error
    # Not through the response model: the reply is ours, and checking thousands of chunks takes its time.
    return JSONResponse(await asyncio.to_thread(preview_of, media, library.config, options.detail))


async def _form(headers: Headers, body: bytearray) -> tuple[PreviewOptions, bytes]:
    """The options and the file of a multipart form. Raises InvalidRequest that names the field."""

    async def stream() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), _FORM_PIECE):
            yield bytes(body[start : start + _FORM_PIECE])
            await asyncio.sleep(0)  # others' requests go on in between

    try:
        parser = MultiPartParser(headers, stream(), max_files=1, max_fields=len(PreviewOptions.model_fields))
        form = await parser.parse()
    except (MultiPartException, FormParserError, KeyError, UnicodeError, ValueError) as error:
        words = error.message if isinstance(error, MultiPartException) else "it cannot be parsed"
        raise bad_request(f"The body is not a valid form: {words}") from None
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise bad_request("file: the form has no file of this name", "file")
        data = await file.read()
    finally:
        await form.close()
    fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    try:
        return PreviewOptions.model_validate(fields), data
    except ValidationError as invalid:
        raise from_validation(errors_of(invalid)) from None
