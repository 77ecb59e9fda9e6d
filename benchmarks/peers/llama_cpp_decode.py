"""Decode with llama.cpp: `python llama_cpp_decode.py GGUF FOLDER TYPE THREADS`, then lines of JSON.

A line `{"prompt": [ids], "tokens": n, "streams": k}` gives `{"seconds": …, "ids": […]}`: the time of n greedy tokens
for each of k copies of the prompt behind the first token. It drives the C interface itself, without what a
Python loop over tokens and logits would add.
"""

import json
import sys
import time
from pathlib import Path

import llama_cpp as c

TYPES = {"F32": c.LLAMA_FTYPE_ALL_F32, "Q8_0": c.LLAMA_FTYPE_MOSTLY_Q8_0}


def quantised(source: Path, folder: Path, name: str) -> Path:
    if name not in TYPES:  # the file as it is
        return source
    target = folder / f"{name}.gguf"
    if not target.exists():
        parameters = c.llama_model_quantize_default_params()
        parameters.ftype, parameters.allow_requantize, parameters.nthread = TYPES[name], True, 2
        failed = c.llama_model_quantize(str(source).encode(), str(target).encode(), parameters)
        assert not failed, failed
    return target


def load(path: Path, threads: int, streams: int = 8):
    c.llama_backend_init()
    model = c.llama_model_load_from_file(str(path).encode(), c.llama_model_default_params())
    parameters = c.llama_context_default_params()
    parameters.n_ctx, parameters.n_seq_max = 4096, streams
    parameters.n_threads = parameters.n_threads_batch = threads
    return c.llama_init_from_model(model, parameters)


def fill(batch, entries) -> None:
    batch.n_tokens = len(entries)
    for place, (token, position, stream, wanted) in enumerate(entries):
        batch.token[place], batch.pos[place] = token, position
        batch.n_seq_id[place], batch.seq_id[place][0] = 1, stream
        batch.logits[place] = wanted


def generate(context, prompt, count: int, streams: int):
    c.llama_memory_clear(c.llama_get_memory(context), True)
    sampler = c.llama_sampler_init_greedy()
    batch = c.llama_batch_init(4096, 0, 1)
    last = []
    for stream in range(streams):
        fill(batch, [(token, at, stream, at == len(prompt) - 1) for at, token in enumerate(prompt)])
        assert c.llama_decode(context, batch) == 0
        last.append(c.llama_sampler_sample(sampler, context, -1))
    made = [last[0]]
    started = time.perf_counter()
    for at in range(len(prompt), len(prompt) + count):
        fill(batch, [(token, at, stream, True) for stream, token in enumerate(last)])
        assert c.llama_decode(context, batch) == 0
        last = [c.llama_sampler_sample(sampler, context, stream) for stream in range(streams)]
        made.append(last[0])
    seconds = time.perf_counter() - started
    c.llama_batch_free(batch)
    c.llama_sampler_free(sampler)
    return {"seconds": seconds, "ids": made}


if __name__ == "__main__":
    source, folder, name, threads = sys.argv[1:]

    @c.llama_log_callback
    def quiet(level, text, data):
        pass

    c.llama_log_set(quiet, None)
    context = load(quantised(Path(source), Path(folder), name), int(threads))
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(generate(context, request["prompt"], request["tokens"], request["streams"])), flush=True)
