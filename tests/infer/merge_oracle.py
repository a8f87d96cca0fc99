#!/usr/bin/env python3
"""`longhaul export --merge_lora true` against PEFT: transformers loads the result, logits equal PEFT's.

Usage: merge_oracle.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from oracle_models import CONFIGS, add_adapter, make_model

IDS = torch.arange(7, 7 + 60).reshape(2, 30)


def run(program, *words, code=0):
    done = subprocess.run([program, "export", "--merge_lora", "true", *words], text=True, capture_output=True)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits.float()


def tensors(folder):
    """{name: (dtype, file)} of a model folder's weights."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                found[name] = (file.get_slice(name).get_dtype(), path.name)
    return found


def check_equal(what, got, want, limit):
    error = ((got - want).abs().max() / want.abs().max()).item()
    assert error <= limit, f"{what}: logits differ by {error:.2e} of the largest, allowed {limit:.0e}"
    print(f"{what}: largest difference {error:.1e}")


def check_weights(folder, fp32_weights):
    """Every stored tensor is PEFT's fp32 result, rounded once to the stored type."""
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                stored = file.get_tensor(name)
                assert torch.equal(stored, fp32_weights[name].to(stored.dtype)), name


def check_merge(program, scratch, name, case, limit=1e-5, dtype=torch.float32, shard="5GB", words=(), **options):
    """Base and adapter made by transformers and PEFT, merged by the program, compared in fp32."""
    base, adapter, merged = scratch / case / "base", scratch / case / "adapter", scratch / case / "adapter-merged"
    make_model(name, base, dtype, shard)
    add_adapter(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter, **options)
    run(program, "--adapters", adapter, *words)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tuned = PeftModel.from_pretrained(plain, adapter).eval()
    want = logits(tuned)
    untuned = logits(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval())
    assert (want - untuned).abs().max() > 0.01 * want.abs().max(), "the adapter changes nothing"
    got = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()
    check_equal(f"{case}: base and adapter", logits(got), want, limit)
    by_peft = tuned.merge_and_unload()
    check_equal(f"{case}: merged by PEFT", logits(got), logits(by_peft), limit)
    check_weights(merged, by_peft.state_dict())
    return base, adapter, merged


def check_names_and_files(base, merged, dtype=None):
    before, after = tensors(base), tensors(merged)
    assert after.keys() == before.keys(), before.keys() ^ after.keys()
    for name, (kind, file) in before.items():
        assert after[name] == (dtype or kind, file), f"{name}: {after[name]}, base {kind} {file}"
    for file in ("generation_config.json", "tokenizer.json"):
        assert (merged / file).read_bytes() == (base / file).read_bytes(), file


def check_plain(program, scratch):
    for name in CONFIGS:
        base, _, merged = check_merge(program, scratch, name, name)
        check_names_and_files(base, merged)
        assert (merged / "config.json").read_bytes() == (base / "config.json").read_bytes()


def check_types(program, scratch):
    # A bf16 result carries one rounding of every weight.
    base, _, merged = check_merge(program, scratch, "llama", "bf16", limit=5e-2, dtype=torch.bfloat16, shard="60KB")
    check_names_and_files(base, merged)
    assert len({file for _, file in tensors(merged).values()}) > 1, "the base was meant to have several files"
    base, _, merged = check_merge(program, scratch, "qwen3", "bf16 to fp32", dtype=torch.bfloat16,
                                  words=("--torch_dtype", "float32", "--max_model_len", "777"))
    check_names_and_files(base, merged, "F32")
    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    assert config.get("dtype", config.get("torch_dtype")) == "float32" and config["max_position_embeddings"] == 777


def check_adapters(program, scratch):
    check_merge(program, scratch, "qwen2", "rslora", use_rslora=True)
    check_merge(program, scratch, "llama", "two targets", target_modules=["q_proj", "down_proj"])
    check_merge(program, scratch, "llama", "expression", target_modules=r".*layers\.[02]\..*(v|gate)_proj")
    base, _, merged = check_merge(program, scratch, "llama", "saved head", modules_to_save=["lm_head", "embed_tokens"])
    check_names_and_files(base, merged)


def check_errors(program, scratch):
    base, adapter, merged = scratch / "llama" / "base", scratch / "llama" / "adapter", scratch / "llama" / "adapter-merged"
    other = scratch / "qwen3"
    inside = merged / "config.json"
    before = inside.stat().st_mtime_ns
    done = run(program, "--adapters", adapter, code=2)
    assert "exists already" in done.stderr and "--exist_ok true" in done.stderr, done.stderr
    assert inside.stat().st_mtime_ns == before
    run(program, "--adapters", str(adapter) + "/", "--exist_ok", "true")
    fresh = scratch / "new"
    done = run(program, "--adapters", other / "adapter", "--model", base, "--output_dir", fresh, code=2)
    assert "another model" in done.stderr, done.stderr
    (base / "model.safetensors").rename(base / "hidden")
    done = run(program, "--adapters", adapter, "--output_dir", fresh, code=2)
    assert str(base) in done.stderr, done.stderr
    (base / "hidden").rename(base / "model.safetensors")
    done = run(program, "--adapters", base, "--output_dir", fresh, code=2)
    assert "whole model" in done.stderr, done.stderr
    done = run(program, "--adapters", scratch / "nothing", "--output_dir", fresh, code=2)
    assert "no such folder" in done.stderr, done.stderr
    assert not fresh.exists() and not list(scratch.glob(".tmp*"))


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        check_plain(program, scratch)
        check_types(program, scratch)
        check_adapters(program, scratch)
        check_errors(program, scratch)


if __name__ == "__main__":
    main()
