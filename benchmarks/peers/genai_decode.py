"""Decode with ONNX Runtime GenAI: `python genai_decode.py MODEL FOLDER THREADS`, then lines of JSON.

MODEL is a folder of ours; its graph gets the inputs that GenAI binds (ids and an attention mask), so that both run the
same operators on the same weights. Lines are those of `llama_cpp_decode.py`, one stream only.
"""

import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime_genai as og
from onnx import TensorProto, helper, numpy_helper


def convert(source: Path, folder: Path, threads: int) -> None:
    model = onnx.load(source / "model.onnx", load_external_data=False)
    graph = model.graph
    past = [value for value in graph.input if value.name.startswith("past_key_values")]
    del graph.input[:]
    graph.input.extend(
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "token"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]),
            *past,
        ]
    )
    table = np.load(source / "embeddings.npy")
    graph.initializer.extend(
        [
            numpy_helper.from_array(table, "embeddings"),
            numpy_helper.from_array(np.array([1]), "axis"),
            numpy_helper.from_array(np.array(1), "one"),
            numpy_helper.from_array(np.array(0), "zero"),
        ]
    )
    make = helper.make_node
    head = [
        make("Gather", ["embeddings", "input_ids"], ["half"]),
        make("Cast", ["half"], ["inputs_embeds"], to=TensorProto.FLOAT),
        make("ReduceSum", ["attention_mask", "axis"], ["sums"], keepdims=0),
        make("Sub", ["sums", "one"], ["lasts"]),
        make("Cast", ["lasts"], ["lengths"], to=TensorProto.INT32),
        make("Shape", ["attention_mask"], ["mask_shape"]),
        make("Gather", ["mask_shape", "one"], ["total"]),
        make("Cast", ["total"], ["capacity_used"], to=TensorProto.INT32),
        make("Shape", ["input_ids"], ["ids_shape"]),
        make("Gather", ["ids_shape", "one"], ["count"]),
        make("Range", ["zero", "count", "one"], ["logits_at"]),
    ]
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(head + nodes)
    shutil.copyfile(source / "model.data", folder / "model.data")
    onnx.save(model, folder / "model.onnx")
    dims = json.loads((source / "manifest.json").read_text())["dims"]
    (folder / "genai_config.json").write_text(json.dumps(config(dims, len(table), threads)))


def config(dims, vocabulary: int, threads: int):
    names = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    presents = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    return {
        "model": {
            "type": "llama",
            "vocab_size": vocabulary,
            "context_length": 2048,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
            "decoder": {
                "filename": "model.onnx",
                "head_size": dims["head_dim"],
                "hidden_size": dims["hidden"],
                "num_attention_heads": dims["hidden"] // dims["head_dim"],
                "num_key_value_heads": dims["kv_heads"],
                "num_hidden_layers": dims["layers"],
                "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **names},
                "outputs": {"logits": "logits", **presents},
                "session_options": {"intra_op_num_threads": threads, "log_severity_level": 3},
            },
        },
        "search": {"max_length": 2048, "past_present_share_buffer": True},
    }


def generate(model, prompt, count: int):
    parameters = og.GeneratorParams(model)
    most = len(prompt) + 1 + count
    parameters.set_search_options(max_length=most, min_length=most, do_sample=False)
    generator = og.Generator(model, parameters)
    generator.append_tokens(np.array([prompt], np.int32))
    generator.generate_next_token()
    started = time.perf_counter()
    for _ in range(count):
        generator.generate_next_token()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "ids": [int(token) for token in generator.get_sequence(0)[len(prompt) :]]}


if __name__ == "__main__":
    source, folder, threads = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    convert(source, folder, threads)
    loaded = og.Model(str(folder))
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(generate(loaded, request["prompt"], request["tokens"])), flush=True)
