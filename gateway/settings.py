"""Every setting of the service, from flags, `K3_*` environment variables, secret files and a TOML file, in
that order."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

MEBIBYTE = 1024 * 1024
SECRETS_FOLDER = "/run/secrets"

# K3_* variables that are not settings: of this module, of other parts, and of docker-compose.yml.
_OTHER_VARIABLES = frozenset(
    {
        "K3_CONFIG",
        "K3_SECRETS_FOLDER",
        "K3_PATCHES",
        "K3_CACHE",
        "K3_LOADING_FOLDER",
        "K3_SHARED",
        "K3_MODELS",
        "K3_PUBLISH",
        "K3_API_KEYS_FILE",
    }
)


class SettingsError(ValueError):
    """A setting is wrong; the message names it and where it may be set."""


class ModelAlias(BaseModel):
    """What a request under an alias gets, whatever it says itself; None leaves it to the request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effort: Literal["low", "high", "max"] | None = None
    thinking: bool | None = None


class Settings(BaseSettings):
    """One attribute a setting; `docs/reference/settings.md` is made from the descriptions."""

    # Text is decoded by the validators below, whose errors name the setting.
    model_config = SettingsConfigDict(
        env_prefix="K3_", extra="forbid", env_ignore_empty=True, enable_decoding=False
    )

    model: str | None = Field(
        None, description="Checkpoint folder or Hugging Face name; the embedded mini checkpoint if unset."
    )
    profile: str = Field("cpu-mini", description="Launch profile, see `k3 profiles`.")
    engine_args: dict[str, Any] = Field(
        default_factory=dict, description="Engine arguments that override the profile's (JSON object)."
    )
    served_model_name: list[str] = Field(
        ["kimi-k3"], description="Names that clients may ask for; the first is the one that replies carry."
    )
    model_aliases: dict[str, ModelAlias] = Field(
        default_factory=dict,
        description="Other names that clients may ask for (JSON object): patterns such as `gpt-*`, each with "
        "what it sets, `{}` or `effort` (low, high, max) and `thinking` (true, false). The first pattern "
        "that matches counts; replies carry the name that was asked for.",
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    root_path: str = Field("", description="Path prefix under which a proxy serves this service.")
    api_keys: list[SecretStr] = Field(
        [],
        description="Bearer keys that are accepted (JSON list, or one a line). Without any the service only "
        "listens on this machine and answers to its names.",
    )
    allow_anonymous: bool = Field(
        False,
        description="Without API keys, listen on any address and answer under any name: everybody who "
        "reaches the port may use the service.",
    )
    cors_origins: list[str] = Field(
        [],
        description="Origins whose pages may call this API from a browser, `*` for all; none if empty.",
    )
    max_body_bytes: int = Field(
        256 * MEBIBYTE, ge=1024, description="Largest request body in bytes; beyond it 413."
    )
    max_messages: int = Field(
        10_000, ge=1, description="Most messages (or items of `input`) in a request; beyond it 400."
    )
    max_parts: int = Field(
        10_000,
        ge=1,
        description="Most parts of content and tool calls in a request, in all messages; beyond it 400.",
    )
    max_tools: int = Field(
        1024, ge=1, description="Most tools in a request, over all its declarations; beyond it 400."
    )
    max_concurrent_requests: int = Field(
        256, ge=1, description="Chat requests in progress at once; beyond it 429 with Retry-After."
    )
    keep_alive_seconds: float = Field(
        10.0, gt=0, description="A stream that has nothing to say sends a comment this often."
    )
    unknown_fields: Literal["ignore", "refuse"] = Field(
        "ignore", description="Request fields nobody knows: named in the header k3-ignored, or 400."
    )

    hosted_tools: Literal["ignore", "refuse"] = Field(
        "ignore",
        description="Tools that a hosted service runs itself, such as web search: left out and named in the "
        "header k3-ignored, or 400.",
    )
    strict_history: bool = Field(
        False,
        description="Refuse histories with a call that has no result, or a result that has no call; "
        "otherwise they are named in the header k3-history.",
    )

    prompt_tokens: Literal["hosted", "engine"] = Field(
        "hosted",
        description="Count usage.prompt_tokens as Moonshot's API does (without the opener of the reply's "
        "first channel) or as the engine does.",
    )
    sampling_policy: Literal["free", "clamp", "strict"] = Field(
        "free",
        description="Sampling values K3 was not tuned for: taken as they are, replaced by the recommended "
        "ones, or refused with 400 as Moonshot's API does.",
    )
    reasoning_field: Literal["reasoning_content", "both"] = Field(
        "reasoning_content", description="Name of the thinking text in replies; `both` adds `reasoning`."
    )
    faulty_calls: Literal["pass", "hide"] = Field(
        "pass",
        description="A call of an undeclared tool or with broken arguments, where it is all that the reply "
        "has: passed on, so that the agent answers it and the model corrects itself, or hidden, which makes "
        "the reply an error.",
    )
    tool_call_ids: Literal["opaque", "positional"] = Field(
        "opaque", description="Tool-call ids: `call_` and 24 characters, or `{name}_{n}`."
    )

    media_allowed_hosts: list[str] = Field(
        [], description="Hosts, host:port pairs or CIDR ranges that may be fetched from though not public."
    )
    media_file_roots: list[Path] = Field(
        [], description="Folders that file:// URLs may point into; none if empty."
    )
    media_cache_bytes: int = Field(
        1024 * MEBIBYTE, ge=0, description="Memory for prepared pictures and clips, in bytes."
    )
    media_cache_folder: Path | None = Field(
        None, description="Folder that keeps prepared pictures and clips over restarts; none if unset."
    )
    render_cache_bytes: int = Field(
        256 * MEBIBYTE, ge=0, description="Memory for token ids of prompt sections seen before, in bytes."
    )
    sort_tools: bool = Field(
        False,
        description="Declare tools in the order of their names, for clients that shuffle them.",
    )
    volatile_lines: list[str] = Field(
        [],
        description="Regular expressions (JSON list); lines of the system prompt that begin with a match "
        "go to the prompt's end.",
    )
    history_repair: Literal["off", "tools", "always"] = Field(
        "off",
        description="Restore reasoning that a client dropped from its history: never, in conversations with "
        "tools, or always.",
    )
    history_bytes: int = Field(
        256 * MEBIBYTE, ge=0, description="Memory for reasoning that may be restored, in bytes."
    )
    history_ttl_seconds: float = Field(
        3600.0, gt=0, description="Reasoning that was not asked for this long is forgotten."
    )
    cache_isolation: Literal["none", "tenant"] = Field(
        "none",
        description="Give each API key (or `user`, where there are no keys) a part of the prefix cache of "
        "its own, so that nobody can time another's prompts.",
    )
    prefix_sections: int = Field(
        65536, ge=16, description="Prompt sections whose digests are kept to explain and to route."
    )
    prefix_files: list[Path] = Field(
        [], description="JSON files with prefixes to pin at the start (docs/concepts/prefixes.md)."
    )
    prefix_folder: Path | None = Field(
        None, description="Folder that keeps pins made over HTTP over restarts; none if unset."
    )
    pin_budget_tokens: int | None = Field(
        None, ge=0, description="Tokens that all pins may take; a quarter of the cache if unset."
    )
    pin_check_seconds: float = Field(
        60.0, gt=0, description="A pinned prefix is used at least this often, so that the cache keeps it."
    )
    response_store_bytes: int = Field(
        64 * MEBIBYTE,
        ge=0,
        description="Memory for stored responses, in bytes, a quarter of it per tenant; 0 stores none.",
    )
    response_ttl_seconds: float = Field(
        1800.0, gt=0, description="A stored response that was not used for this long is forgotten."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe messages logged: debug, info, warning or error."
    )
    log_requests: bool = Field(
        True,
        description="Log a line for each request, its path and status; successful probes are left out.",
    )

    @field_validator(
        "served_model_name",
        "cors_origins",
        "media_allowed_hosts",
        "media_file_roots",
        "prefix_files",
        mode="before",
    )
    @classmethod
    def _list_by_comma(cls, value: object) -> object:
        """Accept `a,b` beside a list, since an environment variable is text."""
        if not isinstance(value, str):
            return value
        return _from_json(value) if value.lstrip().startswith("[") else _split(value, r",")

    @field_validator("api_keys", mode="before")
    @classmethod
    def _keys_by_line(cls, value: object) -> object:
        """Accept one key a line beside a JSON list, since a secret is mostly a file of text."""
        if not isinstance(value, str):
            return value
        return _from_json(value) if value.lstrip().startswith("[") else _split(value, r"[\s,]")

    @field_validator("volatile_lines", mode="before")
    @classmethod
    def _list_from_json(cls, value: object) -> object:
        """Only JSON, since commas and line ends mean something in a regular expression."""
        return _from_json(value) if isinstance(value, str) else value

    @field_validator("model_aliases", mode="before")
    @classmethod
    def _aliases_from_json(cls, value: object) -> object:
        return _from_json(value, 'object, such as {"gpt-*": {}}') if isinstance(value, str) else value

    @field_validator("engine_args", mode="before")
    @classmethod
    def _object_from_json(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = _from_json(value, 'object, such as {"max_model_len": 8192}')
        if not isinstance(found, dict):
            raise ValueError('must be a JSON object, such as {"max_model_len": 8192}')
        return found

    @field_validator("served_model_name")
    @classmethod
    def _at_least_one(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("at least one name is needed")
        return value

    @field_validator("host")
    @classmethod
    def _host_name(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("an address is needed: 127.0.0.1 for this machine alone, 0.0.0.0 for all")
        try:
            value.encode("idna")
        except UnicodeError:
            raise ValueError(f"{value[:100]!r} is neither a host name nor an address") from None
        if "\0" in value:
            raise ValueError(f"{value[:100]!r} is neither a host name nor an address")
        return value

    @field_validator("volatile_lines")
    @classmethod
    def _patterns(cls, value: list[str]) -> list[str]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        folder = os.environ.get("K3_SECRETS_FOLDER", SECRETS_FOLDER)
        if Path(folder).is_dir():
            sources += (SecretsSettingsSource(settings_cls, secrets_dir=folder),)
        if path := os.environ.get("K3_CONFIG"):
            sources += (TomlConfigSettingsSource(settings_cls, toml_file=path),)
        return sources


def load_settings(**flags: Any) -> Settings:
    """Settings from flags (None means not given), environment and the TOML file named by K3_CONFIG.

    Raises:
        SettingsError: a value is wrong, the file is missing or not TOML, or a secret file is not text.
    """
    path = os.environ.get("K3_CONFIG")
    if path:
        _check_file(Path(path))
    _check_secrets(Path(os.environ.get("K3_SECRETS_FOLDER", SECRETS_FOLDER)))
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        if first["type"] == "extra_forbidden":  # only the file can hold what is not a setting
            nearest = _nearest(name, Settings.model_fields)
            raise SettingsError(f"{path}: there is no setting {name!r}{nearest}") from None
        message = first["msg"].removeprefix("Value error, ")
        flag = f"--{name.replace('_', '-')}, " if name in flags else ""
        raise SettingsError(
            f"setting {name}: {message} (set by {flag}K3_{name.upper()} or {name} in the file "
            "K3_CONFIG names)"
        ) from None


def unknown_variables() -> list[str]:
    """A line for each `K3_*` environment variable that nothing reads, with the setting it resembles."""
    known = _OTHER_VARIABLES | {f"K3_{name.upper()}" for name in Settings.model_fields}
    return [
        f"the environment variable {name} is not a setting and has no effect" + _nearest(name, known)
        for name in sorted(os.environ)
        if name.startswith("K3_") and name not in known
    ]


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return (f"; did you mean {found[0]}?" if found else "") + " (docs/reference/settings.md lists them)"


def _from_json(text: str, wanted: str = 'list, such as ["a", "b"]') -> Any:
    """Raises ValueError; the text is not quoted, for it may be a secret."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"this is not valid JSON; write a JSON {wanted}") from None


def _split(text: str, separator: str) -> list[str]:
    return [part.strip() for part in re.split(separator, text) if part.strip()]


def _check_secrets(folder: Path) -> None:
    names = {f"k3_{name}" for name in Settings.model_fields}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.lower() in names and path.is_file():
            try:
                path.read_text()
            except (OSError, ValueError) as error:
                raise SettingsError(f"the secret file {path} is not readable UTF-8 text ({error})") from None


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise SettingsError(f"K3_CONFIG names {path}, which is not a file")
    try:
        tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"K3_CONFIG: {path} is not readable TOML ({error})") from None
