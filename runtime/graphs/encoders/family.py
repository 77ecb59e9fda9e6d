"""What the encoders of a family of multimodal models are: what they are built from, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bus.errors import ModelCorruptError
from runtime.graphs.encoders.preprocessing import Preprocessing
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import Graph
from runtime.weights.tensors import CheckedTensors


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderJob:
    """What a family builds its encoders from.

    Attributes:
        config: The whole `config.json`.
        preprocessing: What the folder says of its processors.
        read: Gives a weight by its name, under the beginnings that the family's `homes` map to, and the shape that it
            must have, float32.
        hidden: Width of the decoder's embeddings.
        context: The most tokens of a prompt and its answer.
        tokens: Ids of all tokens by their text.
    """

    config: ModelConfig
    preprocessing: Preprocessing
    read: CheckedTensors
    hidden: int
    context: int
    tokens: Mapping[str, int]

    def token(self, number: int) -> str:
        """The text of a token.

        Raises:
            ModelCorruptError: The tokenizer has no such token.
        """
        found = next((text for text, token in self.tokens.items() if token == number), None)
        if found is None:
            raise ModelCorruptError(f"config.json names token {number}, which tokenizer.json does not have")
        return found

    def need(self, *texts: str) -> None:
        """Make sure that the tokenizer has control tokens which the family's markup is made of.

        Raises:
            ModelCorruptError: It lacks one.
        """
        for text in texts:
            if text not in self.tokens:
                raise ModelCorruptError(f"tokenizer.json has no token {text!r}, which stands beside media")


@dataclass(frozen=True, slots=True)
class Encoders:
    """What a family built.

    Attributes:
        graphs: Graphs by the name of the file that they are saved in, such as `vision.onnx`.
        parameters: What the family's class in `runtime.multimodal.families` is made from: plain JSON values; `encoders`
            names the graph of each modality.
        unused: Beginnings of tensors, as `read` has them, that may be left.
    """

    graphs: Mapping[str, Graph]
    parameters: Mapping[str, Any]
    unused: tuple[str, ...] = ()


def _as_it_is(template: str) -> str:
    return template


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFamily:
    """Encoders that are built alike.

    Attributes:
        model_types: What `config.json` calls the models that they belong to.
        modalities: What such models take beside text.
        homes: Beginnings of the encoders' tensors in checkpoints old and new, and what stands for them in `read`.
        build: Builds them; takes every tensor that is theirs.
        ignored: Beginnings of tensors, in the checkpoint's own names, that nothing here needs.
        template: Gives a folder's chat template places for all media, where it may lack them.
        inside: Key of `config.json` that describes the model, where it is one part of several.
    """

    model_types: tuple[str, ...]
    modalities: tuple[str, ...]
    homes: Mapping[str, str]
    build: Callable[[EncoderJob], Encoders]
    ignored: tuple[str, ...] = ()
    template: Callable[[str], str] = _as_it_is
    inside: str | None = None

    @property
    def beside(self) -> tuple[str, ...]:
        """Beginnings of tensors in the checkpoint that are not the decoder's."""
        return (*self.homes, *self.ignored)

    def described(self, config: ModelConfig) -> ModelConfig:
        """The part of a `config.json` that describes the model."""
        inner = config.inner(self.inside) if self.inside else None
        return config if inner is None else inner
