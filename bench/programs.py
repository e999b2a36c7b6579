"""Runs the programs that are compared, each with its peak of resident memory."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LONGTUNE = ROOT / "build/release/longtune"


def run(command: list) -> tuple[str, int]:
    """Standard output and peak resident bytes; a failure ends this program with one line."""
    command = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(command, stdout=output, stderr=errors)
        except OSError as error:
            sys.exit(f"cannot run {command[0]}: {error.strerror}")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            last = (errors.read().strip() or "no message").splitlines()[-1]
            sys.exit(f"{' '.join(command[:3])} ... ended with status {process.returncode}: {last}")
        return output.read(), usage.ru_maxrss * 1024


def longtune(binary: pathlib.Path, *arguments) -> tuple[dict, int]:
    """What `longtune ARGUMENTS --json` holds, and peak resident bytes."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "result.json"
        _, peak = run([binary, *arguments, "--quiet", "--json", file])
        return json.loads(file.read_text()), peak


def read_metrics(output: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def add_common_arguments(parser) -> None:
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a GGUF file of SmolLM2")
    parser.add_argument("--longtune", type=pathlib.Path, default=LONGTUNE, help="the program")
