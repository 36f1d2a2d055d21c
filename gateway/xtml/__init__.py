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
from gateway.xtml.decode.call_ids import CallIds, opaque_call_id
from gateway.xtml.decode.decoder import Decoder
from gateway.xtml.decode.ending import Ending, Failure, FinishReason, failure_of
from gateway.xtml.decode.events import (
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
from gateway.xtml.decode.places import Channel
from gateway.xtml.encode.prompt import MediaSlot, Prompt, Section, encode, encode_assistant
from gateway.xtml.encode.render_cache import RenderCache
from gateway.xtml.encode.writer import MediaPrompt, MediaSpan
from gateway.xtml.grammar.structural_tag import Grammar, load_compiler, structural_tag
from gateway.xtml.reading import Reading
from gateway.xtml.request.chat import from_request
from gateway.xtml.request.messages import from_messages
from gateway.xtml.request.responses import from_responses
from gateway.xtml.request.responses_tools import CUSTOM_ARGUMENT, ToolOrigin
from gateway.xtml.request.results import settle_results
from gateway.xtml.request.tools import canonical_tool
from gateway.xtml.values import RawArguments, read_arguments
from gateway.xtml.vocabulary import RANK_FILE, TABLE_FILE, Vocab, VocabError

__all__ = [
    "CUSTOM_ARGUMENT",
    "RANK_FILE",
    "TABLE_FILE",
    "CallArguments",
    "CallClosed",
    "CallIds",
    "CallOpened",
    "CallResult",
    "Channel",
    "Content",
    "Conversation",
    "ConversationError",
    "Decoder",
    "Ending",
    "Event",
    "Failure",
    "FinishReason",
    "Grammar",
    "MediaPart",
    "MediaPrompt",
    "MediaSlot",
    "MediaSpan",
    "Message",
    "Prompt",
    "RawArguments",
    "Reading",
    "Reasoning",
    "ReasoningClosed",
    "ReasoningWasContent",
    "RenderCache",
    "Reply",
    "ResponseFormat",
    "Section",
    "ToolCall",
    "ToolChoice",
    "ToolOrigin",
    "Unparsed",
    "Vocab",
    "VocabError",
    "canonical_tool",
    "encode",
    "encode_assistant",
    "failure_of",
    "fold",
    "from_messages",
    "from_request",
    "from_responses",
    "load_compiler",
    "opaque_call_id",
    "read_arguments",
    "settle_results",
    "structural_tag",
]
