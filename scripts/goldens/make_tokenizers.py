#!/usr/bin/env python3
"""Makes tests/goldens/tokenizers: scripts/goldens/make_tokenizers.py [DIRECTORY]

Small tokenizers, one for each pre-tokeniser, trained by Hugging Face's `tokenizers`, as
`NAME.json` and (where GGUF can say the same) `NAME.gguf`; and `cases.json`, hard strings with the
token ids that `tokenizers` gives them, special tokens parsed and as text. Needs `tokenizers` and
`gguf` from PyPI; made with tokenizers 0.23.3 and gguf 0.19.0.
"""

import json
import pathlib
import random
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_REGEX = LLAMA3_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = """
It is a truth universally acknowledged, that a single man in possession of a good fortune, must be
in want of a wife. However little known the feelings or views of such a man may be on his first
entering a neighbourhood, this truth is so well fixed in the minds of the surrounding families, that
he is considered the rightful property of some one or other of their daughters.
"My dear Mr. Bennet," said his lady to him one day, "have you heard that Netherfield Park is let at
last?" Mr. Bennet replied that he hadn't; they'd, we've, you're, I'm, she'll, it's: DON'T, WE'VE.
def encode(text: str) -> list[int]:\n    return [vocabulary[token] for token in split(text)]\n
for (int i = 0; i < 100; ++i) {\n\tsum += values[i] * 0.5f;  // total\n}\n\n
In 1811, 1813, 1814 and 1815; 3.14159, 1,000,000 and 2024-12-31 at 23:59:59.\r\n\r\n
Le cœur a ses raisons que la raison ne connaît point. Über Straßen und Größe. Ελληνικά και λόγος.
Привет, мир! Это просто текст. 日本語のテキスト。中文文本,标点。한국어 문장입니다. مرحبا بالعالم नमस्ते दुनिया
👍 👩‍👩‍👧‍👦 🏳️‍🌈 😀😀😀 — “quotes” ‘single’ … • ½ ² Ⅷ ①
""" * 3


def text_cases():
    cases = [
        "", " ", "  ", "   ", "a", " a", "a ", "  a", "a  ", " a b ", "\n", "\n\n", " \n", "\n ",
        "\t", "\t\t", "\ta", "a\t", "\r\n", "\r\n\r\n", "a\r\nb\r\n", "a\rb", " \r\n ", "\x0b\x0c",
        "a\n\n\nb", "a \n \n b", "a   \n   b", "line one\nline two\n", "trailing   ", "   leading",
        "a  1", "a 1", "a1", "1a", "  12  34  ", "1 2 3", "a   123", "a\n1", "a\t1", " \t 1",
        "Hello, world!", "Hello,  world!", "Don't", "DON'T", "don’t", "I'm we've you'll he'd it's",
        "I'M WE'VE YOU'LL HE'D IT'S they'Re", "'s", "''s", "'S's'T't", "x'ſ", "x'ſt", "'ſ'ſ",
        "can'tcan't", "rock'n'roll", "o'clock", "'", "''", "'''", "'tis 'twas", "'re're", "'ll'LL",
        "0", "1", "12", "123", "1234", "12345", "123456", "1234567890", "3.14159", "1,000,000",
        "٠١٢٣٤٥", "१२३४", "½¼¾", "²³¹", "①②③④", "ⅧⅨ", "１２３４", "𝟏𝟐𝟑", "٣a٣", "1½2", "x²+y²=z²",
        "0x1F600", "1e-10", "v1.2.3-rc4", "2024-12-31T23:59:59Z", "192.168.0.1", "007", "1st 2nd",
        "😀", "😀😀", " 😀 ", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇬🇧🇯🇵", "a😀b", "😀1", "1😀", "⌨️", "❤️‍🔥", "👨🏿‍🚀 launch",
        "日本語", "日本語のテキスト。", "中文 文本", "汉字123汉字", "한국어 문장", "ㅎㅏㄴ", "𠀀𠀁", "ｶﾞ", "が", "カ゛",
        "é", "e\u0301", "e\u0301e\u0301", "\u0301", "a\u0301\u0316", "a\u0316\u0301", "ﬁ", "Å", "A\u030a",
        "\u212b", "q\u0307\u0323", "q\u0323\u0307", "\u1100\u1161\u11a8", "각", "\u0958", "\u0344",
        "\u2126", "o\u0302\u0301", "\u1e69", "s\u0323\u0307", "s\u0307\u0323", "x" + "\u0301" * 50,
        "z" + "\u0301\u0316" * 40, "\u0928\u093c", "\u2adc", "\ufb1d", "\U0001d15e", "\u0f43",
        "مرحبا بالعالم", "שלום", "नमस्ते", "ไทย", "Ελληνικά", "Привет, мир!", "İstanbul ıI", "ß ẞ",
        "a\u00a0b", "\u00a0", "\u00a0\u00a0", " \u00a0 ", "a\u2003b", "a\u3000b", "\u3000\u3000x",
        "a\u200bb", "a\u2028b", "a\u2029b", "a\u202fb", "a\u205fb", "a\u1680b", "a\u180eb", "\u180e",
        "a\u0085b", "\u0085\u0085", "a\u2060b", "a\ufeffb", "\ufeffbom", "a \u180e b", "a\u001cb",
        "a\u001fb", "  \u180e", "\u2009\u2009 x", "a\u00adb", "\u200d", "\u200c", "x\u200dy",
        "\x00", "a\x00b", "\x00\x00\x00", "\x01\x02\x03", "\x04", "\x04\x04", "a\x04\x04b", "\x7f",
        "\u0080", "\uffff", "\ufffd", "\ufffe", "\U0010ffff", "\U00040000", "\U000f0000", "\ue000",
        "def f(x):\n    return x + 1\n", "if (a && !b) { c->d += *e; }", "\tif x:\n\t\tpass\n\n\n",
        "for(;;){}", "a==b!=c<=d>=e", "#include <vector>\r\n", "/* c */ // d", "x=[1,2,3];",
        "https://example.org/a/b?c=d&e=f#g", "user.name+tag@example.com", "C:\\path\\to\\file",
        "snake_case camelCase PascalCase kebab-case", "{{template}} ${var} %s %d", "<p>html</p>",
        "a" * 49, "a" * 50, "a" * 100, "a" * 2000, " " * 50, " " * 2000, " " * 999 + "x", "\n" * 500,
        "\t" * 300, "1" * 1000, "!" * 1000, "ab" * 800, "é" * 300, "日" * 300, "😀" * 100, "-" * 80,
        "=" * 81, "." * 7, "...", "…", "?!?!", "--", "—", " — ", "word—word", "“quoted”", "‘x’",
        "\r\n" * 200, " \n" * 200, "a " * 300, "'s" * 200, "x'" * 100, "1 " * 200, "\u00a0" * 100,
        "the quick brown fox jumps over the lazy dog" * 10, "pneumonoultramicroscopicsilicovolcano",
        "<|endoftext|>", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "a<|endoftext|>b",
        "<|endoftext|", "|endoftext|>", "<|end<|endoftext|>oftext|>", "<|im_start|>user\nhi<|im_end|>",
        "<|im_start|>", "<|im_end|>\n", "<|IM_END|>", "<|im_end|><|im_start|>", "x <|im_end|>  y",
        "<tool_call>{}</tool_call>", " <tool_call> ", "<tool_call", "<<tool_call>>", "a<tool_call>b",
        "<mask>", " <mask>", "  <mask>  x", "a<mask>b", "a <mask> b", "\u00a0<mask>\u3000b",
        "<mask><mask>", "<mask> <mask>", "\n<mask>\n", "<right>", "<right>  x", " <right> \n<right>",
        "<both>", " a <both> b ", "  <both>  <both>  ", "<mask> <both> <right>", "<word>", "a<word>",
        "<word>a", " <word> ", "<word><word>", "-<word>-", "é<word>", "\u0301<word>", "1<word>",
        "_<word>", "²<word>", "①<word>", "Ⓐ<word>", "\u200d<word>", "日<word>", "😀<word>😀", "café",
        "cafe\u0301", " cafe\u0301 cafés", "cafe\u0301\u0301", "<|im_end|>cafe\u0301", "abc", "abcd",
        "abcde", "xabcdex", "abc abcde", "ab cde", "<nl>\n\n<nl> \n", "<nl>\n<nl>", "<mask>\n<nl>",
        " the", "the", "The", " THE", "theThe", "possession", " neighbourhood", "universally",
    ]  # fmt: skip
    fragments = [
        " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u180e", "the", " man", "'s", "'LL", "12", "7", "²", "é",
        "e\u0301", "日本", "한", "😀", "👩‍👧", "!", "...", "<mask>", "<word>", "<right>", "<both>", "<nl>",
        "<|im_end|>", "<tool_call>", "_", "\u200d", "Ω", "ſ", "\x04", "()", "café", "abc", "de",
    ]  # fmt: skip
    rng = random.Random(20240229)
    for _ in range(80):
        cases.append("".join(rng.choice(fragments) for _ in range(rng.randint(2, 14))))
    return list(dict.fromkeys(cases))


def byte_cases():
    return [
        b"\x80", b"\xff", b"a\xffb", b"\xc3", b"\xc3(", b"\xc0\xaf", b"\xc1\x81", b"\xe2\x82", b"\xe2\x82a",
        b"\xe2(\xa1", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x9f\x98",
        b"\xf0\x9f\x98x", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80",
        b"\xfe\xff", b"ok \xf0\x9f\x98\x80 \xf0\x9f not", b"\x80\x80\x80", b" \xff \xff", b"caf\xe9 latin-1",
        b"\xef\xbb\xbfbom", b"\xf0\x9f\x98\xf0\x9f\x98\x80", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41",
        b"<|im_end|\xff>", b"\xff<|im_end|>\xff", b"1\xff2", b"a\xcc", b"e\xcc\x81\xcc",
    ]  # fmt: skip


def new_bpe(**options):
    return Tokenizer(models.BPE(**options))


def train(tokenizer, size, without=b"", special=()):
    """Trains on CORPUS. No symbol stands for the bytes in `without`."""
    lacking = {gguf_byte(byte) for byte in without}
    alphabet = [c for c in pre_tokenizers.ByteLevel.alphabet() if c not in lacking]
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(alphabet), special_tokens=list(special),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.decoder = decoders.ByteLevel()


def gguf_byte(byte):
    """The character of GPT-2's alphabet for a byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return chr(byte) if byte in plain else chr(256 + others.index(byte))


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split_by(regex):
    split = pre_tokenizers.Split(Regex(regex), behavior="isolated")
    return pre_tokenizers.Sequence([split, byte_level(use_regex=False)])


def make_gpt2():
    tokenizer = new_bpe()
    tokenizer.pre_tokenizer = byte_level(use_regex=True)
    train(tokenizer, 700, special=["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def make_llama3():
    tokenizer = new_bpe(ignore_merges=True)
    tokenizer.pre_tokenizer = split_by(LLAMA3_REGEX)
    train(tokenizer, 900)
    # Tokens that merges do not reach, so that ignoring merges shows.
    state = json.loads(tokenizer.to_str())
    lost = len(state["model"]["merges"]) // 2
    del state["model"]["merges"][lost::3]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    bos = tokenizer.token_to_id("<|endoftext|>")
    template = processors.TemplateProcessing(
        single="<|endoftext|> $A",
        pair="<|endoftext|> $A <|endoftext|>:1 $B:1",
        special_tokens=[("<|endoftext|>", bos)],
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template])
    return tokenizer


def make_qwen2():
    tokenizer = new_bpe()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split_by(QWEN2_REGEX)
    train(tokenizer, 800)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<tool_call>", "</tool_call>")])
    return tokenizer


def make_smollm():
    tokenizer = new_bpe()
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level(use_regex=True)])
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    train(tokenizer, 800, without=b"\x04\x06\xf1\xf3\xf4\xc0\xff", special=special)
    return tokenizer


def make_flags():
    """Every flag of added tokens, and an unknown token, which GGUF cannot say."""
    tokenizer = new_bpe(unk_token="<unk>", fuse_unk=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC()])
    tokenizer.pre_tokenizer = byte_level(use_regex=True)
    train(tokenizer, 600, without=b"\x04\xf3\xf4\xf1\x80", special=["<unk>"])
    tokenizer.add_special_tokens(
        [
            AddedToken("<mask>", lstrip=True),
            AddedToken("<|im_end|>", normalized=True),
            AddedToken("<right>", rstrip=True, normalized=False),
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("<word>", single_word=True, normalized=False),
            AddedToken("cafe\u0301", normalized=True),
            AddedToken("Å", normalized=False),
            AddedToken("abc", normalized=True),
            AddedToken("abcde", normalized=True, single_word=True),
            AddedToken("<nl>", normalized=True, rstrip=True),
            AddedToken("\n\n", normalized=False),
        ]
    )
    return tokenizer


def write_gguf(path, tokenizer, pre, eos, bos=None):
    size = tokenizer.get_vocab_size()
    added = tokenizer.get_added_tokens_decoder()
    types = [gguf.TokenType.NORMAL] * size
    for token_id, token in added.items():
        types[token_id] = gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokenizer.id_to_token(i) for i in range(size)])
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(eos)
    if bos is not None:
        writer.add_bos_token_id(bos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ids_of(tokenizer, text, as_text):
    tokenizer.encode_special_tokens = as_text
    return tokenizer.encode(text, add_special_tokens=False).ids


def golden(tokenizers, data):
    text = data.decode("utf-8", errors="replace")
    case = {"text": text} if text.encode("utf-8") == data else {"hex": data.hex()}
    case["ids"] = {}
    for name, tokenizer in tokenizers.items():
        parsed = ids_of(tokenizer, text, as_text=False)
        as_text = ids_of(tokenizer, text, as_text=True)
        case["ids"][name] = [as_text] if as_text == parsed else [as_text, parsed]
    return case


def main(arguments):
    root = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(arguments[1]) if len(arguments) > 1 else root / "tests/goldens/tokenizers"
    target.mkdir(parents=True, exist_ok=True)
    tokenizers = {
        "gpt2": make_gpt2(),
        "llama3": make_llama3(),
        "qwen2": make_qwen2(),
        "smollm": make_smollm(),
        "flags": make_flags(),
    }
    for name, tokenizer in tokenizers.items():
        tokenizer.save(str(target / f"{name}.json"), pretty=False)
    pre = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2", "smollm": "smollm"}
    for name, value in pre.items():
        end = tokenizers[name].token_to_id("<|endoftext|>")
        bos = end if name == "llama3" else None
        write_gguf(target / f"{name}.gguf", tokenizers[name], value, eos=end, bos=bos)
    data = [text.encode("utf-8") for text in text_cases()] + byte_cases()
    lines = [json.dumps(golden(tokenizers, d), separators=(",", ":")) for d in data]
    (target / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(lines)} cases for {len(tokenizers)} tokenizers in {target}")


if __name__ == "__main__":
    main(sys.argv)
