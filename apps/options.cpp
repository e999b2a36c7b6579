#include "apps/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "apps/json_file.h"
#include "base/bytes.h"
#include "base/error.h"
#include "device/system_memory.h"
#include "device/threads.h"
#include "io/spill_file.h"
#include "model/shape_source.h"

namespace longtune::cli {
namespace {

constexpr const char* kWhere = "options";

/// The adapter's value where the option was not given; refuses one that was and differs.
template <class T>
void take_from_adapter(const OptionSet& options, const char* name, T& asked, const T& adapter) {
  if (options.origin(name) != Origin::kDefault && asked != adapter) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "--{} {} differs from {} of the adapter that is to be trained on; leave it out, or begin "
         "without --adapter",
         name,
         text_of(asked),
         text_of(adapter));
  }
  asked = adapter;
}

void add_attention_options(OptionSet& options, ModelArgs& args) {
  AttentionOptions& attention = args.options.attention;
  ops::HgaSettings& hga = attention.hga;
  options.group("Attention");
  options.add_choice({"attention", "KIND", "what a token sees: dense (all), hga (routed)"},
                     attention.kind,
                     {{"dense", AttentionKind::kDense}, {"hga", AttentionKind::kHga}});
  options.add_choice({"hga.preset", "NAME", "settings to begin with: default, paper"},
                     args.paper_preset,
                     {{"default", false}, {"paper", true}});
  options.add({"hga.chunk", "N", "tokens of a chunk: 64, 128"}, hga.chunk_tokens);
  options.add({"hga.keep-first", "N", "chunks at the beginning, seen by all"}, hga.first_chunks);
  options.add({"hga.keep-last", "N", "chunks before the token's own, likewise"}, hga.last_chunks);
  options.add({"hga.topk-chunks", "N", "chunks whose groups are candidates"}, hga.topk_chunks);
  options.add({"hga.topk-groups", "N", "groups that a token asks for"}, hga.topk_groups);
  options.add({"hga.group", "N", "tokens of a group: 8, 16, 32, 64"}, hga.group_tokens);
  options.add_choice({"hga.routing", "HOW", "causal, or block as in the paper (looks ahead)"},
                     hga.routing,
                     {{"causal", ops::HgaRouting::kCausal}, {"block", ops::HgaRouting::kBlock}});
  options.add({"hga.route-block", "N", "tokens that share a list of groups"}, hga.block_queries);
  options.add({"hga.union-cap", "N", "groups of such a list"}, hga.union_cap);
  options.add_choice(
      {"hga.see", "WHAT", "of the list: all so far (list), or what a token asked for"},
      hga.sight,
      {{"list", ops::HgaSight::kList}, {"asked", ops::HgaSight::kAsked}});
  options.add_choice({"hga.select-per", "WHAT", "lists per kv-head or query-head"},
                     hga.per_query_head,
                     {{"kv-head", false}, {"query-head", true}});
  options.add_choice({"hga.summary", "WHAT", "what stands for a run of keys: mixed, mean, min-max"},
                     attention.summary,
                     {{"mixed", ops::HgaSummary::kMixed},
                      {"mean", ops::HgaSummary::kMean},
                      {"min-max", ops::HgaSummary::kMinMax}});
  options.group("Keys and values of earlier segments");
  options.add({"kv-host",
               "SIZE",
               "most of them in host memory; dense attention else keeps them on the "
               "device",
               "all that are not on the device"},
              args.kv_host);
  options.add({"spill-dir", "DIR", "a directory on a fast disk for the rest", "none"},
              args.spill_dir);
  options.add({"kv-bank",
               "SIZE",
               "of those on disk, and with --kv int8 of all, kept on the device",
               "what a block of queries may see; with a disk at least 512MiB"},
              args.kv_bank);
}

// Nothing where dense attention is to have all on the device.
std::optional<KvTiers> kv_tiers_of(const ModelArgs& args) {
  if (!args.kv_host && !args.spill_dir && !args.kv_bank) {
    return std::nullopt;
  }
  KvTiers tiers{.spill_dir = args.spill_dir};
  if (args.kv_host) {
    tiers.host_bytes = args.kv_host->bytes;
  }
  if (args.kv_bank) {
    tiers.bank_bytes = args.kv_bank->bytes;
  }
  return tiers;
}

}  // namespace

void add_model_options(OptionSet& options, ModelArgs& args) {
  options.group("Model");
  options.add({"model", "PATH", "a Hugging Face directory, or a .gguf file"}, args.model);
  options.add({"adapter", "DIR", "a LoRA adapter in PEFT's format to read with or train on"},
              args.adapter);
  options.add_choice({"base-weights", "FORM", "how frozen weights are held: file, nf4, bf16, f32"},
                     args.options.base,
                     {{"file", BaseWeights::kFile},
                      {"nf4", BaseWeights::kNf4},
                      {"bf16", BaseWeights::kBf16},
                      {"f32", BaseWeights::kF32}});
  const std::vector<std::pair<std::string, DType>> floats = {{"bf16", DType::kBf16},
                                                             {"f32", DType::kF32}};
  options.add_choice(
      {"activations", "TYPE", "activations: bf16, f32"}, args.options.activations, floats);
  std::vector<std::pair<std::string, DType>> kept = floats;
  kept.emplace_back("int8", DType::kI8);
  options.add_choice(
      {"kv", "TYPE", "keys and values: bf16, f32, int8 (off the device; bf16 on it)"},
      args.options.kv,
      kept);
  options.add({"rope-scaling", "HOW", "file (as the model's file says), none, linear:F, yarn:F"},
              args.options.rope);
  add_attention_options(options, args);
}

void add_shape_model_options(OptionSet& options, ModelArgs& args) {
  options.group("A published shape with random weights instead of a model");
  options.add({"shape", "NAME", fmt::format("{}", fmt::join(shape_names(), ", ")), "none"},
              args.shape);
  options.add({"layers", "N", "only so many of its layers", "all"}, args.layers);
}

std::unique_ptr<ModelSource> open_source(const OptionSet& options, const ModelArgs& args) {
  const std::optional<std::string> from = options.choose("model", "shape");
  if (!from) {
    options.require("model");
  }
  return from == "shape" ? open_shape(args.shape, args.layers) : open_model(args.model);
}

void resolve_model(const OptionSet& options, ModelArgs& args) {
  AttentionOptions& attention = args.options.attention;
  ops::HgaSettings& hga = attention.hga;
  if (args.paper_preset) {
    const ops::HgaSettings paper = paper_hga_settings();
    const auto take = [&](const char* name, auto& value, const auto& from) {
      if (options.origin(std::string("hga.") + name) == Origin::kDefault) {
        value = from;
      }
    };
    take("group", hga.group_tokens, paper.group_tokens);
    take("chunk", hga.chunk_tokens, paper.chunk_tokens);
    take("keep-first", hga.first_chunks, paper.first_chunks);
    take("keep-last", hga.last_chunks, paper.last_chunks);
    take("topk-chunks", hga.topk_chunks, paper.topk_chunks);
    take("topk-groups", hga.topk_groups, paper.topk_groups);
    take("routing", hga.routing, paper.routing);
    take("route-block", hga.block_queries, paper.block_queries);
    take("select-per", hga.per_query_head, paper.per_query_head);
  }
  if (hga.routing == ops::HgaRouting::kBlock &&
      options.origin("hga.route-block") == Origin::kDefault) {
    hga.block_queries = hga.chunk_tokens;  // the only one that it takes
  }
  check(attention);
  args.options.kv_tiers = kv_tiers_of(args);
}

void add_memory_options(OptionSet& options, MemoryArgs& args) {
  options.group("Memory (device and host share this machine's unless both are named)");
  options.add(
      {"device-memory", "SIZE", "most that the device may hold, like 16GiB", "the machine's"},
      args.device);
  options.add({"host-memory", "SIZE", "most that host memory may hold", "the machine's"},
              args.host);
  options.add({"disk-memory", "SIZE", "most that --spill-dir may hold", "what is free there"},
              args.disk);
}

Budgets budgets_of(const MemoryArgs& memory, const ModelArgs& model) {
  const auto bytes_of = [](const std::optional<Size>& size) {
    return size ? std::optional(size->bytes) : std::nullopt;
  };
  Budgets budgets{.device = bytes_of(memory.device),
                  .host = bytes_of(memory.host),
                  .disk = bytes_of(memory.disk)};
  if (!budgets.device || !budgets.host) {
    const char* root = std::getenv("LONGTUNE_SYSTEM_ROOT");
    if (const auto available = available_memory(root == nullptr ? "/" : root)) {
      budgets.machine_memory =
          std::max<std::int64_t>(0, *available - process_bytes(threads_in_use()));
    }
  }
  if (!budgets.disk && model.spill_dir) {
    budgets.machine_disk = spill_room(*model.spill_dir);
  }
  return budgets;
}

void add_common_options(OptionSet& options,
                        CommonArgs& args,
                        std::optional<std::filesystem::path>& json) {
  options.group("General");
  options.add({"threads", "N", "threads; results do not depend on it", "all cores"}, args.threads);
  options.add_choice({"cpu-isa",
                      "NAME",
                      "instruction set: auto (the widest), portable, avx2, avx512, avx512-bf16"},
                     args.isa,
                     {{"auto", std::nullopt},
                      {ops::name_of(ops::Isa::kPortable), ops::Isa::kPortable},
                      {ops::name_of(ops::Isa::kAvx2), ops::Isa::kAvx2},
                      {ops::name_of(ops::Isa::kAvx512), ops::Isa::kAvx512},
                      {ops::name_of(ops::Isa::kAvx512Bf16), ops::Isa::kAvx512Bf16}});
  options.add({"json", "FILE", "the result, or the error, as JSON as well", "none", false}, json);
  options.add({"quiet", "", "no progress", "", false}, args.is_quiet);
  options.add({"verbose", "", "every step of the progress", "", false}, args.is_verbose);
}

void prepare(const CommonArgs& args, const std::optional<std::filesystem::path>& json) {
  if (args.threads && (*args.threads < 1 || *args.threads > 4096)) {
    fail(ErrorCode::kInvalidArgument, kWhere, "--threads {} is not in 1 .. 4096", *args.threads);
  }
  use_threads(static_cast<int>(args.threads.value_or(available_cores())));
  ops::select_isa(args.isa.value_or(ops::best_isa()));
  if (json) {
    check_writable(*json);
  }
}

std::int64_t ShapeArgs::kept_bytes() const {
  return keep_products ? keep_products->bytes : offload.inputs ? 0 : 512 * kMiB;
}

void add_shape_options(OptionSet& options, ShapeArgs& args) {
  add_model_options(options, args.model);
  add_memory_options(options, args.memory);
  options.add_choice({"offload", "WHAT", "to host memory: none, inputs (of layers), moments, both"},
                     args.offload,
                     {{"none", {}},
                      {"inputs", {.inputs = true}},
                      {"moments", {.moments = true}},
                      {"both", {.inputs = true, .moments = true}}});
  options.add(
      {"keep-products",
       "SIZE",
       "most that layers' products may take that are kept for the backward pass, where they "
       "fit, rather than computed again",
       "512MiB; 0 with --offload inputs"},
      args.keep_products);
  options.group("Sequence");
  options.add({"context", "N", "most tokens of a sample"}, args.context);
  options.add(
      {"segment",
       "N",
       "tokens worked on at once, a multiple of 64 and of --hga.chunk; 0: the whole sample"},
      args.segment);
  options.group("LoRA");
  options.add({"lora-rank", "N", "rank"}, args.lora.rank);
  options.add({"lora-alpha", "X", "alpha; the update is scaled by alpha / rank"}, args.lora.alpha);
  options.add({"lora-dropout", "P", "dropout before the adapter"}, args.lora.dropout);
  options.add({"lora-targets", "LIST", "of q,k,v,o,gate,up,down, or all"}, args.lora_targets);
  options.add({"rslora", "", "scale by alpha / sqrt(rank)"}, args.lora.rslora);
}

TrainOptions shape_options(const OptionSet& options, ShapeArgs& args, TrainOptions rest) {
  resolve_model(options, args.model);
  LoraConfig& lora = args.lora;
  parse_lora_targets(args.lora_targets, lora);
  args.lora_targets = text_of_targets(lora);
  if (args.model.adapter) {
    const LoraConfig adapter = read_lora_config(*args.model.adapter);
    take_from_adapter(options, "lora-rank", lora.rank, adapter.rank);
    take_from_adapter(options, "lora-alpha", lora.alpha, adapter.alpha);
    take_from_adapter(options, "rslora", lora.rslora, adapter.rslora);
    take_from_adapter(options, "lora-targets", args.lora_targets, text_of_targets(adapter));
    lora.targets = adapter.targets;
    if (options.origin("lora-dropout") == Origin::kDefault) {
      lora.dropout = adapter.dropout;  // no part of the parameters: may be changed
    }
  }
  TrainOptions result = std::move(rest);
  result.model = args.model.options;
  result.context = args.context;
  result.segment = args.segment;
  result.lora = lora;
  result.offload = args.offload;
  return result;
}

void parse_lora_targets(std::string_view text, LoraConfig& lora) {
  if (text == "all") {
    lora.targets.fill(true);
    return;
  }
  lora.targets.fill(false);
  for (const std::string& word : split_commas(text)) {
    bool known = false;
    for (int i = 0; i < kLinearKinds; ++i) {
      const std::string name = name_of(static_cast<LinearKind>(i));  // "q_proj"
      if (word == name || word + "_proj" == name) {
        lora.targets.at(i) = true;
        known = true;
      }
    }
    if (!known) {
      fail(ErrorCode::kInvalidArgument,
           kWhere,
           "--lora-targets: '{}' is not one of q, k, v, o, gate, up, down",
           word);
    }
  }
}

std::string text_of_targets(const LoraConfig& lora) {
  constexpr std::string_view kSuffix = "_proj";
  std::vector<std::string> words;
  for (int i = 0; i < kLinearKinds; ++i) {
    if (lora.targets.at(i)) {
      const std::string_view name = name_of(static_cast<LinearKind>(i));
      words.emplace_back(name.substr(0, name.size() - kSuffix.size()));
    }
  }
  return fmt::format("{}", fmt::join(words, ","));
}

void add_data_options(OptionSet& options, DataArgs& args) {
  options.group("Data");
  options.add_list({"data", "PATH...", ".txt and .md documents, .jsonl lines, or directories"},
                   args.data);
  options.add_choice({"long-documents", "WHAT", "longer than the context: split, drop, refuse"},
                     args.long_documents,
                     {{"split", LongDocuments::kSplit},
                      {"drop", LongDocuments::kDrop},
                      {"refuse", LongDocuments::kRefuse}});
  options.add_list({"eval-data", "PATH...", "held-out data, read as --data is"}, args.eval_data);
}

Dataset load_data(const std::vector<std::filesystem::path>& paths,
                  const DataArgs& args,
                  std::int64_t context,
                  const TextEncoder& encoder) {
  DataOptions options;
  options.documents.paths = paths;
  options.context = context;
  options.long_documents = args.long_documents;
  return Dataset::load(options, encoder);
}

}  // namespace longtune::cli
