"""Folders of multimodal models, old and new, whole and damaged: what is built of them, and why some are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil

from bus.contracts import ModelManifest
from bus.errors import ModelCorruptError, ModelUnsupportedError, OmnibusError
from runtime.export.hugging_face import BuildOptions, build_model
from runtime.multimodal.known import exact_pixels, family_of
from runtime.repository import Catalog, Repository
from tests.runtime import reference
from tests.runtime.export.hub import Hub
from tests.runtime.multimodal.llava_pair import GRIDS, IMAGE, TEMPLATE, TEXT, TILE, TOWER, VIDEO
from tests.runtime.multimodal.words import number, tokenizer

OPTIONS = BuildOptions(id="small", quantisation="float32", context_tokens=256)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    words = tokenizer("<|im_start|>", "<|im_end|>", IMAGE, VIDEO, template=TEMPLATE)
    config = LlavaOnevisionConfig(
        text_config=TEXT, vision_config=TOWER, image_token_index=number(words, IMAGE),
        video_token_index=number(words, VIDEO), image_grid_pinpoints=GRIDS,
    )  # fmt: skip
    model = LlavaOnevisionForConditionalGeneration(config)
    reference.randomise(model)
    reference.save(model, folder)
    words.save_pretrained(folder)
    LlavaOnevisionImageProcessorPil(size={"height": TILE, "width": TILE}).save_pretrained(folder)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """The folder, to be changed."""
    folder = tmp_path / "small"
    folder.mkdir()
    for path in saved.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def build(folder: Path, root: Path, options: BuildOptions = OPTIONS) -> tuple[Repository, ModelManifest]:
    repository = Repository(root / "models", catalog=Catalog(()))
    return repository, build_model(str(folder), repository, options)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def rename(folder: Path, *names: tuple[str, str]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for old, new in names:
        tensors = {re.sub(old, new, name): tensor for name, tensor in tensors.items()}
    save_file(tensors, path)


def test_a_model_says_what_it_takes(saved: Path, tmp_path: Path) -> None:
    repository, manifest = build(saved, tmp_path)
    assert manifest.family == "llava_onevision"
    assert manifest.modalities_in == ("text", "image", "video")
    assert manifest.modalities_out == ("text",)
    assert {"vision.onnx", "vision.data", "model.onnx", "embeddings.npy"} <= {file.path for file in manifest.files}
    assert family_of(manifest).placeholders == {"image": IMAGE, "video": VIDEO}
    assert not exact_pixels(manifest)
    assert repository.verify("small") == ()
    _, other = build(saved, tmp_path, BuildOptions(id="small", quantisation="float32", exact_pixels=True))
    assert exact_pixels(other)
    assert other.version == "2"


NEWER = [
    (r"^language_model\.model\.", "model.language_model."),
    (r"^language_model\.lm_head", "lm_head"),
    (r"^(vision_tower|multi_modal_projector|image_newline)", r"model.\1"),
]
OLDER = [(r"^vision_tower\.", "vision_tower.vision_model.")]
HEAD = [(r"^vision_tower\.post_layernorm\.bias", "vision_tower.head.probe")]


@pytest.mark.parametrize("names", [NEWER, OLDER, [*OLDER, *NEWER], HEAD], ids=["newer", "older", "both", "with a head"])
def test_checkpoints_of_every_age_give_the_same_graphs(
    names: list[tuple[str, str]], saved: Path, copy: Path, tmp_path: Path
) -> None:
    rename(copy, *names)
    digests = []
    for place, folder in enumerate((saved, copy)):
        _, manifest = build(folder, tmp_path / str(place))
        digests.append({file.path: file.sha256 for file in manifest.files if file.path.endswith(".data")})
    assert digests[0] == digests[1]


def test_processors_may_have_one_file_or_one_each(saved: Path, copy: Path, tmp_path: Path) -> None:
    image = json.loads((copy / "preprocessor_config.json").read_text())
    (copy / "preprocessor_config.json").unlink()
    (copy / "processor_config.json").write_text(json.dumps({"image_processor": image, "video_processor": image}))
    one, other = (build(folder, tmp_path / folder.name)[1].parameters["multimodal"] for folder in (saved, copy))
    assert one == other


def test_a_repository_of_a_hub_is_the_same_model(
    saved: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = (copy / "chat_template.jinja").read_text()
    (copy / "chat_template.jinja").unlink()
    (copy / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    (copy / "README.md").write_text("nothing that a build reads")
    _, here = build(saved, tmp_path / "here")
    with Hub(copy) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.origin)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        repository = Repository(tmp_path / "there", catalog=Catalog(()))
        there = build_model("hf://tiny/Chat", repository, OPTIONS)
    assert there.parameters["multimodal"] == here.parameters["multimodal"]
    assert there.modalities_in == here.modalities_in
    built = [{file.path: file.sha256 for file in one.files if file.path != "LICENSE"} for one in (here, there)]
    assert built[0] == built[1]
    assert not any("README" in path for path in hub.asked)


def without(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors")

    return damage


def with_tensor(name: str, value: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        save_file({**load_file(folder / "model.safetensors"), name: value}, folder / "model.safetensors")

    return damage


def with_values(file: str, **values: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / file, **values)


def with_template(template: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "chat_template.jinja").write_text(template)

    return damage


LAYER = "vision_tower.encoder.layers.1."
TEXTS = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
DAMAGES: dict[str, tuple[Callable[[Path], None], type[OmnibusError], str]] = {
    "a tensor is missing": (without(f"{LAYER}mlp.fc1.weight"), ModelCorruptError, r"layers\.1\.mlp\.fc1\.weight"),
    "the newline is missing": (without("image_newline"), ModelCorruptError, "newline"),
    "one is of another shape": (
        with_tensor(f"{LAYER}mlp.fc1.bias", np.zeros(3, np.float32)), ModelCorruptError, r"shape \(3,\)"),
    "one is no number": (
        with_tensor(f"{LAYER}mlp.fc1.bias", np.full(80, np.nan, np.float32)), ModelCorruptError, "not finite"),
    "one is left over": (
        with_tensor("vision_tower.encoder.layers.3.mlp.fc1.bias", np.zeros(80, np.float32)), ModelCorruptError,
        r"layers\.3"),
    "another tower": (
        with_values("config.json", vision_config={"model_type": "clip_vision_model"}), ModelUnsupportedError,
        "clip_vision_model"),
    "a layer that there is not": (
        with_values("config.json", vision_feature_layer=9), ModelUnsupportedError, "layers 9"),
    "features of several layers": (
        with_values("config.json", vision_feature_layer=[-1, -2]), ModelUnsupportedError, r"\[-1, -2\]"),
    "features without the first": (
        with_values("config.json", vision_feature_select_strategy="default"), ModelUnsupportedError, "first"),
    "tiles that do not fill a grid": (
        with_values("config.json", image_grid_pinpoints=[[60, 61]]), ModelCorruptError, "image_grid_pinpoints"),
    "pictures of another size": (
        with_values("preprocessor_config.json", size={"height": 64, "width": 64}), ModelUnsupportedError, "64"),
    "a token that there is not": (
        with_values("config.json", image_token_index=999), ModelCorruptError, "token 999"),
    "three channels have two means": (
        with_values("preprocessor_config.json", image_mean=[0.5, 0.5]), ModelCorruptError, "image_mean"),
    "a filter that there is not": (
        with_values("preprocessor_config.json", resample=17), ModelCorruptError, "resample"),
    "a template without places": (with_template(TEXTS), ModelCorruptError, "0 places '<image>' for image"),
    "a template that fails at media": (
        with_template("{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
                      "{% else %}{{ 1 // 0 }}{% endif %}{% endfor %}{% endfor %}"), ModelCorruptError, "fails"),
    "a template that leaves out text": (with_template("<image><video>"), ModelCorruptError, "leaves out"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "error", "why"), DAMAGES.values(), ids=DAMAGES)
def test_a_folder_that_is_not_understood_is_refused(
    damage: Callable[[Path], None], error: type[OmnibusError], why: str, copy: Path, tmp_path: Path
) -> None:
    damage(copy)
    with pytest.raises(error, match=why):
        build(copy, tmp_path)
    assert not (tmp_path / "models" / "small").exists()
