#!/usr/bin/env python3
"""Speed of reading and writing one GGUF file, longtune beside llama.cpp, in turns.

Each round reads the first tokens of a text and writes some more, with `longtune generate` and with
llama-cpp-python, each in a process of its own, loading left out. Prints medians and ratios.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import programs

TARGETS = {512: (3.0, 1.7), 2048: (3.0, 2.0), 8000: (3.0, 2.0)}  # prefill, decode

LLAMA = """
import json, sys, time
from llama_cpp import Llama
model, text, depth, count, threads = sys.argv[1], open(sys.argv[2]).read(), *map(int, sys.argv[3:6])
llama = Llama(model_path=model, n_ctx=depth + count + 8, n_threads=threads, n_threads_batch=threads,
              flash_attn=True, verbose=False)
tokens = llama.tokenize(text.encode(), add_bos=False)[:depth]
start = time.perf_counter()
llama.eval(tokens)
prefill = time.perf_counter() - start
start = time.perf_counter()
for _ in range(count):
    llama.eval([llama.sample(temp=0)])
print(json.dumps({"prefill": len(tokens) / prefill, "decode": count / (time.perf_counter() - start)}))
"""


def run_llama(arguments, text: pathlib.Path, depth: int) -> dict:
    output, _ = programs.run([sys.executable, "-c", LLAMA, arguments.model, text, depth, arguments.count,
                              arguments.threads])
    return json.loads(output.splitlines()[-1])


def run_longtune(arguments, text: pathlib.Path) -> dict:
    result, _ = programs.longtune(arguments.longtune, "generate", "--model", arguments.model, "--prompt-file",
                                  text, "--max-tokens", arguments.count + 1, "--threads", arguments.threads)
    return {"prefill": result["prompt_tokens"] / result["prompt_seconds"], "decode": result["tokens_per_s"]}


def first_tokens(arguments, depth: int, directory: pathlib.Path) -> pathlib.Path:
    """A file with a beginning of the text that longtune cuts into about `depth` tokens."""
    text = arguments.data.read_text()
    file = directory / f"{depth}.txt"
    low, high = 0, min(len(text), 8 * depth)
    while high - low > 1:
        middle = (low + high) // 2
        file.write_text(text[:middle])
        tokens, _ = programs.run([arguments.longtune, "inspect", arguments.model, "--tokenize", file])
        if len(tokens.split()) <= depth:
            low = middle
        else:
            high = middle
    file.write_text(text[:low])
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs.add_common_arguments(parser)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a text to read")
    parser.add_argument("--depths", default="512,2048,8000", help="tokens to read before writing")
    parser.add_argument("--count", type=int, default=48, help="tokens to write")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    print(f"{'tokens':>8}{'':>10}{'longtune':>10}{'llama.cpp':>10}{'ratio':>8}{'asked':>8}")
    with tempfile.TemporaryDirectory() as directory:
        for depth in map(int, arguments.depths.split(",")):
            text = first_tokens(arguments, depth, pathlib.Path(directory))
            ours, theirs = [], []
            for _ in range(arguments.rounds):
                ours.append(run_longtune(arguments, text))
                theirs.append(run_llama(arguments, text, depth))
            for i, what in enumerate(("prefill", "decode")):
                left = statistics.median(row[what] for row in ours)
                right = statistics.median(row[what] for row in theirs)
                asked = TARGETS.get(depth, (0, 0))[i]
                print(f"{depth:8}{what:>10}{left:10.1f}{right:10.1f}{left / right:8.2f}{asked:8.1f}", flush=True)


if __name__ == "__main__":
    main()
