"""Puts the service together from its settings: vocabulary, media, engine."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Callable
from pathlib import Path

from engine.client import Engine
from engine.errors import EngineStartError
from engine.profiles import get_profile
from gateway.service import Report, ServedEngine, Service
from gateway.settings import Settings
from gateway.xtml import Vocab, VocabError, load_compiler
from media.config import MediaConfig
from media.fetch import Fetcher, FetchPolicy
from media.limits import ClipLimits, MediaLimits
from media.store import MediaLibrary

log = logging.getLogger(__name__)


def build_service(settings: Settings, folder: Path, on_failure: Callable[[Exception], None]) -> Service:
    """The service for the checkpoint whose small files are in `folder`; its engine is not started yet.

    Raises:
        EngineStartError: unknown profile, or the checkpoint's tokenizer cannot be read.
    """
    profile = get_profile(settings.profile)
    arguments = profile.merged(settings.engine_args)
    log.info("profile %s, engine arguments %s", profile.name, json.dumps(arguments, default=str))
    try:
        vocab = Vocab.load(folder)
    except VocabError as error:
        raise EngineStartError(str(error), "Download the checkpoint's tokenizer files again") from None

    async def start(report: Report) -> ServedEngine:
        # The mini checkpoint has no name on the Hub; all others are the engine's to find.
        model = settings.model or folder
        engine = await Engine.start(profile, model, settings.engine_args, report)
        await asyncio.to_thread(load_compiler)
        spare_the_collector()
        return engine

    context = arguments.get("max_model_len")
    media = media_library(settings, folder, context)
    return Service(settings, folder, vocab, media, start, on_failure)


def spare_the_collector() -> None:
    """Keep what lives as long as the process (vLLM, torch, the vocabulary: millions of objects) out of
    garbage collections, which otherwise cost more than all else that a token takes (docs/benchmarks.md)."""
    gc.collect()
    gc.freeze()


def media_library(settings: Settings, folder: Path, context: int | None = None) -> MediaLibrary:
    """Pictures and clips as the checkpoint in `folder` wants them, within the settings' limits.

    A clip that alone would fill `context` tokens is refused before it is decoded.
    """
    policy = FetchPolicy(
        allow=tuple(settings.media_allowed_hosts), file_roots=tuple(settings.media_file_roots)
    )
    limits = MediaLimits(
        cache_bytes=settings.media_cache_bytes,
        cache_folder=settings.media_cache_folder,
        clip=ClipLimits(max_tokens=context),
    )
    return MediaLibrary(MediaConfig.load(folder), Fetcher(policy), limits)
