"""A sentence's vector by torch and transformers, once.

python torch_cold.py FOLDER SENTENCE
"""

from __future__ import annotations

import sys

import torch
from transformers import AutoModel, AutoTokenizer

folder, sentence = sys.argv[1:]
tokens = AutoTokenizer.from_pretrained(folder)(sentence, return_tensors="pt")
with torch.inference_mode():
    states = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
vector = torch.nn.functional.normalize(states.mean(1)[0], dim=0)
assert vector.shape == (384,)
