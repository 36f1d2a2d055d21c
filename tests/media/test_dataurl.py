import base64
import random
from urllib.parse import quote

import pytest

from media.fetch.dataurl import looks_like_base64, read_data_url
from media.types import MediaError

DATA = bytes(range(256)) + b"\xfb\xff\xfe"
LIMIT = 10_000


def spellings(data: bytes) -> dict[str, str]:
    plain = base64.b64encode(data).decode()
    safe = base64.urlsafe_b64encode(data).decode()
    lines = "\r\n".join(plain[i : i + 76] for i in range(0, len(plain), 76))
    return {
        "usual": f"data:image/png;base64,{plain}",
        "no padding": f"data:image/png;base64,{plain.rstrip('=')}",
        "too much padding": f"data:image/png;base64,{plain}==",
        "URL-safe": f"data:image/png;base64,{safe}",
        "URL-safe, no padding": f"data:image/png;base64,{safe.rstrip('=')}",
        "line breaks": f"data:image/png;base64,{lines}\n",
        "blanks": f"data:image/png;base64, {' '.join(plain)} ",
        "percent-encoded": f"data:image/png;base64,{quote(plain, safe='')}",
        "no media type": f"data:;base64,{plain}",
        "nothing but base64": f"data:base64,{plain}",
        "parameters": f"data:image/png;charset=utf-8;name=a.png;base64,{plain}",
        "capitals": f"DATA:IMAGE/PNG;BASE64,{plain}",
        "blank before base64": f"data:image/png; base64,{plain}",
        "not base64": f"data:image/png,{quote(data)}",
        "blanks around it": f" \n data:image/png;base64,{plain}\n ",
    }


@pytest.mark.parametrize("name", spellings(DATA))
@pytest.mark.parametrize("length", [256, 257, 258, 259])
def test_every_spelling_gives_the_same_bytes(name: str, length: int) -> None:
    assert read_data_url(spellings(DATA[:length])[name], LIMIT) == DATA[:length]


@pytest.mark.parametrize(
    "url, words",
    [
        ("data:image/png;base64", "no comma"),
        ("data:image/png;base64,AAAAA", "cut off"),
        ("data:image/png;base64,AA*A", "not base64"),
        ("data:image/png;base64,AAAAé", "outside ASCII"),
        ("data:image/png;base64,AA=AAAAA", "not base64"),
    ],
)
def test_bad_base64_is_an_error_that_says_why(url: str, words: str) -> None:
    with pytest.raises(MediaError, match=words):
        read_data_url(url, LIMIT)


@pytest.mark.parametrize("name", spellings(DATA))
def test_a_url_that_is_read_in_parts_gives_the_same_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (4, 8, 12, 64):
        monkeypatch.setattr("media.fetch.dataurl._PART", part)
        for length in range(250, 259):
            assert read_data_url(spellings(DATA[:length])[name], LIMIT) == DATA[:length]


@pytest.mark.parametrize("tail", ["AA=AAAAA", "AA==AAAA", "AAAAA", "AA*A", "é"])
def test_what_is_bad_in_one_part_is_bad_in_several(tail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("media.fetch.dataurl._PART", 4)
    for before in range(0, 12, 4):
        with pytest.raises(MediaError):
            read_data_url("data:;base64," + "A" * before + tail, LIMIT)


def test_data_over_the_limit_are_refused() -> None:
    for url in ("data:;base64," + "A" * 20_000, "data:," + "a" * 10_001):
        with pytest.raises(MediaError, match="more than the limit of 10,000"):
            read_data_url(url, LIMIT)
    assert len(read_data_url("data:;base64," + base64.b64encode(bytes(LIMIT)).decode(), LIMIT)) == LIMIT


def test_mutated_data_urls_end_in_bytes_or_an_error() -> None:
    rng = random.Random(1)
    texts = list(spellings(DATA).values())
    for _ in range(3000):
        text = list(rng.choice(texts))
        for _ in range(rng.randrange(1, 6)):
            text[rng.randrange(5, len(text))] = rng.choice("=%-_ ,;\n\0é✓A")
        try:
            assert isinstance(read_data_url("".join(text), LIMIT), bytearray)
        except MediaError:
            pass


def test_bare_base64_is_recognised() -> None:
    assert looks_like_base64(base64.b64encode(DATA).decode())
    assert not looks_like_base64("https://example.org/averyveryveryverylongname.png")
