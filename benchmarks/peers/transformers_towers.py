"""Towers of transformers: `python transformers_towers.py FOLDER THREADS`; saves random weights, and answers.

A line `{"patches": PATH, "grids": [[T, H, W], …], "out": PATH}` sees, and one
`{"mel": PATH, "lengths": [N, …], "out": PATH}` hears.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen2_5OmniThinkerConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniAudioEncoder, Qwen2_5OmniVisionEncoder


def main(folder: Path, threads: int) -> None:
    """Answer lines until there are no more."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    sizes = json.loads((folder / "sizes.json").read_text())
    config = Qwen2_5OmniThinkerConfig(vision_config=sizes["vision"], audio_config=sizes["audio"])
    eyes = Qwen2_5OmniVisionEncoder._from_config(config.vision_config).eval()
    ears = Qwen2_5OmniAudioEncoder._from_config(config.audio_config).eval()
    for name, model in (("vision", eyes), ("audio", ears)):
        (folder / name).mkdir()
        weights = {f"{name}.{key}": value.contiguous() for key, value in model.state_dict().items()}
        save_file(weights, folder / name / "model.safetensors")
    for line in sys.stdin:
        request = json.loads(line)
        with torch.inference_mode():
            if "patches" in request:
                patches, grids = torch.from_numpy(np.load(request["patches"])), torch.tensor(request["grids"])
                started = time.perf_counter()
                found = eyes(patches, grid_thw=grids).pooler_output
            else:
                mel, lengths = torch.from_numpy(np.load(request["mel"])), torch.tensor(request["lengths"])
                started = time.perf_counter()
                found = ears(mel, feature_lens=lengths).last_hidden_state
        spent = time.perf_counter() - started
        np.save(request["out"], found.numpy())
        print(json.dumps({"ms": spent * 1e3}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
