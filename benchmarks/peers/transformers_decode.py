"""Decode with transformers in float32: `python transformers_decode.py GGUF THREADS`; lines as of the other peers."""

import json
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria

if __name__ == "__main__":
    path, threads = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)

    class FirstToken(StoppingCriteria):
        """Notes when the first token was there."""

        at = 0.0

        def __call__(self, ids, scores, **_):
            self.at = self.at or time.perf_counter()
            return torch.zeros(len(ids), dtype=torch.bool)

    for line in sys.stdin:
        request = json.loads(line)
        ids, count, first = torch.tensor([request["prompt"]]), request["tokens"] + 1, FirstToken()
        made = model.generate(
            ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, stopping_criteria=[first]
        )
        seconds = time.perf_counter() - first.at
        print(json.dumps({"seconds": seconds, "ids": made[0, ids.shape[1] :].tolist()}), flush=True)
