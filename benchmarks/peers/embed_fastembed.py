"""fastembed as a peer: `python … MODEL THREADS`; texts in, their vectors and the time out.

The model is a folder with our export, which pools and normalises by itself, so that fastembed is told to do neither.
"""

import json
import sys
import time

from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

if __name__ == "__main__":
    TextEmbedding.add_custom_model(
        model="local/model", pooling=PoolingType.DISABLED, normalization=False, sources=ModelSource(hf="local/model"),
        dim=384, model_file="model.onnx",
    )  # fmt: skip
    model = TextEmbedding("local/model", threads=int(sys.argv[2]), specific_model_path=sys.argv[1])
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        started = time.perf_counter()
        vectors = [vector.tolist() for vector in model.embed(texts, batch_size=32)]
        spent = time.perf_counter() - started
        print(json.dumps({"vectors": vectors, "ms": spent * 1e3}), flush=True)
