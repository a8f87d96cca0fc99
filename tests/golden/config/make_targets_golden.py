"""Golden choices of LoRA targets and saved modules, made by PEFT itself on a tiny Qwen2.

Writes targets.json beside this script: for each target_modules / modules_to_save pair the module paths that PEFT gives
a LoRA, in the model's order, and the parameters that train. With --check it compares with the stored file instead.

Usage: make_targets_golden.py [--check]
"""

import json
import pathlib
import sys

import peft
import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODEL = {
    "model_type": "qwen2",
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "vocab_size": 50,
    "tie_word_embeddings": False,
}
# target_modules as PEFT takes it (a text is all-linear or an expression, a list holds names), modules_to_save
CASES = [
    ("all-linear", None),
    (["q_proj"], None),
    (["q_proj", "down_proj"], None),
    (["self_attn.v_proj", "model.layers.1.mlp.gate_proj"], None),
    (["0.self_attn.o_proj"], None),
    (r"model\.layers\.1\.self_attn\.(q|k)_proj", None),
    (r".*\.(up|gate)_proj", None),
    (r".*\.(?P<kind>mlp)\.[a-z]+_proj", None),
    ("all-linear", ["lm_head"]),
    ("all-linear", ["embed_tokens", "lm_head"]),
    (["q_proj"], ["norm"]),
    ("all-linear", ["mlp"]),
    (["v_proj", "up_proj"], ["mlp"]),
]


def describe(targets, saved):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**MODEL))
    config = peft.LoraConfig(r=3, target_modules=targets, modules_to_save=saved, task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model, config)
    lora, trained = [], []
    for name, value in wrapped.named_parameters():
        plain = name.removeprefix("base_model.model.").replace(".default.weight", ".weight")
        plain = plain.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".")
        if value.requires_grad:
            trained.append([plain, list(value.shape)])
        if plain.endswith(".lora_A.weight"):
            lora.append(plain.removesuffix(".lora_A.weight"))
    return {
        "targets": [targets] if isinstance(targets, str) else targets,
        "modules_to_save": saved or [],
        "lora": lora,
        "trained": sorted(trained),
    }


def main():
    made = [describe(targets, saved) for targets, saved in CASES]
    path = HERE / "targets.json"
    if "--check" in sys.argv[1:]:
        if json.loads(path.read_text())["cases"] != made:
            sys.exit("PEFT now chooses something else")
        print(f"{len(made)} choices as stored")
        return
    versions = {"peft": peft.__version__, "transformers": transformers.__version__}
    lines = ",\n".join(json.dumps(case) for case in made)
    path.write_text('{"made_with": %s,\n"model": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(versions), json.dumps(MODEL), lines))


if __name__ == "__main__":
    main()
