"""Answers of a given form, on the chat model. What is right is what `json`, `jsonschema` and `re` say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest

from bus.contracts import ModelManifest
from bus.errors import EngineError, InvalidInputError
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.grammar import GrammarCompiler
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Repository

pytestmark = pytest.mark.models

NO_MEDIA = np.zeros((0, 576), np.float32)

SCHEMAS: dict[str, dict[str, Any]] = {
    "a person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "tall": {"type": "boolean"},
        },
        "required": ["name", "age", "tall"],
        "additionalProperties": False,
    },
    "a list of names": {
        "type": "array",
        "items": {"enum": ["red", "green", "blue", "größer"]},
        "minItems": 2,
        "maxItems": 4,
    },
    "nested with references": {
        "type": "object",
        "$defs": {"point": {"type": "array", "items": {"type": "integer", "maximum": 99, "minimum": -99},
                            "minItems": 2, "maxItems": 2}},
        "properties": {
            "from": {"$ref": "#/$defs/point"},
            "to": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]},
            "when": {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"},
        },
        "required": ["from", "to", "when"],
        "additionalProperties": False,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def repository() -> Repository:
    return Repository()


@pytest.fixture(scope="module")
def manifest(repository: Repository) -> ModelManifest:
    return repository.resolve("chat")


@pytest.fixture(scope="module")
def tokenizer(repository: Repository, manifest: ModelManifest) -> ChatTokenizer:
    return ChatTokenizer(repository.folder(manifest))


@pytest.fixture(scope="module")
def engine(repository: Repository, manifest: ModelManifest, tokenizer: ChatTokenizer) -> Iterator[TextEngine]:
    decoder = Decoder(repository.folder(manifest), manifest, slots=8)
    engine = TextEngine(decoder, tokenizer.token_bytes)
    engine.open()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def grammars(manifest: ModelManifest, tokenizer: ChatTokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, manifest.dims["vocabulary"], manifest.parameters["end_tokens"])


async def answers(
    engine: TextEngine,
    grammars: GrammarCompiler,
    tokenizer: ChatTokenizer,
    form: tuple[str, str],
    settings: list[SamplingConfig],
) -> list[str]:
    """An answer for each of the settings, all at the same time; each ends because it is complete."""
    question = tokenizer.chat([{"role": "user", "content": "Tell me something about Ada as JSON."}])
    prompt = PromptTokens(tokenizer.encode(question, markup=True), NO_MEDIA)
    constraints = grammars.compile(*form, count=len(settings))
    running = [
        engine.submit(prompt, sampling, constraint=constraint)
        for sampling, constraint in zip(settings, constraints, strict=True)
    ]
    texts = []
    for generation in running:
        pieces = [piece async for piece in generation]
        assert pieces[-1].finish_reason == "stop"
        texts.append("".join(piece.text for piece in pieces))
    return texts


SETTINGS = [
    SamplingConfig(max_tokens=200),
    *(
        SamplingConfig(max_tokens=200, temperature=temperature, top_p=top_p, seed=seed)
        for temperature, top_p in ((0.7, 0.9), (1.0, 1.0), (2.0, 1.0))
        for seed in (1, 2)
    ),
]


@pytest.mark.parametrize("name", SCHEMAS)
async def test_every_answer_is_valid_for_its_schema(
    engine: TextEngine, grammars: GrammarCompiler, tokenizer: ChatTokenizer, name: str
) -> None:
    texts = await answers(engine, grammars, tokenizer, ("json_schema", json.dumps(SCHEMAS[name])), SETTINGS)
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMAS[name], cls=jsonschema.Draft202012Validator)
    assert len(set(texts)) > 1


async def test_every_answer_matches_its_regular_expression(
    engine: TextEngine, grammars: GrammarCompiler, tokenizer: ChatTokenizer
) -> None:
    expression = r"(yes|no), in (18|19)[0-9]{2}: [A-Zé日][a-zé日]{3,12}\."
    for text in await answers(engine, grammars, tokenizer, ("regex", expression), SETTINGS):
        assert re.fullmatch(expression, text)


async def test_json_without_a_schema_is_an_object(
    engine: TextEngine, grammars: GrammarCompiler, tokenizer: ChatTokenizer
) -> None:
    # A small model goes on for long: the bias makes it close what it has opened.
    (close,) = tokenizer.encode("}")
    settings = [SamplingConfig(max_tokens=200, logit_bias=((int(close), bias),)) for bias in (10.0, 100.0)]
    for text in await answers(engine, grammars, tokenizer, ("json_object", ""), settings):
        assert isinstance(json.loads(text), dict)


async def test_an_answer_without_a_form_is_free_beside_one_that_has_one(
    engine: TextEngine, grammars: GrammarCompiler, tokenizer: ChatTokenizer
) -> None:
    question = tokenizer.chat([{"role": "user", "content": "What is the capital of Japan?"}])
    prompt = PromptTokens(tokenizer.encode(question, markup=True), NO_MEDIA)
    (constraint,) = grammars.compile("regex", "[0-9]{5}")
    sampling = SamplingConfig(max_tokens=20)
    formed, free = engine.submit(prompt, sampling, constraint=constraint), engine.submit(prompt, sampling)
    assert "".join([piece.text async for piece in free]) == "The capital of Japan is Tokyo."
    assert re.fullmatch("[0-9]{5}", "".join([piece.text async for piece in formed]))


@pytest.mark.parametrize(
    ("kind", "definition", "reason"),
    [
        ("json_schema", "{", "Expecting"),
        ("json_schema", "[]", "a schema is a JSON object"),
        ("json_schema", '{"type": "colour"}', "colour"),
        ("json_schema", '{"$ref": "#/nowhere"}', "nowhere"),
        ("json_schema", '{"type": "object", "dependentRequired": {"a": ["b"]}}', "dependentRequired"),
        ("json_schema", '{"type": "string", "pattern": "(?=a)"}', "look-around"),
        ("json_schema", '{"a":' * 9_000 + "1" + "}" * 9_000, "recursion"),
        ("json_schema", '{"items":' * 500 + "{}" + "}" * 500, "recursion"),
        ("regex", "(a", "unclosed"),
    ],
)
def test_a_form_that_cannot_be_followed_is_refused_with_the_reason(
    grammars: GrammarCompiler, kind: str, definition: str, reason: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"(?s)the {kind} of the answer cannot.*{reason}") as caught:
        grammars.compile(kind, definition)
    assert caught.value.details["param"] == "response_format"


async def test_an_answer_that_its_grammar_gave_up_on_is_an_error_of_its_own(
    engine: TextEngine, grammars: GrammarCompiler, tokenizer: ChatTokenizer
) -> None:
    (broken,) = grammars.compile("regex", "a")
    broken.accept(int(tokenizer.encode("b")[0]))
    prompt = PromptTokens(tokenizer.encode("Hello"), NO_MEDIA)
    failing = engine.submit(prompt, SamplingConfig(), constraint=broken)
    sound = engine.submit(prompt, SamplingConfig(max_tokens=3))
    with pytest.raises(EngineError, match="no token can come next"):
        [piece async for piece in failing]
    assert len([piece async for piece in sound]) == 3
