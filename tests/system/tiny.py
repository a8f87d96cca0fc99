"""Tiny models, a tokenizer and chats for the tests that compare longhaul with transformers and PEFT."""

import json
import pathlib
import random

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
    " + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = "the cat sat on a mat and ate two fish while it rained in the old town near seven hills".split()


def write_tokenizer(folder: pathlib.Path) -> int:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "chat_template": CHATML,
            }
        )
    )
    return tokenizer.get_vocab_size()


def model_config(name: str, vocab: int, layers: int = 2):
    common = dict(
        hidden_size=48,
        num_hidden_layers=layers,
        intermediate_size=80,
        vocab_size=vocab,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        eos_token_id=vocab - 1,
        bos_token_id=None,
        pad_token_id=None,
    )
    if name == "llama":
        return transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=4, **common)
    if name == "smol":
        common["hidden_size"] = 72
        return transformers.LlamaConfig(
            num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True, **common
        )
    if name == "qwen2":
        common["hidden_size"] = 64
        return transformers.Qwen2Config(
            num_attention_heads=8, num_key_value_heads=2, use_sliding_window=False, **common
        )
    if name == "qwen2_tied":
        return transformers.Qwen2Config(
            num_attention_heads=6, num_key_value_heads=2, use_sliding_window=False, tie_word_embeddings=True, **common
        )
    if name == "qwen3":
        return transformers.Qwen3Config(
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, use_sliding_window=False, **common
        )
    raise ValueError(name)


def write_model(folder: pathlib.Path, name: str, layers: int = 2):
    """A random model with its tokenizer; weights large enough that every part matters."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = write_tokenizer(folder)
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(model_config(name, vocab, layers), dtype=torch.float32)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1 and "norm" in parameter_name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(6.0)
    model.save_pretrained(folder)
    return model


def write_chats(path: pathlib.Path, count: int, seed: int = 1, longest: int = 40):
    rng = random.Random(seed)
    text = lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, longest)))
    with path.open("w") as out:
        for _ in range(count):
            messages = []
            for _ in range(rng.randint(1, 2)):
                messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
            out.write(json.dumps({"messages": messages}) + "\n")
