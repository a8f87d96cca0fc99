"""Compares the C++ safetensors code with the reference package and PyTorch. Usage: safetensors_oracle.py TOOL"""

import pathlib
import random
import subprocess
import sys
import tempfile

import safetensors
import safetensors.torch
import torch

TOOL = sys.argv[1]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool]
# What the reference accepts and we refuse on purpose.
STRICTER = ("element type", "twice", "not valid JSON", "metadata")


def run(*args):
    return subprocess.run([TOOL, *map(str, args)], check=True, stdout=subprocess.PIPE).stdout.decode(errors="replace")


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def metadata_of(path):
    with safetensors.safe_open(path, "pt") as file:
        return file.metadata()


def check_round_trip(folder):
    torch.manual_seed(0)
    tensors = {}
    for i, dtype in enumerate(DTYPES):
        for shape in [(), (1,), (3, 5), (0, 7), (2, 1, 3)]:
            raw = torch.randint(0, 2 if dtype == torch.bool else 256, (*shape, dtype.itemsize), dtype=torch.uint8)
            tensors[f"t.{i}.{'x'.join(map(str, shape))}.é\"\\"] = raw.view(dtype).reshape(shape)
    metadata = {"format": "pt", "ключ": "a\n\"b\""}
    safetensors.torch.save_file(tensors, folder / "in", metadata)
    run("copy", folder / "in", folder / "out")
    back = safetensors.torch.load_file(folder / "out")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert same(back[name], tensor), name
    assert metadata_of(folder / "out") == metadata


def check_to_float(folder):
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    tensors = {"f16": every.view(torch.float16), "bf16": every.clone().view(torch.bfloat16)}
    safetensors.torch.save_file(tensors, folder / "in")
    run("floats", folder / "in", folder / "out")
    back = safetensors.torch.load_file(folder / "out")
    for name, tensor in tensors.items():
        want = tensor.float()
        assert torch.equal(back[name].isnan(), want.isnan()), name
        assert torch.equal(back[name].nan_to_num(nan=0).view(torch.int32), want.nan_to_num(nan=0).view(torch.int32)), name


def check_rounding(folder):
    torch.manual_seed(1)
    patterns = torch.randint(-2**31, 2**31, (400_000,), dtype=torch.int64).to(torch.int32)
    scaled = torch.randn(400_000) * torch.exp2(torch.randint(-30, 18, (400_000,)).float())
    tensors = {"patterns": patterns.view(torch.float32), "scaled": scaled}
    safetensors.torch.save_file(tensors, folder / "in")
    run("round", folder / "in", folder / "out")
    back = safetensors.torch.load_file(folder / "out")
    for name, tensor in tensors.items():
        for suffix, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
            got, want = back[f"{name}.{suffix}"], tensor.to(dtype)
            assert torch.equal(got.isnan(), want.isnan()), (name, suffix)
            keep = ~want.isnan()
            assert torch.equal(got[keep].view(torch.int16), want[keep].view(torch.int16)), (name, suffix)


def mutated(seed, rng):
    data = bytearray(seed)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(8, min(len(data), 400))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.choice(b"0123456789-{}[]\",:. ")
        elif kind == 1:
            del data[rng.randrange(len(data)):]
            if len(data) <= 8:
                data = bytearray(seed)
        elif kind == 2:
            digits = [i for i in range(8, len(data)) if chr(data[i]).isdigit()]
            if digits:
                data[rng.choice(digits)] = rng.choice(b"0123456789")
        else:
            data += bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
    return bytes(data)


def check_acceptance(folder):
    rng = random.Random(3)
    seed = safetensors.torch.save({"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16),
                                   "c": torch.zeros(0)}, {"format": "pt"})
    files, reference = [], []
    for i in range(3000):
        data = mutated(seed, rng)
        path = folder / f"m{i}"
        path.write_bytes(data)
        files.append(path)
        try:
            with safetensors.safe_open(path, "pt") as file:
                file.keys()
            reference.append(True)
        except safetensors.SafetensorError:
            reference.append(False)
    ours = []
    for start in range(0, len(files), 500):
        ours += run("check", *files[start:start + 500]).rstrip("\n").split("\n")
    assert len(ours) == len(files)
    both = sum(reference)
    assert 100 < both < 2900, both
    for path, line, accepted in zip(files, ours, reference):
        if line == "ok":
            assert accepted, f"accepted what the reference refuses: {path.read_bytes()[:300]}"
        elif accepted:
            assert any(reason in line for reason in STRICTER), f"{line}: {path.read_bytes()[:300]}"


with tempfile.TemporaryDirectory() as name:
    for check in (check_round_trip, check_to_float, check_rounding, check_acceptance):
        sub = pathlib.Path(name) / check.__name__
        sub.mkdir()
        check(sub)
        print("ok", check.__name__)
