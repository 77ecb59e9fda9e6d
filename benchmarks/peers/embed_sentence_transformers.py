"""sentence-transformers as a peer: `python … MODEL THREADS`; texts in, their vectors and the time out."""

import json
import sys
import time

import torch
from sentence_transformers import SentenceTransformer

if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    model = SentenceTransformer(sys.argv[1], device="cpu", local_files_only=True)
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        started = time.perf_counter()
        vectors = model.encode(texts, batch_size=32, normalize_embeddings=True)
        spent = time.perf_counter() - started
        print(json.dumps({"vectors": vectors.tolist(), "ms": spent * 1e3}), flush=True)
