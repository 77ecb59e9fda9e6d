"""How pieces stand behind each other in a prompt, against the text that Idefics2's processor of transformers writes."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.idefics2.processing_idefics2 import Idefics2Processor

from bus.contracts import FramePiece, Modality
from functions.stages.layout import Laid, Layout
from functions.stages.pieces import Markup, SoftTokens, Words
from runtime.generation.tokenizer import ChatTokenizer
from tests.runtime.multimodal.drawn import scene
from tests.runtime.multimodal.words import number, tokenizer

FAKE, IMAGE = "<fake_token_around_image>", "<image>"
FRAME = (FramePiece(text=FAKE, once=True), FramePiece(slots=3), FramePiece(text=FAKE, apart=True))


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    return tokenizer(FAKE, IMAGE, "<end_of_utterance>", template="{{ messages }}")


@pytest.fixture(scope="module")
def layout_of(words: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    folder = tmp_path_factory.mktemp("words")
    words.save_pretrained(folder)
    (folder / "chat.jinja").write_text("{{ messages }}")
    return ChatTokenizer(folder)


def laid(words: ChatTokenizer, *texts: str) -> Laid:
    """Texts with a picture between every two."""
    layout = Layout(words, 4)
    for part, text in enumerate(texts):
        if part:
            rows = np.full((3, 4), part, np.float32)
            positions = np.tile(np.arange(3, dtype=np.int32), (3, 1))
            layout.add(SoftTokens(Modality.IMAGE, rows, positions, part, FRAME))
        layout.add(Words(Modality.TEXT, text))
    return layout.finish()


@pytest.mark.parametrize(
    "texts",
    [
        ("Look: ", "What is it?"),
        ("", "", "Two of them."),
        ("a", " b", "\nc", "", "<end"),
        ("", "<", "1"),
    ],
)
def test_marks_between_pictures_are_one_and_letters_stand_apart_from_them(
    texts: tuple[str, ...], words: PreTrainedTokenizerFast, layout_of: ChatTokenizer
) -> None:
    processor = Idefics2Processor(Idefics2ImageProcessorPil(), words, image_seq_len=3)
    pictures = [[scene(30, 30)] * (len(texts) - 1)]
    right = processor(text=IMAGE.join(texts), images=pictures)["input_ids"][0]
    found = laid(layout_of, *texts)
    placeholder = number(words, IMAGE)
    assert [placeholder if token == -1 else token for token in found.ids.tolist()] == right
    np.testing.assert_array_equal(found.positions, np.tile(np.arange(len(right)), (3, 1)))


def test_what_a_user_writes_is_no_mark_that_another_one_could_be_left_out_for(
    words: PreTrainedTokenizerFast, layout_of: ChatTokenizer
) -> None:
    ids = laid(layout_of, f"I write {FAKE}", "?").ids.tolist()
    assert ids.count(number(words, FAKE)) == 2
    assert ids[ids.index(-1) - 1] == number(words, FAKE)


def test_a_mark_of_the_template_that_stands_once_is_not_repeated(layout_of: ChatTokenizer) -> None:
    layout = Layout(layout_of, 4)
    for markup in (Markup("x"), Markup("ab"), Markup("b", once=True), Markup("b")):
        layout.add(markup)
    assert layout.finish().ids.tolist() == layout_of.encode("xabb", markup=True).tolist()
