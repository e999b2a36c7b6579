#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/bytes.h"
#include "io/gguf_builder.h"
#include "io/reader.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"
#include "tokenizer/byte_alphabet.h"

namespace longtune {
namespace {

/// A GGUF tokenizer of 256 bytes, "ab", "<end>" (control) and "[PAD]" (unused).
struct Model {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<std::string> merges{"a b"};
  std::uint32_t eos = 257;
  bool add_bos = false;

  Model() {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(spell_byte(static_cast<std::uint8_t>(byte)));
    }
    tokens.insert(tokens.end(), {"ab", "<end>", "[PAD]"});
    types.assign(257, 1);
    types.insert(types.end(), {3, 5});
  }

  [[nodiscard]] std::string bytes() const {
    GgufBuilder builder;
    builder.string("tokenizer.ggml.model", model);
    builder.string("tokenizer.ggml.pre", pre);
    builder.strings("tokenizer.ggml.tokens", tokens);
    builder.array("tokenizer.ggml.token_type", GgufType::kI32, types);
    builder.strings("tokenizer.ggml.merges", merges);
    builder.value("tokenizer.ggml.eos_token_id", GgufType::kU32, eos);
    builder.value("tokenizer.ggml.add_bos_token", GgufType::kBool, std::uint8_t{add_bos});
    return builder.bytes();
  }

  [[nodiscard]] Tokenizer load() const {
    const std::string file = bytes();
    return Tokenizer::from_gguf(
        Gguf::parse(MemoryReader("t.gguf", std::as_bytes(std::span(file)))));
  }
};

using Tokens = std::vector<std::int32_t>;

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer tokenizer = Model().load();
  EXPECT_EQ(tokenizer.encode("ab<end>", SpecialTokens::kParse), (Tokens{256, 257}));
  EXPECT_EQ(tokenizer.encode("ab<end>", SpecialTokens::kAsText),
            (Tokens{256, '<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(tokenizer.encode("[PAD]", SpecialTokens::kParse), (Tokens{'[', 'P', 'A', 'D', ']'}));
  EXPECT_EQ(tokenizer.decode({256, 257, ' '}, false), "ab<end> ");
  EXPECT_EQ(tokenizer.decode({256, 257, ' '}, true), "ab ");
  EXPECT_EQ(tokenizer.decode({0xC3}, false), "\xC3") << "half a character";
  EXPECT_EQ(tokenizer.vocabulary_size(), 259);
  EXPECT_EQ(tokenizer.token_id("<end>"), 257);
  EXPECT_EQ(tokenizer.token_id("\xC4\xA0"), ' ') << "as the file spells it";
  EXPECT_FALSE(tokenizer.token_id("nothing"));
  EXPECT_EQ(tokenizer.eos_token(), 257);
  EXPECT_EQ(tokenizer.pre_tokenizer(), "gpt2");
}

TEST(Tokenizer, RefusesIdsThatDoNotExist) {
  const Tokenizer tokenizer = Model().load();
  for (const std::int32_t id : {-1, 259}) {
    expect_error([&] { static_cast<void>(tokenizer.decode({id}, false)); },
                 ErrorCode::kInvalidArgument,
                 "is outside of the vocabulary of 259");
  }
}

TEST(Tokenizer, RefusesGgufThatItDoesNotUnderstand) {
  const auto refuse = [](const Model& model, ErrorCode code, std::string_view part) {
    expect_error([&] { static_cast<void>(model.load()); }, code, part);
  };
  Model model;
  model.model = "llama";
  refuse(model, ErrorCode::kUnsupported, "tokenizer.ggml.model 'llama'");
  model = {};
  model.pre = "tekken";
  refuse(model, ErrorCode::kUnsupported, "tokenizer.ggml.pre 'tekken'");
  model = {};
  model.types[7] = 6;
  refuse(model, ErrorCode::kUnsupported, "token_type 6");
  model = {};
  model.types.pop_back();
  refuse(model, ErrorCode::kBadInput, "token_type has 258 entries for 259 tokens");
  model = {};
  model.tokens[256] = "a";
  refuse(model, ErrorCode::kBadInput, "token 'a' has both id 97 and id 256");
  model = {};
  model.tokens[256] = "";
  refuse(model, ErrorCode::kBadInput, "token 256 is empty");
  model = {};
  model.merges = {"ab"};
  refuse(model, ErrorCode::kBadInput, "merge 0 is 'ab'");
  model = {};
  model.eos = 259;
  refuse(model, ErrorCode::kBadInput, "eos_token_id is 259");
  model = {};
  model.add_bos = true;
  refuse(model, ErrorCode::kBadInput, "bos_token_id is missing");
}

TEST(Tokenizer, LoadsADirectoryOrAGgufFile) {
  const TemporaryDirectory directory;
  const auto gguf = directory.write("t.gguf", Model().bytes());
  EXPECT_EQ(Tokenizer::load(gguf).vocabulary_size(), 259);
  const auto load = [](const std::filesystem::path& path) {
    static_cast<void>(Tokenizer::load(path));
  };
  expect_error([&] { load(directory.path()); }, ErrorCode::kBadInput, "tokenizer.json");
  expect_error([&] { load(directory.write("t.bin", "x")); },
               ErrorCode::kBadInput,
               "neither a directory with tokenizer.json nor a .gguf file");
  directory.write("tokenizer.json", "{}");
  expect_error([&] { load(directory.path()); }, ErrorCode::kBadInput, "model is missing");
}

TEST(Tokenizer, RefusesAConfigurationThatIsThereButCannotBeRead) {
  const TemporaryDirectory directory;
  const auto refuses = [&](ErrorCode code, std::string_view part) {
    expect_error([&] { static_cast<void>(Tokenizer::load(directory.path())); }, code, part);
  };
  directory.write("tokenizer.json", "{}");
  const auto config = directory.write("tokenizer_config.json", "");
  refuses(ErrorCode::kBadInput, "tokenizer_config.json: is empty");
  std::filesystem::remove(config);
  std::filesystem::create_symlink("nowhere", config);
  refuses(ErrorCode::kIo, "tokenizer_config.json: the link leads nowhere");
  std::filesystem::remove(config);
  std::filesystem::create_symlink("tokenizer_config.json", config);
  refuses(ErrorCode::kIo, "tokenizer_config.json: Too many levels of symbolic links");
  std::filesystem::remove(config);
  refuses(ErrorCode::kBadInput, "model is missing");
}

TEST(Tokenizer, RefusesJsonThatWouldTakeManyGigabytesParsed) {
  const TemporaryDirectory directory;
  const auto file = directory.write("tokenizer.json", "{}");
  std::filesystem::resize_file(file, 64 * kMiB + 1);  // sparse
  expect_error([&] { static_cast<void>(Tokenizer::load(directory.path())); },
               ErrorCode::kBadInput,
               "tokenizer.json: has 67108865 bytes; at most 67108864 are read");
}

TEST(Tokenizer, SeesWordsAgain) {
  // More words than the cache has places, each several times.
  const Tokenizer tokenizer = Model().load();
  std::string text;
  Tokens expected;
  for (int i = 0; i < 60'000; ++i) {
    const std::string number = std::to_string(i % 20'011);
    text += "ab" + number;
    expected.push_back(256);
    expected.insert(expected.end(), number.begin(), number.end());
  }
  EXPECT_TRUE(tokenizer.encode(text, SpecialTokens::kAsText) == expected);
}

TEST(Tokenizer, ServesManyThreads) {
  const Tokenizer tokenizer = Model().load();
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += "ab <end> " + std::to_string(i);
  }
  const Tokens expected = tokenizer.encode(text, SpecialTokens::kParse);
  std::vector<Tokens> results(4);
  std::vector<std::thread> threads;
  for (Tokens& result : results) {
    threads.emplace_back([&] { result = tokenizer.encode(text, SpecialTokens::kParse); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Tokens& result : results) {
    EXPECT_TRUE(result == expected);
  }
}

TEST(ByteAlphabet, SpellsEveryByteAndBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(spelled_bytes(spell_byte(static_cast<std::uint8_t>(byte))), one);
  }
  EXPECT_EQ(spell_byte(' '), "\xC4\xA0");
  EXPECT_EQ(spell_byte('\n'), "\xC4\x8A");
  EXPECT_EQ(spell_byte('!'), "!");
  EXPECT_FALSE(spelled_bytes("a b"));
  EXPECT_FALSE(spelled_bytes("\xE6\x97\xA5"));
}

}  // namespace
}  // namespace longtune
