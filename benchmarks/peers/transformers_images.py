"""SigLIP of transformers: `python transformers_images.py FOLDER THREADS SIDE`; saves random weights, and answers.

A line `{"photo": PATH, "out": PATH}` prepares a photo for 384 × 384 pixels, `{"pixels": PATH, "out": PATH}` encodes.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import SiglipVisionConfig, SiglipVisionModel

try:
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil as Processor
except ImportError:
    from transformers import SiglipImageProcessor as Processor


def main(folder: Path, threads: int, side: int) -> None:
    """Answer lines until there are no more."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = SiglipVisionModel(SiglipVisionConfig(image_size=side, vision_use_head=False)).eval()
    model.save_pretrained(folder)
    prepare = Processor(size={"height": 384, "width": 384})
    for line in sys.stdin:
        request = json.loads(line)
        if "photo" in request:
            started = time.perf_counter()
            found = prepare(Image.open(request["photo"]), return_tensors="np")["pixel_values"]
        else:
            pixels = torch.from_numpy(np.load(request["pixels"]))
            started = time.perf_counter()
            with torch.inference_mode():
                found = model(pixel_values=pixels).last_hidden_state.numpy()
        spent = time.perf_counter() - started
        np.save(request["out"], found)
        print(json.dumps({"ms": spent * 1e3}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
