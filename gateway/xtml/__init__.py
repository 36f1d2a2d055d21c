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
from gateway.xtml.decode import Decoder
from gateway.xtml.encode import MediaSlot, Prompt, Section, encode, encode_assistant
from gateway.xtml.events import (
    CallArguments,
    CallClosed,
    CallOpened,
    CallResult,
    Content,
    Event,
    Reasoning,
    ReasoningClosed,
    ReasoningWasContent,
    Reply,
    Unparsed,
    fold,
)
from gateway.xtml.grammar import Grammar, load_compiler, structural_tag
from gateway.xtml.ids import CallIds, opaque_call_id
from gateway.xtml.render_cache import RenderCache
from gateway.xtml.request import from_request
from gateway.xtml.vocab import Vocab, VocabError
from gateway.xtml.writer import MediaPrompt, MediaSpan

__all__ = [
    "CallArguments",
    "CallClosed",
    "CallIds",
    "CallOpened",
    "CallResult",
    "Content",
    "Conversation",
    "ConversationError",
    "Decoder",
    "Event",
    "Grammar",
    "MediaPart",
    "MediaPrompt",
    "MediaSlot",
    "MediaSpan",
    "Message",
    "Prompt",
    "Reasoning",
    "ReasoningClosed",
    "ReasoningWasContent",
    "RenderCache",
    "Reply",
    "ResponseFormat",
    "Section",
    "ToolCall",
    "ToolChoice",
    "Unparsed",
    "Vocab",
    "VocabError",
    "encode",
    "encode_assistant",
    "fold",
    "from_request",
    "load_compiler",
    "opaque_call_id",
    "structural_tag",
]
