"""The FastAPI app. Its lifespan starts the engine in the background: HTTP answers before the model does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware

from gateway.api import chat, engine, health, media, messages, models, prefixes, responses, tokenize, tokens
from gateway.api.disconnect import end_tasks
from gateway.api.envelope import Envelope
from gateway.api.errors import install_handlers, unforeseen
from gateway.api.notes import REPLY_HEADERS
from gateway.api.openapi import describe
from gateway.api.origin import guard_origins
from gateway.service import Service


def build_app(service: Service) -> FastAPI:
    """The app that serves `service`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(service.run_engine(), name="engine")
        try:
            yield
        finally:
            await end_tasks(running)
            await service.renderer.media.aclose()

    app = FastAPI(
        title="k3-gateway",
        description="Kimi K3 behind OpenAI's chat API.",
        lifespan=lifespan,
        root_path=service.settings.root_path,
    )
    app.state.service = service
    install_handlers(app)
    guard_origins(app, service)
    # Starlette's own answer to unforeseen errors would pass the CORS headers and the request's id by.
    app.add_middleware(ServerErrorMiddleware, handler=unforeseen)
    if origins := service.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=REPLY_HEADERS,
        )
    app.add_middleware(Envelope)
    for module in (chat, responses, messages, tokens, tokenize, prefixes, media, models, engine, health):
        app.include_router(module.router)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app
