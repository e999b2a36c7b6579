#!/usr/bin/env python3
"""Paired differences in nats between readings of the same held-out text.

A reading is NAME=OPTIONS, what `longtune eval perplexity` takes besides model, text and context: an
adapter, a kind of attention, settings of it. Each is compared with the first one token by token, so
that the text's own variance falls out: a row per reading and bucket of positions with the mean
difference and its standard error, from means of 64 neighbouring tokens, as those are not
independent. A reading whose losses are in --work already, made by the same command, is not made again.

    compare_attention.py --longtune build/release/longtune --model M --held-out novel.txt \\
        --context 8192 --tokens 65536 --work out \\
        --reading "dense=--adapter a" --reading "hga=--adapter a --attention hga"
"""

import argparse
import csv
import json
import math
import pathlib
import shlex
import statistics

import programs

BLOCK = 64


def read_losses(path: pathlib.Path) -> list[tuple[int, float]]:
    """(position in the window, nats) of each token."""
    with path.open() as file:
        return [(int(row["position"]), float(row["nats"])) for row in csv.DictReader(file, delimiter="\t")]


def evaluate(arguments, name: str, options: list[str]) -> list[tuple[int, float]]:
    path, made_by = arguments.work / f"{name}.tsv", arguments.work / f"{name}.command"
    command = [str(word) for word in (
        "eval", "perplexity", "--model", arguments.model, "--data", arguments.held_out, "--context",
        arguments.context, "--tokens", arguments.tokens, *options)]
    if not path.exists() or not made_by.exists() or made_by.read_text() != shlex.join(command):
        programs.longtune(arguments.longtune, *command, "--losses", path)
        made_by.write_text(shlex.join(command))
    return read_losses(path)


def mean_and_error(differences: list[float]) -> tuple[float, float]:
    blocks = [statistics.fmean(differences[first:first + BLOCK]) for first in range(0, len(differences), BLOCK)]
    error = statistics.stdev(blocks) / math.sqrt(len(blocks)) if len(blocks) > 1 else math.nan
    return statistics.fmean(differences), error


def buckets_of(context: int) -> list[tuple[int, int]]:
    """From 0, then in doublings from 512 on."""
    edges = [0, 512]
    while edges[-1] < context:
        edges.append(2 * edges[-1])
    return [(begin, min(end, context)) for begin, end in zip(edges, edges[1:]) if begin < context]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs.add_common_arguments(parser)
    parser.add_argument("--held-out", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--reading", action="append", required=True, metavar="NAME=OPTIONS")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)

    readings = dict(reading.split("=", 1) for reading in arguments.reading)
    losses = {name: evaluate(arguments, name, shlex.split(options)) for name, options in readings.items()}
    first = next(iter(losses))
    result = {}
    print(f"{'reading':<24} {'positions':>15} {'tokens':>8} {'nats':>8} {'to ' + first:>20}")
    for name, scored in losses.items():
        assert [position for position, _ in scored] == [position for position, _ in losses[first]]
        rows = []
        for begin, end in [(0, arguments.context), *buckets_of(arguments.context)]:
            pairs = [(nats, base) for (position, nats), (_, base) in zip(scored, losses[first])
                     if begin <= position < end]
            if not pairs:
                continue
            mean, error = mean_and_error([nats - base for nats, base in pairs])
            nats = statistics.fmean(nats for nats, _ in pairs)
            rows.append({"from": begin, "to": end, "tokens": len(pairs), "nats": nats, "difference": mean,
                         "standard_error": error})
            print(f"{name:<24} {begin:>7}-{end:<7} {len(pairs):>8} {nats:8.4f} {mean:+10.4f} +- {error:.4f}")
        result[name] = rows
    (arguments.work / "result.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
