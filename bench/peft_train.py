#!/usr/bin/env python3
"""Times LoRA training by transformers and PEFT: r 16 on all seven projections, sdpa attention,
gradient checkpointing, batch 1. Prints one JSON object."""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

import reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a GGUF file")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a text to train on")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=3, help="steps that count; one more warms up")
    parser.add_argument("--dtype", choices=reference.DTYPES, default="bf16")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    text = arguments.data.read_text(encoding="utf-8")[:arguments.context * (arguments.steps + 1) * 8]
    tokens = torch.tensor(reference.load_tokenizer(arguments.model).encode(text).ids)
    model = reference.add_lora(reference.load_model(arguments.model, arguments.dtype))
    optimizer = reference.prepare_training(model)
    if len(tokens) < arguments.context:
        parser.error(f"{arguments.data} has {len(tokens)} tokens, fewer than --context {arguments.context}")
    losses, seconds, cpu_seconds = [], [], []
    for step in range(arguments.steps + 1):
        first = step * arguments.context % (len(tokens) - arguments.context + 1)
        began, cpu_began = time.perf_counter(), time.process_time()
        losses.append(reference.train_step(model, optimizer, tokens[first:first + arguments.context], 2e-4))
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu_began)
        print(f"step {step}: loss {losses[-1]:.4f}, {seconds[-1]:.1f} s", file=sys.stderr, flush=True)
    print(json.dumps({
        "tokens_per_s": arguments.context / statistics.median(seconds[1:]),
        "peak_rss_bytes": reference.peak_resident_bytes(),
        "losses": losses, "seconds": seconds, "cpu_seconds": cpu_seconds, "context": arguments.context, "dtype": arguments.dtype,
        "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
