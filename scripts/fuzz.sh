#!/usr/bin/env bash
# Builds the fuzzers of tests/fuzz and runs them, sharing the time: scripts/fuzz.sh [SECONDS]
# (default 60). Inputs found on the way stay in build/fuzz/corpus for the next run; an input that
# fails is named.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "the time is a whole number of seconds, not '$seconds'"
cd "$root"
quietly "configure the fuzzers" cmake --preset fuzz
quietly "build the fuzzers" cmake --build --preset fuzz

# seeds PARSER FILE...: what the parser's fuzzer starts from.
seeds() {
  local corpus=build/fuzz/corpus/$1 file
  mkdir -p "$corpus"
  shift
  for file; do
    cp "$file" "$corpus/seed-${file//\//-}"
  done
}

seeds safetensors tests/fuzz/seeds/safetensors/* tests/goldens/models/*/adapter*/adapter_model.safetensors
seeds gguf tests/fuzz/seeds/gguf/* tests/goldens/models/*/model.gguf tests/goldens/tokenizers/*.gguf
seeds hf_config tests/goldens/models/*/config.json
seeds model_json tests/fuzz/seeds/model_json/* tests/goldens/models/*/adapter*/adapter_config.json
seeds tokenizer_json tests/goldens/models/*/tokenizer.json tests/goldens/tokenizers/{flags,gpt2,llama3,qwen2,smollm}.json
seeds encode tests/fuzz/seeds/encode/*
seeds jsonl tests/fuzz/seeds/jsonl/*

fuzzers=(safetensors gguf hf_config model_json tokenizer_json encode jsonl)
share=$((seconds / ${#fuzzers[@]}))
for name in "${fuzzers[@]}"; do
  log=build/fuzz/$name.log
  if ! "build/fuzz/fuzz/fuzz_$name" "build/fuzz/corpus/$name" -artifact_prefix="build/fuzz/$name-" \
    -max_total_time=$((share > 0 ? share : 1)) -max_len=262144 -timeout=10 -rss_limit_mb=2048 \
    -malloc_limit_mb=1024 -print_final_stats=1 >"$log" 2>&1 </dev/null; then
    grep -E '^(==|SUMMARY|Test unit|not a refusal|terminate)' "$log" >&2 || tail -n 5 "$log" >&2
    die "the fuzzer of $name found a failing input (all of it in $root/$log)"
  fi
  printf 'fuzzed %s: %s inputs\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
done
