"""The chat format of Kimi K3, usable on its own: conversations in, token ids out, and back.

    vocab = Vocab.load("path/to/checkpoint")
    conversation = from_request({"messages": [{"role": "user", "content": "hi"}]})
    prompt = encode(conversation, vocab, cache=RenderCache())
    prompt.ids, prompt.n_hosted, prompt.sections

Nothing in here imports a web framework, an inference engine or a picture library.
"""

from gateway.xtml.conversation import (
    Conversation,
    ConversationError,
    MediaPart,
    Message,
    ResponseFormat,
    ToolCall,
    ToolChoice,
)
from gateway.xtml.encode import MediaSlot, Prompt, Section, encode, encode_assistant
from gateway.xtml.render_cache import RenderCache
from gateway.xtml.request import from_request
from gateway.xtml.vocab import Vocab, VocabError
from gateway.xtml.writer import MediaPrompt, MediaSpan

__all__ = [
    "Conversation",
    "ConversationError",
    "MediaPart",
    "MediaPrompt",
    "MediaSlot",
    "MediaSpan",
    "Message",
    "Prompt",
    "RenderCache",
    "ResponseFormat",
    "Section",
    "ToolCall",
    "ToolChoice",
    "Vocab",
    "VocabError",
    "encode",
    "encode_assistant",
    "from_request",
]
