"""PEFT and transformers read what we write, and the other way round. Usage: checkpoint_oracle.py TOOL"""

import dataclasses
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here needs a network

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

TOOL = sys.argv[1]


def run(*args):
    return subprocess.run([TOOL, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True).stdout


def tiny_model():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1))


class Warned(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def without_warnings(action):
    handler = Warned()
    logging.getLogger().addHandler(handler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = action()
    logging.getLogger().removeHandler(handler)
    assert not handler.texts, handler.texts
    return result


def check_config_loads(folder):
    run("write-config", folder, folder / "base")
    config = without_warnings(lambda: peft.LoraConfig.from_pretrained(str(folder)))
    assert config.base_model_name_or_path == str(folder / "base")
    assert config.r == 4 and config.lora_alpha == 6.5 and config.lora_dropout == 0.05
    assert config.use_rslora is True and config.bias == "none"
    assert set(config.target_modules) == {"q_proj", "down_proj"}
    assert config.modules_to_save == ["lm_head"]
    assert config.task_type == "CAUSAL_LM" and config.peft_type == peft.PeftType.LORA

    # Only keys that PEFT itself writes.
    reference = folder / "reference"
    peft.LoraConfig(task_type="CAUSAL_LM").save_pretrained(str(reference))
    ours = json.loads((folder / "adapter_config.json").read_text())
    theirs = json.loads((reference / "adapter_config.json").read_text())
    assert ours.keys() <= theirs.keys(), ours.keys() - theirs.keys()
    for key in ours.keys() & {"fan_in_fan_out", "alpha_pattern", "rank_pattern", "layers_pattern",
                              "layers_to_transform", "auto_mapping", "init_lora_weights"}:
        assert ours[key] == theirs[key], key

    run("write-regex", folder, folder / "base")
    config = without_warnings(lambda: peft.LoraConfig.from_pretrained(str(folder)))
    assert config.target_modules == r".*\.(q|v)_proj" and config.modules_to_save is None


def check_weights_load(folder):
    """Tensors under our names reach their places in a PEFT model."""
    run("write-config", folder, folder / "base")
    tensors = {}
    for layer in range(2):
        for module, n_out, n_in in (("self_attn.q_proj", 16, 16), ("mlp.down_proj", 16, 24)):
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(4, n_in)
            tensors[f"{name}.lora_B.weight"] = torch.randn(n_out, 4)
    tensors["base_model.model.lm_head.weight"] = torch.randn(32, 16)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    model = without_warnings(lambda: peft.PeftModel.from_pretrained(tiny_model(), str(folder)))
    state = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    assert state.keys() == tensors.keys()
    assert all(torch.equal(state[name], tensors[name]) for name in tensors)
    lines = run("rename", folder).splitlines()
    assert {line.split()[0] for line in lines} == tensors.keys(), lines
    assert "base_model.model.lm_head.weight 2 lm_head.weight" in lines


def check_peft_is_read(folder):
    """What PEFT saves is understood by the reader."""
    config = peft.LoraConfig(r=3, lora_alpha=7, lora_dropout=0.1, use_rslora=True, task_type="CAUSAL_LM",
                             target_modules=["q_proj", "up_proj"], modules_to_save=["embed_tokens"],
                             ensure_weight_tying=False)
    model = peft.get_peft_model(tiny_model(), config)
    model.save_pretrained(folder, save_embedding_layers=False)
    read = json.loads(run("read-config", folder))
    assert read["rank"] == 3 and read["alpha"] == 7 and read["dropout"] == 0.1 and read["use_rslora"]
    assert sorted(read["target_modules"]) == ["q_proj", "up_proj"]
    assert read["modules_to_save"] == ["embed_tokens"]
    lines = run("rename", folder).splitlines()
    assert len(lines) == 2 * 2 * 2 + 1 and not any("unknown" in line for line in lines), lines
    assert {line.split()[0] for line in lines} == set(
        peft.get_peft_model_state_dict(model, save_embedding_layers=False))

    dora = peft.get_peft_model(tiny_model(), peft.LoraConfig(use_dora=True, target_modules=["q_proj"]))
    dora.save_pretrained(folder / "dora")
    refused = subprocess.run([TOOL, "read-config", folder / "dora"], stderr=subprocess.PIPE, text=True)
    assert refused.returncode != 0 and "use_dora" in refused.stderr


def check_trainer_state(folder):
    run("write-state", folder)
    state = transformers.TrainerState.load_from_json(str(folder / "trainer_state.json"))
    assert state.global_step == 3 and state.max_steps == 3 and state.epoch == 0.75
    assert state.best_metric == 0.25 and state.best_model_checkpoint == "/run/checkpoint-3"
    assert [entry["step"] for entry in state.log_history] == [2, 3]
    assert state.log_history[0]["loss"] == 0.5 and state.log_history[1]["eval_loss"] == 0.25
    known = {field.name for field in dataclasses.fields(transformers.TrainerState)}
    assert json.loads((folder / "trainer_state.json").read_text()).keys() <= known


with tempfile.TemporaryDirectory() as name:
    for check in (check_config_loads, check_weights_load, check_peft_is_read, check_trainer_state):
        sub = pathlib.Path(name) / check.__name__
        sub.mkdir()
        check(sub)
        print("ok", check.__name__)
