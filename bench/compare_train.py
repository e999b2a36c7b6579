#!/usr/bin/env python3
"""Speed and memory of LoRA training, longtune beside transformers + PEFT, in turns.

Each round runs `longtune train` (the whole sequence at once) and bench/peft_train.py on the same
model and text, each in a process of its own. Prints a row per program and the ratios; --json FILE
keeps every figure.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import programs

GIB = 1024**3


def train_longtune(arguments) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        output = pathlib.Path(directory) / "run"
        result, peak = programs.longtune(
            arguments.longtune, "train", "--model", arguments.model, "--data", arguments.data,
            "--context", arguments.context, "--segment", arguments.segment, "--steps", arguments.steps + 1,
            "--lora-rank", 16, "--lora-alpha", 32, "--lr", 2e-4, "--schedule", "constant",
            "--activations", "bf16", "--device-memory", arguments.device_memory, "--output", output)
        # As PEFT's median: over whole samples, the first step left out.
        steps = [step for step in programs.read_metrics(output)[1:] if step["tokens"] == arguments.context]
        if not steps:
            sys.exit(f"{arguments.data} is shorter than two samples of {arguments.context} tokens")
        return {"tokens_per_s": statistics.median(step["tokens_per_s"] for step in steps), "peak_rss_bytes": peak,
                "device_bytes_peak": result["device_bytes_peak"]}


def train_peft(arguments, dtype: str) -> dict:
    script = pathlib.Path(__file__).with_name("peft_train.py")
    output, _ = programs.run([
        sys.executable, "-W", "ignore", script, "--model", arguments.model, "--data", arguments.data,
        "--context", arguments.context, "--steps", arguments.steps, "--dtype", dtype])
    return json.loads(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs.add_common_arguments(parser)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a text to train on")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--segment", type=int, default=0, help="of longtune; 0: the whole sequence at once")
    parser.add_argument("--steps", type=int, default=3, help="that count, in each round; one more warms up")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peft-dtypes", default="bf16", help="comma-separated: bf16, f32 (where a processor has "
                        "no bf16 arithmetic, PyTorch is far faster in f32)")
    parser.add_argument("--device-memory", default="2GiB", help="longtune's budget")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    rows: dict[str, list[dict]] = {}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        rows.setdefault("longtune", []).append(train_longtune(arguments))
        for dtype in arguments.peft_dtypes.split(","):
            rows.setdefault(f"peft {dtype}", []).append(train_peft(arguments, dtype))
    median = {
        name: {key: statistics.median(run[key] for run in runs) for key in ("tokens_per_s", "peak_rss_bytes")}
        for name, runs in rows.items()}
    ours = median["longtune"]
    print(f"{'LoRA r 16, context ' + str(arguments.context):28} {'tokens/s':>9} {'peak GiB':>9} {'speed':>7} {'memory':>7}")
    for name, row in median.items():
        speed, memory = row["tokens_per_s"], row["peak_rss_bytes"]
        print(f"{name:28} {speed:9.1f} {memory / GIB:9.2f} {ours['tokens_per_s'] / speed:7.2f} "
              f"{ours['peak_rss_bytes'] / memory:7.2f}")
    print("speed and memory: longtune's over the row's")
    if arguments.json:
        arguments.json.write_text(json.dumps({"median": median, "runs": rows, "context": arguments.context}, indent=2))


if __name__ == "__main__":
    main()
