"""The reference that longtune is compared with: transformers and PEFT on the same GGUF file.

Needs the packages of scripts/goldens/requirements.txt.
"""

import contextlib
import io
import pathlib
import resource

import peft
import tokenizers
import torch
import transformers

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def load_tokenizer(gguf: pathlib.Path) -> tokenizers.Tokenizer:
    """SmolLM2's tokenizer: the vocabulary and merges of the GGUF, digits split one by one, as its
    tokenizer.json has it (transformers does not read `tokenizer.ggml.pre`)."""
    with contextlib.redirect_stderr(io.StringIO()):
        loaded = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer = loaded.backend_tokenizer
    pre = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    return tokenizer


def encode(tokenizer: tokenizers.Tokenizer, path: pathlib.Path) -> list[int]:
    return tokenizer.encode(path.read_text(encoding="utf-8"), add_special_tokens=False).ids


def end_of_text(tokenizer: tokenizers.Tokenizer) -> int:
    return tokenizer.token_to_id("<|im_end|>")


def load_model(gguf: pathlib.Path, dtype: str):
    """The GGUF's blocks dequantised to `dtype`; attention by torch's scaled_dot_product_attention."""
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be switched off
        return transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=DTYPES[dtype], attn_implementation="sdpa")


def add_lora(model, rank: int = 16, alpha: int = 32):
    return peft.get_peft_model(model, peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM"))


def load_adapter(model, directory: pathlib.Path, trainable: bool = False):
    return peft.PeftModel.from_pretrained(model, directory, is_trainable=trainable)


def prepare_training(model) -> torch.optim.AdamW:
    """Gradient checkpointing, and the optimiser of longtune's defaults, without decay."""
    model.train()
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, weight_decay=0.0)


def train_step(model, optimizer, tokens: torch.Tensor, lr: float, clip: float = 1.0) -> float:
    """One sample, one step. Returns the loss before it."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    loss = model(input_ids=tokens[None], labels=tokens[None]).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


@torch.no_grad()
def nats(model, tokens: torch.Tensor, context: int) -> float:
    """Mean nats a token over windows of `context` tokens; a window's first token is not scored."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    for first in range(0, len(tokens), context):
        window = tokens[first:first + context]
        if len(window) < 2:
            continue
        logits = model(input_ids=window[None]).logits[0, :-1].float()
        total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
        count += len(window) - 1
    model.train(was_training)
    return total / count


def peak_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
