"""Reads our event files with the tensorboard package. Usage: tensorboard_oracle.py TOOL"""

import math
import pathlib
import struct
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader


def load(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    subprocess.run([sys.argv[1], name], check=True)

    events = load(folder / "plain")
    tags = set(events.Tags()["scalars"])
    wanted = {"train/loss", "train/grad_norm", "train/learning_rate", "train/token_acc",
              "train/tokens_per_second", "train/mfu", "eval/loss", "eval/token_acc"}
    assert wanted <= tags, tags
    loss = events.Scalars("train/loss")
    assert [s.step for s in loss] == list(range(300))
    assert [s.value for s in loss] == [float32(3 / (step + 1)) for step in range(300)]
    assert all(s.wall_time > 1.7e9 for s in loss)
    assert {s.value for s in events.Scalars("train/learning_rate")} == {float32(9.9999999999999e-5)}
    (evaluation,) = events.Scalars("eval/loss")
    assert evaluation.step == 299 and evaluation.value == float32(2 / 3)
    (odd,) = events.Scalars("odd/тег")
    assert odd.step == 10**12 and math.isnan(odd.value)

    (file,) = (folder / "plain").iterdir()
    first = next(iter(LegacyEventFileLoader(str(file)).Load()))
    assert first.file_version == "brain.Event:2"

    resumed = [(s.step, s.value) for s in load(folder / "resumed").Scalars("train/loss")]
    assert resumed == [(s, 1.0) for s in range(1, 5)] + [(s, 2.0) for s in range(5, 9)], resumed
    print("ok")
