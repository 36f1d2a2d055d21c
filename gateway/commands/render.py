"""`k3 render` and `k3 tokens`: look at the prompt of a chat request, or count it."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands.inputs import fail, mini_checkpoint, name_of, read_json
from gateway.generation.media_prompts import media_prompt, picture_span
from gateway.xtml import (
    ConversationError,
    MediaPart,
    MediaPrompt,
    Prompt,
    Vocab,
    VocabError,
    encode,
    from_request,
)
from media.config import K3_MEDIA_CONFIG, MediaConfig, MediaConfigError
from media.fetch import is_data_url, read_data_url
from media.types import MediaError

_MAX_MEDIA_BYTES = 1 << 30
_SIZE = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})")

RequestFile = Annotated[str, typer.Argument(help="A chat request as JSON; - is standard input.")]
TokenizerFolder = Annotated[
    Path | None,
    typer.Option(help="Folder with tiktoken.model and tokenizer_config.json; default: the mini checkpoint."),
]
AssumedSize = Annotated[
    str | None,
    typer.Option(
        metavar="WxH", help="Size of pictures that would have to be fetched: this reads data URLs only."
    ),
]


def register(app: typer.Typer) -> None:
    app.command("render")(render)
    app.command("tokens")(tokens)


def render(
    file: RequestFile,
    tokenizer: TokenizerFolder = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the token ids too, as a JSON array.")] = False,
    assume_image: AssumedSize = None,
) -> None:
    """Print the prompt of a chat request, its sections and its token counts.

    Control tokens are printed as they are spelled; the same spelling in text gets a backslash, <\\|close|>.
    """
    vocab, prompt = _prompt(file, tokenizer, assume_image)
    typer.echo(marked_text(prompt, vocab))
    typer.echo()
    for line in section_table(prompt):
        typer.echo(line)
    typer.echo()
    for line in _counts(prompt):
        typer.echo(line)
    if ids:
        typer.echo()
        typer.echo(json.dumps(prompt.ids))


def tokens(
    file: RequestFile,
    tokenizer: TokenizerFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    assume_image: AssumedSize = None,
) -> None:
    """Count the prompt of a chat request: as the hosted service does, and as the engine does."""
    _, prompt = _prompt(file, tokenizer, assume_image)
    if as_json:
        typer.echo(json.dumps({"prompt_tokens": prompt.n_hosted, "engine_tokens": len(prompt.ids)}))
    else:
        for line in _counts(prompt):
            typer.echo(line)


def marked_text(prompt: Prompt, vocab: Vocab) -> str:
    """The prompt with its control tokens spelled out.

    A spelling in text, which is not a control token, is broken by a backslash: `<\\|close|>`. A run of media
    pads is one pad and its number, `<|media_pad|>x391`.
    """
    spelling = re.compile("|".join(map(re.escape, vocab.special_ids)))
    shown: list[str] = []
    for name, group in groupby(prompt.ids, vocab.special_name):
        run = list(group)
        if name is None:
            shown.append(spelling.sub(lambda typed: f"{typed[0][0]}\\{typed[0][1:]}", vocab.decode(run)))
        elif run[0] == vocab.media_pad:
            shown.append(typer.style(f"{name}x{len(run)}", fg="cyan"))
        else:
            shown.append(typer.style(name, fg="cyan") * len(run))
    return "".join(shown)


def section_table(prompt: Prompt) -> list[str]:
    """One line a section: kind, the request's field, tokens, where they begin, digest."""
    rows = [("section", "field", "tokens", "start", "digest")]
    rows += [(s.kind, s.path or "-", str(s.end - s.start), str(s.start), s.digest) for s in prompt.sections]
    kind, path, n_tokens, start, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        f"{row[0]:<{kind}}  {row[1]:<{path}}  {row[2]:>{n_tokens}}  {row[3]:>{start}}  {row[4]}"
        for row in rows
    ]


def _counts(prompt: Prompt) -> list[str]:
    return [f"prompt_tokens  {prompt.n_hosted}", f"engine_tokens  {len(prompt.ids)}"]


def _prompt(file: str, tokenizer: Path | None, assume_image: str | None) -> tuple[Vocab, Prompt]:
    """Everything that both commands do; what goes wrong is one line on stderr and exit status 1."""
    try:
        request = _read_request(file)
        folder = tokenizer or mini_checkpoint()
        vocab = Vocab.load(folder)
        conversation = from_request(request)
        config = _media_config(folder)
        assumed = _assumed_size(assume_image)
        media = [_media_prompt(part, config, assumed) for part in conversation.media]
        return vocab, encode(conversation, vocab, media)
    except (ConversationError, VocabError, MediaConfigError) as error:
        fail(str(error))


def _read_request(file: str) -> dict[str, Any]:
    request = read_json(file)
    if not isinstance(request, dict):
        fail(f"{name_of(file)}: must hold a chat request, an object with `messages`")
    return request


def _media_config(folder: Path) -> MediaConfig:
    known = (folder / "preprocessor_config.json").exists()
    return MediaConfig.load(folder) if known else K3_MEDIA_CONFIG


def _assumed_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        fail(f"--assume-image must be width x height in pixels, such as 640x480; got {text!r}")
    return int(found[1]), int(found[2])


def _media_prompt(part: MediaPart, config: MediaConfig, assumed: tuple[int, int] | None) -> MediaPrompt:
    """The placeholders of a data URL's picture or clip, or of a picture of the assumed size."""
    from media.clip import prepare_clip
    from media.navit import target_size
    from media.picture import patch_limit_of, prepare_picture

    try:
        if not is_data_url(part.url):
            if part.kind == "video" or assumed is None:
                remedy = "" if part.kind == "video" else ", or give its size with --assume-image WxH"
                raise MediaError(f"only data URLs can be read here: nothing is fetched. Send one{remedy}.")
            limit = patch_limit_of(part.detail, config)
            size = target_size(*assumed, patch_limit=limit, side_limit=config.side_limit)
            return MediaPrompt((picture_span(*assumed, size.grid_h * size.grid_w // 4),), "")
        data = bytes(read_data_url(part.url, _MAX_MEDIA_BYTES))
        if part.kind == "video":
            return media_prompt(prepare_clip(data, config))
        return media_prompt(prepare_picture(data, config, part.detail))
    except MediaError as error:
        raise ConversationError(f"{part.param}: {error}", part.param) from None
