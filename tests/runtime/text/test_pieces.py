from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.text.pieces import join_pieces, joint


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([], ""),
        (["Hello there.", "How are you?"], "Hello there. How are you?"),
        (["今天天气很好。", "我们去公园吧。"], "今天天气很好。我们去公园吧。"),
        (["きょうは", "いい天気です"], "きょうはいい天気です"),
        (["ﾃｽﾄ", "です"], "ﾃｽﾄです"),
        (["𠮷野家", "に行く"], "𠮷野家に行く"),
        (["我用", "Python", "写程序"], "我用Python写程序"),
        (["I said", "你好", "to them"], "I said你好to them"),
        (["안녕하세요.", "반갑습니다."], "안녕하세요. 반갑습니다."),
        (["สวัสดีครับ", "ยินดีที่ได้รู้จัก"], "สวัสดีครับ ยินดีที่ได้รู้จัก"),
        (["", "a", "", "b", ""], "a b"),
    ],
)
def test_pieces_are_joined_as_their_script_is_written(pieces: list[str], text: str) -> None:
    assert join_pieces(pieces) == text


@given(st.lists(st.text(st.sampled_from("aZ.你す。한"), max_size=3)), st.integers(0, 8))
def test_what_is_joined_in_two_steps_is_joined_alike(pieces: list[str], cut: int) -> None:
    before, after = join_pieces(pieces[:cut]), join_pieces(pieces[cut:])
    assert before + joint(before, after) + after == join_pieces(pieces)
