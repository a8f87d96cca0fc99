#!/usr/bin/env python3
"""A training step of transformers + PEFT + Liger kernels on one GPU, for comparison with `longhaul bench train`: JSON lines.

    python3 bench/peft_gpu_step.py --tokens 4096 8192 --steps 6

Qwen2.5-7B's shape with random bf16 weights, LoRA of rank 16 on every linear layer in bf16, gradient checkpointing,
cuDNN attention, Liger's kernels (norms, rotary embedding, SwiGLU, fused linear cross-entropy), fused AdamW: the
strongest of what users can install, at the same work as ours: one unpacked row, every token a target, optimizer included.
"""

import argparse
import json
import statistics
import time

import torch
from liger_kernel.transformers import apply_liger_kernel_to_qwen2
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM, Qwen2Config

PEAK_FLOPS = 989e12


def make_model(rank, dropout):
    apply_liger_kernel_to_qwen2()
    config = Qwen2Config(hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
                         intermediate_size=18944, vocab_size=152064, max_position_embeddings=1 << 20,
                         use_sliding_window=False, tie_word_embeddings=False)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=dropout,
                                              target_modules="all-linear"), autocast_adapter_dtype=False)
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    return model.train()


def flops_per_token(tokens, lora):
    multiplied = 28 * (3584 * 3584 * 2 + 2 * 3584 * 512 + 3 * 3584 * 18944) + 3584 * 152064
    return 4 * multiplied + 6 * lora + 6 * 28 * 3584 * tokens


def measure(model, optimizer, tokens, steps, lora):
    ids = (torch.arange(tokens, device="cuda") * 7919 + 13)[None] % 152064
    seconds = []
    for step in range(steps):
        torch.cuda.synchronize()
        if step == 1:
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[min(2, steps - 1):])
    print(json.dumps({"system": "transformers+peft+liger", "tokens": tokens, "tokens_per_s": round(tokens / median),
                      "mfu": round(tokens / median * flops_per_token(tokens, lora) / PEAK_FLOPS, 4),
                      "step_s": round(median, 4), "peak_bytes": torch.cuda.max_memory_allocated(),
                      "loss": round(float(loss), 4)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lora_dropout", type=float, default=0.0)
    words = parser.parse_args()
    model = make_model(words.rank, words.lora_dropout)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    for tokens in words.tokens:
        measure(model, optimizer, tokens, words.steps, sum(p.numel() for p in trained))


if __name__ == "__main__":
    main()
