import pytest

from gateway.prefix.routing import Router, held_tokens
from gateway.prefix.sections import Match, SectionTree, Written
from gateway.xtml import Vocab
from tests.prefix.prompts import assistant, system, user, written

SHARED = system("shared " * 50)


@pytest.fixture
def tree() -> SectionTree:
    return SectionTree()


def sent(tree: SectionTree, prompt: Written, rank: int) -> Match:
    match = tree.match("", prompt)
    tree.add("", prompt, match, 0, rank)
    return match


def test_a_conversation_stays_where_it_began(vocab: Vocab, tree: SectionTree) -> None:
    router = Router(4)
    sent(tree, written(vocab, SHARED, user("a")), 2)
    later = written(vocab, SHARED, user("a"), assistant("b", "t"), user("c"))
    assert router.choose(tree.match("", later)) == 2


def test_the_longest_prefix_wins_over_a_shorter_one(vocab: Vocab, tree: SectionTree) -> None:
    router = Router(4)
    sent(tree, written(vocab, SHARED, user("other")), 1)
    sent(tree, written(vocab, SHARED, user("a")), 3)
    match = tree.match("", written(vocab, SHARED, user("a"), assistant("b"), user("c")))
    held = held_tokens(match, 4)
    assert held[3] > held[1] > held[0] == held[2] == 0
    assert router.choose(match) == 3


def test_an_overloaded_rank_is_passed_over_and_taken_again_later(vocab: Vocab, tree: SectionTree) -> None:
    router = Router(2, overload=3)
    sent(tree, written(vocab, SHARED, user("a")), 1)
    match = tree.match("", written(vocab, SHARED, user("a"), user("b")))
    with router.load(1), router.load(1):
        assert router.choose(match) == 1
        with router.load(1):
            assert router.choose(match) == 0
    assert router.choose(match) == 1


def test_new_conversations_are_spread_by_load(vocab: Vocab, tree: SectionTree) -> None:
    router = Router(3)
    match = tree.match("", written(vocab, user("new")))
    with router.load(0):
        assert router.choose(match) == 1
        with router.load(1):
            assert router.choose(match) == 2


def test_a_beginning_shorter_than_the_cache_unit_draws_nothing(vocab: Vocab, tree: SectionTree) -> None:
    """Every prompt begins with the same few tokens (the effort), which no cache can give back."""
    router = Router(2, unit=128)
    sent(tree, written(vocab, user("one")), 0)
    match = tree.match("", written(vocab, user("two")))
    assert held_tokens(match, 2)[0] < 128
    with router.load(0):
        assert router.choose(match) == 1


def test_a_cache_key_keeps_prompts_together_that_share_nothing_yet(vocab: Vocab, tree: SectionTree) -> None:
    router = Router(4)
    with router.load(0), router.load(1):
        first = router.choose(tree.match("", written(vocab, user("x"))), "session-7")
    assert first == 2
    assert router.choose(tree.match("", written(vocab, user("y"))), "session-7") == first


def test_a_cache_key_does_not_outweigh_a_prefix(vocab: Vocab, tree: SectionTree) -> None:
    router = Router(2)
    assert router.choose(tree.match("", written(vocab, user("x"))), "key") == 0
    sent(tree, written(vocab, SHARED, user("a")), 1)
    assert router.choose(tree.match("", written(vocab, SHARED, user("a"), user("b"))), "key") == 1


def test_the_table_of_keys_is_bounded(vocab: Vocab, tree: SectionTree) -> None:
    router = Router(2, max_keys=10)
    match = tree.match("", written(vocab, user("x")))
    for number in range(100):
        router.choose(match, f"key-{number}")
    assert len(router._rank_of_key) == 10


def test_a_cleared_rank_holds_nothing(vocab: Vocab, tree: SectionTree) -> None:
    prompt = written(vocab, SHARED, user("a"))
    sent(tree, prompt, 1)
    tree.forget_rank(1)
    assert held_tokens(tree.match("", prompt), 2) == [0, 0]
