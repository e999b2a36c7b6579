"""Writes a tiny random Llama with a byte-level tokenizer as a Hugging Face directory.

Only the standard library, so that tests need no packages.
"""
import array
import json
import pathlib
import random
import struct

END_OF_TEXT = "<|endoftext|>"


def byte_alphabet():
    """The 256 characters that GPT-2 writes bytes as, by byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def tokenizer_json():
    """A token a byte, and END_OF_TEXT."""
    vocabulary = {character: byte for byte, character in enumerate(byte_alphabet())}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{
            "id": 256, "content": END_OF_TEXT, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {**vocabulary, END_OF_TEXT: 256}, "merges": []}}


def shapes(layers, width, hidden, heads, kv_heads, vocabulary):
    head = width // heads
    result = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        result |= {
            prefix + "input_layernorm.weight": (width,),
            prefix + "post_attention_layernorm.weight": (width,),
            prefix + "self_attn.q_proj.weight": (heads * head, width),
            prefix + "self_attn.k_proj.weight": (kv_heads * head, width),
            prefix + "self_attn.v_proj.weight": (kv_heads * head, width),
            prefix + "self_attn.o_proj.weight": (width, heads * head),
            prefix + "mlp.gate_proj.weight": (hidden, width),
            prefix + "mlp.up_proj.weight": (hidden, width),
            prefix + "mlp.down_proj.weight": (width, hidden)}
    return result


def safetensors_bytes(tensors):
    header, data = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        raw = values.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_model(directory, vocabulary=257, layers=2, width=32, hidden=64, heads=4, kv_heads=2):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    rng = random.Random(1)
    tensors = {}
    for name, shape in shapes(layers, width, hidden, heads, kv_heads, vocabulary).items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        is_norm = len(shape) == 1
        values = array.array("f", (1.0 if is_norm else rng.gauss(0, 0.08) for _ in range(count)))
        tensors[name] = (shape, values)
    (directory / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": width // heads,
        "vocab_size": vocabulary, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "bos_token_id": 256, "eos_token_id": 256,
        "attention_bias": False, "mlp_bias": False}))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    (directory / "tokenizer_config.json").write_text(json.dumps({
        "eos_token": END_OF_TEXT, "bos_token": END_OF_TEXT, "add_bos_token": False}))
    return directory
