"""The command line from outside: exit statuses, messages, files left behind. python3 cli_test.py LONGTUNE"""
import collections
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from support import tiny_model  # noqa: E402

LONGTUNE = sys.argv.pop(1) if len(sys.argv) > 1 else "longtune"
TEXT = "It is a truth universally acknowledged, that a tiny model must be in want of a text.\n" * 12


def setUpModule():
    """No test depends on the memory of the machine that it runs on: this one is given to all."""
    machine = tempfile.TemporaryDirectory(prefix="longtune-machine-")
    unittest.addModuleCleanup(machine.cleanup)
    os.environ["LONGTUNE_SYSTEM_ROOT"] = machine.name
    write_machine(pathlib.Path(machine.name), 64 * 2**30)


def write_machine(root, available):
    """The files of a system that has so many bytes to give."""
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 999999999 kB\nMemAvailable: {available // 1024} kB\n")


class CommandLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="longtune-cli-")
        cls.root = pathlib.Path(cls.scratch.name)
        cls.model = tiny_model.write_model(cls.root / "model")
        cls.text = cls.write("book.txt", TEXT)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def write(cls, name, content):
        path = cls.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def run_longtune(self, *arguments, **options):
        return subprocess.run([LONGTUNE, *map(str, arguments)], capture_output=True, timeout=60, **options)

    def succeed(self, *arguments, **options):
        done = self.run_longtune(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode(errors="replace")  # a random model writes any bytes

    def refuse(self, status, message, *arguments, **options):
        """Expects exit `status`, and one line of error that holds `message`."""
        done = self.run_longtune(*arguments, **options)
        error = done.stderr.decode()
        self.assertEqual(done.returncode, status, error)
        lines = [line for line in error.splitlines() if line.startswith("longtune: ")]
        self.assertEqual(len(lines), 1, error)
        self.assertIn(message, lines[0])
        self.assertTrue(error.endswith(lines[0] + "\n"), error)
        return lines[0]

    def train_arguments(self, output, *more, data=None):
        return ["train", "--model", self.model, "--data", data or self.text, "--output", self.root / output,
                "--context", 64, "--segment", 64, "--steps", 4, "--lora-rank", 2, "--threads", 1, *more]


class Usage(CommandLine):
    def test_help_and_version(self):
        self.assertIn("eval perplexity", self.succeed("--help"))
        self.assertRegex(self.succeed("--version"), r"^longtune \d+\.\d+\.\d+\n$")

    def test_processes_are_listed_by_name(self):
        # It starts itself again, and must be found by its name all the same.
        process = subprocess.Popen([LONGTUNE, *map(str, self.train_arguments("listed", "--quiet"))])
        names = []
        while process.poll() is None:
            names.append(pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip())
            time.sleep(0.001)
        self.assertEqual(process.returncode, 0)
        self.assertIn("longtune", names)
        self.assertNotIn("exe", names)

    def test_help_stays_short(self):
        for command in (["plan"], ["inspect"], ["train"], ["eval", "perplexity"], ["generate"],
                        ["bench", "kernels"], ["bench", "needle"], ["bench", "prefill"],
                        ["bench", "train"]):
            text = self.succeed(*command, "--help")
            self.assertIn("usage: longtune " + " ".join(command), text)
            self.assertLessEqual(len(text.splitlines()), 90, command)
            self.assertLessEqual(max(map(len, text.splitlines())), 100, command)

    def test_a_bench_shows_where_a_step_goes(self):
        file = self.root / "bench.json"
        text = self.succeed("bench", "train", "--model", self.model, "--context", 128, "--segment", 64,
                            "--steps", 1, "--json", file)
        result = json.loads(file.read_text())
        *operations, step = result["rows"]
        self.assertGreater(result["machine"]["peak_flops"], 0)
        self.assertEqual((step["name"], step["context"]), ("step", 128))
        names = {row["name"] for row in operations}
        self.assertLessEqual({"linear_forward", "attention_backward", "lora_backward", "head_loss", "adamw"}, names)
        self.assertLessEqual(sum(row["seconds"] for row in operations), step["seconds"])
        for name in names:
            self.assertIn(name, text)
        self.refuse(2, "--steps 0 is below 1", "bench", "train", "--model", self.model, "--steps", 0)
        self.refuse(2, "--warm-up -1 is negative", "bench", "train", "--model", self.model, "--warm-up=-1")

    def test_a_bench_of_kernels_shows_what_is_asked_for(self):
        file = self.root / "kernels.json"
        text = self.succeed("bench", "kernels", "--filter", "rope", "--cpu-isa", "portable", "--json", file)
        self.assertIn("rope_apply", text)
        result = json.loads(file.read_text())
        self.assertEqual(result["machine"]["isa"], "portable")
        self.assertGreater(result["machine"]["read_bytes_per_s"], 0)
        self.assertTrue(all(row["name"] == "rope_apply" and row["share"] > 0 for row in result["rows"]))
        self.refuse(2, "--filter 'nothing' is part of no row", "bench", "kernels", "--filter", "nothing")

    def test_a_bench_seeks_needles(self):
        file = self.root / "needle.json"
        # Where every chunk is a candidate and every group is opened, no needle can be missed.
        all_groups = ["--hga.topk-chunks", 16, "--hga.topk-groups", 64]
        text = self.succeed("bench", "needle", "--context", 1024, "--needles", 16, *all_groups, "--json", file)
        rows = json.loads(file.read_text())["rows"]
        self.assertEqual({row["summary"] for row in rows}, {"mixed", "mean", "min-max"})
        self.assertEqual({row["found"] for row in rows}, {1})
        self.assertIn("min-max", text)
        self.succeed("bench", "needle", "--context", 1024, "--needles", 16, "--hga.topk-groups", 2, "--json", file)
        self.assertLess(min(row["found"] for row in json.loads(file.read_text())["rows"]), 1)
        self.refuse(2, "--context 1000 is not a multiple of --hga.chunk 64", "bench", "needle", "--context", 1000)
        self.refuse(2, "--needles 3 is not a positive multiple of 16", "bench", "needle", "--needles", 3)
        self.refuse(2, "--head-dim 12 is not a multiple of 8", "bench", "needle", "--head-dim", 12)

    def test_a_bench_reads_over_tiers(self):
        file = self.root / "prefill.json"
        text = self.succeed("bench", "prefill", "--shape", "qwen3-0.6b", "--layers", 1, "--context", 400,
                            "--block", 64, "--attention", "hga", "--kv-host", "512KiB",
                            "--spill-dir", self.root, "--json", file)
        self.assertIn("keys and values: 512 KiB to host memory, 1.0 MiB written to disk", text)
        total = json.loads(file.read_text())["rows"][-1]
        self.assertEqual((total["name"], total["context"]), ("prefill", 400))
        self.assertEqual(total["disk_bytes_written"], 4 * 256 * 1024)
        self.assertIn("that disk by itself", text)
        self.assertGreater(total["disk_read_bytes_per_s"], 0)
        self.assertGreater(total["disk_write_bytes_per_s"], 0)
        self.assertRegex(text, r"read from it \((io_uring|one thread), (direct I/O|through the page cache)\) in ")
        self.assertIn(total["disk_method"], ("io_uring", "one thread"))
        self.assertIn(total["disk_direct"], (True, False))
        self.assertEqual((total["bank_hits"], total["bank_misses"]), (6, 4))
        text = self.succeed("bench", "prefill", "--shape", "qwen3-0.6b", "--layers", 1, "--context", 400,
                            "--block", 64, "--attention", "hga", "--kv", "int8", "--json", file)
        self.assertIn("keys and values: 792 KiB to host memory, 0 B written to disk, 0 B read from it; "
                      "15 of 21 pages from the bank\n", text)
        self.refuse(2, "--model and --shape exclude each other", "bench", "prefill", "--shape", "qwen3-8b",
                    "--model", self.model)
        self.refuse(2, "--shape 'x' is none of qwen3-0.6b", "plan", "--shape", "x")
        self.refuse(2, "--hga.group 5 is not 8, 16, 32 or 64", "bench", "prefill", "--model", self.model,
                    "--attention", "hga", "--hga.group", 5)
        self.refuse(3, "--spill-dir for the rest", "bench", "prefill", "--model", self.model, "--context", 400,
                    "--attention", "hga", "--kv-host", 0)
        self.refuse(5, "no file can be made in /nowhere", "bench", "prefill", "--model", self.model,
                    "--context", 400, "--attention", "hga", "--kv-host", 0, "--spill-dir", "/nowhere")

    def test_commands_and_options_are_checked(self):
        self.refuse(2, "a command is needed")
        self.refuse(2, "there is no command 'trian'; did you mean train?", "trian")
        self.refuse(2, "eval is followed by what it does: eval perplexity", "eval")
        self.assertIn("eval perplexity", self.succeed("eval", "--help"))
        self.assertNotIn("generate", self.succeed("eval", "--help"))
        self.assertIn("bench needle", self.succeed("bench", "--help"))
        self.refuse(2, "unknown option '--step'; did you mean --steps?", "train", "--step", 3)
        self.refuse(2, "--steps: 'many' is no whole number", "train", "--steps", "many")
        self.refuse(2, "--model PATH is needed", "train", "--steps", 3)
        self.refuse(2, "'12 gigs' is no size; sizes are like 16GiB", "plan", "--device-memory", "12 gigs")
        self.refuse(2, "is not one of q, k, v", "plan", "--model", self.model, "--lora-targets", "q,x")
        self.refuse(2, "--threads 0", "plan", "--model", self.model, "--threads", 0)
        self.refuse(2, "segment", "plan", "--model", self.model, "--segment", 100)
        self.refuse(2, "exclude each other", *self.train_arguments("never", "--epochs", 2))
        self.refuse(2, "temperature", "generate", "--model", self.model, "--prompt", "a", "--temperature", -1)
        self.refuse(2, "exclude each other", "generate", "--model", self.model, "--prompt", "a",
                    "--prompt-file", self.text)

    def test_int8_is_for_keys_and_values_that_leave_the_device(self):
        model = ["--model", self.model, "--kv", "int8"]
        read = ["eval", "perplexity", *model, "--data", self.text, "--context", 128]
        commands = (["plan", *model], read, ["generate", *model, "--prompt", "a"], ["bench", "prefill", *model],
                    ["bench", "train", *model], self.train_arguments("never", "--quiet", "--kv", "int8"))
        for command in commands:
            self.refuse(2, "--kv int8 is for keys and values that leave the device, but dense attention keeps all of "
                           "them there: add --kv-host SIZE, or take --attention hga", *command)
        self.assertFalse((self.root / "never").exists())
        self.succeed(*read, "--kv-host", "1MiB")
        self.succeed(*read, "--attention", "hga")
        self.refuse(3, "host memory of 0 B for keys and values does not hold the", *read, "--kv-host", 0)
        self.refuse(3, "--kv-bank 4 KiB: the pages that one block of queries may see need 8 KiB",
                    *read, "--kv-bank", 4096)
        self.refuse(2, "--kv: 'int4' is not one of bf16, f32, int8", "plan", "--model", self.model, "--kv", "int4")
        self.refuse(2, "--activations: 'int8' is not one of bf16, f32", "plan", "--model", self.model,
                    "--activations", "int8")

    def test_numbers_out_of_range_are_refused_by_name_and_value(self):
        for option in ("--keep", "--save-every", "--eval-every"):
            self.refuse(2, f"{option} -1 is negative", *self.train_arguments("never", "--quiet", option, -1))
        self.refuse(2, "--warmup 5 is not in 0 .. 4", *self.train_arguments("never", "--quiet", "--warmup", 5))
        arguments = self.train_arguments("never", "--quiet")
        at = arguments.index("--steps")
        self.refuse(2, "--steps 0 is below 1", *arguments[:at + 1], 0, *arguments[at + 2:])
        self.refuse(2, "--epochs 2000000000 is not above 0 and below 1e9", *arguments[:at], "--epochs", 2e9,
                    *arguments[at + 2:])
        at = arguments.index("--context")
        for tokens in (10**12, 9 * 10**18):
            message = f"--context {tokens} is not in"
            self.refuse(2, message, "plan", "--model", self.model, "--context", tokens)
            self.refuse(2, message, *arguments[:at + 1], tokens, *arguments[at + 2:])
            self.refuse(2, message, "eval", "perplexity", "--model", self.model, "--data", self.text, "--context",
                        tokens, "--quiet")
        generate = ["generate", "--model", self.model]
        self.refuse(2, "--max-tokens 2000000000 is not in 1 .. 1073741824", *generate, "--prompt", "a",
                    "--max-tokens", 2000000000)
        empty = self.write("empty-prompt.txt", "")
        self.refuse(2, f"--prompt-file {empty} is empty", *generate, "--prompt-file", empty)
        large = self.write("large.txt", "")
        os.truncate(large, 2**30 + 1)
        self.refuse(4, "longer than 256.0 MiB", *generate, "--prompt-file", large)
        self.refuse(4, "longer than 1.00 GiB", "inspect", self.model, "--tokenize", large)
        lone = self.write("lone.jsonl", '{"text": "a"}')
        self.refuse(4, "lone.jsonl is a text of 1 tokens", "eval", "perplexity", "--model", self.model, "--data",
                    lone)
        self.assertFalse((self.root / "never").exists())

    def test_json_holds_errors_too(self):
        path = self.root / "error.json"
        line = self.refuse(2, "unknown option '--nothing'", "plan", "--nothing", "--json", path)
        self.assertEqual(json.loads(path.read_text()),
                         {"error": {"code": "invalid_argument", "message": line.removeprefix("longtune: ")}})
        with open(self.root / "stdout.txt", "w+") as stdout:
            subprocess.run([LONGTUNE, "plan", "--model", self.model, "--json", "/dev/stdout"], stdout=stdout, check=True)
            stdout.seek(0)
            shown = stdout.read()
        self.assertTrue(shown.startswith("purpose"), shown)
        self.assertTrue(json.loads(shown[shown.index("{"):])["fits"])
        self.assertTrue(pathlib.Path("/dev/stdout").is_symlink())
        link = self.root / "link.json"
        link.symlink_to(path)
        self.succeed("plan", "--model", self.model, "--json", link)
        self.assertTrue(link.is_symlink())
        self.assertTrue(json.loads(path.read_text())["fits"])
        memory = pathlib.Path("/dev/shm")
        if memory.is_dir():
            replaced = memory / f"longtune-{os.getpid()}.json"
            try:
                for _ in range(2):
                    self.succeed("plan", "--model", self.model, "--json", replaced)
                self.assertTrue(json.loads(replaced.read_text())["fits"])
            finally:
                replaced.unlink(missing_ok=True)
        self.refuse(5, "cannot write /dev/full: No space left", "plan", "--model", self.model, "--json", "/dev/full")
        self.refuse(5, "is a directory", "plan", "--model", self.model, "--json", self.root)
        self.refuse(5, "no/where", "plan", "--model", self.model, "--json", self.root / "no/where.json")

    def test_toml_and_the_command_line(self):
        config = self.write("plan.toml", f'model = "{self.model}"\ncontext = 256\n"lora-rank" = 4\n')
        out = self.root / "plan.json"
        self.succeed("plan", "--config", config, "--json", out)
        of_file = json.loads(out.read_text())
        self.succeed("plan", "--config", config, "--context", 512, "--json", out)
        self.assertGreater(json.loads(out.read_text())["device"]["need"], of_file["device"]["need"])
        self.refuse(2, "bad.toml:1: unknown option 'contxt'; did you mean context?", "plan", "--config",
                    self.write("bad.toml", "contxt = 1"))
        self.refuse(4, "broken.toml:1: is no TOML", "plan", "--config", self.write("broken.toml", "= ="))
        self.refuse(4, "none.toml", "plan", "--config", self.root / "none.toml")


class Scripts(unittest.TestCase):
    def test_the_demo_replaces_only_what_is_its_own(self):
        scripts = pathlib.Path(__file__).parent.parent / "scripts"
        with tempfile.TemporaryDirectory(prefix="longtune-demo-") as scratch:
            copy = pathlib.Path(scratch) / "scripts"
            copy.mkdir()
            for name in ("demo.sh", "lib.sh"):
                shutil.copy(scripts / name, copy / name)
            (copy / "setup.sh").write_text("#!/bin/sh\necho set up\nexit 9\n")
            (copy / "setup.sh").chmod(0o755)
            output = pathlib.Path(scratch) / "mine"
            output.mkdir()

            def demo():
                return subprocess.run(["bash", copy / "demo.sh"], env=os.environ | {"LONGTUNE_DEMO_OUTPUT": "mine"},
                                      cwd=scratch, capture_output=True, timeout=60)

            self.assertEqual(demo().returncode, 9)  # empty: goes on to the setup
            (output / "thesis.txt").write_text("years of work")
            self.assertEqual(demo().returncode, 1)
            self.assertIn(str(output), demo().stderr.decode())
            (output / "figures").mkdir()
            self.assertEqual(demo().returncode, 9)


class Inspect(CommandLine):
    def test_a_model(self):
        out = self.root / "model.json"
        shown = self.succeed("inspect", self.model, "--json", out)
        self.assertIn("llama", shown)
        found = json.loads(out.read_text())
        self.assertEqual(found["config"]["layers"], 2)
        self.assertEqual(found["weights"]["bytes"], 4 * found["weights"]["parameters"])
        self.assertEqual(found["tokenizer"]["eos"], 256)

    def test_tokens_of_a_file(self):
        text = self.write("special.txt", "aé<|endoftext|>")
        self.assertEqual(self.succeed("inspect", self.model, "--tokenize", text).split()[:4],
                         ["97", "195", "169", "60"])
        self.assertEqual(self.succeed("inspect", self.model, "--tokenize", text, "--parse-special").split(),
                         ["97", "195", "169", "256"])

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([LONGTUNE, "inspect", self.model], stdout=full, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 5)
        self.assertIn(b"standard output cannot be written: No space left", done.stderr)

    def test_more_output_than_a_buffer_that_cannot_be_written(self):
        long = self.write("long.txt", TEXT * 20)
        commands = (["inspect", self.model, "--tokenize", long],
                    ["generate", "--model", self.model, "--prompt", "a", "--max-tokens", 8, "--quiet"])
        for command in commands:
            with open("/dev/full", "wb") as full:
                done = subprocess.run([LONGTUNE, *map(str, command)], stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(b"standard output cannot be written: No space left", done.stderr)
            reader, writer = os.pipe()
            os.close(reader)
            with os.fdopen(writer, "wb") as broken:
                done = subprocess.run([LONGTUNE, *map(str, command)], stdout=broken, stderr=subprocess.PIPE,
                                      timeout=60)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(b"Broken pipe", done.stderr)

    def test_errors_that_cannot_be_written(self):
        path = self.root / "unseen.json"
        with open("/dev/full", "wb") as full:
            done = subprocess.run([LONGTUNE, "plan", "--nothing", "--json", path], stderr=full, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn("unknown option", json.loads(path.read_text())["error"]["message"])
            output = self.root / "unseen"
            done = subprocess.run([LONGTUNE, *map(str, self.train_arguments(output))], stdout=subprocess.DEVNULL,
                                  stderr=full, timeout=60)
            self.assertEqual(done.returncode, 0)

    def test_names_out_of_files_do_not_reach_the_terminal(self):
        adapter = self.root / "escape"
        self.succeed(*self.train_arguments("escape", "--quiet"))
        config = json.loads((adapter / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = "x\x1b[2J\ny"
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        shown = self.succeed("inspect", adapter)
        self.assertNotIn("\x1b", shown)
        self.assertIn("x\\x1B[2J\\x0Ay", shown)
        line = self.refuse(4, "has the extension '.p\\x1Bdf'",
                           *self.train_arguments("never", "--quiet", data=self.write("book.p\x1bdf", "x")))
        self.assertNotIn("\x1b", line)


class BadInput(CommandLine):
    def test_models(self):
        self.refuse(4, "nowhere", "inspect", self.root / "nowhere")
        cut = tiny_model.write_model(self.root / "cut")
        weights = (cut / "model.safetensors").read_bytes()
        (cut / "model.safetensors").write_bytes(weights[:-8])
        self.refuse(4, "model.safetensors", "inspect", cut)
        (cut / "model.safetensors").unlink()
        self.refuse(4, "safetensors", "inspect", cut)
        other = tiny_model.write_model(self.root / "other")
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps(config | {"model_type": "mamba", "architectures": ["Mamba"]}))
        self.refuse(2, "amba", "inspect", other)
        (other / "config.json").write_text("{")
        self.refuse(4, "config.json", "inspect", other)

    def test_a_tokenizer_larger_than_the_model(self):
        small = tiny_model.write_model(self.root / "small", vocabulary=200)
        self.refuse(4, "tokenizer has 257 tokens, but its embedding table only 200", "generate", "--model", small,
                    "--prompt", "a")

    def test_data(self):
        cases = {
            "empty.txt": (b"", "empty.txt holds no text"),
            "rubbish.txt": (bytes(range(256)) * 4, "rubbish.txt is no text: byte 0 is NUL"),
            "latin.txt": (b"\xe9\xe8\xe7\xe0", "latin.txt is no UTF-8 text"),
            "empty.jsonl": (b"", "empty.jsonl holds no lines"),
            "rubbish.jsonl": (bytes(range(256)), "rubbish.jsonl:1: is no valid JSON"),
            "kind.jsonl": (b'{"text": "a b"}\n{"text": 3}\n', "kind.jsonl:2"),
            "target.jsonl": (b'{"text": "a b"}\n{"prompt": "a", "completion": ""}\n', "target.jsonl:2 has no target"),
            "long.jsonl": (json.dumps({"prompt": "a" * 99, "completion": "b"}).encode(), "long.jsonl:1 has 101 tokens"),
            "book.pdf": (b"x", "book.pdf has the extension '.pdf'")}
        for name, (content, message) in cases.items():
            with self.subTest(name):
                self.refuse(4, message, *self.train_arguments("never", "--quiet", data=self.write(name, content)))
        self.refuse(4, "absent.txt does not exist",
                    *self.train_arguments("never", "--quiet", data=self.root / "absent.txt"))
        self.assertFalse((self.root / "never").exists())

    def test_a_pipe_is_no_data(self):
        pipe = self.root / "pipe.txt"
        os.mkfifo(pipe)
        self.refuse(4, "pipe.txt is no regular file", *self.train_arguments("never", "--quiet", data=pipe))

    def test_weights_that_are_not_finite(self):
        broken = tiny_model.write_model(self.root / "broken")
        weights = bytearray((broken / "model.safetensors").read_bytes())
        weights[-4:] = struct.pack("<f", float("nan"))
        (broken / "model.safetensors").write_bytes(weights)
        line = self.refuse(4, "nan nats", "eval", "perplexity", "--model", broken, "--data", self.text,
                           "--context", 64)
        self.assertIn(str(broken), line)
        self.refuse(4, "a logit of", "generate", "--model", broken, "--prompt", "a", "--quiet")
        arguments = self.train_arguments("never3", "--quiet")
        arguments[arguments.index(self.model)] = broken
        self.refuse(4, "step 1 has a loss of", *arguments)

    def test_a_spill_directory_that_is_not_there(self):
        self.refuse(5, "no file can be made in /nowhere",
                    *self.train_arguments("no-spill", "--quiet", "--attention", "hga", "--spill-dir", "/nowhere"))
        self.assertFalse((self.root / "no-spill").exists())

    def test_an_unwritable_output(self):
        self.refuse(5, "book.txt", *self.train_arguments("book.txt/out", "--quiet"))

    def test_a_budget_that_is_too_small(self):
        out = self.root / "budget.json"
        self.refuse(3, "needs", *self.train_arguments("never2", "--quiet", "--device-memory", "64KiB", "--json", out))
        self.assertEqual(json.loads(out.read_text())["error"]["code"], "out_of_budget")

    def test_a_full_disk(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

        self.refuse(5, "", *self.train_arguments("full", "--quiet"), preexec_fn=small_files)
        self.assertFalse(any((self.root / "full" / "checkpoints").glob("step-*")))


class Plan(CommandLine):
    def test_fits_and_does_not(self):
        out = self.root / "plan.json"
        arguments = ["plan", "--model", self.model, "--context", 128, "--keep-products", 0, "--json", out]
        shown = self.succeed(*arguments)
        self.assertRegex(shown, r"budget +the machine's +the machine's\nthe machine has \d\d\.\d\d GiB of memory for "
                                r"device and host together\n")
        plan = json.loads(out.read_text())
        self.assertTrue(plan["fits"])
        self.assertEqual(plan["machine"], {"memory": 64 * 2**30 - plan["process_bytes"], "disk": None})
        for tier in ("device", "host", "disk"):
            self.assertEqual(plan[tier]["need"], sum(p["bytes"] for p in plan["purposes"] if p["tier"] == tier))
        budget = plan["device"]["need"]
        self.succeed(*arguments, "--device-memory", budget)
        self.assertIn("attention outputs", shown)
        # A byte less, and attention is computed again instead of kept.
        shown = self.succeed(*arguments, "--device-memory", budget - 1)
        self.assertNotIn("attention outputs", shown)
        budget = json.loads(out.read_text())["device"]["need"]
        self.refuse(3, "of device memory, but --device-memory is", *arguments, "--device-memory", budget - 1)
        plan = json.loads(out.read_text())
        self.assertFalse(plan["fits"])
        self.assertLess(plan["longest_context"], 128)

    def test_int8_keys_and_values_of_the_8b_shape(self):
        context = 131072
        out = self.root / "plan.json"
        shape = ["plan", "--shape", "qwen3-8b", "--segment", 2048, "--attention", "hga", "--hga.union-cap", 96,
                 "--device-memory", "64GiB", "--host-memory", "64GiB", "--disk-memory", "64GiB"]

        def bytes_of(*more, tokens=context):
            shown = self.succeed(*shape, "--context", tokens, *more, "--json", out)
            found = collections.Counter()
            for row in json.loads(out.read_text())["purposes"]:
                found[row["name"], row["tier"]] += row["bytes"]
                if row["bytes"] > 0:
                    self.assertIn("\n" + row["name"] + " ", shown)
            return found

        kept, bank = "keys and values", "bank of keys and values"
        wide, int8 = bytes_of(), bytes_of("--kv", "int8")
        self.assertEqual(wide[kept, "host"], context * 144 * 1024)
        self.assertEqual(int8[kept, "host"], context * 74.25 * 1024)
        self.assertEqual(wide[bank, "device"], 0)
        page = 256 * 1024
        self.assertEqual(int8[bank, "device"], (4 + 8 * 96) * page)  # all that a block may see
        # No more than lies before the last segment.
        self.assertEqual(bytes_of("--kv", "int8", tokens=8192)[bank, "device"], (8192 - 2048) // 64 * page)
        self.assertEqual(bytes_of("--kv", "int8", tokens=2048)[bank, "device"], 0)
        on_disk = bytes_of("--kv", "int8", "--kv-host", "4GiB", "--spill-dir", self.root)
        self.assertEqual(on_disk[bank, "device"], (context - 2048) // 64 * page)
        spilled = bytes_of("--kv", "int8", "--kv-host", "4GiB", "--spill-dir", self.root, "--kv-bank", "200MiB")
        self.assertLessEqual(spilled[kept, "host"], 4 * 2**30)
        self.assertEqual(spilled[kept, "host"] + spilled[kept, "disk"], int8[kept, "host"])
        self.assertEqual(spilled[bank, "device"], 200 * 2**20)
        self.refuse(3, "--kv-bank 128.0 MiB: the pages that one block of queries may see need 193.0 MiB",
                    *shape, "--context", context, "--kv", "int8", "--kv-bank", "128MiB")

    def on_machine(self, available, used=0, page_cache=0):
        """Options of a call on a machine with a cgroup of `available` bytes of which some are taken."""
        root = self.root / "machine"
        write_machine(root, 2**50)
        (root / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
        for name, value in (("max", available), ("current", used), ("stat", f"inactive_file {page_cache}")):
            (root / "sys/fs/cgroup" / ("memory." + name)).write_text(f"{value}\n")
        return {"env": os.environ | {"LONGTUNE_SYSTEM_ROOT": str(root)}}

    def test_a_machine_that_has_too_little_is_named(self):
        machine = self.on_machine(24 * 2**30, used=23 * 2**30, page_cache=21 * 2**30)
        out = self.root / "plan.json"
        long = ["plan", "--shape", "qwen3-8b", "--attention", "hga", "--context", 10_000_000, "--threads", 1,
                "--json", out]
        line = self.refuse(3, "GiB), but this machine has 21.90 GiB for both; largest: keys and values 1373.29 GiB",
                           *long, **machine)
        self.assertRegex(line, r"it fits with --context \d+; ")
        self.assertIn("to go by other limits, name both --device-memory and --host-memory", line)
        plan = json.loads(out.read_text())
        self.assertFalse(plan["fits"])
        self.assertEqual(plan["machine"], {"memory": 22 * 2**30 - plan["process_bytes"], "disk": None})
        # A budget for the device alone leaves the host's to the machine; both are taken at their word.
        self.refuse(3, "but this machine has", *long, "--device-memory", "16GiB", **machine)
        shown = self.succeed(*long, "--device-memory", "16GiB", "--host-memory", "2000GiB", **machine)
        self.assertNotIn("the machine", shown)
        self.assertIsNone(json.loads(out.read_text())["machine"]["memory"])
        # What is named as fitting does fit.
        shorter = long.copy()
        shorter[long.index("--context") + 1] = plan["longest_context"]
        self.succeed(*shorter, **machine)
        shorter[long.index("--context") + 1] += 64
        self.refuse(3, "but this machine has", *shorter, **machine)
        shorter[long.index("--context") + 1] = 2**18
        line = self.refuse(3, " --spill-dir DIR or --context", *shorter, **machine)
        spill = json.loads(out.read_text())["nearest"][0].split()[:2]
        self.assertIn("it fits with " + " ".join(spill), line)
        self.succeed(*shorter, *spill, "--spill-dir", self.root / "not-here", **machine)

    def test_the_real_machine_is_asked(self):
        out = self.root / "plan.json"
        env = {name: value for name, value in os.environ.items() if name != "LONGTUNE_SYSTEM_ROOT"}
        self.run_longtune("plan", "--model", self.model, "--json", out, env=env)
        self.assertNotIn(json.loads(out.read_text())["machine"]["memory"],
                         (None, 64 * 2**30 - json.loads(out.read_text())["process_bytes"]))

    def test_page_cache_is_no_reason_to_refuse(self):
        small = ["plan", "--model", self.model, "--context", 128, "--threads", 1]
        self.refuse(3, "but this machine has 0 B for both", *small, **self.on_machine(2**30, used=2**30))
        self.succeed(*small, **self.on_machine(2**30, used=2**30, page_cache=2**29))

    def test_a_disk_that_has_too_little_is_named(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))

        spilling = ["plan", "--shape", "qwen3-0.6b", "--attention", "hga", "--context", 8192, "--kv-host", 0,
                    "--spill-dir", self.root]
        line = self.refuse(3, "of disk, but --spill-dir has room for 1.0 MiB; largest: keys and values", *spilling,
                           preexec_fn=small_files)
        self.assertIn("it fits with --kv-host", line)
        self.assertIn("to go by another limit, name --disk-memory", line)
        shown = self.run_longtune(*spilling, preexec_fn=small_files).stdout.decode()
        self.assertIn("for device and host together, and room for 1.0 MiB in --spill-dir\n", shown)
        self.succeed(*spilling, "--disk-memory", "10GiB", preexec_fn=small_files)

    def test_whatever_runs_is_refused_before_it_loads(self):
        machine = self.on_machine(100 * 2**20 + 2**16)  # of which the process takes 100 MiB
        model = ["--model", self.model, "--threads", 1]
        runs = (self.train_arguments("too-large", "--quiet"),
                ["bench", "train", *model, "--context", 128],
                ["bench", "prefill", *model, "--context", 128],
                ["eval", "perplexity", *model, "--data", self.text, "--quiet"],
                ["generate", *model, "--prompt", "a", "--quiet"])
        for run in runs:
            with self.subTest(run[:2]):
                self.refuse(3, "but this machine has 64 KiB for both; largest: ", *run, **machine)
        self.assertFalse((self.root / "too-large").exists())

    def test_plans_what_train_plans(self):
        out = self.root / "plan.json"
        self.succeed(*self.train_arguments("planned", "--eval-data", self.text, "--quiet", "--seed", 3))
        self.succeed("plan", "--config", self.root / "planned/run.toml", "--json", out)
        of_file = json.loads(out.read_text())
        shape = ["plan", "--model", self.model, "--context", 64, "--segment", 64, "--lora-rank", 2, "--json", out]
        self.succeed(*shape, "--data", self.text, "--eval-data", self.text)
        self.assertEqual(json.loads(out.read_text())["purposes"], of_file["purposes"])
        self.succeed(*shape, "--data", self.text)
        data = [row["bytes"] for row in json.loads(out.read_text())["purposes"] if row["name"] == "data"]
        self.assertEqual([row["bytes"] for row in of_file["purposes"] if row["name"] == "data"], [2 * data[0]])
        self.refuse(2, "unknown option '--lr'", "plan", "--model", self.model, "--lr", 1)


class Training(CommandLine):
    def train(self, output, *more, data=None):
        out = self.root / (output + ".json")
        self.succeed(*self.train_arguments(output, "--json", out, *more, data=data))
        return json.loads(out.read_text())

    def test_training_over_tiers_says_what_is_on_disk(self):
        result = self.train("tiers", "--attention", "hga", "--kv-host", 0,
                            "--spill-dir", self.root)
        self.assertGreater(result["disk_bytes_peak"], 0)
        self.assertEqual(result["disk_bytes_peak"], result["disk_bytes"])

    def test_options_of_attention_reach_the_run(self):
        def arguments(output, *more, segment=128):
            words = self.train_arguments(output, "--quiet", "--attention", "hga", *more)
            words[words.index("--segment") + 1] = segment
            return words

        def made_with(output, *more):
            self.succeed(*arguments(output, *more))
            state = json.loads((self.root / output / "checkpoints" / "step-4" / "state.json").read_text())
            return state["options"]["attention"], state["options"]["kv"]

        self.assertEqual(made_with("hga"), ("hga causal per KV head, 2 and 2 pages, 24 of 96 groups of 16 a block of "
                                            "16, 32 chunks, mixed, whole lists", "bf16"))
        self.assertEqual(made_with("asked", "--hga.see", "asked", "--hga.chunk", 128, "--hga.union-cap", 48,
                                   "--kv", "int8"),
                         ("hga causal per KV head, 2 and 2 chunks of 128, 24 of 48 groups of 16 a block of 16, "
                          "32 chunks, mixed", "int8"))
        self.assertEqual(made_with("paper", "--hga.preset", "paper", "--hga.chunk", 128),
                         ("hga block per query head, 2 and 2 chunks of 128, 32 of 32 groups of 16 a block of 128, "
                          "8 chunks, mixed", "bf16"))
        for line in ('see = "asked"', "chunk = 128"):
            self.assertIn(line + "\n", (self.root / "asked" / "run.toml").read_text())
        same = ["asked", "--resume", "--hga.chunk", 128, "--hga.union-cap", 48]
        self.refuse(2, 'was made with kv "int8", but this run has "bf16"', *arguments(*same, "--hga.see", "asked"))
        self.refuse(2, "was made with attention", *arguments(*same, "--kv", "int8"))
        self.succeed(*arguments(*same, "--hga.see", "asked", "--kv", "int8", "--kv-host", 0, "--spill-dir", self.root))
        self.refuse(2, "--segment 192 is not a multiple of --hga.chunk 128: give 256",
                    *arguments("cut", "--hga.chunk", 128, segment=192))
        self.refuse(2, "--kv int8 is for keys and values that leave the device",
                    *self.train_arguments("dense-int8", "--quiet", "--kv", "int8"))
        self.assertFalse((self.root / "dense-int8").exists())
        self.succeed("plan", "--model", self.model, "--hga.chunk", 0)  # of no account to dense attention

    def test_offloading_takes_less_of_the_device_and_changes_nothing(self):
        here, there = self.train("here"), self.train("there", "--offload", "both")
        self.assertLess(there["device_bytes_peak"], here["device_bytes_peak"])
        self.assertGreater(there["host_bytes_peak"], here["host_bytes_peak"])
        for name in ("adapter_model.safetensors", "checkpoints/step-4/optimizer.safetensors"):
            self.assertEqual((self.root / "there" / name).read_bytes(), (self.root / "here" / name).read_bytes(), name)

    def test_what_a_run_leaves(self):
        result = self.train("run", "--eval-data", self.text, "--save-every", 2, "--device-memory", "64MiB")
        output = self.root / "run"
        for name in ("adapter_config.json", "adapter_model.safetensors", "run.toml", "metrics.jsonl",
                     "checkpoints/step-2", "checkpoints/step-4"):
            self.assertTrue((output / name).exists(), name)
        steps = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps], [1, 2, 3, 4])
        self.assertEqual(result["steps"], 4)
        self.assertEqual(result["loss"], steps[-1]["loss"])
        self.assertIn("held_out_nats", result)
        self.assertIn("steps = 4", (output / "run.toml").read_text())
        self.refuse(2, "holds the results of another run", *self.train_arguments("run", "--quiet"))
        self.assertEqual(self.inspect(output / "checkpoints" / "step-2")["checkpoint"]["step"], 2)
        again = self.root / "again"
        self.succeed("train", "--config", output / "run.toml", "--output", again, "--quiet")
        self.assertEqual((again / "adapter_model.safetensors").read_bytes(),
                         (output / "adapter_model.safetensors").read_bytes())

    def inspect(self, path):
        out = self.root / "inspected.json"
        self.succeed("inspect", path, "--json", out)
        return json.loads(out.read_text())

    def test_an_adapter_is_inspected_and_trained_on(self):
        self.train("first", "--lora-targets", "q,v")
        self.assertEqual(self.inspect(self.root / "first")["targets"], ["q_proj", "v_proj"])
        arguments = self.train_arguments("second", "--adapter", self.root / "first", "--quiet")
        at = arguments.index("--lora-rank")
        self.refuse(2, "--lora-rank 3 differs from 2 of the adapter", *arguments[:at + 1], 3, *arguments[at + 2:])
        self.succeed(*arguments)
        self.assertEqual(self.inspect(self.root / "second")["targets"], ["q_proj", "v_proj"])

    def test_a_run_with_an_adapter_is_repeated_from_its_configuration(self):
        self.train("base", "--lora-targets", "q,v", "--lora-alpha", 5, "--rslora")
        arguments = self.train_arguments("on", "--adapter", self.root / "base", "--quiet")
        at = arguments.index("--lora-rank")
        self.succeed(*arguments[:at], *arguments[at + 2:])
        written = (self.root / "on" / "run.toml").read_text()
        for line in ("lora-rank = 2", "lora-alpha = 5", "rslora = true", 'lora-targets = "q,v"'):
            self.assertIn(line + "\n", written)
        self.succeed("train", "--config", self.root / "on" / "run.toml", "--output", self.root / "on2", "--quiet")
        self.assertEqual((self.root / "on2" / "adapter_model.safetensors").read_bytes(),
                         (self.root / "on" / "adapter_model.safetensors").read_bytes())

    def test_rope_scaling_by_option(self):
        scaling = ["--rope-scaling", "linear:2"]
        self.train("scaled", *scaling)
        scaled = self.root / "scaled"
        self.assertIn('rope-scaling = "linear:2"\n', (scaled / "run.toml").read_text())
        self.train("plain")
        self.assertIn('rope-scaling = "file"\n', (self.root / "plain" / "run.toml").read_text())
        self.assertNotEqual((scaled / "adapter_model.safetensors").read_bytes(),
                            (self.root / "plain" / "adapter_model.safetensors").read_bytes())
        self.assertEqual(self.inspect(scaled)["rope_scaling"], "linear:2")
        checkpoint = scaled / "checkpoints" / "step-4"
        self.assertEqual(self.inspect(checkpoint)["rope_scaling"], "linear:2")
        self.refuse(2, 'was made with rope-scaling "linear:2", but this run has "file"',
                    *self.train_arguments("scaled", "--resume", "--quiet"))

        # Whoever reads or trains on with other frequencies is told, and nobody else.
        def notes(*arguments):
            done = self.run_longtune(*arguments, "--quiet")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            return [line for line in done.stderr.decode().splitlines() if line.startswith("note: ")]

        read = ["eval", "perplexity", "--model", self.model, "--data", self.text, "--context", 64, "--adapter"]
        other = "was trained with --rope-scaling linear:2, and is used with file"
        for adapter in (scaled, checkpoint):
            self.assertEqual(notes(*read, adapter), [f"note: {adapter} {other}"])
            self.assertEqual(notes(*read, adapter, *scaling), [])
        self.assertEqual(notes(*read, self.root / "plain", "--rope-scaling", "none"), [])  # the same frequencies
        self.assertEqual(notes("generate", "--model", self.model, "--prompt", "a", "--max-tokens", 1,
                               "--adapter", scaled), [f"note: {scaled} {other}"])
        self.assertEqual(notes(*self.train_arguments("on-other", "--adapter", scaled)), [f"note: {scaled} {other}"])
        (scaled / "run.toml").write_text("= no record\n")
        self.assertEqual(notes(*read, scaled), [])

    def test_the_longest_context_goes_by_the_scaling(self):
        def note(*arguments):
            shown = self.succeed("plan", "--model", self.model, "--context", 1024, *arguments)  # made for 512
            return [line for line in shown.splitlines() if line.startswith("note: ")]

        self.assertEqual(note(), ["note: the model was made for 512 tokens; a context of 1024 goes beyond that, "
                                  "which --rope-scaling yarn:2 is for"])
        self.assertEqual(note("--rope-scaling", "yarn:2"), [])
        self.assertEqual(note("--rope-scaling", "linear:1.5"),
                         ["note: the model, with --rope-scaling linear:1.5, was made for 768 tokens; "
                          "a context of 1024 goes beyond that, which --rope-scaling linear:2 is for"])
        self.refuse(2, "--rope-scaling: 'linear' is none of file, none, linear:F and yarn:F", "plan", "--model",
                    self.model, "--rope-scaling", "linear")

    def test_the_largest_seed_survives_the_configuration(self):
        self.train("seeded", "--seed", 2**64 - 1, "--warmup", 2)
        self.succeed("train", "--config", self.root / "seeded" / "run.toml", "--output", self.root / "seeded2",
                     "--quiet")
        self.assertEqual((self.root / "seeded2" / "run.toml").read_text().replace("seeded2", "seeded"),
                         (self.root / "seeded" / "run.toml").read_text())

    def test_a_refused_resume_changes_nothing(self):
        whole = self.train("kept")
        before = (self.root / "kept" / "run.toml").read_bytes()
        self.refuse(2, "made with lr", *self.train_arguments("kept", "--resume", "--quiet", "--lr", 0.5))
        self.assertEqual((self.root / "kept" / "run.toml").read_bytes(), before)
        again = self.train("kept", "--resume")  # finished already: tokens and seconds are of all its steps
        self.assertEqual(again["tokens"], whole["tokens"])
        self.assertEqual(again["seconds"], whole["seconds"])

    def test_training_that_diverges(self):
        self.refuse(2, "a lower --lr", *self.train_arguments("diverged", "--quiet", "--lr", 1e30, "--clip", 0,
                                                             "--schedule", "constant"))

    def test_bytes_without_a_token_are_counted(self):
        tokenizer = tiny_model.tokenizer_json()
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["no byte"] = vocabulary.pop(tiny_model.byte_alphabet()[7])
        lacking = tiny_model.write_model(self.root / "lacking")
        (lacking / "tokenizer.json").write_text(json.dumps(tokenizer))
        text = self.write("bell.txt", TEXT.encode() + b"\x07\x07\xff")
        arguments = self.train_arguments("bells", data=text)
        arguments[arguments.index(self.model)] = lacking
        counted = b"1 byte not UTF-8, read as U+FFFD; 2 bytes that no token stands for"
        self.assertIn(counted, self.run_longtune(*arguments).stderr)
        self.assertIn(counted, self.run_longtune("eval", "perplexity", "--model", lacking, "--data", text).stderr)

    def many_steps(self, output, *more):
        arguments = self.train_arguments(output, "--quiet", "--save-every", 1, *more)
        at = arguments.index("--steps")
        return [*arguments[:at], "--steps", 40, *arguments[at + 2:]]

    def assert_same_end(self, output, wanted):
        for name in ("adapter_model.safetensors", "checkpoints/step-40/optimizer.safetensors"):
            self.assertEqual((self.root / output / name).read_bytes(), (self.root / wanted / name).read_bytes(), name)
        self.assertEqual([step for step, _, _ in self.steps_of(output)], list(range(1, 41)))
        self.assertEqual(self.steps_of(output), self.steps_of(wanted))

    def steps_of(self, output):
        lines = (self.root / output / "metrics.jsonl").read_text().splitlines()
        return [(step["step"], step["loss"], step["samples"]) for step in map(json.loads, lines)]

    def interrupt(self, output, how, arguments):
        """Stops a run after its first step; false where a busy machine sent the signal too late."""
        process = subprocess.Popen([LONGTUNE, *map(str, arguments)], stderr=subprocess.PIPE)
        metrics = self.root / output / "metrics.jsonl"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.002)
        process.send_signal(how)
        error = process.communicate(timeout=60)[1].decode()
        self.assertIn(process.returncode, (130, 0), error)
        if process.returncode == 130:
            self.assertRegex(error, r"interrupted after step (\d+); the adapter and the run's state are in "
                                    rf"{self.root / output}/checkpoints/step-\1; .*--resume")
        return process.returncode == 130

    def test_interrupted_and_resumed_ends_the_same(self):
        self.succeed(*self.many_steps("whole"))
        for how in (signal.SIGINT, signal.SIGTERM):
            if self.interrupt(how.name, how, self.many_steps(how.name)):
                self.succeed(*self.many_steps(how.name, "--resume"))
            self.assert_same_end(how.name, "whole")

    def int8_steps(self, output, *more):
        """Over five segments, so that rounded keys and values are read, of at most two pages by a block."""
        narrow = [f"--hga.{name}={n}" for name, n in
                  {"keep-first": 0, "keep-last": 0, "topk-groups": 1, "union-cap": 1}.items()]
        arguments = self.many_steps(output, "--attention", "hga", *narrow, "--kv", "int8", *more)
        at = arguments.index("--context")
        return [*arguments[:at], "--context", 320, *arguments[at + 2:]]

    def test_int8_keys_and_values_resume_to_the_same_bits_wherever_they_lie(self):
        on_disk = ["--kv-host", 0, "--spill-dir", self.root, "--kv-bank", 2 * 4096]
        self.succeed(*self.int8_steps("int8", "--kv-bank", "1MiB"))  # all pages of a layer
        self.interrupt("int8-resumed", signal.SIGINT, self.int8_steps("int8-resumed"))
        other = self.int8_steps("int8-resumed", "--resume", *on_disk)
        other[other.index("int8")] = "bf16"
        self.refuse(2, 'was made with kv "int8", but this run has "bf16": resume with the same options', *other)
        self.succeed(*self.int8_steps("int8-resumed", "--resume", *on_disk))
        self.assert_same_end("int8-resumed", "int8")
        self.refuse(3, "the pages that one block of queries may see need 8 KiB",
                    *self.int8_steps("never", *on_disk[:-1], 2 * 4096 - 1))
        self.succeed(*self.int8_steps("int8-on-disk", *on_disk))
        self.assert_same_end("int8-on-disk", "int8")
        self.assertIn('kv = "int8"\n', (self.root / "int8" / "run.toml").read_text())
        wide = self.int8_steps("no-int8")
        wide[wide.index("int8")] = "bf16"
        self.succeed(*wide)
        self.assertNotEqual(self.steps_of("no-int8"), self.steps_of("int8"))

    def send_once_handled(self, process, which):
        """Sends a signal as soon as the process has a handler for it."""
        status = pathlib.Path(f"/proc/{process.pid}/status")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            caught = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt:")]
            if caught and int(caught[0], 16) >> (which - 1) & 1:
                break
            time.sleep(0.001)
        process.send_signal(which)

    def test_stopped_while_data_is_read(self):
        long = self.write("long.jsonl", (json.dumps({"text": TEXT}) + "\n") * 6000)
        for which in (signal.SIGTERM, signal.SIGHUP):
            output = "early-" + which.name
            arguments = self.train_arguments(output, "--quiet", data=long)
            with open("/dev/full", "wb") as full:
                process = subprocess.Popen([LONGTUNE, *map(str, arguments)], stderr=full,
                                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
                self.send_once_handled(process, which)
                self.assertEqual(process.wait(timeout=60), 130)
            self.assertFalse((self.root / output).exists())

    def test_a_closing_terminal_hangs_up_more_than_once(self):
        arguments = [100_000 if word == 4 else word for word in self.train_arguments("hung-up", "--quiet")]
        process = subprocess.Popen([LONGTUNE, *map(str, arguments)],
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        while not (self.root / "hung-up/metrics.jsonl").exists() or \
                not (self.root / "hung-up/metrics.jsonl").read_text():
            time.sleep(0.001)
        for _ in range(5):
            process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(timeout=60), 130)
        self.assertTrue(any((self.root / "hung-up/checkpoints").glob("step-*")))

    def test_killed_anywhere_and_resumed_ends_the_same(self):
        self.succeed(*self.many_steps("never-killed"))
        killed = 0
        for attempt in range(60):
            process = subprocess.Popen([LONGTUNE, *map(str, self.many_steps("killed", "--resume"))])
            try:
                # Later and later, so that every run gets a little further than the one before.
                process.wait(timeout=0.02 + 0.01 * attempt)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
        self.assertEqual(process.returncode, 0)
        self.assertGreater(killed, 0)
        self.assert_same_end("killed", "never-killed")
        left = [path for path in (self.root / "killed").rglob("*") if ".partial" in path.name]
        self.assertEqual(left, [])

    def test_reading_and_generating(self):
        self.train("reader")
        out = self.root / "eval.json"
        shown = self.succeed("eval", "perplexity", "--model", self.model, "--adapter", self.root / "reader", "--data",
                             self.text, "--context", 64, "--tokens", 200, "--buckets", "0,32,64", "--json", out,
                             "--losses", self.root / "losses.tsv")
        result = json.loads(out.read_text())
        self.assertIn("perplexity", shown)
        for name in ("seconds", "device_bytes_peak", "host_bytes_peak"):
            self.assertGreater(result[name], 0, name)
        self.assertEqual(result["tokens"], 196)  # 200 in windows of 64, whose first tokens are not scored
        self.assertEqual(sum(bucket["tokens"] for bucket in result["buckets"]), 196)
        header, *lines = (self.root / "losses.tsv").read_text().splitlines()
        self.assertEqual(header, "token\tposition\tnats")
        scored = [line.split("\t") for line in lines]
        self.assertEqual([int(token) for token, *_ in scored], [i for i in range(200) if i % 64 > 0])
        self.assertTrue(all(int(token) % 64 == int(position) for token, position, _ in scored))
        self.assertAlmostEqual(sum(float(nats) for *_, nats in scored) / 196, result["nats"], places=6)
        arguments = ["generate", "--model", self.model, "--prompt", "It is", "--max-tokens", 8, "--json", out]
        self.succeed(*arguments)
        greedy = json.loads(out.read_text())
        self.assertLessEqual(len(greedy["tokens"]), 8)
        decoded = len(greedy["tokens"]) - (greedy["finish"] == "length")
        self.assertAlmostEqual(greedy["tokens_per_s"], decoded / greedy["seconds"])
        self.succeed("generate", "--model", self.model, "--prompt", "It is", "--max-tokens", 1, "--json", out)
        self.assertIsNone(json.loads(out.read_text())["tokens_per_s"])
        drawn = [*arguments, "--temperature", 1, "--top-k", 50, "--top-p", 0.9, "--seed", 3]
        self.succeed(*drawn)
        first = json.loads(out.read_text())["tokens"]
        self.succeed(*drawn)
        self.assertEqual(json.loads(out.read_text())["tokens"], first)
        self.refuse(2, "--prompt is empty", "generate", "--model", self.model, "--prompt", "")


if __name__ == "__main__":
    unittest.main(verbosity=1)
