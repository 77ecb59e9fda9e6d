"""Whisper as transformers saves it: a small one with random weights, and the real one with the weights we serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import PreTrainedModel, WhisperConfig, WhisperForConditionalGeneration

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.export.hugging_face import BuildOptions, entry_of
from runtime.export.whisper_weights import whisper_weights
from runtime.graphs.families.config import ModelConfig
from runtime.repository import Catalog, Repository
from runtime.speech.whisper import Whisper
from runtime.weights.folder import SafetensorsFolder
from tests.runtime import reference
from tests.runtime.export.whisper_steps import WhisperSteps

VOCABULARY, FRAMES, MELS, CONTEXT = 51865, 60, 80, 96
SPECIAL = {
    "<|endoftext|>": 50257, "<|startoftranscript|>": 50258, "<|en|>": 50259, "<|transcribe|>": 50359,
    "<|notimestamps|>": 50363,
}  # fmt: skip
FORCED = [50258, 50259, 50359, 50363]


def tiny() -> PreTrainedModel:
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=VOCABULARY, d_model=64, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=128, max_source_positions=FRAMES,
            max_target_positions=CONTEXT, num_mel_bins=MELS, pad_token_id=0, bos_token_id=1, eos_token_id=50257,
            decoder_start_token_id=50258, suppress_tokens=[-1, 3, 4], begin_suppress_tokens=[220, 50257],
        )
    )  # fmt: skip
    reference.randomise(model, table=0.1)
    model.train(False)
    return model


def write_tokenizer(folder: Path, special: dict[str, int]) -> None:
    names = {number: text for text, number in special.items()}
    vocabulary = {names.get(number, f"t{number}"): number for number in range(VOCABULARY)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="t0")).save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny()


@pytest.fixture
def folder(model: PreTrainedModel, tmp_path: Path) -> Path:
    folder = reference.save(model, tmp_path / "Tiny Whisper")
    write_tokenizer(folder, SPECIAL)
    path = folder / "generation_config.json"
    more = {"lang_to_id": {"<|en|>": 50259}, "alignment_heads": [[1, 2], [2, 0]]}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return folder


class Right:
    """The reference on one clip: every step in one pass over all tokens, without a cache."""

    def __init__(self, model: PreTrainedModel, mel: NDArray[np.float32]) -> None:
        self._model = model
        with torch.inference_mode():
            self._heard = model.get_encoder()(torch.from_numpy(mel)[None])

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """Of the last token, float32 `(vocabulary,)`."""
        with torch.inference_mode():
            given = torch.tensor([ids])
            found = self._model(encoder_outputs=self._heard, decoder_input_ids=given, use_cache=False)
        array: NDArray[np.float32] = found.logits[0, -1].numpy()
        return array


def test_logits_and_greedy_tokens_are_those_of_the_reference(
    model: PreTrainedModel, folder: Path, tmp_path: Path
) -> None:
    weights = whisper_weights(SafetensorsFolder(folder), ModelConfig.read(folder / "config.json"))
    steps = WhisperSteps.exact(tmp_path, weights)
    mel = np.random.default_rng(3).standard_normal((MELS, 2 * FRAMES)).astype(np.float32)
    found = steps.begin(mel, FORCED)
    reference_model, ids = Right(model, mel), list(FORCED)
    for _ in range(64):
        right = reference_model.logits(ids)
        np.testing.assert_allclose(found, right, atol=1e-3)
        assert found.argmax() == right.argmax()
        ids.append(int(right.argmax()))
        found = steps.then(ids[-1])
    assert len(set(ids[4:])) > 8  # an answer that repeats itself would prove little


def test_a_folder_is_built_and_listens(folder: Path, tmp_path: Path) -> None:
    known = Repository(tmp_path / "models", catalog=Catalog(()))
    entry = entry_of(str(folder), known, BuildOptions(license="MIT"))
    repository = Repository(known.root, catalog=Catalog((entry,)))
    (built,) = repository.pull(entry.id)
    assert (built.ref, built.family, built.modalities_in) == ("tiny-whisper@1", "whisper", ("audio",))
    assert {"encoder.onnx", "decoder.onnx", "alignment.onnx"} <= {file.path for file in built.files}
    assert built.parameters["suppress"] == [3, 4]
    assert built.parameters["suppress_first"] == [220, 50257]
    assert built.parameters["languages"] == [50259]
    samples = np.random.default_rng(1).standard_normal(16000).astype(np.float32) * 0.1
    assert Whisper.load(repository, "tiny-whisper", threads=1).transcribe(samples).language == "en"


def change(folder: Path, how: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    how(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (lambda weights: weights.pop("model.encoder.conv2.bias"), "conv2.bias"),
        (lambda weights: weights.update({"model.decoder.layers.0.fc1.weight": torch.zeros(4, 4)}), "fc1.weight"),
        (lambda weights: weights.update({"model.decoder.extra": torch.zeros(4)}), "decoder.extra"),
        (lambda weights: weights["model.encoder.layer_norm.weight"].fill_(float("nan")), "not finite"),
    ],
    ids=["missing", "of another shape", "unknown", "no numbers"],
)
def test_a_tensor_that_does_not_fit_is_named(
    how: Callable[[dict[str, torch.Tensor]], Any], named: str, folder: Path
) -> None:
    change(folder, how)
    with pytest.raises(ModelCorruptError, match=named):
        whisper_weights(SafetensorsFolder(folder), ModelConfig.read(folder / "config.json"))


def test_other_control_tokens_are_refused(folder: Path, tmp_path: Path) -> None:
    write_tokenizer(folder, SPECIAL | {"<|transcribe|>": 50360})
    known = Repository(tmp_path / "models", catalog=Catalog(()))
    entry = entry_of(str(folder), known, BuildOptions(license="MIT"))
    with pytest.raises(ModelUnsupportedError, match="50360"):
        Repository(known.root, catalog=Catalog((entry,))).pull(entry.id)
