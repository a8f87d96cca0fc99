"""safetensors, transformers and PEFT read the tensor files of a checkpoint. Usage: weights_oracle.py TOOL"""

import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here needs a network

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

TOOL = sys.argv[1]


def expect_equal(what, got, want):
    assert set(got) == set(want), (what, sorted(set(got) ^ set(want)))
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype and torch.equal(got[name], tensor), (what, name)


def part(expected, prefix):
    return {name.removeprefix(prefix): t for name, t in expected.items() if name.startswith(prefix)}


def check(folder, name):
    subprocess.run([TOOL, str(folder), name], check=True)
    expected = load_file(folder / "expected.safetensors")
    adapter, full = part(expected, "adapter/"), part(expected, "full/")
    expect_equal("adapter", load_file(folder / "adapter" / "adapter_model.safetensors"), adapter)
    state = folder / "optimizer" / "optimizer.safetensors"
    expect_equal("optimizer", load_file(state), part(expected, "optimizer/"))
    with safe_open(state, "pt") as file:
        assert file.metadata()["step"] == "2"

    shards = sorted((folder / "sharded").glob("model-*.safetensors"))
    assert len(shards) > 2 and not (folder / "sharded" / "model.safetensors").exists()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "sharded", dtype=torch.float32)
    state_dict = model.state_dict()
    for tensor_name, tensor in full.items():
        assert torch.equal(state_dict[tensor_name], tensor), tensor_name
    assert set(state_dict) - set(full) <= {"lm_head.weight"}

    # The names of the adapter's tensors are those that PEFT itself gives to such an adapter.
    config = peft.LoraConfig(
        r=4, target_modules="all-linear", task_type="CAUSAL_LM", modules_to_save=["embed_tokens"]
    )
    wrapped = peft.get_peft_model(model, config)
    names = set(peft.get_peft_model_state_dict(wrapped, save_embedding_layers=False))
    assert names == set(adapter), sorted(names ^ set(adapter))[:6]


def main():
    for name in ("llama", "qwen2", "qwen3"):
        with tempfile.TemporaryDirectory() as folder:
            check(pathlib.Path(folder), name)
    print("weights: safetensors, transformers and PEFT agree")


if __name__ == "__main__":
    main()
