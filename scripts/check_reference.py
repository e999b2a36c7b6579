#!/usr/bin/env python3
"""Checks longtune against transformers and PEFT on SmolLM2's GGUF file and the novels.

    tokens      the ids of every novel are those of the tokenizers library
    perplexity  nats of a passage in f32 activations (within 0.002) and bf16 (within 0.01)
    adapter     an adapter that longtune trained loads in PEFT and reads the passage as in longtune
                (within 0.002 in f32 activations)

Prints a line per check; exits with 1 where one fails. Needs scripts/goldens/requirements.txt.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))

import programs  # noqa: E402
import reference  # noqa: E402

failed = []


def report(name: str, ok: bool, text: str) -> None:
    print(f"{'ok    ' if ok else 'FAILED'} {name}: {text}", flush=True)
    if not ok:
        failed.append(name)


def report_nats(name: str, ours: float, theirs: float, tolerance: float) -> None:
    report(name, abs(ours - theirs) <= tolerance,
           f"longtune {ours:.5f}, reference {theirs:.5f}, difference {ours - theirs:+.5f} (at most {tolerance})")


def check_tokens(arguments, tokenizer) -> None:
    for novel in sorted(arguments.novels.glob("*.txt")):
        expected = reference.encode(tokenizer, novel)
        with tempfile.TemporaryDirectory() as directory:
            ids = pathlib.Path(directory) / "ids.json"
            programs.run([arguments.longtune, "inspect", arguments.model, "--tokenize", novel, "--quiet", "--json", ids])
            tokens = json.loads(ids.read_text())["tokens"]
        same = next((i for i, pair in enumerate(zip(tokens, expected)) if pair[0] != pair[1]), None)
        text = f"{len(tokens):,} tokens" if tokens == expected else (
            f"{len(tokens):,} tokens, reference {len(expected):,}, first difference at {same}")
        report(f"tokens of {novel.name}", tokens == expected, text)


def longtune_nats(arguments, activations: str, *more) -> float:
    result, _ = programs.longtune(
        arguments.longtune, "eval", "perplexity", "--model", arguments.model, "--data",
        arguments.novels / "persuasion.txt", "--context", arguments.context, "--tokens", arguments.tokens,
        "--activations", activations, "--kv", activations, *more)
    return result["nats"]


def check_perplexity(arguments, passage: torch.Tensor, base) -> None:
    theirs = reference.nats(base, passage, arguments.context)
    report_nats("perplexity, f32", longtune_nats(arguments, "f32"), theirs, 0.002)
    ours = longtune_nats(arguments, "bf16")
    report_nats("perplexity, bf16 against f32", ours, theirs, 0.01)
    if arguments.bf16_reference:
        theirs = reference.nats(reference.load_model(arguments.model, "bf16"), passage, arguments.context)
        report_nats("perplexity, bf16 against bf16", ours, theirs, 0.01)


def check_adapter(arguments, passage: torch.Tensor, base) -> None:
    with tempfile.TemporaryDirectory() as directory:
        adapter = arguments.adapter
        if adapter is None:
            adapter = pathlib.Path(directory) / "run"
            programs.longtune(
                arguments.longtune, "train", "--model", arguments.model, "--data", arguments.novels / "emma.txt",
                "--context", 256, "--steps", 6, "--lr", 2e-3, "--output", adapter)
        before = longtune_nats(arguments, "f32")
        ours = longtune_nats(arguments, "f32", "--adapter", adapter)
        theirs = reference.nats(reference.load_adapter(base, adapter), passage, arguments.context)
    report("adapter changes the model", abs(ours - before) > 0.005, f"{before:.5f} -> {ours:.5f} nats")
    report_nats("adapter, read by PEFT", ours, theirs, 0.002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs.add_common_arguments(parser)
    parser.add_argument("--novels", type=pathlib.Path, required=True, help="what scripts/fetch_novels.sh prints")
    parser.add_argument("--tokens", type=int, default=4096, help="of Persuasion")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--adapter", type=pathlib.Path, help="a trained one, instead of training one here")
    parser.add_argument("--bf16-reference", action="store_true",
                        help="transformers in bf16 as well (slow where the processor has no bf16 arithmetic)")
    parser.add_argument("--skip-tokens", action="store_true")
    arguments = parser.parse_args()

    tokenizer = reference.load_tokenizer(arguments.model)
    if not arguments.skip_tokens:
        check_tokens(arguments, tokenizer)
    passage = torch.tensor(reference.encode(tokenizer, arguments.novels / "persuasion.txt")[:arguments.tokens])
    base = reference.load_model(arguments.model, "f32").eval()
    check_perplexity(arguments, passage, base)
    check_adapter(arguments, passage, base)
    if failed:
        sys.exit(f"{len(failed)} checks failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
