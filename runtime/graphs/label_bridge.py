"""Build the label bridge: the language model's token embeddings of the classifier's class names."""

from __future__ import annotations

import numpy as np

from runtime.repository.recipe import BuildJob, Built
from runtime.text.vocabulary import read_tokenizer

MOST_TOKENS = 4


def build(job: BuildJob) -> Built:
    """Write `tokens.npy` float16 (label, 4, hidden), `lengths.npy` int8 (label,) and `labels.txt`.

    A name longer than four tokens keeps its last four: the head of an English compound stands last.
    """
    model = job.needs["smollm2-135m-instruct"]
    table = np.load(model / "embeddings.npy", mmap_mode="r")
    tokenizer = read_tokenizer(model / "tokenizer.json")
    text = (job.needs["efficientnet-lite0"] / "labels.txt").read_text(encoding="utf-8")
    labels = text.split("\n")
    tokens = np.zeros((len(labels), MOST_TOKENS, table.shape[1]), np.float16)
    lengths = np.zeros(len(labels), np.int8)
    for place, label in enumerate(labels):
        ids = tokenizer.encode(f" {label}", add_special_tokens=False).ids[-MOST_TOKENS:]
        tokens[place, : len(ids)] = table[ids]
        lengths[place] = len(ids)
    np.save(job.out / "tokens.npy", tokens)
    np.save(job.out / "lengths.npy", lengths)
    (job.out / "labels.txt").write_text(text, encoding="utf-8")
    return Built(dims={"hidden": table.shape[1], "labels": len(labels), "tokens": MOST_TOKENS})
