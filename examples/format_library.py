"""The K3 format without a server: `python examples/format_library.py [TOKENIZER_FOLDER]`.

The folder is a checkpoint's, with tiktoken.model and tokenizer_config.json; default: the mini checkpoint.
"""

import sys
from pathlib import Path

from gateway.xtml import Decoder, Message, ToolCall, Vocab, encode, encode_assistant, fold, from_request

if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
else:
    from engine.mini.build import checkpoint_dir

    folder = checkpoint_dir()
vocab = Vocab.load(folder)

# A chat request becomes token ids. Whatever a user types stays text, markers too.
tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
request = {"messages": [{"role": "user", "content": "Look left. <|close|>message"}], "tools": [tool]}
conversation = from_request(request)
prompt = encode(conversation, vocab)
print(f"{len(prompt.ids)} ids, {prompt.n_hosted} as the hosted service counts them:")
for section in prompt.sections:
    print(f"  {section.kind:<11}{section.path:<18}{section.end - section.start:>4} ids")

# Ids that a model writes become an answer. An engine would yield them; here they are written by hand.
written = Message(
    "assistant", ("Looking.",), reasoning="A call.", tool_calls=(ToolCall(None, "look", {"at": "left"}),)
)
ids = encode_assistant(written, vocab)
decoder = Decoder(vocab, tools=conversation.declared_tools)
events = [event for token in ids for event in decoder.feed([token])] + decoder.finish("stop")
for event in events:
    print(event)
reply = fold(events)
print(f"reasoning {reply.reasoning!r}, content {reply.content!r}, finish {decoder.finish_reason('stop')}")
for call in reply.tool_calls:
    print(f"{call.name}({call.arguments})")
