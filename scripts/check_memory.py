#!/usr/bin/env python3
"""The plan against the memory that runs really take, over a grid of settings on a real model.

For each setting: `longtune plan` gives the device's and the host's need; one training step gives the arena's
high-water mark and the process's resident peak. Fails where the plan is below the high-water mark or more than 1 %
above it, or where the resident peak is over device + host + the constant that the program states.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import programs  # noqa: E402

MIB = 1024**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a text to train on")
    parser.add_argument("--longtune", type=pathlib.Path, default=programs.LONGTUNE)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024])
    arguments = parser.parse_args()

    failed = 0
    print(f"{'setting':60} {'plan':>9} {'taken':>9} {'resident':>9} {'allowed':>9}   MiB")
    with tempfile.TemporaryDirectory() as directory:
        text = pathlib.Path(directory) / "text.txt"
        text.write_text(arguments.data.read_text()[:60_000])
        grid = itertools.product(arguments.contexts, (0, 128), ("file", "bf16", "f32", "nf4"), ("bf16", "f32"), (4, 16))
        for number, (context, segment, base, activations, rank) in enumerate(grid):
            setting = ["--context", context, "--segment", segment, "--base-weights", base,
                       "--activations", activations, "--kv", activations, "--lora-rank", rank]
            plan, _ = programs.longtune(arguments.longtune, "plan", "--model", arguments.model, *setting,
                                        "--data", text)
            run, resident = programs.longtune(
                arguments.longtune, "train", "--model", arguments.model, "--data", text, *setting, "--steps", 1,
                "--output", pathlib.Path(directory) / f"run-{number}")
            need, taken = plan["device"]["need"], run["device_bytes_peak"]
            allowed = need + plan["host"]["need"] + plan["process_bytes"]
            good = taken <= need <= 1.01 * taken and resident <= allowed
            failed += not good
            name = " ".join(str(word).removeprefix("--") for word in setting)
            print(f"{name:60} {need / MIB:9.1f} {taken / MIB:9.1f} {resident / MIB:9.1f} {allowed / MIB:9.1f}"
                  f"{'' if good else '   FAILED'}", flush=True)
    sys.exit(f"{failed} settings failed" if failed else 0)


if __name__ == "__main__":
    main()
