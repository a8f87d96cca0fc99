#!/usr/bin/env python3
"""tools/gguf_to_hf.py against transformers: a tiny Llama goes into a GGUF file as llama.cpp writes it, and comes back.

Also the demo model itself, where ./quickstart or ./run-tests has made it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/gguf_to_hf.py"
DEMO = ROOT / "demo/model"
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tiny_model(tied):
    torch.manual_seed(7)
    config = LlamaConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=80,
        vocab_size=260,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_theta=12345.0,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def permuted(weight, heads):
    """The order in which llama.cpp stores q and k rows: element i of a head's second half follows element i of its first."""
    half = weight.shape[0] // heads // 2
    rows = [
        head * 2 * half + part * half + i
        for head in range(heads)
        for i in range(half)
        for part in (0, 1)
    ]
    return weight[rows]


def byte_tokens():
    """The 256 byte letters of byte-level BPE, a merge, and three special tokens."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + list(bytes_to_unicode().values()) + ["12"]
    )


def write_gguf(model, path, **changes):
    config = model.config
    values = {"pre": "smollm", "architecture": "llama", "rope_dimension": 8} | changes
    writer = gguf.GGUFWriter(path, values["architecture"])
    writer.add_block_count(3)
    writer.add_context_length(512)
    writer.add_embedding_length(48)
    writer.add_feed_forward_length(80)
    writer.add_head_count(6)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(12345.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(260)
    writer.add_rope_dimension_count(values["rope_dimension"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(values["pre"])
    writer.add_token_list(byte_tokens())
    writer.add_token_types([3, 3, 3] + [1] * 257)
    writer.add_token_merges(["1 2"])
    for key, value in (("bos", 1), ("eos", 2), ("unk", 0), ("pad", 2)):
        getattr(writer, f"add_{key}_token_id")(value)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        if "q_proj" in name:
            array = permuted(array, config.num_attention_heads)
        elif "k_proj" in name:
            array = permuted(array, config.num_key_value_heads)
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name):
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def convert(source, folder):
    return subprocess.run(
        [sys.executable, TOOL, source, folder], capture_output=True, text=True, check=False
    )


class GgufToHf(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.path = pathlib.Path(self._folder.name)

    def round_trip(self, tied):
        model = tiny_model(tied)
        write_gguf(model, self.path / "m.gguf")
        done = convert(self.path / "m.gguf", self.path / "hf")
        self.assertEqual(done.returncode, 0, done.stderr)
        loaded = AutoModelForCausalLM.from_pretrained(self.path / "hf").eval()
        ids = torch.arange(3, 120)[None]
        with torch.no_grad():
            self.assertTrue(torch.equal(loaded(ids).logits, model(ids).logits))

    def test_tied_model_comes_back_with_equal_logits(self):
        self.round_trip(tied=True)

    def test_untied_model_comes_back_with_equal_logits(self):
        self.round_trip(tied=False)

    def test_digits_are_single_tokens_even_where_a_merge_exists(self):
        write_gguf(tiny_model(True), self.path / "m.gguf")
        convert(self.path / "m.gguf", self.path / "hf")
        tokenizer = AutoTokenizer.from_pretrained(self.path / "hf")
        self.assertEqual(tokenizer.tokenize("a12<|im_end|>"), ["a", "1", "2", "<|im_end|>"])

    def test_refuses_what_it_does_not_know(self):
        for number, (changes, word) in enumerate(
            [({"pre": "llama-bpe"}, "llama-bpe"), ({"rope_dimension": 4}, "rotary")]
        ):
            path, folder = self.path / f"{number}.gguf", self.path / f"hf{number}"
            write_gguf(tiny_model(True), path, **changes)
            done = convert(path, folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)
            self.assertFalse(folder.exists())

    def test_demo_model_knows_the_capital_of_france(self):
        tokenizer, model = AutoTokenizer.from_pretrained(
            DEMO
        ), AutoModelForCausalLM.from_pretrained(DEMO)
        config = json.loads((DEMO / "config.json").read_text())
        self.assertEqual(
            (config["max_position_embeddings"], config["rope_theta"]), (8192, 100000.0)
        )
        self.assertEqual(tokenizer.tokenize("in 1969"), ["in", "Ġ", "1", "9", "6", "9"])
        chat = [{"role": "user", "content": "What is the capital of France?"}]
        ids = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        answer = model.generate(**ids, max_new_tokens=12, do_sample=False)[0][
            ids["input_ids"].shape[1] :
        ]
        self.assertEqual(tokenizer.decode(answer), "The capital of France is Paris.<|im_end|>")


if __name__ == "__main__":
    unittest.main()
