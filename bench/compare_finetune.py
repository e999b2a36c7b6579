#!/usr/bin/env python3
"""The same fine-tune by longtune and by PEFT: same initial adapter, same samples, same rates.

longtune makes the initial adapter and trains first; PEFT then reads the samples and learning rates
of each step from longtune's metrics.jsonl. Both are evaluated on the first --eval-tokens tokens of
a held-out text, each by its own program. Exits with 1 where the held-out losses differ by more than
--tolerance. --work DIR keeps both runs, and a later call goes on from what is there.
"""

import argparse
import json
import pathlib
import sys

import torch

import programs
import reference


def train_longtune(arguments) -> pathlib.Path:
    """The initial adapter is what a step at rate 0 leaves."""
    initial, output = arguments.work / "initial", arguments.work / "longtune"
    common = ["train", "--model", arguments.model, "--data", *arguments.data, "--context", arguments.context,
              "--lora-rank", 16, "--lora-alpha", 32, "--clip", 1.0, "--weight-decay", 0.0, "--schedule", "constant"]
    if not (initial / "adapter_model.safetensors").exists():
        programs.longtune(arguments.longtune, *common, "--steps", 1, "--lr", 0.0, "--output", initial)
    if not (output / "adapter_model.safetensors").exists():
        print("longtune trains", file=sys.stderr, flush=True)
        programs.longtune(
            arguments.longtune, *common, "--segment", 0, "--steps", max(arguments.at), "--lr", 5e-4, "--warmup", 4,
            "--activations", arguments.activations, "--kv", arguments.activations, "--adapter", initial,
            "--save-every", arguments.save_every, "--keep", 0, "--resume", "--output", output)
    return output


def evaluate_longtune(arguments, step: int) -> float:
    adapter = ["--adapter", arguments.work / f"longtune/checkpoints/step-{step}"] if step else []
    result, _ = programs.longtune(
        arguments.longtune, "eval", "perplexity", "--model", arguments.model, *adapter, "--data", arguments.held_out,
        "--context", arguments.context, "--tokens", arguments.eval_tokens,
        "--activations", arguments.activations, "--kv", arguments.activations)
    return result["nats"]


def read_samples(arguments, tokenizer) -> list[torch.Tensor]:
    """As longtune cuts them: each document, ended by the end-of-text token, in runs of `context`
    tokens from its start; a last run of one token is left out."""
    samples = []
    for path in arguments.data:
        tokens = reference.encode(tokenizer, path) + [reference.end_of_text(tokenizer)]
        runs = [tokens[first:first + arguments.context] for first in range(0, len(tokens), arguments.context)]
        samples += [torch.tensor(run) for run in runs if len(run) > 1]
    return samples


def train_peft(arguments, metrics: list[dict], tokenizer) -> dict[int, float]:
    """Held-out nats after each of the steps asked for; 0 is the untrained model."""
    kept = arguments.work / f"peft-{arguments.peft_dtype}.json"
    if kept.exists():
        return {int(step): nats for step, nats in json.loads(kept.read_text()).items()}
    samples = read_samples(arguments, tokenizer)
    held_out = torch.tensor(reference.encode(tokenizer, arguments.held_out)[:arguments.eval_tokens])
    model = reference.load_model(arguments.model, arguments.peft_dtype)
    nats = {0: reference.nats(model, held_out, arguments.context)}
    model = reference.load_adapter(model, arguments.work / "initial", trainable=True)
    optimizer = reference.prepare_training(model)
    for line in metrics[:max(arguments.at)]:
        (sample,) = line["samples"]
        loss = reference.train_step(model, optimizer, samples[sample], line["lr"])
        print(f"step {line['step']}: PEFT {loss:.4f}, longtune {line['loss']:.4f}", file=sys.stderr, flush=True)
        if line["step"] in arguments.at:
            nats[line["step"]] = reference.nats(model, held_out, arguments.context)
            model.save_pretrained(arguments.work / f"peft-{arguments.peft_dtype}" / f"step-{line['step']}")
    kept.write_text(json.dumps(nats))
    return nats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs.add_common_arguments(parser)
    parser.add_argument("--data", type=pathlib.Path, nargs="+", required=True, help="texts to train on")
    parser.add_argument("--held-out", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--at", type=int, nargs="+", default=[10, 20, 40], help="steps after which to evaluate")
    parser.add_argument("--save-every", type=int, default=10, help="a divisor of all of --at")
    parser.add_argument("--eval-tokens", type=int, default=16384)
    parser.add_argument("--activations", choices=["bf16", "f32"], default="bf16", help="of longtune")
    parser.add_argument("--peft-dtype", choices=reference.DTYPES, default="bf16")
    parser.add_argument("--tolerance", type=float, default=0.005, help="nats")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if any(step % arguments.save_every for step in arguments.at):
        parser.error("--save-every must divide each of --at")
    arguments.work.mkdir(parents=True, exist_ok=True)

    metrics = programs.read_metrics(train_longtune(arguments))
    ours = {step: evaluate_longtune(arguments, step) for step in [0, *arguments.at]}
    theirs = train_peft(arguments, metrics, reference.load_tokenizer(arguments.model))
    print(f"{'step':>4} {'longtune':>9} {'PEFT':>9} {'difference':>10}   held-out nats a token")
    for step, nats in ours.items():
        print(f"{step:4} {nats:9.4f} {theirs[step]:9.4f} {nats - theirs[step]:+10.4f}")
    apart = [step for step, nats in ours.items() if not abs(nats - theirs[step]) <= arguments.tolerance]
    if apart:
        sys.exit(f"held-out losses differ by more than {arguments.tolerance} nats after steps {apart}")


if __name__ == "__main__":
    main()
