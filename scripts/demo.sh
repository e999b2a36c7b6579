#!/usr/bin/env bash
# A first fine-tune, from nothing: sets up, builds, fetches SmolLM2-135M-Instruct and six novels by
# Jane Austen, trains an adapter on five of them within 1 GiB of device memory, and shows how much
# better the model then reads the sixth: about ten minutes after the build on two cores. Then the same
# on 16,384 tokens in one piece, twice as many as the model was made for, within 512 MiB: dense
# attention at once is refused, and Hierarchical Global Attention trains.
#
#   LONGTUNE_DEMO_STEPS=N       steps to train (default: as many as fit in about six minutes)
#   LONGTUNE_DEMO_LONG_STEPS=N  steps on 16,384 tokens (default: 2)
#   LONGTUNE_DEMO_OUTPUT=DIR    where the adapters go (default: build/demo); what a demo left
#                               there is replaced, and nothing else
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

context=2048
eval_tokens=8192
train_seconds=360
prompt="She had been forced into prudence in her youth, she learned romance as she grew older:"
output=$(realpath -m -- "${LONGTUNE_DEMO_OUTPUT:-$root/build/demo}")
steps=${LONGTUNE_DEMO_STEPS-}
[[ -z $steps || $steps =~ ^[1-9][0-9]*$ ]] || die "LONGTUNE_DEMO_STEPS is a whole number of steps, not '$steps'"
long_context=16384
long_memory=512MiB
long_steps=${LONGTUNE_DEMO_LONG_STEPS-2}
[[ $long_steps =~ ^[1-9][0-9]*$ ]] || die "LONGTUNE_DEMO_LONG_STEPS is a whole number of steps, not '$long_steps'"

if [[ -e $output && ! -d $output/figures && ! (-d $output && -z $(ls -A "$output")) ]]; then
  die "$output is neither empty nor what a demo left: remove it, or name another LONGTUNE_DEMO_OUTPUT"
fi

"$root/scripts/setup.sh"
cd "$root"
say "building"
quietly "configure" cmake --preset release
cmake --build --preset release --target longtune >&2
longtune=$root/build/release/longtune
model=$("$root/scripts/fetch_model.sh")
novels=$("$root/scripts/fetch_novels.sh")
trained_on=("$novels"/{emma,mansfieldpark,northangerabbey,prideprejudice,sensesensibility}.txt)
began=$SECONDS

rm -rf "$output"
mkdir -p "$output"
work=$output/figures
mkdir -p "$work"

read_novel() {
  local name=$1
  shift
  "$longtune" eval perplexity --model "$model" --data "$novels/persuasion.txt" \
    --json "$work/$name.json" "$@" >&2
}

train_on_novels() {
  local name=$1
  shift
  "$longtune" train --model "$model" --data "${trained_on[@]}" --lora-rank 16 --lora-alpha 32 \
    --output "$output/$name" --json "$work/$name.json" "$@" >&2
}

write_on() {
  "$longtune" generate --model "$model" --prompt "$prompt" --max-tokens 48 --temperature 0 --quiet "$@"
}

say "the model"
"$longtune" inspect "$model" >&2

say "reading the first $eval_tokens tokens of Persuasion, before training"
read_began=$(date +%s%N)
read_novel before --context "$context" --tokens "$eval_tokens"
read_milliseconds=$((($(date +%s%N) - read_began) / 1000000))

# A trained token costs about as much as three that are read.
if [[ -z $steps ]]; then
  steps=$((train_seconds * 1000 * eval_tokens / (read_milliseconds * context * 3)))
  steps=$((steps < 4 ? 4 : steps > 40 ? 40 : steps))
fi

say "training on the five other novels: $steps steps of $context tokens"
train_on_novels adapter --context "$context" --steps "$steps" --lr 5e-4 --device-memory 1GiB

say "reading Persuasion again, with the adapter"
read_novel after --context "$context" --tokens "$eval_tokens" --adapter "$output/adapter"

say "writing on from a line of Persuasion"
printf '\n%s\n' "prompt:          $prompt"
printf '%s\n' "without adapter: $(write_on | tr '\n' ' ')"
printf '%s\n\n' "with adapter:    $(write_on --adapter "$output/adapter" | tr '\n' ' ')"

python3 - "$work" <<'TABLE'
import json, pathlib, sys

figures = {name: json.loads((pathlib.Path(sys.argv[1]) / f"{name}.json").read_text())
           for name in ("before", "after", "adapter")}
before, after, train = figures["before"], figures["after"], figures["adapter"]
print(f"{'Persuasion, never trained on':34} {'before':>10} {'after':>10}")
print(f"{'nats a token':34} {before['nats']:10.4f} {after['nats']:10.4f}")
print(f"{'perplexity':34} {before['perplexity']:10.3f} {after['perplexity']:10.3f}")
print(f"{'tokens scored':34} {before['tokens']:10,} {after['tokens']:10,}")
print(f"trained {train['steps']} steps on {train.get('tokens', 0):,} tokens of five other novels in {train['seconds']:.0f} s, "
      f"with {train['device_bytes_peak'] / 2**20:.0f} MiB of device memory")
if after["nats"] >= before["nats"]:
    sys.exit("demo: the held-out novel is not read better after training")
TABLE
# The model was made for half as many tokens: its rotary frequencies are stretched.
long=(--rope-scaling yarn:2 --context "$long_context" --device-memory "$long_memory")

read_long() {
  local name=$1
  shift
  read_novel "$name" "${long[@]}" --attention hga --tokens "$long_context" --buckets "0,$((long_context / 2))" "$@"
}

say "dense attention over $long_context tokens at once, within $long_memory"
status=0
"$longtune" plan --model "$model" "${long[@]}" --attention dense --segment 0 --lora-rank 16 --lora-alpha 32 \
  --json "$work/dense.json" >/dev/null || status=$?
((status == 3)) || die "it was to be refused for want of memory (exit status 3), not to end with status $status"

say "reading the first $long_context tokens of Persuasion in one piece, with Hierarchical Global Attention"
read_long long_before

say "training with it on the five other novels: $long_steps steps of $long_context tokens"
train_on_novels long_adapter "${long[@]}" --attention hga --segment 2048 --steps "$long_steps" --lr 1e-3

say "reading Persuasion again, with that adapter"
read_long long_after --adapter "$output/long_adapter"

python3 - "$work" <<'TABLE'
import json, pathlib, sys

figures = {name: json.loads((pathlib.Path(sys.argv[1]) / f"{name}.json").read_text())
           for name in ("long_before", "long_after", "long_adapter", "dense")}
before, after, train = figures["long_before"], figures["long_after"], figures["long_adapter"]
MIB = 2**20
print(f"\n{'Persuasion, in one piece':34} {'before':>10} {'after':>10}")
print(f"{'nats a token':34} {before['nats']:10.4f} {after['nats']:10.4f}")
for old, new in zip(before["buckets"], after["buckets"]):
    print(f"{'  tokens {:,} to {:,}'.format(old['from'], old['to']):34} {old['nats']:10.4f} {new['nats']:10.4f}")
print(f"trained {train['steps']} steps on {train['tokens']:,} tokens in {train['seconds']:.0f} s, "
      f"with {train['device_bytes_peak'] / MIB:.0f} MiB of device memory and {train['host_bytes_peak'] / MIB:.0f} MiB "
      f"of host memory;\n{100 * train['attended_fraction']:.1f} % of the history attended; "
      f"dense attention at once needs {figures['dense']['device']['need'] / MIB:.0f} MiB of device memory")
TABLE
say "done in $((SECONDS - began)) s after the build; the adapters are in $output/adapter and $output/long_adapter"
