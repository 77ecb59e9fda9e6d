"""kokoro-onnx as a peer: `python kokoro_onnx_tts.py MODEL VOICES VOCABULARY THREADS`; symbols in, samples out."""

import json
import sys
import time

import numpy as np
import onnxruntime
from kokoro_onnx import Kokoro

if __name__ == "__main__":
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(sys.argv[4])
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    model = Kokoro.from_session(session, sys.argv[2], vocab_config=sys.argv[3])
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        sound, _ = model.create(request["symbols"], request["voice"], is_phonemes=True, trim=False)
        seconds = time.perf_counter() - started
        np.save(request["file"], sound)
        print(json.dumps({"seconds": seconds}), flush=True)
