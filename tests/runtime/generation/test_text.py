from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from runtime.generation.text import Detokenizer, StopFilter

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:stop] for start, stop in pairwise(borders)]


@given(texts, st.lists(st.integers(0, 500)))
def test_any_text_cut_anywhere_comes_out_whole(text: str, places: list[int]) -> None:
    detokenizer = Detokenizer()
    pieces = [detokenizer.push(token) for token in cut(text.encode(), places)]
    assert "".join(pieces) + detokenizer.finish() == text


@given(st.lists(st.binary(max_size=6)))
def test_no_bytes_at_all_make_a_broken_character(tokens: list[bytes]) -> None:
    detokenizer = Detokenizer()
    pieces = [detokenizer.push(token) for token in tokens] + [detokenizer.finish()]
    for piece in pieces:
        piece.encode("utf-8")
    assert "".join(pieces) == b"".join(tokens).decode("utf-8", "ignore")


def test_a_character_waits_until_it_is_whole() -> None:
    detokenizer = Detokenizer()
    assert [detokenizer.push(bytes([byte])) for byte in "é€".encode()] == ["", "é", "", "", "€"]


def run(pieces: list[str], stop: list[str]) -> tuple[str, bool]:
    stopping = StopFilter(stop)
    shown = "".join(stopping.push(piece) for piece in pieces)
    return shown + stopping.finish(), stopping.stopped


small = st.text(alphabet="ab", max_size=12)


@given(st.lists(small, max_size=8), st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3))
def test_a_text_ends_before_its_first_stop_string_wherever_it_is_cut(pieces: list[str], stop: list[str]) -> None:
    whole = "".join(pieces)
    found = [whole.index(one) for one in stop if one in whole]
    shown, stopped = run(pieces, stop)
    assert stopped == bool(found)
    if not found:
        assert shown == whole
        return
    # Cut into single characters, the first stop string that is complete ends the text.
    complete = min(whole.index(one) + len(one) for one in stop if one in whole)
    by_character, _ = run(list(whole), stop)
    assert by_character == whole[: min(p for one in stop if (p := whole[:complete].find(one)) >= 0)]
    assert whole.startswith(shown)
    assert all(one not in shown for one in stop)


def test_what_may_become_a_stop_string_is_held_back() -> None:
    stopping = StopFilter(["END"])
    assert stopping.push("the E") == "the "
    assert stopping.push("N") == ""
    assert stopping.push("T") == "ENT"
    assert stopping.push("EN") == ""
    assert stopping.push("D and more") == ""
    assert stopping.stopped
    assert stopping.finish() == ""
