#!/usr/bin/env python3
"""One process of LoRA training with transformers + PEFT on CPU, for comparison with longhaul.

In:  a model folder, a text file, a row length, gradient checkpointing on or off, a number of steps.
Out: one JSON line: loss and seconds of every step. The caller reads the peak memory of this process.
"""

import argparse
import json
import os
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer


def build(args):
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.config.use_cache = False
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    lora = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(model, lora).train()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--checkpointing", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    model = build(args)
    with open(args.text, encoding="utf-8") as source:
        ids = AutoTokenizer.from_pretrained(args.model)(
            source.read(), return_tensors="pt"
        ).input_ids[:, : args.tokens]
    if ids.shape[1] != args.tokens:
        raise SystemExit(
            f"peft_train: error: the text has {ids.shape[1]} tokens, expected at least {args.tokens}"
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    result = {"loss": [], "seconds": []}
    for _ in range(args.steps):
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        result["loss"].append(loss.item())
        result["seconds"].append(time.perf_counter() - begin)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
