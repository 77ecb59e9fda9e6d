"""Folders of Qwen's multimodal models as the hub has them, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bus.contracts import ModelManifest
from bus.errors import ModelCorruptError, ModelUnsupportedError, OmnibusError
from runtime.export.hugging_face import BuildOptions, build_model
from runtime.repository import Catalog, Repository
from tests.runtime.multimodal import qwen_audio_pair, qwen_vl_pair

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each family."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("qwen2_vl", "qwen2_5_vl", "qwen2_audio")}
    for name in ("qwen2_vl", "qwen2_5_vl"):
        qwen_vl_pair.save(folders[name], name)
    qwen_audio_pair.save(folders["qwen2_audio"])
    return folders


def copied(folder: Path, to: Path) -> Path:
    to.mkdir(parents=True)
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def build(folder: Path, root: Path) -> ModelManifest:
    options = BuildOptions(id="small", quantisation="float32", context_tokens=512)
    return build_model(str(folder), Repository(root, catalog=Catalog(())), options)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def older(folder: Path) -> None:
    """As Qwen's own uploads are: the language model's values among the others, other words for the rest."""
    config = read(folder / "config.json")
    text, vision = config.pop("text_config"), config.pop("vision_config")
    rope = text.pop("rope_parameters")
    vision["in_chans"] = vision.pop("in_channels")
    vision["spatial_patch_size"] = vision["patch_size"]
    for name in ("rope_parameters", "model_type"):
        vision.pop(name)
    flat = {
        **{name: value for name, value in text.items() if name != "model_type"},
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]},
        **{name: value for name, value in config.items() if value is not None},
        "vision_config": vision,
    }
    (folder / "config.json").write_text(json.dumps(flat))
    image = read(folder / "preprocessor_config.json")
    size = image.pop("size")
    image |= {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    (folder / "preprocessor_config.json").write_text(json.dumps(image))


def newer(folder: Path) -> None:
    """As transformers calls the tensors in memory."""
    path = folder / "model.safetensors"
    renamed = {}
    for name, tensor in load_file(path).items():
        home = "model." if name.startswith("visual.") else ""
        inside = name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name
        renamed[f"{home}{inside}"] = tensor
    save_file(renamed, path)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
@pytest.mark.parametrize("change", [older, newer])
def test_checkpoints_of_every_age_give_the_same_model(
    change: Change, name: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(saved[name], tmp_path / "copy")
    change(folder)
    manifests = [build(one, tmp_path / root) for one, root in ((saved[name], "one"), (folder, "other"))]
    digests = [{file.path: file.sha256 for file in one.files if file.path.endswith(".data")} for one in manifests]
    assert digests[0] == digests[1]
    assert set(digests[0]) == {"model.data", "vision.data"}
    assert manifests[0].parameters["multimodal"] == manifests[1].parameters["multimodal"]
    assert manifests[0].dims == manifests[1].dims


def test_a_folder_that_says_nothing_of_films_has_those_of_qwens_own_code(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(saved["qwen2_vl"], tmp_path / "copy")
    (folder / "video_preprocessor_config.json").unlink()
    video = build(folder, tmp_path / "root").parameters["multimodal"]["video"]
    assert video == {
        "min_pixels": 128 * 28 * 28, "max_pixels": 768 * 28 * 28, "frames_per_second": 2.0, "min_frames": 4,
        "max_frames": 768, "tokens": 128_000,
    }  # fmt: skip


def test_what_the_models_take_is_in_their_manifests(saved: dict[str, Path], tmp_path: Path) -> None:
    found = {name: build(folder, tmp_path / name).modalities_in for name, folder in saved.items()}
    seen = ("text", "image", "video")
    assert found == {"qwen2_vl": seen, "qwen2_5_vl": seen, "qwen2_audio": ("text", "audio")}


def inside(key: str, **values: Any) -> Change:
    """Change an object of `config.json`."""

    def change(folder: Path) -> None:
        config = read(folder / "config.json")
        config[key] |= values
        (folder / "config.json").write_text(json.dumps(config))

    return change


def in_file(file: str, **values: Any) -> Change:
    """Change a file of a configuration."""

    def change(folder: Path) -> None:
        (folder / file).write_text(json.dumps({**read(folder / file), **values}))

    return change


def in_audio(**values: Any) -> Change:
    def change(folder: Path) -> None:
        config = read(folder / "processor_config.json")
        config["feature_extractor"] |= values
        (folder / "processor_config.json").write_text(json.dumps(config))

    return change


def with_tensor(name: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file({**load_file(path), name: np.zeros(3, np.float32)}, path)

    return change


IMAGE, FILM = "preprocessor_config.json", "video_preprocessor_config.json"
REFUSED: dict[str, tuple[str, Change, type[OmnibusError], str]] = {
    "four channels": ("qwen2_vl", inside("vision_config", in_channels=4), ModelUnsupportedError, "3 channels"),
    "heads that do not divide": ("qwen2_vl", inside("vision_config", num_heads=7), ModelCorruptError, "num_heads"),
    "an unknown activation": ("qwen2_vl", inside("vision_config", hidden_act="relu"), ModelUnsupportedError, "relu"),
    "tokens of another width": (
        "qwen2_5_vl", inside("vision_config", out_hidden_size=32), ModelCorruptError, "out_hidden_size"),
    "layers that are no numbers": (
        "qwen2_5_vl", inside("vision_config", fullatt_block_indexes=["1"]), ModelCorruptError, "fullatt_block_indexes"),
    "a layer too few": ("qwen2_5_vl", inside("vision_config", depth=3), ModelCorruptError, r"blocks\.3"),
    "a tensor left over": ("qwen2_vl", with_tensor("visual.extra"), ModelCorruptError, "extra"),
    "films of other colours": (
        "qwen2_vl", in_file(FILM, image_mean=[0.5, 0.5, 0.5]), ModelUnsupportedError, "normalises films otherwise"),
    "no resizing": ("qwen2_vl", in_file(IMAGE, do_resize=False), ModelUnsupportedError, "do_resize"),
    "fewer pixels than the fewest": (
        "qwen2_vl", in_file(IMAGE, min_pixels=10**6, max_pixels=10), ModelCorruptError, "min_pixels"),
    "a token that there is not": ("qwen2_vl", in_file("config.json", image_token_id=999), ModelCorruptError, "999"),
    "another rate": ("qwen2_audio", in_audio(sampling_rate=8000), ModelUnsupportedError, "sampling_rate as 8000"),
    "other bands": ("qwen2_audio", in_audio(feature_size=80), ModelUnsupportedError, "feature_size as 80"),
    "noise on top": ("qwen2_audio", in_audio(dither=0.1), ModelUnsupportedError, "dither"),
    "scaled embeddings": (
        "qwen2_audio", inside("audio_config", scale_embedding=True), ModelUnsupportedError, "scale_embedding"),
    "layers that are missing": ("qwen2_audio", inside("audio_config", encoder_layers=5), ModelCorruptError, "layers.2"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "error", "why"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_is_not_understood_is_refused(
    name: str, change: Change, error: type[OmnibusError], why: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(saved[name], tmp_path / "copy")
    change(folder)
    with pytest.raises(error, match=why):
        build(folder, tmp_path / "root")
    assert not (tmp_path / "root" / "small").exists()
