"""Text as it is said."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.speech.phonemes import EnglishPhonemes
from runtime.speech.sentences import pieces
from runtime.speech.spoken import spoken


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Hello there.", "Hello there."),
        ("AT&T", "AT and T"),
        ("see https://www.example.org/a?b=c now", "see example dot org now"),
        ("write to me.too@example.org", "write to me.too at example dot org"),
        ("5°C or 41 °F", "5 degrees Celsius or 41 degrees Fahrenheit"),
        ("it is -5 outside", "it is minus 5 outside"),
        ("well-known", "well-known"),
        ("1/2 cup", "one half cup"),
        ("½ cup", "one half cup"),
        ("3/8 inch", "3 over 8 inch"),
        ("12/05/2024", "12/05/2024"),
        ("the 1990s and 80s", "the 19 nineties and eighties"),
        ("10km at 30 fps", "10 kilometers at 30 frames per second"),
        ("CO2", "CO 2"),
        ("the 3rd of 4", "the 3rd of 4"),
        ("**bold** and `code`", "bold and code"),
        ("naïve café Ångström", "naive cafe Angstrom"),
        ("“quoted” – isn’t it…", '"quoted" , isn\'t it...'),
        ("x² + y² = z²", "x 2 plus y 2 equals z 2"),
        ("ﬁne", "fine"),
        ("1,234,567 of 1,2,3,40", "1,234,567 of 1, 2, 3, 40"),
        ("9" * 18, "9" * 18),
        ("1" * 19, " ".join("1" * 19)),
        ("1,111,111,111,111,111,111", " ".join("1" * 19)),
        ("", ""),
        ("привет", "привет"),
    ],
)
def test_what_is_written_is_said(written: str, expected: str) -> None:
    assert spoken(written) == expected


@given(st.text(max_size=80))
def test_any_text_becomes_one_line(text: str) -> None:
    assert "\n" not in spoken(text)


@pytest.fixture(scope="module")
def english() -> EnglishPhonemes:
    return EnglishPhonemes()


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        # Standard dictionary pronunciations in Kokoro's letters: A I O W Y are the diphthongs, ʤ ʧ single signs.
        ("Hello, church!", "hɛlˈO, ʧˈɜɹʧ!"),
        ("A boy rides home now.", "ə bˈY ɹˈIdz hˈOm nˈW."),
        ("Judge the better teacher.", "ʤˈʌʤ ðə bˈɛtəɹ tˈiʧəɹ."),
        ("It is in the house.", "ɪt ɪz ɪn ðə hˈWs."),
        ("say 42", "sˈA fˈɔɹti tˈu"),
    ],
)
def test_american_symbols(english: EnglishPhonemes, text: str, symbols: str) -> None:
    assert english.sentences(text) == [symbols]


def test_british_voices_drop_the_r_that_no_vowel_follows(english: EnglishPhonemes) -> None:
    assert english.sentences("The better car goes home, very slowly.", british=True) == [
        "ðə bˈɛtə kˈɒ ɡˈQz hˈQm, vˈɛɹi slˈQli."
    ]


def test_sentences_are_kept_apart(english: EnglishPhonemes) -> None:
    assert len(english.sentences("One is here. Two are there! Is that all?")) == 3


@pytest.mark.parametrize("text", ["", "   ", "...", "?!", "😀🎉", "привет мир", "你好世界", "\n\n", "***"])
def test_what_english_has_no_sound_for_gives_nothing(english: EnglishPhonemes, text: str) -> None:
    assert english.sentences(text) == []


def test_mixed_scripts_keep_what_can_be_said(english: EnglishPhonemes) -> None:
    assert english.sentences("The word мир means peace.") == ["ðə wˈɜɹd mˈinz pˈis."]


@given(
    st.lists(st.text("abc ,.", min_size=1, max_size=60), max_size=12),
    st.integers(10, 40),
)
@example([" aaaaaaaaaa"], 10)
def test_pieces_are_short_enough_and_lose_no_symbol(sentences: list[str], most: int) -> None:
    found = pieces(sentences, most=most, good=most)
    assert all(0 < len(piece) <= most for piece in found)
    assert "".join(found).replace(" ", "") == "".join(sentences).replace(" ", "")


def test_short_sentences_are_joined_and_long_ones_split_at_their_marks() -> None:
    assert pieces(["yes.", "no."], most=50, good=20) == ["yes. no."]
    assert pieces(["aaaa aaaa, bbbb bbbb."], most=12, good=12) == ["aaaa aaaa,", "bbbb bbbb."]


def test_where_the_first_sound_is_awaited_pieces_begin_small_at_a_mark_and_grow() -> None:
    sentences = ["aaaaa aaaaa aaaaa, bbbbb bbbbb, ccccc ccccc.", "ddddd ddddd.", "eeeee eeeee eeeee eeeee eeeee."] * 2
    found = pieces(sentences, most=100, good=80, first=20)
    assert found[0] == "aaaaa aaaaa aaaaa,"
    assert all(one[-1] in ",." for one in found)
    assert " ".join(found) == " ".join(sentences)
    limits = [20, 30, 45, 67, 80, 80]
    assert all(len(one) <= limit for one, limit in zip(found, limits, strict=False))


def test_where_the_first_sound_is_awaited_words_without_marks_are_not_said_in_one_breath() -> None:
    found = pieces(["aaaa " * 40 + "aaaa."], most=100, good=80, first=20)
    assert len(found[0]) <= 40
    assert all(len(word.rstrip(".")) == 4 for piece in found for word in piece.split())
    assert "".join(found).replace(" ", "") == "aaaa" * 41 + "."


@given(st.lists(st.text("abc ,.", min_size=1, max_size=60), max_size=12), st.integers(10, 40), st.integers(1, 40))
def test_early_pieces_are_short_enough_and_lose_no_symbol(sentences: list[str], most: int, first: int) -> None:
    found = pieces(sentences, most=most, good=most, first=first)
    assert all(0 < len(piece) <= most for piece in found)
    assert "".join(found).replace(" ", "") == "".join(sentences).replace(" ", "")


@pytest.mark.parametrize(
    "text",
    ["9" * 600, "$" + "9" * 400 + ".99", "1," * 400, "ﷺ" * 4000, "zxqw " * 400, "0" * 300, "\ud800 hi", "'" * 800],
    ids=["digits", "money", "commas", "ligatures", "no words", "zeros", "lone surrogate", "quotes"],
)
def test_text_that_nobody_would_say_is_read_to_its_end(english: EnglishPhonemes, text: str) -> None:
    assert all(sentence.strip() for sentence in english.sentences(text))


def test_long_text_is_read_in_passages_that_end_with_sentences(english: EnglishPhonemes) -> None:
    one = "He was not an ill disposed young man. "
    assert english.sentences(one * 60) == english.sentences(one) * 60
