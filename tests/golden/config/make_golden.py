"""Golden values for the reading of config.json, made by transformers itself.

Writes configs.json beside this script: for each configuration text the values of transformers' config class and
the inverse frequencies of its rotary embedding (as the hexadecimal form of each fp32, so that nothing is rounded).
With --check it compares with the stored file instead of writing: frequencies to 2e-7 relative (the processor's
vector width decides the last bit of a power), everything else exactly.

Usage: make_golden.py [--check]
"""

import json
import pathlib
import struct
import sys
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).parent
SIZES = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 64,
    "intermediate_size": 96,
    "vocab_size": 70,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FAMILIES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def cases():
    """Yields (name, config dict)."""
    for family, architecture in FAMILIES.items():
        base = {"model_type": family, **SIZES}
        if family == "mistral":
            base["sliding_window"] = None
        yield family + " defaults", base
        if family != "mistral":  # its class refuses null
            yield family + " null KV heads", {**base, "num_key_value_heads": None}
        yield family + " 4 KV heads", {
            **base,
            "architectures": [architecture],
            "num_key_value_heads": 4,
            "head_dim": 6,
            "rope_theta": 1000000.0,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "eos_token_id": [3, 5],
            "bos_token_id": 4,
        }
    llama = {"model_type": "llama", **SIZES, "head_dim": 64}
    yield "rope width 64", {**llama, "rope_theta": 100000}
    yield "rope width 96", {**llama, "head_dim": 96}
    yield "rope width 128, 500000", {**llama, "head_dim": 128, "rope_theta": 500000.0}
    yield "rope width 128, 1000000", {**llama, "head_dim": 128, "rope_theta": 1000000}
    yield "llama3 spelled as in 4", {
        **llama, "head_dim": 128, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3},
        "max_position_embeddings": 131072}
    yield "llama3 spelled as in 5", {
        **llama, "dtype": "float16",
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3, "factor": 32.0}}
    yield "llama3 without original length", {
        **llama, "max_position_embeddings": 4096,
        "rope_scaling": {"type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0}}
    yield "linear spelled as in 4", {**llama, "rope_scaling": {"type": "linear", "factor": 2.5}}
    yield "linear spelled as in 5", {
        **llama, "rope_parameters": {"rope_type": "linear", "rope_theta": 20000.0, "factor": 4.0}}
    yield "default spelled as in 5", {**llama, "rope_parameters": {"rope_type": "default", "rope_theta": 12345.5}}
    yield "empty scaling", {**llama, "rope_scaling": {}, "rope_theta": 7000.0}
    yield "attention bias", {**llama, "attention_bias": True, "mlp_bias": True}
    yield "qwen3 attention bias", {"model_type": "qwen3", **SIZES, "attention_bias": True}


def ids(value):
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def describe(name, text):
    """What transformers makes of one config.json."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(text))
        config = transformers.AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
    frequencies = type(model.model.rotary_emb)(config).inv_freq
    layer = model.model.layers[0]
    return {
        "name": name,
        "config": text,
        "hidden_size": config.hidden_size,
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": layer.self_attn.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "qkv_bias": layer.self_attn.q_proj.bias is not None,
        "o_bias": layer.self_attn.o_proj.bias is not None,
        "mlp_bias": layer.mlp.up_proj.bias is not None,
        "qk_norm": hasattr(layer.self_attn, "q_norm"),
        "dtype": str(config.dtype or "float32").removeprefix("torch."),
        "bos_token_id": config.bos_token_id,
        "eos_token_ids": ids(config.eos_token_id),
        "pad_token_id": config.pad_token_id,
        "parameters": {key: list(value.shape) for key, value in model.named_parameters()},
        "inv_freq": [struct.pack(">f", value).hex() for value in frequencies.tolist()],
    }


def as_float(text):
    return struct.unpack(">f", bytes.fromhex(text))[0]


def differs(stored, made):
    near = all(
        abs(as_float(a) - as_float(b)) <= 2e-7 * as_float(a)
        for a, b in zip(stored["inv_freq"], made["inv_freq"], strict=True)
    )
    return not near or {**stored, "inv_freq": 0} != {**made, "inv_freq": 0}


def main():
    made = [describe(name, text) for name, text in cases()]
    path = HERE / "configs.json"
    if "--check" in sys.argv[1:]:
        stored = json.loads(path.read_text())["cases"]
        wrong = [b["name"] for a, b in zip(stored, made, strict=True) if differs(a, b)]
        if wrong:
            sys.exit("transformers now says something else for: " + "; ".join(wrong))
        print(f"{len(made)} configurations as stored")
        return
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    lines = ",\n".join(json.dumps(case) for case in made)
    path.write_text('{"made_with": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(versions), lines))


if __name__ == "__main__":
    main()
