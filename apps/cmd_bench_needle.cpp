#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/options.h"
#include "attention/options.h"
#include "base/random.h"
#include "ops/rope.h"

namespace longtune::cli {
namespace {

// Keys that are random, so that nothing near a needle hints at it, are the worst that a summary can
// be asked to stand for. A query is one key of the history, the needle, with noise; it is found
// where routing opens its group.

constexpr std::int64_t kHeads = 16;  // needles that are sought in one call
constexpr double kTheta = 10000;
constexpr std::array kMatches = {0.25, 0.5, 0.75, 1.0};
constexpr std::array kSummaries = {
    ops::HgaSummary::kMixed, ops::HgaSummary::kMean, ops::HgaSummary::kMinMax};

struct NeedleArgs {
  std::int64_t context = 8192;
  std::int64_t head_dim = 64;
  std::int64_t needles = 512;
  ops::HgaSettings hga;
  CommonArgs common;
};

double gaussian(std::uint64_t key, std::uint64_t counter) {
  const double radius = std::sqrt(-2 * std::log(1 - random_uniform(key, 2 * counter)));
  return radius * std::cos(2 * std::numbers::pi * random_uniform(key, 2 * counter + 1));
}

/// A history of random keys for kHeads KV heads, rotated, in pages.
class Haystack {
 public:
  Haystack(std::int64_t tokens, std::int64_t D, std::uint64_t seed)
      : tokens_(tokens), D_(D), keys_(tokens * kHeads * D) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      keys_[i] = static_cast<float>(gaussian(seed, i));
    }
    for (std::int64_t i = 0; i < D / 2; ++i) {
      frequencies_.push_back(static_cast<float>(
          std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(D))));
    }
    std::vector<float> cos(tokens * D / 2);
    std::vector<float> sin(cos.size());
    ops::rope_table({.cos = view(cos, {tokens, D / 2}),
                     .sin = view(sin, {tokens, D / 2}),
                     .frequencies = view(frequencies_, {D / 2})});
    ops::rope_apply({.x = view(keys_, {tokens, kHeads, D}),
                     .cos = view(cos, {tokens, D / 2}),
                     .sin = view(sin, {tokens, D / 2})});
    const std::int64_t page_bytes = ops::kv_page_bytes(kHeads, D, DType::kF32);
    memory_.resize(tokens / ops::kPageTokens * page_bytes);
    for (std::int64_t page = 0; page < tokens / ops::kPageTokens; ++page) {
      table_.push_back(memory_.data() + page * page_bytes);
    }
    const TensorView keys = view(keys_, {tokens, kHeads, D});
    ops::kv_append({.kv = pages(), .k = keys, .v = keys});
  }

  static TensorView view(std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
    TensorView result{.data = reinterpret_cast<std::byte*>(values.data()), .dtype = DType::kF32};
    result.rank = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), result.shape.begin());
    return result;
  }

  [[nodiscard]] ops::KvPages pages() const {
    return {
        .pages = table_.data(), .tokens = tokens_, .Hkv = kHeads, .D = D_, .dtype = DType::kF32};
  }

  [[nodiscard]] const float* key(std::int64_t token, std::int64_t head) const {
    return keys_.data() + (token * kHeads + head) * D_;
  }

  [[nodiscard]] const std::vector<float>& frequencies() const { return frequencies_; }

 private:
  std::int64_t tokens_;
  std::int64_t D_;
  std::vector<float> keys_;
  std::vector<float> frequencies_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> table_;
};

/// The summaries of a haystack's chunks and groups.
struct Summaries {
  std::vector<float> chunks;
  std::vector<float> groups;
  std::int64_t width;

  Summaries(Haystack& hay, const NeedleArgs& args, ops::HgaSummary summary)
      : width(ops::summary_width(summary, args.head_dim)) {
    const std::int64_t chunk = args.hga.chunk_tokens;
    const std::int64_t count = args.context / chunk;
    const std::int64_t per_chunk = args.hga.chunk_groups();
    chunks.resize(kHeads * count * width);
    groups.resize(per_chunk * chunks.size());
    std::vector<float> turns = ops::hga_turns(hay.frequencies(), summary, chunk);
    ops::hga_summaries({.summary = summary,
                        .chunks = Haystack::view(chunks, {kHeads, count, width}),
                        .groups = Haystack::view(groups, {kHeads, count * per_chunk, width}),
                        .kv = hay.pages(),
                        .turns = Haystack::view(turns, {2, chunk, args.head_dim / 2}),
                        .chunk_tokens = chunk,
                        .group_tokens = args.hga.group_tokens,
                        .end_chunk = count});
  }
};

/// One needle a head, where routing may go, and the queries that seek them.
struct Needles {
  std::vector<std::int64_t> tokens;
  std::vector<float> queries;  // (kHeads, D)

  Needles(const Haystack& hay, const NeedleArgs& args, double match, std::uint64_t seed) {
    const std::int64_t begin = args.hga.first_chunks * args.hga.chunk_tokens;
    const std::int64_t end = args.context - args.hga.last_chunks * args.hga.chunk_tokens;
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const std::int64_t token =
          begin + random_below(seed, head, static_cast<std::uint32_t>(end - begin));
      tokens.push_back(token);
      const float* key = hay.key(token, head);
      double length = 0;
      for (std::int64_t d = 0; d < args.head_dim; ++d) {
        length += static_cast<double>(key[d]) * key[d];
      }
      const double of_key = match * std::sqrt(static_cast<double>(args.head_dim) / length);
      for (std::int64_t d = 0; d < args.head_dim; ++d) {
        const double noise = gaussian(seed + 1, head * args.head_dim + d);
        queries.push_back(
            static_cast<float>(of_key * key[d] + std::sqrt(1 - match * match) * noise));
      }
    }
  }
};

/// How many needles lie in groups that routing opened for their queries.
std::int64_t found(const Needles& needles, const Summaries& summaries, const NeedleArgs& args) {
  const std::int64_t capacity = args.hga.capacity();
  std::vector<std::int32_t> groups(kHeads * capacity);
  std::vector<std::int32_t> open(kHeads * capacity);
  std::vector<std::int32_t> counts(kHeads);
  std::vector<std::int32_t> open_counts(kHeads);
  std::vector<std::int32_t> full(kHeads);
  std::vector<std::uint64_t> seen(kHeads * ((capacity + 63) / 64));
  std::vector<float> queries = needles.queries;
  std::vector<float> chunks = summaries.chunks;
  std::vector<float> of_groups = summaries.groups;
  const std::int64_t count = args.context / args.hga.chunk_tokens;
  const std::int64_t per_chunk = args.hga.chunk_groups();
  ops::hga_route(
      {.groups = groups.data(),
       .counts = counts.data(),
       .seen = seen.data(),
       .open = {.groups = open.data(), .counts = open_counts.data(), .full = full.data()},
       .q = Haystack::view(queries, {1, kHeads, args.head_dim}),
       .chunks = Haystack::view(chunks, {kHeads, count, summaries.width}),
       .group_summaries = Haystack::view(of_groups, {kHeads, count * per_chunk, summaries.width}),
       .first_position = args.context,
       .settings = args.hga});
  std::int64_t result = 0;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    const auto* list = groups.data() + head * capacity;
    const auto wanted = static_cast<std::int32_t>(needles.tokens[head] / args.hga.group_tokens);
    result += std::find(list, list + counts[head], wanted) != list + counts[head] ? 1 : 0;
  }
  return result;
}

using Found = std::array<std::array<std::int64_t, kMatches.size()>, kSummaries.size()>;

Found seek(const NeedleArgs& args) {
  Found result{};
  for (std::int64_t first = 0; first < args.needles; first += kHeads) {
    Haystack hay(args.context, args.head_dim, random_key(1, first));
    for (std::size_t s = 0; s < kSummaries.size(); ++s) {
      const Summaries summaries(hay, args, kSummaries[s]);
      for (std::size_t m = 0; m < kMatches.size(); ++m) {
        const Needles needles(hay, args, kMatches[m], random_key(2, first));
        result[s][m] += found(needles, summaries, args);
      }
    }
  }
  return result;
}

void check(const NeedleArgs& args) {
  const auto require =
      [](bool holds, const char* option, std::int64_t value, const std::string& rule) {
        if (!holds) {
          fail(ErrorCode::kInvalidArgument, "bench", "{} {} {}", option, value, rule);
        }
      };
  longtune::check(AttentionOptions{.kind = AttentionKind::kHga, .hga = args.hga});
  const std::int64_t chunk = args.hga.chunk_tokens;
  require(args.context % chunk == 0 && args.context >= 16 * chunk && args.context <= 131072,
          "--context",
          args.context,
          fmt::format("is not a multiple of --hga.chunk {} from {} to 131072", chunk, 16 * chunk));
  require(args.head_dim % 8 == 0 && args.head_dim >= 8 && args.head_dim <= 256,
          "--head-dim",
          args.head_dim,
          "is not a multiple of 8 from 8 to 256");
  require(args.needles >= kHeads && args.needles % kHeads == 0,
          "--needles",
          args.needles,
          "is not a positive multiple of 16");
}

}  // namespace

Outcome run_bench_needle(const std::vector<std::string>& arguments,
                         std::optional<std::filesystem::path>& json) {
  NeedleArgs args;
  OptionSet options("bench needle [options]",
                    "Shows how often routing finds one key among random ones, by what summarises "
                    "them");
  options.group("Keys");
  options.add({"context", "N", "random keys, one of which is the needle"}, args.context);
  options.add({"head-dim", "N", "of a key"}, args.head_dim);
  options.add({"needles", "N", "sought in all"}, args.needles);
  options.group("Attention");
  options.add({"hga.chunk", "N", "tokens of a chunk: 64, 128"}, args.hga.chunk_tokens);
  options.add({"hga.topk-chunks", "N", "chunks whose groups are candidates"}, args.hga.topk_chunks);
  options.add({"hga.topk-groups", "N", "groups that a token sees"}, args.hga.topk_groups);
  options.add({"hga.group", "N", "tokens of a group: 8, 16, 32, 64"}, args.hga.group_tokens);
  add_common_options(options, args.common, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  args.hga.union_cap = args.hga.topk_groups;  // every query has a list of its own
  check(args);
  prepare(args.common, json);

  const Found result = seek(args);
  Json rows = Json::array();
  print_output("{:>10}{:>22}{:>10}\n", "summary", "needle's score, sd", "found");
  for (std::size_t s = 0; s < kSummaries.size(); ++s) {
    for (std::size_t m = 0; m < kMatches.size(); ++m) {
      const double share = static_cast<double>(result[s][m]) / static_cast<double>(args.needles);
      const double score = kMatches[m] * std::sqrt(static_cast<double>(args.head_dim));
      print_output(
          "{:>10}{:>22.1f}{:>8.1f} %\n", longtune::name_of(kSummaries[s]), score, 100 * share);
      rows.push_back(
          {{"summary", longtune::name_of(kSummaries[s])}, {"score", score}, {"found", share}});
    }
  }
  return {.result = {{"context", args.context}, {"rows", rows}}};
}

}  // namespace longtune::cli
