"""Writes tests/goldens/rope.json: rotary frequencies as transformers computes them.

Usage: python scripts/goldens/make_rope.py (needs the packages of requirements.txt)
"""

import json
import pathlib

from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

OUTPUT = pathlib.Path(__file__).parents[2] / "tests" / "goldens" / "rope.json"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
CASES = [
    (64, {"rope_type": "default", "rope_theta": 100000.0}),
    (128, {"rope_type": "default", "rope_theta": 1000000.0}),
    (80, {"rope_type": "linear", "factor": 2.5}),
    (
        128,
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        64,
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (128, YARN | {"rope_theta": 1000000.0}),
    (128, YARN | {"rope_theta": 1000000.0, "truncate": False}),
    (64, YARN | {"rope_theta": 10000.0, "attention_factor": 1.25}),
    (64, YARN | {"rope_theta": 10000.0, "mscale": 1.0, "mscale_all_dim": 0.5}),
    (64, YARN | {"rope_theta": 10000.0, "mscale": 0.7}),
    (64, YARN | {"rope_theta": 10000.0, "beta_fast": 16.0, "beta_slow": 2.0}),
    (64, YARN | {"rope_theta": 10000.0, "factor": None}),
    (16, YARN | {"rope_theta": 10000.0, "original_max_position_embeddings": 8}),
    (16, YARN | {"rope_theta": 10000.0, "original_max_position_embeddings": 4}),
    # SmolLM2 stretched: no original context of its own, so that the model's counts.
    (64, {"rope_type": "linear", "factor": 2.0, "rope_theta": 100000.0}, 8192),
    (64, {"rope_type": "yarn", "factor": 2.0, "rope_theta": 100000.0}, 8192),
    (128, {"rope_type": "yarn", "factor": 3.5, "rope_theta": 1000000.0}, 40960),
]


def run(head_dim: int, rope: dict, max_context: int = 32768) -> dict:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2 * head_dim,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 8,
        "max_position_embeddings": max_context,
        "rope_parameters": {"rope_theta": 10000.0} | rope,
    }
    embedding = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config))))
    return {
        "config": config,
        "frequencies": embedding.inv_freq.tolist(),
        "scale": embedding.attention_scaling,
    }


OUTPUT.write_text(json.dumps([run(*case) for case in CASES], indent=None, separators=(",", ":")) + "\n")
