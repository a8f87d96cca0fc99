#!/usr/bin/env python3
"""A Hugging Face model folder with random weights, to run commands at a model's true size where its weights are not at hand.

    python3 bench/random_model.py --config CONFIG.json --tokenizer FOLDER --out FOLDER

Shapes and names come from transformers; the tokenizer (any whose ids the vocabulary holds) and its template are copied.
"""

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

SHARD_BYTES = 4 << 30
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                   "chat_template.jinja")


def shapes(config):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    state = model.state_dict()
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def shards(named_shapes, dtype):
    """Lists of names, each of at most SHARD_BYTES."""
    lists, size = [[]], 0
    for name, shape in named_shapes.items():
        count = torch.Size(shape).numel() * dtype.itemsize
        if lists[-1] and size + count > SHARD_BYTES:
            lists.append([])
            size = 0
        lists[-1].append(name)
        size += count
    return lists


def random_tensor(name, shape, dtype, device):
    if len(shape) == 1 and name.endswith("weight"):  # of a norm
        return torch.ones(shape, dtype=dtype)
    return (torch.randn(shape, dtype=dtype, device=device) * 0.02).cpu()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(words.config, words.out / "config.json")
    for name in TOKENIZER_FILES:
        if (words.tokenizer / name).exists():
            shutil.copy(words.tokenizer / name, words.out / name)
    config = AutoConfig.from_pretrained(words.out)
    dtype = config.dtype or torch.float32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    named_shapes = shapes(config)
    lists = shards(named_shapes, dtype)
    weight_map, total = {}, 0
    for number, names in enumerate(lists, 1):
        file = f"model-{number:05d}-of-{len(lists):05d}.safetensors"
        tensors = {name: random_tensor(name, named_shapes[name], dtype, device) for name in names}
        save_file(tensors, words.out / file, metadata={"format": "pt"})
        total += sum(tensor.nbytes for tensor in tensors.values())
        weight_map.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (words.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    print(f"{words.out}: {len(named_shapes)} tensors, {total / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
