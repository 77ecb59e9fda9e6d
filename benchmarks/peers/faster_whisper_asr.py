"""faster-whisper as a peer: `python faster_whisper_asr.py MODEL THREADS`; a clip's path in, its text and time out."""

import json
import sys
import time

import numpy as np
from faster_whisper import WhisperModel

if __name__ == "__main__":
    model = WhisperModel(sys.argv[1], device="cpu", compute_type="int8", cpu_threads=int(sys.argv[2]))
    for line in sys.stdin:
        clip = np.load(json.loads(line)["clip"])
        started = time.perf_counter()
        segments, _ = model.transcribe(clip, beam_size=1, language="en", without_timestamps=True)
        text = " ".join(segment.text.strip() for segment in segments)
        print(json.dumps({"text": text, "seconds": time.perf_counter() - started}), flush=True)
