"""Which model a name may stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bus.contracts import ModelManifest
from bus.errors import ModelUnsupportedError
from functions.registry import load_functions
from functions.substitutes import check_substitute
from infra.cli.models import models as command
from runtime.repository import Repository

DECODER = {"dims": {"layers": 1, "hidden": 1, "vocabulary": 1}, "parameters": {"end_tokens": [0]}}
NATIVE = {**DECODER, "parameters": {"end_tokens": [0], "multimodal": {}}}
KINDS: dict[str, tuple[str, str, str, dict[str, object]]] = {
    "smollm2-135m-instruct": ("llama", "text", "text", DECODER),
    "my-chat": ("qwen2", "text", "text", DECODER),
    "my-eyes": ("qwen2_vl", "text image", "text", NATIVE),
    "whisper-base": ("whisper", "audio", "text", {}),
    "my-ears": ("whisper", "audio", "text", {}),
    "all-minilm-l6-v2": ("bert", "text", "text", {}),
    "kokoro-82m": ("kokoro", "text", "audio", {}),
}


@pytest.fixture
def models(tmp_path: Path) -> Repository:
    for model, (family, takes, gives, more) in KINDS.items():
        manifest = ModelManifest.model_validate(
            {
                "id": model, "version": "1", "family": family, "modalities_in": takes.split(),
                "modalities_out": gives.split(), "files": [], "source": [], "license": "MIT", **more,
            }
        )  # fmt: skip
        (tmp_path / model / "1").mkdir(parents=True)
        (tmp_path / model / "1" / "manifest.json").write_text(manifest.model_dump_json())
    return Repository(tmp_path)


def check(models: Repository, name: str, target: str) -> None:
    check_substitute(load_functions(), models, name, models.own(target))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("smollm2-135m-instruct", "my-chat"),
        ("smollm2-135m-instruct", "my-eyes"),
        ("chat", "my-chat"),
        ("whisper-base", "my-ears"),
        ("whisper-base", "whisper-base@1"),
        ("a-name-of-mine", "kokoro-82m"),
        ("my-ears", "kokoro-82m"),
    ],
)
def test_a_name_may_stand_for_a_model_that_does_the_same(models: Repository, name: str, target: str) -> None:
    check(models, name, target)


@pytest.mark.parametrize(
    ("name", "target", "function"),
    [
        ("smollm2-135m-instruct", "whisper-base", "generate"),
        ("chat", "kokoro-82m", "generate"),
        ("my-chat", "all-minilm-l6-v2", "generate"),
        ("whisper-base", "my-chat", r"audio\.transcribe"),
        ("asr", "kokoro-82m", r"audio\.transcribe"),
        ("all-minilm-l6-v2", "my-chat", r"text\.embed"),
        ("my-eyes", "my-chat", r"tokens\.encode"),
        ("ppocr-v4", "whisper-base", r"image\.ocr"),  # which is not installed here
    ],
)
def test_a_name_never_stands_for_a_model_of_another_task(
    models: Repository, name: str, target: str, function: str
) -> None:
    said = rf"'{name}' cannot stand for {target}@1.*(fuse|audio\.live|{function}).*; choose another model"
    with pytest.raises(ModelUnsupportedError, match=said):
        check(models, name, target)


def test_a_model_that_was_given_another_ones_name_can_get_it_back(models: Repository) -> None:
    models.alias("smollm2-135m-instruct", "my-eyes")
    check(models, "smollm2-135m-instruct", "smollm2-135m-instruct@1")


def test_the_command_refuses_it_and_changes_nothing(models: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIBUS_MODELS", str(models.root))
    refused = CliRunner().invoke(command, ["alias", "whisper-base", "my-chat"])
    assert isinstance(refused.exception, ModelUnsupportedError)
    assert models.aliases.read() == {}
    assert CliRunner().invoke(command, ["alias", "whisper-base", "my-ears"]).output == "whisper-base: my-ears@1\n"
