"""The tensors of a Hugging Face folder: in one safetensors file, or in several with an index.

Source: `save_torch_state_dict` of huggingface_hub, which writes both forms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bus.errors import ModelCorruptError
from runtime.weights.safetensors import SafetensorsFile

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class SafetensorsFolder:
    """The open tensors of a folder.

    Attributes:
        shapes: Shape by tensor name, outermost axis first.

    Raises:
        ModelCorruptError: No such files, one of them damaged, or an index that is wrong about them.
    """

    def __init__(self, folder: Path) -> None:
        files = _files(folder)
        self._homes = {name: file for file in files.values() for name in file}
        self.shapes: Mapping[str, tuple[int, ...]] = {name: file.shapes[name] for name, file in self._homes.items()}
        for name, place in _index(folder).items():
            if name not in files[place].shapes:
                raise ModelCorruptError(f"{INDEX} says that tensor {name!r} is in {place}; it is not", file=place)

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor, read-only; BF16 comes as float32.

        Raises:
            ModelCorruptError: No such tensor.
        """
        if name not in self._homes:
            raise ModelCorruptError(f"the folder's safetensors have no tensor {name!r}", tensor=name)
        return self._homes[name].tensor(name)


def _files(folder: Path) -> dict[str, SafetensorsFile]:
    names = sorted(set(_index(folder).values())) or [SINGLE]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelCorruptError(f"the folder has no {', '.join(missing)}; weights are read from safetensors files")
    return {name: SafetensorsFile(folder / name) for name in names}


def _index(folder: Path) -> dict[str, str]:
    """File by tensor name; empty: there is one file, and no index."""
    path = folder / INDEX
    if (folder / SINGLE).is_file() or not path.is_file():
        return {}
    try:
        places: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        if not places or any(Path(place).name != place for place in places.values()):
            raise ValueError("its weight_map does not name files beside it")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelCorruptError(f"{INDEX} is damaged: {error!r}", file=INDEX) from error
    return places
