"""Every door of a running stack with the real models: plain NATS, the official OpenAI client, the command line."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import subprocess
import sys
import sysconfig
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, NotFoundError

from runtime.repository import Repository
from tests.delivery.stack import Stack, running

pytestmark = [pytest.mark.models, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

SENTENCE = "The quick brown fox jumps over the lazy dog."
WORDS = "the quick brown fox jumps over the lazy dog"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with running(tmp_path_factory.mktemp("doors")) as stack:
        await stack.ready()
        yield stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def openai(stack: Stack) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{stack.info.gateway_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def photo() -> Path:
    repository = Repository()
    return repository.file(repository.resolve("cat-photo"), "chelsea.png")


def words(text: str) -> str:
    return " ".join("".join(letter for letter in text.lower() if letter.isalpha() or letter == " ").split())


_PLAIN_CLIENT = """
import asyncio, importlib.util, json, sys
sys.path.append(sys.argv[1])
assert not any(importlib.util.find_spec(name) for name in ("bus", "functions", "runtime", "infra"))
import nats

async def main(url, token):
    connection = await nats.connect(url, token=token)
    done = asyncio.get_running_loop().create_future()
    streamed = []

    async def on_message(message):
        kind = message.subject.split(".")[0]
        if kind == "token":
            streamed.append(json.loads(message.data)["text"])
        elif kind == "result":
            done.set_result(json.loads(message.data))

    await connection.subscribe("*.plain-1", cb=on_message)
    request = {
        "request": "plain-1",
        "pipeline": "chat",
        "inputs": {
            "messages": [{"role": "user", "content": [{"text": "What is the capital of Japan? Be brief."}]}],
            "sampling": {"max_tokens": 24},
        },
    }
    await connection.jetstream().publish(
        "fn.pipeline.start.interactive", json.dumps(request).encode(), headers={"Nats-Msg-Id": "plain-1"}
    )
    result = await asyncio.wait_for(done, 60)
    print(json.dumps({"result": result, "streamed": "".join(streamed)}))
    await connection.close()

asyncio.run(main(*sys.argv[2:]))
"""


async def test_a_plain_nats_client_with_nothing_of_ours_starts_a_pipeline_and_reads_the_stream(stack: Stack):
    told = json.loads(
        await python(
            *("-S", "-P", "-c", _PLAIN_CLIENT, sysconfig.get_path("purelib")),
            *(stack.info.nats_url, stack.info.nats_token),
        )
    )
    assert told["result"]["status"] == "succeeded", told
    answer = told["result"]["outputs"]["answer"]["text"]
    assert "Tokyo" in answer
    assert told["streamed"].strip() == answer.strip()


async def test_the_openai_client_chats_about_a_picture_and_a_spoken_question(openai: AsyncOpenAI):
    said = await openai.audio.speech.create(model="tts", voice="alloy", input="What is in this picture?")
    picture = base64.b64encode(photo().read_bytes()).decode()
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(said.content).decode(), "format": "mp3"}},
    ]
    messages: Any = [{"role": "user", "content": content}]
    stream = await openai.chat.completions.create(
        model="chat", messages=messages, max_tokens=24, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "cat" in text
    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 1, "not streamed"
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens > 20
    whole = await openai.chat.completions.create(model="chat", messages=messages, max_tokens=24)
    assert whole.choices[0].message.content == text


async def test_the_openai_client_gets_several_answers_of_a_schema_with_log_probabilities(openai: AsyncOpenAI):
    schema = {
        "type": "object",
        "properties": {"capital": {"enum": ["Tokyo", "Rome"]}},
        "required": ["capital"],
        "additionalProperties": False,
    }
    answer = await openai.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "What is the capital of Japan?"}],
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}},
        n=2,
        temperature=0.2,
        seed=1,
        logprobs=True,
        top_logprobs=2,
    )
    for choice in answer.choices:
        assert json.loads(choice.message.content or "") == {"capital": "Tokyo"}
        assert choice.logprobs is not None
        told = choice.logprobs.content or []
        assert b"".join(bytes(one.bytes or ()) for one in told).decode() == choice.message.content
    again = await openai.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "What is the capital of Japan?"}], max_tokens=2
    )
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == 32


async def test_the_openai_client_predicts_an_answer(openai: AsyncOpenAI):
    asked: Any = {"model": "chat", "messages": [{"role": "user", "content": "What is the capital of Japan?"}]}
    predicted = {"type": "content", "content": "The capital of Japan is Kyoto, or is it Tokyo."}
    answer = await openai.chat.completions.create(**asked, prediction=predicted)
    assert answer.choices[0].message.content == "The capital of Japan is Tokyo."
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert (details.accepted_prediction_tokens or 0) >= 3
    assert (details.rejected_prediction_tokens or 0) >= 1


async def test_the_openai_client_gets_a_spoken_answer(openai: AsyncOpenAI):
    answer = await openai.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "What is the capital of Japan? Answer in one short sentence."}],
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "wav"},
        max_tokens=24,
    )
    audio = answer.choices[0].message.audio
    assert audio is not None
    assert "Tokyo" in audio.transcript
    data = base64.b64decode(audio.data)
    with wave.open(io.BytesIO(data)) as sound:
        assert sound.getnframes() / sound.getframerate() > 0.5
    heard = await openai.audio.transcriptions.create(model="asr", file=("answer.wav", data))
    assert words(heard.text) == words(audio.transcript)


async def test_the_openai_client_speaks_transcribes_embeds_and_lists_models(openai: AsyncOpenAI):
    said = await openai.audio.speech.create(model="tts", voice="alloy", input=SENTENCE, response_format="flac")
    heard = await openai.audio.transcriptions.create(model="whisper-1", file=("said.flac", said.content))
    assert words(heard.text) == WORDS
    vectors = await openai.embeddings.create(model="embed", input=["a cat", "a kitten", "a tax form"])
    cat, kitten, form = ([*item.embedding] for item in vectors.data)
    assert _dot(cat, kitten) > _dot(cat, form) + 0.2
    models = {model.id async for model in await openai.models.list()}
    assert {"smollm2-135m-instruct", "whisper-base", "kokoro-82m"} <= models
    with pytest.raises(NotFoundError, match="no-such-model"):
        await openai.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "Hi"}])


async def test_a_photo_is_found_among_texts_and_says_that_its_vector_is_a_composition(stack: Stack):
    url = f"data:image/png;base64,{base64.b64encode(photo().read_bytes()).decode()}"
    texts = ["a quarterly tax report", "a cat looking at you", "a rocket taking off"]
    picture = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "label-space", "input": [texts[0], picture, *texts[1:]]}
    answer = (await stack.post("/v1/embeddings", json=body)).json()
    assert (answer["model"], answer["composition"]) == ("label-space", "label-space")
    assert [item["index"] for item in answer["data"]] == [0, 1, 2, 3]
    tax, cat, said, rocket = ([*item["embedding"]] for item in answer["data"])
    assert _dot(cat, said) > 0.5 > max(_dot(cat, tax), _dot(cat, rocket))
    refused = await stack.http.post(f"{stack.info.gateway_url}/v1/embeddings", json={**body, "model": "embed"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "input.1"
    shortened = {"model": "embed", "input": "a cat", "dimensions": 128}
    refused = await stack.http.post(f"{stack.info.gateway_url}/v1/embeddings", json=shortened)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "dimensions")
    assert "384 dimensions, not 128" in refused.json()["error"]["message"]


async def test_the_command_line_uses_a_running_stack(stack: Stack, tmp_path: Path):
    out = tmp_path / "said.wav"
    await omnibus(stack, "speak", SENTENCE, "--out", str(out))
    assert words(await omnibus(stack, "transcribe", str(out))) == WORDS
    vectors = [json.loads(line) for line in (await omnibus(stack, "embed", "a cat", "a kitten")).splitlines()]
    assert [len(vector) for vector in vectors] == [384, 384]
    spoken = tmp_path / "answer.wav"
    asked = await omnibus(
        stack, "ask", "What is in this picture?", "--image", str(photo()), "--speak", str(spoken), "--max-tokens", "24"
    )
    assert "cat" in asked
    assert all(f"\n{stage} " in asked for stage in ("fetch", "pixels", "look", "fuse", "generate", "speak", "assemble"))
    assert spoken.read_bytes()[:4] == b"RIFF"
    workers = await omnibus(stack, "workers")
    assert all(group in workers for group in ("media-", "encode-", "speech-", "generate-"))
    assert "a stack runs at" in await omnibus(stack, "doctor")


async def test_the_command_line_publishes_traces_and_replays(stack: Stack):
    published = await omnibus(stack, "publish", "embed", '{"texts": ["hello"]}', "--request", "from-the-shell")
    assert json.loads(published)["tokens"] > 0
    assert "text.embed" in await omnibus(stack, "trace", "from-the-shell")
    await omnibus(stack, "publish", "embed", '{"texts": [7]}', "--request", "wrong", "--no-wait")
    while "wrong" not in (letters := await omnibus(stack, "dlq", "ls")):
        await asyncio.sleep(0.1)
    assert "invalid_input" in letters
    assert json.loads(await omnibus(stack, "dlq", "show", "wrong"))["event"]["inputs"] == {"texts": [7]}
    assert "1 published again" in await omnibus(stack, "dlq", "replay", "wrong")


@pytest.mark.parametrize(
    ("function", "inputs", "media", "expected"),
    [
        ("media.fetch", "{}", True, "image/png"),
        ("image.preprocess", "{}", True, "float32"),
        ("image.ocr", "{}", True, "pages"),
        ("text.embed", '{"texts": ["a cat"]}', False, "float32"),
        ("speak", '{"text": "Hello."}', False, "audio/wav"),
        ("fuse", '{"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}', False, "prompt"),
        ("assemble", '{"text": "a", "finish_reason": "stop", "usage": {}}', False, "answer"),
    ],
)
async def test_a_function_runs_alone(function: str, inputs: str, media: bool, expected: str):
    files = ("--media", str(photo())) if media else ()
    assert expected in await python("-m", "infra.cli.main", "invoke", function, inputs, *files)


async def test_pipelines_are_listed_shown_and_drawn():
    assert "Speech to text with times." in await python("-m", "infra.cli.main", "pipelines", "ls")
    assert "function: audio.transcribe" in await python("-m", "infra.cli.main", "pipelines", "show", "chat")
    drawn = await python("-m", "infra.cli.main", "pipelines", "graph", "chat")
    assert "fuse --> generate" in drawn
    assert "look -.-> fuse" in drawn


def _dot(left: list[float], right: list[float]) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


async def omnibus(stack: Stack, *arguments: str) -> str:
    return await python("-m", "infra.cli.main", *arguments, OMNIBUS_DATA=str(stack.folder / "data"))


async def python(*arguments: str, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()
