"""Build a served Whisper out of a Hugging Face folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from bus.errors import ModelUnsupportedError
from runtime.export.whisper_weights import whisper_weights
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.whisper_build import write_whisper
from runtime.repository.recipe import BuildJob, Built
from runtime.text.vocabulary import read_tokenizer
from runtime.weights.folder import SafetensorsFolder

# The numbers of the control tokens that transcription stands on; the English-only models and the third large one have
# others.
_TOKENS = {"<|startoftranscript|>": 50258, "<|transcribe|>": 50359, "<|notimestamps|>": 50363}


def build(job: BuildJob) -> Built:
    """Write `encoder.onnx`, `decoder.onnx`, `alignment.onnx` where heads are known for it, and `tokenizer.json`.

    Raises:
        ModelUnsupportedError: A Whisper with other control tokens or features than those that are served here.
        ModelCorruptError: Files that are missing, damaged, or do not fit together.
    """
    config = ModelConfig.read(job.raw / "config.json")
    generation = job.raw / "generation_config.json"
    how = ModelConfig.read(generation) if generation.is_file() else config
    languages = _languages(job.raw / "tokenizer.json", how)
    heads = [(int(layer), int(head)) for layer, head in how.get("alignment_heads", [])]
    dims = write_whisper(job.out, whisper_weights(SafetensorsFolder(job.raw), config), heads)
    shutil.copyfile(job.raw / "tokenizer.json", job.out / "tokenizer.json")
    return Built(
        dims=dims,
        parameters={
            "suppress": [token for token in how.get("suppress_tokens", []) if token >= 0],
            "suppress_first": how.get("begin_suppress_tokens", []),
            "languages": languages,
        },
    )


def _languages(path: Path, how: ModelConfig) -> list[int]:
    """Tokens of the languages: as they are listed, or else those between the start and the tasks."""
    if not path.is_file():
        raise ModelUnsupportedError("the folder has no tokenizer.json; save it with a fast tokenizer of transformers")
    tokenizer = read_tokenizer(path)
    for text, number in _TOKENS.items():
        if tokenizer.token_to_id(text) != number:
            raise ModelUnsupportedError(
                f"this Whisper has {text} as token {tokenizer.token_to_id(text)}; models that have it as {number} are "
                "served here: the multilingual ones up to large-v2"
            )
    listed = how.get("lang_to_id")
    return sorted(listed.values()) if isinstance(listed, dict) else list(range(50259, 50358))
