"""A cached prompt is the prompt, costs only what is new, and memory stays bounded."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gateway.xtml import Conversation, MediaPart, MediaPrompt, MediaSpan, Message, RenderCache, Vocab, encode
from gateway.xtml.encode.render_cache import RenderedSection

SHOT = MediaPart("image", "x")
CONVERSATION = Conversation(
    (
        Message("system", ("be brief",)),
        Message("user", ("see ", SHOT, " and ", SHOT)),
        Message("assistant", ("a",), reasoning="r"),
        Message("user", ("see ", SHOT)),
    ),
    tools=({"type": "function", "function": {"name": "f"}},),
)


def shots(*sizes: int) -> list[MediaPrompt]:
    return [MediaPrompt((MediaSpan("", f"image {n}x1", n),), f"picture {n}") for n in sizes]


def test_prompt_from_the_cache_is_the_same_prompt(small_vocab: Vocab) -> None:
    cache = RenderCache()
    cold = encode(CONVERSATION, small_vocab, shots(3, 1, 2), cache)
    assert (cache.hits, cache.misses) == (0, len(cold.sections))
    warm = encode(CONVERSATION, small_vocab, shots(3, 1, 2), cache)
    assert (cache.hits, cache.misses) == (len(cold.sections), len(cold.sections))
    assert warm == cold == encode(CONVERSATION, small_vocab, shots(3, 1, 2))


def test_next_turn_renders_only_what_is_new(small_vocab: Vocab) -> None:
    cache = RenderCache()
    encode(CONVERSATION, small_vocab, shots(3, 1, 2), cache)
    misses = cache.misses
    new = (Message("assistant", ("b",)), Message("user", ("c",)))
    longer = replace(CONVERSATION, messages=CONVERSATION.messages + new)
    prompt = encode(longer, small_vocab, shots(3, 1, 2), cache)
    assert cache.misses == misses + 2
    assert prompt == encode(longer, small_vocab, shots(3, 1, 2))


def test_a_message_moved_to_another_place_is_found_again(small_vocab: Vocab) -> None:
    """Also its pictures, which then have other numbers."""
    cache = RenderCache()
    encode(CONVERSATION, small_vocab, shots(3, 1, 2), cache)
    misses = cache.misses
    turned = replace(CONVERSATION, messages=CONVERSATION.messages[::-1])
    prompt = encode(turned, small_vocab, shots(2, 3, 1), cache)
    assert cache.misses == misses
    assert prompt == encode(turned, small_vocab, shots(2, 3, 1))


@pytest.mark.parametrize(
    "other",
    [
        replace(CONVERSATION, thinking=False, effort=None),
        replace(CONVERSATION, effort="low"),
        replace(CONVERSATION, tools=({"type": "function", "function": {"name": "g"}},)),
        replace(CONVERSATION, messages=(Message("user", ("be brief",)), *CONVERSATION.messages[1:])),
        replace(
            CONVERSATION, messages=(Message("system", ("be brief",), name="n"), *CONVERSATION.messages[1:])
        ),
    ],
)
def test_a_different_conversation_is_not_mistaken(small_vocab: Vocab, other: Conversation) -> None:
    cache = RenderCache()
    encode(CONVERSATION, small_vocab, shots(3, 1, 2), cache)
    assert encode(other, small_vocab, shots(3, 1, 2), cache) == encode(other, small_vocab, shots(3, 1, 2))


def test_vocabularies_do_not_share_sections(small_vocab: Vocab, real_vocab: Vocab) -> None:
    cache = RenderCache()
    encode(CONVERSATION, small_vocab, shots(3, 1, 2), cache)
    other = encode(CONVERSATION, real_vocab, shots(3, 1, 2), cache)
    assert other.ids == encode(CONVERSATION, real_vocab, shots(3, 1, 2)).ids


def section(n_tokens: int) -> RenderedSection:
    return RenderedSection((7,) * n_tokens, ())


def test_memory_is_bounded_and_the_oldest_unused_section_goes_first() -> None:
    cache = RenderCache(max_bytes=3 * section(1000).n_bytes)
    for name in "abc":
        cache.put(name, section(1000))
    assert cache.get("a") is not None
    cache.put("d", section(1000))
    assert cache.get("b") is None
    assert all(cache.get(name) for name in "acd")
    for number in range(1000):
        cache.put(f"more {number}", section(number))
        assert cache.n_bytes <= cache.max_bytes
    cache.put("huge", section(10_000))
    assert cache.get("huge") is None and len(cache) > 0


def test_putting_a_section_again_counts_it_once() -> None:
    cache = RenderCache()
    cache.put("a", section(10))
    cache.put("a", section(10))
    assert (len(cache), cache.n_bytes) == (1, section(10).n_bytes)


def test_threads_may_share_a_cache(small_vocab: Vocab) -> None:
    cache = RenderCache(max_bytes=20_000)  # far too small, so that sections come and go

    def turn(number: int) -> bool:
        messages = tuple(Message("user", (f"{i % 37} " * 50,)) for i in range(number, number + 20))
        conversation = Conversation(messages)
        return encode(conversation, small_vocab, cache=cache) == encode(conversation, small_vocab)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(turn, range(40)))
    assert cache.n_bytes <= cache.max_bytes
    assert cache.n_bytes == sum(s.n_bytes for s in cache._sections.values())
