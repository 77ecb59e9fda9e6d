"""A folder that transformers saved, built, installed and asked: the answer is the reference's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from bus.contracts import ModelManifest
from bus.errors import InvalidInputError, ModelCorruptError, ModelUnsupportedError
from runtime.export.hugging_face import BuildOptions, build_model, entry_of
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Catalog, Repository
from tests.runtime import reference
from tests.runtime.export.folders import Saved, chat_folder

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " What is the capital of Köln? 😀 "}]
EXACT = BuildOptions(id="small", quantisation="float32", context_tokens=128)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return chat_folder(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def copy(saved: Saved, tmp_path: Path) -> Path:
    """The folder, to be changed."""
    folder = tmp_path / "Small_Chat-0.1B"
    folder.mkdir()
    for path in saved.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def build(place: Path | str, root: Path, options: BuildOptions = EXACT) -> tuple[Repository, ModelManifest]:
    known = Repository(root / "models", catalog=Catalog(()))
    repository = Repository(known.root, catalog=Catalog((entry_of(str(place), known, options),)))
    (built,) = repository.pull(options.id or next(iter(repository.catalog)).id)
    return repository, built


@pytest.fixture(scope="module")
def installed(saved: Saved, tmp_path_factory: pytest.TempPathFactory) -> tuple[Repository, ModelManifest]:
    return build(saved.folder, tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def tokenizer(installed: tuple[Repository, ModelManifest]) -> ChatTokenizer:
    repository, manifest = installed
    return ChatTokenizer(repository.folder(manifest))


def test_a_built_model_is_installed_like_any_other(installed: tuple[Repository, ModelManifest]) -> None:
    repository, manifest = installed
    assert Repository(repository.root, catalog=Catalog(())).resolve("small") == manifest
    assert repository.verify("small") == ()
    assert manifest.family == "qwen3"
    assert manifest.quantisation == "float32"
    assert manifest.limits == {"context_tokens": 128}
    assert manifest.dims["context"] == 128
    assert manifest.parameters["end_tokens"] == [2]
    files = {file.path for file in manifest.files}
    assert files == {"model.onnx", "model.data", "embeddings.npy", "tokenizer.json", "chat.jinja", "LICENSE"}


def test_a_chat_becomes_the_prompt_of_the_reference(tokenizer: ChatTokenizer, saved: Saved) -> None:
    right = saved.tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    assert tokenizer.chat(CHAT) == right
    assert tokenizer.encode(str(right), markup=True).tolist() == saved.tokenizer.encode(right, add_special_tokens=False)


async def test_an_answer_is_that_of_the_reference(
    installed: tuple[Repository, ModelManifest], tokenizer: ChatTokenizer, saved: Saved
) -> None:
    repository, manifest = installed
    decoder = Decoder(repository.folder(manifest), manifest, slots=1, threads=1)
    prompt = tokenizer.encode(tokenizer.chat(CHAT), markup=True)
    right = reference.greedy(saved.model, prompt.tolist(), 24)
    engine = TextEngine(decoder, tokenizer.token_bytes)
    engine.open()
    try:
        started = engine.submit(
            PromptTokens(prompt, np.zeros((0, 64), np.float32)), SamplingConfig(max_tokens=24, temperature=0)
        )
        pieces = [piece async for piece in started]
    finally:
        engine.close()
    assert [token for piece in pieces for token in piece.token_ids] == right
    decoded = str(saved.tokenizer.decode(right, skip_special_tokens=True))
    # The reference shows a mark where bytes are no character; here they are left out.
    assert "".join(piece.text for piece in pieces) == decoded.replace("\ufffd", "")


@pytest.mark.parametrize(("quantisation", "error"), [("q8", 0.05), ("q4", 0.5)])
def test_blocks_stay_near_the_exact_model(quantisation: str, error: float, saved: Saved, tmp_path: Path) -> None:
    options = BuildOptions(id="small", quantisation=quantisation, context_tokens=64)
    repository, manifest = build(saved.folder, tmp_path, options)
    decoder = Decoder(repository.folder(manifest), manifest, slots=1, threads=1)
    ids = np.arange(6, 46, dtype=np.int32)
    right = reference.logits(saved.model, ids.tolist())
    assert 0 < np.abs(decoder.verify(0, ids, 0) - right).mean() < error * right.std()


def test_the_same_folder_is_the_same_version_and_another_build_the_next(
    saved: Saved, copy: Path, tmp_path: Path
) -> None:
    versions = [build(copy, tmp_path)[1].version for _ in range(2)]
    other = BuildOptions(id="small", quantisation="q8", context_tokens=128)
    versions.append(build(copy, tmp_path, other)[1].version)
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    versions.append(build(copy, tmp_path, other)[1].version)
    assert versions == ["1", "1", "2", "3"]


def test_no_build_gets_the_number_of_a_version_that_was_removed(saved: Saved, copy: Path, tmp_path: Path) -> None:
    repository, first = build(copy, tmp_path)
    other = BuildOptions(id="small", quantisation="q8", context_tokens=128)
    assert build(copy, tmp_path, other)[1].ref == "small@2"
    repository.remove("small@2")
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert build(copy, tmp_path, other)[1].ref == "small@3"
    for ref in ("small@3", first.ref):
        repository.remove(ref)
    assert build(copy, tmp_path, other)[1].ref == "small@4"
    assert [one.ref for one in repository.list()] == ["small@4"]


def test_a_model_is_called_as_its_folder_where_no_name_is_given(copy: Path, tmp_path: Path) -> None:
    _, manifest = build(copy, tmp_path, BuildOptions())
    assert manifest.ref == "small-chat-0.1b@1"
    with pytest.raises(InvalidInputError, match="'Big!'"):
        build(copy, tmp_path, BuildOptions(id="Big!"))


def test_a_licence_is_taken_from_the_model_card(copy: Path, tmp_path: Path) -> None:
    assert build(copy, tmp_path)[1].license == "LicenseRef-unknown"
    (copy / "README.md").write_text('---\nlanguage: en\nlicense: "apache-2.0"\n---\n# A model\n')
    repository, manifest = build(copy, tmp_path, BuildOptions(id="second", quantisation="float32"))
    assert manifest.license == "Apache-2.0"
    assert "Apache License" in repository.file(manifest, "LICENSE").read_text()


def test_every_token_that_ends_an_answer_is_known(copy: Path, tmp_path: Path) -> None:
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 4]}))
    assert build(copy, tmp_path)[1].parameters["end_tokens"] == [2, 4]


@pytest.mark.parametrize("ends", [None, "2", [2, 320], []])
def test_a_model_whose_answers_would_not_end_is_refused(ends: object, copy: Path, tmp_path: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        path = copy / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": ends}))
    with pytest.raises(ModelCorruptError, match="end an answer"):
        build(copy, tmp_path)


def test_what_a_folder_lacks_is_named(copy: Path, tmp_path: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(ModelUnsupportedError, match=r"tokenizer\.json"):
        build(copy, tmp_path)
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(ModelUnsupportedError, match="chat template"):
        build(copy, tmp_path)
    (copy / "model.safetensors").unlink()
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(ModelCorruptError, match=r"model\.safetensors"):
        build(copy, tmp_path)
    with pytest.raises(InvalidInputError, match=r"config\.json"):
        build(tmp_path, tmp_path)
    assert not (tmp_path / "models" / "small").exists()


def test_a_quantisation_that_is_not_known_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="q8"):
        build(copy, tmp_path, BuildOptions(id="small", quantisation="q3"))


def test_a_row_is_never_longer_than_the_positions_that_the_model_knows(saved: Saved, tmp_path: Path) -> None:
    trained = saved.model.config.max_position_embeddings
    options = BuildOptions(id="small", quantisation="float32", context_tokens=2**40)
    repository, manifest = build(saved.folder, tmp_path, options)
    assert manifest.limits == {"context_tokens": trained}
    claims_more = manifest.model_copy(update={"limits": {"context_tokens": 2**40}})
    decoder = Decoder(repository.folder(manifest), claims_more, slots=1, threads=1)
    assert decoder.pool.capacity == trained


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("tokenizer.json", b"{}", "tokenizer"),
        ("chat_template.jinja", b"{% for %}", "chat template"),
        ("chat_template.jinja", b"\xff\xfe", "UTF-8"),
        ("chat_template.jinja", b"{{ 1 // 0 }}{{ messages[0].content }}", "ZeroDivisionError"),
        ("chat_template.jinja", b"{{ raise_exception('never') }}", "never"),
        ("chat_template.jinja", b"Always the same.", "leaves out what a user says"),
    ],
)
def test_words_that_could_not_be_served_are_refused(
    file: str, content: bytes, why: str, copy: Path, tmp_path: Path
) -> None:
    (copy / file).write_bytes(content)
    with pytest.raises(ModelCorruptError, match=why):
        build(copy, tmp_path)
    assert not (tmp_path / "models" / "small").exists()


def test_a_tokenizer_of_another_model_is_refused(copy: Path, tmp_path: Path) -> None:
    words = json.loads((copy / "tokenizer.json").read_text())
    words["added_tokens"].append(words["added_tokens"][0] | {"id": 320, "content": "<beyond>"})
    (copy / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ModelCorruptError, match="tokens up to 320, and the model has 320"):
        build(copy, tmp_path)


@pytest.mark.parametrize("licence", ["../../secret", "a\nb", "/etc/passwd"])
def test_a_licence_that_is_no_id_is_refused(licence: str, copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="SPDX"):
        build(copy, tmp_path, BuildOptions(id="small", license=licence))


async def test_builds_at_once_under_one_name_are_a_version_each(saved: Saved, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "models", catalog=Catalog(()))
    wanted = ["float32", "q8", "q4", "q8"]
    built = await asyncio.gather(
        *(
            asyncio.to_thread(build_model, str(saved.folder), repository, BuildOptions(id="small", quantisation=kind))
            for kind in wanted
        )
    )
    assert [one.quantisation for one in built] == wanted
    assert len({one.version for one in repository.list()}) == len(repository.list()) >= 3
