#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/golden.h"
#include "support/temporary_directory.h"
#include "train/run.h"

namespace longtune::test {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// One token a byte: enough to train tiny models on.
inline TextEncoder byte_encoder(std::int32_t vocabulary) {
  return {.encode =
              [vocabulary](std::string_view text) {
                std::vector<std::int32_t> tokens;
                for (const char c : text) {
                  tokens.push_back(static_cast<unsigned char>(c) % vocabulary);
                }
                return tokens;
              },
          .bos = std::nullopt,
          .eos = 0};
}

/// The samples of `texts`, split into runs of `context` tokens.
inline Dataset dataset_of(const std::vector<std::string>& texts,
                          std::int64_t context,
                          const TemporaryDirectory& scratch) {
  DataOptions options{.context = context};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    options.documents.paths.push_back(scratch.path() / ("data" + std::to_string(i) + ".txt"));
    std::ofstream(options.documents.paths.back()) << texts[i];
  }
  return Dataset::load(options, byte_encoder(96));
}

/// A text of `length` characters that is not the same everywhere.
inline std::string text_of(std::size_t length, unsigned seed) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) {
    text += static_cast<char>('a' + (i * i * (seed + 3) + i / 7) % 26);
  }
  return text;
}

/// Bytes of the adapter and, where it is a checkpoint, of the moments.
inline std::string trained_bytes(const std::filesystem::path& directory) {
  std::string bytes = read_text(directory / "adapter_model.safetensors");
  if (std::filesystem::exists(directory / "optimizer.safetensors")) {
    bytes += read_text(directory / "optimizer.safetensors");
  }
  return bytes;
}

}  // namespace longtune::test
