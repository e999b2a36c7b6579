#!/usr/bin/env python3
"""Makes tests/goldens/nf4.bin: what bitsandbytes makes of matrices that the test makes again.

    u32 magic "NF4G", u32 number of cases; for each, little-endian:
    u32 N, u32 K, f32 offset, u64 FNV-1a of the codes (N * K / 2 bytes),
    u8 absmax[N * K / 64], f32 nested_absmax[ceil(N * K / 64 / 256)]

Value i of a matrix is (u(3 i) + u(3 i + 1) + u(3 i + 2) - 1.5) * (1 + row / 8) in f32, where u(c)
are the upper 24 bits of random_bits(seed = N, c) of src/base/random.h, as a fraction. Rows whose
number modulo 16 is 5 are 0 in their first block; row 0 begins with 1 and the points half-way
between NF4 values, where ties are.
"""

import argparse
import pathlib
import struct

import numpy as np
import torch
from bitsandbytes import functional

CASES = [(1, 64), (3, 64), (7, 3264), (16, 1024), (33, 576), (48, 12288), (211, 4096)]


def random_bits(key: int, counters: np.ndarray) -> np.ndarray:
    def mix(z):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        return mix(mix(np.uint64(key) + golden) + (counters + np.uint64(1)) * golden)


def matrix(rows: int, columns: int) -> np.ndarray:
    bits = random_bits(rows, np.arange(3 * rows * columns, dtype=np.uint64)) >> np.uint64(40)
    uniform = (bits.astype(np.float32) * np.float32(2.0**-24)).reshape(rows, columns, 3)
    values = ((uniform[..., 0] + uniform[..., 1]) + uniform[..., 2]) - np.float32(1.5)
    values *= 1 + np.arange(rows, dtype=np.float32)[:, None] / 8
    values[5::16, :64] = 0
    code = functional.get_4bit_type("nf4", device="cpu").numpy()
    values[0, 0] = 1
    values[0, 1:16] = (code[:-1] + code[1:]) / np.float32(2)
    values[0, 16:64] = np.clip(values[0, 16:64], -1, 1)
    return values


def fnv1a(data: bytes) -> int:
    result = 0xCBF29CE484222325
    for byte in data:
        result = ((result ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default="tests/goldens/nf4.bin")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        raise SystemExit("run with ATEN_CPU_CAPABILITY=avx2: the offset depends on the vector width")
    parts = [struct.pack("<4sI", b"NF4G", len(CASES))]
    for rows, columns in CASES:
        packed, state = functional.quantize_4bit(
            torch.from_numpy(matrix(rows, columns)), blocksize=64, compress_statistics=True, quant_type="nf4")
        parts.append(struct.pack("<IIfQ", rows, columns, state.offset.item(), fnv1a(packed.numpy().tobytes())))
        parts.append(state.absmax.numpy().tobytes())
        parts.append(state.state2.absmax.numpy().astype("<f4").tobytes())
    args.output.write_bytes(b"".join(parts))


if __name__ == "__main__":
    main()
