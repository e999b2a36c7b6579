#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/option_set.h"
#include "apps/progress.h"
#include "device/plan.h"
#include "model/options.h"
#include "ops/cpu/isa.h"
#include "train/run.h"
#include "train/trainer.h"

namespace longtune::cli {

/// Which model, and how it is held and computed.
struct ModelArgs {
  std::filesystem::path model;
  std::optional<std::filesystem::path> adapter;
  ModelOptions options;
  bool paper_preset = false;
  std::optional<Size> kv_host;
  std::optional<std::filesystem::path> spill_dir;
  std::optional<Size> kv_bank;
  std::string shape;  ///< of a model without weights, for `plan` and `bench`
  std::int64_t layers = 0;
};

void add_model_options(OptionSet& options, ModelArgs& args);

/// --shape and --layers, in place of --model.
void add_shape_model_options(OptionSet& options, ModelArgs& args);

/// The model that --model or --shape names. Throws Error kInvalidArgument where neither or both do,
/// and as open_model and open_shape do.
[[nodiscard]] std::unique_ptr<ModelSource> open_source(const OptionSet& options,
                                                       const ModelArgs& args);

/// Fills in what --hga.preset says where no option of its own was given. Throws Error
/// kInvalidArgument as check(AttentionOptions) does.
void resolve_model(const OptionSet& options, ModelArgs& args);

struct MemoryArgs {
  std::optional<Size> device;
  std::optional<Size> host;
  std::optional<Size> disk;
};

void add_memory_options(OptionSet& options, MemoryArgs& args);

/// What the user names, taken at its word, and what the machine has at this moment where that
/// leaves something open: memory for device and host together unless both are named, and the room
/// in --spill-dir. To be asked before anything that the plan counts is held. The environment
/// variable LONGTUNE_SYSTEM_ROOT, for tests, stands for "/" as in available_memory.
[[nodiscard]] Budgets budgets_of(const MemoryArgs& memory, const ModelArgs& model);

/// What every command takes.
struct CommonArgs {
  std::optional<std::int64_t> threads;
  std::optional<ops::Isa> isa;
  bool is_quiet = false;
  bool is_verbose = false;
};

void add_common_options(OptionSet& options,
                        CommonArgs& args,
                        std::optional<std::filesystem::path>& json);

/// Sets the number of threads and the instruction set; refuses a JSON file that cannot be written
/// before the work begins.
void prepare(const CommonArgs& args, const std::optional<std::filesystem::path>& json);

/// What decides a training run's memory: `plan` takes these, and `train` more.
struct ShapeArgs {
  ModelArgs model;
  MemoryArgs memory;
  Offload offload;
  std::optional<Size> keep_products;
  std::int64_t context = 2048;
  std::int64_t segment = 2048;
  LoraConfig lora;
  std::string lora_targets = "q,k,v,o,gate,up,down";

  /// The most that the outputs of layers' products may take (what_to_keep).
  [[nodiscard]] std::int64_t kept_bytes() const;
};

void add_shape_options(OptionSet& options, ShapeArgs& args);

/// `rest` with the part of the options that the shape decides. With an adapter to go on from, its
/// LoRA configuration counts, and is written back to `args` for the resolved configuration; one
/// that is asked for and differs is refused by name.
[[nodiscard]] TrainOptions shape_options(const OptionSet& options,
                                         ShapeArgs& args,
                                         TrainOptions rest = {});

/// "q,k,v,o,gate,up,down" or "all" (names as in the checkpoint, "q_proj", are taken too). Throws
/// Error kInvalidArgument for another word.
void parse_lora_targets(std::string_view text, LoraConfig& lora);

/// "q,v": what parse_lora_targets reads back to the same.
[[nodiscard]] std::string text_of_targets(const LoraConfig& lora);

struct DataArgs {
  std::vector<std::filesystem::path> data;
  std::vector<std::filesystem::path> eval_data;
  LongDocuments long_documents = LongDocuments::kSplit;
};

void add_data_options(OptionSet& options, DataArgs& args);

/// The samples of `paths`, which are data or held-out data, of at most `context` tokens.
[[nodiscard]] Dataset load_data(const std::vector<std::filesystem::path>& paths,
                                const DataArgs& args,
                                std::int64_t context,
                                const TextEncoder& encoder);

/// Names of all that `train` takes.
[[nodiscard]] std::vector<std::string> train_option_names();

}  // namespace longtune::cli
