#!/usr/bin/env python3
"""Makes the tiny models of tests/goldens/models with PyTorch, transformers and PEFT.

A directory per model:
    config.json, model.safetensors     f32, random, as transformers saves them (one in shards)
    model.gguf                         the same weights as a GGUF file (some models)
    tokenizer.json                     byte-level BPE (one model)
    adapter/                           a LoRA adapter with random A and B, as PEFT saves it
    golden.safetensors                 what PyTorch computes from these files, in f32:
        tokens, targets  (T) i32       targets[t] is the token to predict at t, or -100: none
        positions        (P) i32       positions whose logits are kept
        base_logits      (P, V)        without the adapter
        logits           (P, V)        with it
        base_loss, loss  (1)           mean over the targets, in nats
        grad.<name>                    of the loss, for each tensor of the adapter, by PEFT's name
    adapter_rslora/, golden_rslora.safetensors      a second adapter (one model)
    golden_segment64.safetensors       loss and gradients where back-propagation is cut every 64
                                       tokens: history keys and values are constants (one model)
"""

import argparse
import dataclasses
import json
import math
import pathlib
import shutil

import gguf
import numpy as np
import peft
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclasses.dataclass
class Spec:
    """A tiny model: `config` as for transformers, `legacy` merged into config.json as older
    versions wrote it (rope_theta and rope_scaling instead of rope_parameters)."""

    kind: str
    config: dict
    tokens: int = 100
    legacy: dict = dataclasses.field(default_factory=dict)
    shard: str = "1GB"
    gguf: bool = False
    tokenizer: bool = False
    rslora: bool = False
    segment: bool = False


def sizes(hidden=32, ffn=72, layers=2, heads=4, kv=2, vocab=128, head_dim=16, **more) -> dict:
    return dict(
        hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, vocab_size=vocab, head_dim=head_dim, bos_token_id=1, eos_token_id=2, **more)


def rope(theta: float, kind: str = "default", **more) -> dict:
    return dict(rope_type=kind, rope_theta=theta, **more)


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
SMALL = dict(heads=2, kv=1, ffn=48, layers=2)

MODELS = {
    "llama": Spec("llama", sizes(max_position_embeddings=512, rms_norm_eps=1e-5, rope_parameters=rope(1e4)),
                  gguf=True, segment=True),
    "llama_tied": Spec("llama", sizes(vocab=300, ffn=64, tie_word_embeddings=True,
                                      max_position_embeddings=2048, rms_norm_eps=1e-5, rope_parameters=rope(1e5)),
                       gguf=True, tokenizer=True, rslora=True),
    "llama_llama3": Spec("llama", sizes(max_position_embeddings=256, rope_parameters=rope(5e3, "llama3", **LLAMA3),
                                        **dict(SMALL, layers=3)),
                         tokens=150, legacy=dict(rope_theta=5e3, rope_scaling=dict(rope_type="llama3", **LLAMA3))),
    "llama_linear": Spec("llama", sizes(max_position_embeddings=256,
                                        rope_parameters=rope(1e4, "linear", factor=4.0), **SMALL),
                         legacy=dict(rope_theta=1e4, rope_scaling=dict(type="linear", factor=4.0))),
    "llama_yarn": Spec("llama", sizes(max_position_embeddings=256, **SMALL, rope_parameters=rope(
        1e4, "yarn", factor=8.0, original_max_position_embeddings=32)), tokens=150),
    "mistral": Spec("mistral", sizes(kv=1, max_position_embeddings=512, sliding_window=None, rms_norm_eps=1e-5,
                                     rope_parameters=rope(1e4)), shard="48KB"),
    "qwen2": Spec("qwen2", sizes(hidden=48, heads=3, kv=1, ffn=48, vocab=96, max_position_embeddings=512,
                                 use_sliding_window=False, sliding_window=512, max_window_layers=2,
                                 rope_parameters=rope(1e6)), gguf=True),
    "qwen3": Spec("qwen3", sizes(tie_word_embeddings=True, max_position_embeddings=512,
                                 rope_parameters=rope(1e6)), gguf=True),
}


def randomise(model, seed: int) -> None:
    """Weights that make every part matter: norms about 1, biases well off 0, products of unit size."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            value = 1 + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif "embed" in name:
            value = 0.5 * noise
        else:
            value = 1.2 / math.sqrt(parameter.shape[1]) * noise
        parameter.data.copy_(value)


def save_base(spec: Spec, directory: pathlib.Path, seed: int) -> None:
    config = transformers.AutoConfig.for_model(spec.kind, **spec.config)
    config.dtype = "float32"
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomise(model, seed)
    model.save_pretrained(directory, max_shard_size=spec.shard)
    (directory / "generation_config.json").unlink(missing_ok=True)
    path = directory / "config.json"
    written = json.loads(path.read_text())
    if spec.legacy:
        written.pop("rope_parameters")
        written.update(spec.legacy)
    if spec.kind == "qwen2":  # as published: a number that does not count
        written.update(sliding_window=512, max_window_layers=2, use_sliding_window=False)
    written.pop("transformers_version", None)
    path.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")


def load_base(directory: pathlib.Path):
    return transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager").eval()


def save_adapter(directory: pathlib.Path, name: str, seed: int, **options) -> None:
    config = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, task_type="CAUSAL_LM", **options)
    model = peft.get_peft_model(load_base(directory), config)
    generator = torch.Generator().manual_seed(seed)
    for parameter_name, parameter in sorted(model.named_parameters()):
        if "lora_" in parameter_name:
            parameter.data.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(directory / name)
    (directory / name / "README.md").unlink(missing_ok=True)
    path = directory / name / "adapter_config.json"
    written = json.loads(path.read_text())
    written["base_model_name_or_path"] = ""
    written["target_modules"] = sorted(written["target_modules"])
    path.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")


def sample(T: int, V: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens; the first seven positions and some later ones are no targets, the last one is."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, V, (T + 1,), generator=generator)
    targets = tokens[1:].clone()
    targets[:7] = -100
    targets[torch.randperm(T - 10, generator=generator)[: T // 6] + 8] = -100
    return tokens[:-1], targets


def kept_positions(T: int) -> torch.Tensor:
    """The ends, and both sides of each page of 64 tokens."""
    near_pages = [p + d for p in range(64, T, 64) for d in (-2, -1, 0, 1)]
    spread = np.linspace(0, T - 1, 16 - len(near_pages)).round().astype(int).tolist()
    return torch.tensor(sorted({*near_pages, *spread}))


def loss_of(logits: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits.float(), targets, ignore_index=-100, reduction=reduction)


def gradients(model) -> dict[str, torch.Tensor]:
    return {
        "grad." + name.replace(".default.", "."): parameter.grad.clone()
        for name, parameter in model.named_parameters() if parameter.requires_grad}


def i32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.int32).contiguous()


def write_golden(directory: pathlib.Path, adapter: str, path: pathlib.Path, T: int, seed: int) -> None:
    base = load_base(directory)
    tokens, targets = sample(T, base.config.vocab_size, seed)
    positions = kept_positions(T)
    with torch.no_grad():
        base_logits = base(tokens[None]).logits[0]
    model = peft.PeftModel.from_pretrained(base, directory / adapter, is_trainable=True)
    logits = model(tokens[None]).logits[0]
    loss = loss_of(logits, targets)
    loss.backward()
    golden = gradients(model)
    golden |= {
        "tokens": i32(tokens), "targets": i32(targets), "positions": i32(positions),
        "base_logits": base_logits[positions], "base_loss": loss_of(base_logits, targets)[None],
        "logits": logits[positions].detach(), "loss": loss.detach()[None]}
    missing = [name for name, value in golden.items() if name.startswith("grad.") and not value.abs().max() > 1e-6]
    assert not missing, f"no gradient: {missing}"
    save_file({name: value.contiguous() for name, value in golden.items()}, path)


def write_segment_golden(directory: pathlib.Path, path: pathlib.Path, T: int, seed: int, segment: int) -> None:
    """Truncated back-propagation: each segment goes back at once, then its K/V are constants."""
    model = peft.PeftModel.from_pretrained(load_base(directory), directory / "adapter", is_trainable=True)
    tokens, targets = sample(T, model.config.vocab_size, seed)
    cache = transformers.DynamicCache()
    total = 0.0
    for first in range(0, T, segment):
        part = slice(first, min(first + segment, T))
        logits = model(tokens[None, part], past_key_values=cache, use_cache=True).logits[0]
        loss = loss_of(logits, targets[part], "sum") / (targets != -100).sum()
        loss.backward()
        total += loss.item()
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys.detach(), layer.values.detach()
    whole = load_file(directory / "golden.safetensors")["loss"].item()
    assert abs(total - whole) < 1e-5, f"segments: loss {total}, whole sequence: {whole}"
    save_file(gradients(model) | {"tokens": i32(tokens), "targets": i32(targets), "loss": torch.tensor([total])}, path)


def make_tokenizer(directory: pathlib.Path, vocabulary: int) -> None:
    """A byte-level BPE in the manner of SmolLM2's, trained on this file."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    bytes_ = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    text = "It is a truth universally acknowledged that a single man in want of a wife must have been in love before. "
    tokenizer.train_from_iterator([text * 20], trainer)
    assert tokenizer.get_vocab_size() == vocabulary, tokenizer.get_vocab_size()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"add_bos_token": False, "bos_token": special[1], "eos_token": special[2],
              "tokenizer_class": "GPT2Tokenizer"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        layer, part = stem.removeprefix("model.layers.").split(".", 1)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def interleave_rope_pairs(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows i and i + D/2 of each head become neighbours: the order of GGUF's llama architecture."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def add_gguf_tokenizer(writer: gguf.GGUFWriter, directory: pathlib.Path) -> None:
    model = json.loads((directory / "tokenizer.json").read_text())
    by_id = {index: token for token, index in model["model"]["vocab"].items()}
    tokens = [by_id[index] for index in range(len(by_id))]
    special = {token["content"] for token in model["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["model"]["merges"]])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)


def write_gguf(spec: Spec, directory: pathlib.Path, path: pathlib.Path) -> None:
    config = spec.config
    writer = gguf.GGUFWriter(path, spec.kind)
    writer.add_name(directory.name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", 1e-6))
    if spec.tokenizer:
        add_gguf_tokenizer(writer, directory)
    for name, tensor in sorted(load_file(directory / "model.safetensors").items()):
        rows = tensor.numpy()
        if spec.kind == "llama" and ".q_proj." in name:
            rows = interleave_rope_pairs(rows, config["num_attention_heads"])
        if spec.kind == "llama" and ".k_proj." in name:
            rows = interleave_rope_pairs(rows, config["num_key_value_heads"])
        writer.add_tensor(gguf_name(name), rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_gguf(directory: pathlib.Path) -> None:
    """The GGUF file, as transformers reads it, gives the logits of the directory."""
    golden = load_file(directory / "golden.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, config=transformers.AutoConfig.from_pretrained(directory), gguf_file="model.gguf", dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logits = model(golden["tokens"].long()[None]).logits[0][golden["positions"].long()]
    error = (logits - golden["base_logits"]).abs().max().item()
    assert error < 1e-4, f"{directory.name}: model.gguf differs by {error}"


def make(name: str, spec: Spec, directory: pathlib.Path, seed: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    save_base(spec, directory, seed)
    save_adapter(directory, "adapter", seed + 1, target_modules=TARGETS)
    write_golden(directory, "adapter", directory / "golden.safetensors", spec.tokens, seed + 2)
    if spec.segment:
        write_segment_golden(directory, directory / "golden_segment64.safetensors", spec.tokens, seed + 2, 64)
    if spec.rslora:
        save_adapter(directory, "adapter_rslora", seed + 3, target_modules=["q_proj", "v_proj", "down_proj"],
                     use_rslora=True)
        write_golden(directory, "adapter_rslora", directory / "golden_rslora.safetensors", spec.tokens, seed + 2)
    if spec.tokenizer:
        make_tokenizer(directory, spec.config["vocab_size"])
    if spec.gguf:
        write_gguf(spec, directory, directory / "model.gguf")
        check_gguf(directory)
    golden = load_file(directory / "golden.safetensors")
    for path in directory.rglob("*.safetensors"):
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    print(f"{name:14} {size:8,} bytes, loss {golden['base_loss'].item():.4f} -> {golden['loss'].item():.4f}")


def main() -> None:
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=root / "tests/goldens/models")
    parser.add_argument("--only", choices=MODELS, help="one model instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for index, (name, spec) in enumerate(MODELS.items()):
        if arguments.only in (None, name):
            make(name, spec, arguments.output / name, 1000 + 100 * index)


if __name__ == "__main__":
    main()
