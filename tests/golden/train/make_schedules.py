"""Learning rates of transformers' schedules, for tests/train/lr_schedule_test.cpp.

Usage: make_schedules.py OUTPUT (schedules.json beside this file). Made once with the versions named in the output;
the test reads the file only.
"""

import json
import sys

import torch
import transformers

LR = 3e-4

# name, longhaul's settings, total steps, steps that are asked for
CASES = [
    ("cosine", {}, 0, 10),
    ("cosine", {}, 3, 17),
    ("cosine", {"num_cycles": 1.5}, 2, 20),
    ("linear", {}, 0, 7),
    ("linear", {}, 5, 23),
    ("linear", {}, 9, 9),
    ("constant", {}, 0, 6),
    ("constant_with_warmup", {}, 4, 12),
    ("constant_with_warmup", {}, 0, 3),
    ("cosine_with_min_lr", {"min_lr": 3e-5}, 2, 15),
    ("cosine_with_min_lr", {"min_lr_rate": 0.25}, 0, 11),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1, "num_cycles": 2.5}, 1, 13),
    ("cosine_with_min_lr", {"min_lr": 0.0}, 3, 14),
    ("cosine", {}, 1, 1),
]


def rates(name, kwargs, warmup, total):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=LR)
    schedule = transformers.get_scheduler(
        name, optimizer, num_warmup_steps=warmup, num_training_steps=total, scheduler_specific_kwargs=dict(kwargs)
    )
    result = []
    for _ in range(total):
        result.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return result


def main():
    cases = [
        {"name": name, "kwargs": kwargs, "warmup": warmup, "total": total, "rates": rates(name, kwargs, warmup, total)}
        for name, kwargs, warmup, total in CASES
    ]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"versions": versions, "learning_rate": LR, "cases": cases}, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
