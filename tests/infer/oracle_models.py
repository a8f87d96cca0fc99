"""Models and adapters that transformers and PEFT make, for the oracle scripts of this folder."""

import copy
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO_MODEL = ROOT / "demo" / "model"

TINY = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, vocab_size=320, max_position_embeddings=512,
            bos_token_id=None, pad_token_id=None)
CONFIGS = {
    "llama": LlamaConfig(num_attention_heads=6, num_key_value_heads=2, eos_token_id=319, **TINY,
                         rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0,
                                          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                          "original_max_position_embeddings": 64}),
    "qwen2": Qwen2Config(num_attention_heads=8, num_key_value_heads=2, eos_token_id=319, tie_word_embeddings=True, **TINY),
    "qwen3": Qwen3Config(num_attention_heads=4, num_key_value_heads=2, head_dim=20, eos_token_id=319, **TINY),
    "smol": LlamaConfig(num_attention_heads=9, num_key_value_heads=3, eos_token_id=319, tie_word_embeddings=True,
                        **{**TINY, "hidden_size": 36}),
}


def make_model(name, folder, dtype=torch.float32, max_shard_size="5GB"):
    """Random weights, norms and biases included; with the demo model's tokenizer."""
    torch.manual_seed(len(name))
    model = AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[name])).to(dtype)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape) * 0.3 + (1.0 if "norm" in key else 0.0))
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    shutil.copy(DEMO_MODEL / "tokenizer.json", folder)
    return model


def add_adapter(model, folder, seed=1, scale=0.1, **options):
    """A LoRA adapter whose B is not zero, saved by PEFT; returns the PEFT model (evaluation mode)."""
    torch.manual_seed(seed)
    config = LoraConfig(r=5, lora_alpha=12, lora_dropout=0.1, task_type="CAUSAL_LM",
                        **{"target_modules": "all-linear", **options})
    tuned = get_peft_model(model, config).eval()
    with torch.no_grad():
        for key, weight in tuned.named_parameters():
            if "lora_B" in key or "modules_to_save" in key:
                weight.add_(torch.randn(weight.shape) * scale)
    tuned.save_pretrained(folder)
    return tuned
