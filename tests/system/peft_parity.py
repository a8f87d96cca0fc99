"""longhaul against transformers + PEFT in fp32: losses, gradient norms and final weights of five steps.

usage: peft_parity.py LONGHAUL WORK_FOLDER
The same tiny models, the same starting adapter (made by PEFT), the same token ids (longhaul data --dump_tokens; they are
compared with Hugging Face's own in another test). The oracle sums the token losses of a step one document at a time and
divides by their number. Exit status 0 when every figure agrees.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tiny  # noqa: E402

STEPS, BATCH, ACCUMULATION, LR, CLIP = 5, 2, 2, 2e-3, 0.7
NAMES = ["llama", "qwen2", "qwen2_tied", "qwen3", "smol"]


def run(longhaul, arguments, ranks=1):
    environment = dict(os.environ, NPROC_PER_NODE=str(ranks), OMP_NUM_THREADS="1")
    done = subprocess.run([longhaul, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"longhaul {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def make_adapter(model, folder):
    config = peft.LoraConfig(
        r=4, lora_alpha=12, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    adapted = peft.get_peft_model(model, config)
    torch.manual_seed(9)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn_like(parameter))
    adapted.save_pretrained(folder)
    return adapted


def oracle(model, samples, total_steps):
    """Losses, norms (before clipping) of plain PyTorch training; leaves the trained weights in `model`."""
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    decay = [p for n, p in trained if p.dim() >= 2]
    plain = [p for n, p in trained if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=LR,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, 2, total_steps)
    per_step = BATCH * ACCUMULATION
    losses, norms, rates = [], [], []
    for step in range(STEPS):
        chosen = samples[step * per_step : (step + 1) * per_step]
        count = sum(sum(label != -100 for label in sample["labels"][1:]) for sample in chosen)
        total = 0.0
        for sample in chosen:
            logits = model(input_ids=torch.tensor([sample["input_ids"]])).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(
                logits, torch.tensor(sample["labels"][1:]), ignore_index=-100, reduction="sum"
            )
            (loss / count).backward()
            total += loss.item()
        losses.append(total / count)
        norms.append(float(torch.nn.utils.clip_grad_norm_([p for _, p in trained], CLIP)))
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return losses, norms, rates


def read_log(folder):
    lines = [json.loads(line) for line in (folder / "logging.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def close(what, got, want, limit):
    if abs(got - want) > limit * max(abs(want), 1e-12):
        raise SystemExit(f"{what}: got {got}, expected {want}")


def compare_weights(what, got, want):
    if set(got) != set(want):
        raise SystemExit(f"{what}: other tensors: {sorted(set(got) ^ set(want))[:5]}")
    for name, tensor in want.items():
        error = (got[name].double() - tensor.double()).norm() / tensor.double().norm().clamp_min(1e-12)
        if error > 2e-4:
            raise SystemExit(f"{what}: {name} differs by {error:.2e}")


def check(longhaul, work, name, kind, ranks):
    folder = work / f"{name}_{kind}_{ranks}"
    model = tiny.write_model(folder / "model", name)
    tiny.write_chats(folder / "chats.jsonl", STEPS * BATCH * ACCUMULATION)
    text = ["--model", folder / "model", "--dataset", folder / "chats.jsonl", "--max_length", 400]
    text += ["--cache_dir", folder / "cache", "--dataset_shuffle", "false"]
    run(longhaul, ["data", *text, "--dump_tokens", folder / "tokens.jsonl"])
    samples = [json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]
    options = [*text, "--train_dataloader_shuffle", "false", "--torch_dtype", "float32", "--max_steps", STEPS]
    options += ["--per_device_train_batch_size", BATCH, "--gradient_accumulation_steps", ACCUMULATION]
    options += ["--learning_rate", LR, "--warmup_steps", 2, "--max_grad_norm", CLIP, "--logging_steps", 1]
    options += ["--output_dir", folder / "out", "--add_version", "false", "--sequence_parallel_size", ranks]
    if kind == "lora":
        adapted = make_adapter(model, folder / "adapter")
        losses, norms, rates = oracle(adapted, samples, STEPS)
        run(longhaul, ["sft", *options, "--adapters", folder / "adapter"], ranks)
        adapted.save_pretrained(folder / "expected")
        want = load_file(folder / "expected" / "adapter_model.safetensors")
        got = load_file(folder / "out" / f"checkpoint-{STEPS}" / "adapter_model.safetensors")
    else:
        losses, norms, rates = oracle(model, samples, STEPS)
        run(longhaul, ["sft", *options, "--train_type", "full"], ranks)
        model.save_pretrained(folder / "expected")
        want = load_file(folder / "expected" / "model.safetensors")
        got = load_file(folder / "out" / f"checkpoint-{STEPS}" / "model.safetensors")
    for step, line in enumerate(read_log(folder / "out")):
        close(f"{folder.name} loss of step {step + 1}", line["loss"], losses[step], 2e-5)
        close(f"{folder.name} gradient norm of step {step + 1}", line["grad_norm"], norms[step], 1e-4)
        close(f"{folder.name} rate of step {step + 1}", line["learning_rate"], rates[step], 1e-9)
    compare_weights(folder.name, got, want)
    checkpoint = folder / "out" / f"checkpoint-{STEPS}"
    if kind == "lora":
        base = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
        loaded = peft.PeftModel.from_pretrained(base, checkpoint)
    else:
        loaded = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.tensor([samples[0]["input_ids"]])
    trained = adapted if kind == "lora" else model
    difference = (loaded(input_ids=ids).logits - trained(input_ids=ids).logits).abs().max().item()
    if difference > 2e-2:
        raise SystemExit(f"{folder.name}: logits of the loaded checkpoint differ by {difference}")
    shutil.rmtree(folder)
    print(f"{name} {kind} on {ranks} rank(s): losses {losses[0]:.4f} … {losses[-1]:.4f} agree")


def main():
    longhaul, work = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    for name in NAMES:
        for kind in ("lora", "full"):
            check(longhaul, work, name, kind, 1)
    check(longhaul, work, "smol", "lora", 2)
    check(longhaul, work, "qwen2", "full", 2)


if __name__ == "__main__":
    main()
