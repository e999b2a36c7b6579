#include "train/data.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "ops/head_loss.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kBos = 300;
constexpr std::int32_t kEos = 301;

/// A token a byte.
TextEncoder byte_encoder() {
  return {.encode =
              [](std::string_view text) {
                Ids ids;
                for (const char c : text) {
                  ids.push_back(static_cast<unsigned char>(c));
                }
                return ids;
              },
          .bos = std::nullopt,
          .eos = kEos};
}

class Data : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ =
        fs::temp_directory_path() / fmt::format("longtune_data_{}_{}", info->name(), ::getpid());
    fs::create_directories(root_);
  }

  void TearDown() override { fs::remove_all(root_); }

  fs::path write(const std::string& name, const std::string& content) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << content;
    return root_ / name;
  }

  DataOptions options(std::vector<fs::path> paths, std::int64_t context = 100) {
    DataOptions result;
    result.documents.paths = std::move(paths);
    result.context = context;
    return result;
  }

  /// The message of the error that loading gives; "" where it gives none.
  static std::string refusal(const DataOptions& options, ErrorCode code = ErrorCode::kBadInput) {
    try {
      (void)Dataset::load(options, byte_encoder());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "";
  }

  static Ids tokens(const Dataset& data, std::int64_t index) {
    const auto span = data.sample(index).tokens;
    return {span.begin(), span.end()};
  }

  static Ids targets(const Dataset& data, std::int64_t index) {
    const Sample sample = data.sample(index);
    Ids result(sample.tokens.size());
    sample.write_targets(result);
    return result;
  }

  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  fs::path root_;
};

TEST_F(Data, ATextFileIsOneDocumentThatEndsWithEos) {
  const Dataset data = Dataset::load(options({write("a.txt", "abc")}), byte_encoder());
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(tokens(data, 0), (Ids{'a', 'b', 'c', kEos}));
  EXPECT_EQ(targets(data, 0), (Ids{'b', 'c', kEos, ops::kNoTarget}));
  EXPECT_EQ(data.sample(0).target_count(), 3);
}

TEST_F(Data, DocumentsBeginWithBosOnceWhereAsked) {
  TextEncoder encoder = byte_encoder();
  encoder.bos = kBos;
  const Dataset data = Dataset::load(options({write("a.txt", "abcd")}, 3), encoder);
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(tokens(data, 0), (Ids{kBos, 'a', 'b'}));
  EXPECT_EQ(tokens(data, 1), (Ids{'c', 'd', kEos}));
}

TEST_F(Data, ALongDocumentIsSplitWithoutLoss) {
  const Dataset data = Dataset::load(options({write("a.txt", "abcdefg")}, 3), byte_encoder());
  ASSERT_EQ(data.size(), 3);
  Ids all;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const Ids run = tokens(data, i);
    all.insert(all.end(), run.begin(), run.end());
    EXPECT_EQ(data.sample(i).first_token, 3 * i);
    EXPECT_EQ(targets(data, i).back(), ops::kNoTarget);
  }
  EXPECT_EQ(all, (Ids{'a', 'b', 'c', 'd', 'e', 'f', 'g', kEos}));
  EXPECT_EQ(data.summary().split_documents, 1);
  EXPECT_EQ(data.summary().targets, 5);
  EXPECT_EQ(data.longest_sample(), 3);
}

TEST_F(Data, ALastRunOfOneTokenIsCountedNotRefused) {
  const Dataset data = Dataset::load(options({write("a.txt", "abc")}, 3), byte_encoder());
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.summary().lone_tokens, 1);
  EXPECT_EQ(describe(data.summary()),
            "1 document, 1 sample, 3 tokens; 1 document split; 1 token left over");
}

TEST_F(Data, LongDocumentsAreDroppedOrRefusedWhereAsked) {
  DataOptions wanted =
      options({write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"abcdefgh\"}\n")}, 4);
  wanted.long_documents = LongDocuments::kDrop;
  const Dataset data = Dataset::load(wanted, byte_encoder());
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.summary().dropped_documents, 1);
  EXPECT_EQ(data.summary().dropped_tokens, 9);
  wanted.long_documents = LongDocuments::kRefuse;
  EXPECT_TRUE(has(refusal(wanted), "a.jsonl:2 has 9 tokens, more than the context of 4"));
  wanted.long_documents = LongDocuments::kDrop;
  wanted.context = 2;
  EXPECT_TRUE(has(refusal(wanted), "no sample is left: 2 documents dropped"));
}

TEST_F(Data, ACompletionAloneIsLearnt) {
  const Dataset data = Dataset::load(
      options({write("a.jsonl", "{\"prompt\":\"ab\",\"completion\":\"cd\"}")}), byte_encoder());
  EXPECT_EQ(tokens(data, 0), (Ids{'a', 'b', 'c', 'd', kEos}));
  EXPECT_EQ(targets(data, 0), (Ids{ops::kNoTarget, 'c', 'd', kEos, ops::kNoTarget}));
  EXPECT_EQ(data.summary().targets, 3);
}

TEST_F(Data, ACompletionIsNeverCutFromItsPrompt) {
  const fs::path file =
      write("a.jsonl", "{\"text\":\"x\"}\n\n{\"prompt\":\"abcdef\",\"completion\":\"gh\"}\n");
  DataOptions wanted = options({file}, 4);
  EXPECT_TRUE(has(refusal(wanted), "a.jsonl:3 has 9 tokens"));
  wanted.long_documents = LongDocuments::kDrop;
  EXPECT_EQ(Dataset::load(wanted, byte_encoder()).size(), 1);
}

TEST_F(Data, ASampleWithoutTargetIsRefusedByLine) {
  EXPECT_TRUE(has(refusal(options({write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"\"}\n")})),
                  "a.jsonl:2 has no target"));
  EXPECT_TRUE(has(refusal(options({write("b.jsonl", "{\"prompt\":\"ab\",\"completion\":\"\"}\n")})),
                  "b.jsonl:1 has no target"));
}

TEST_F(Data, ADirectoryIsItsFilesSortedByPath) {
  write("d/b.txt", "b");
  write("d/a.md", "a");
  write("d/c/x.jsonl", "{\"text\":\"x\"}\r\n{\"text\":\"y\"}");
  const Dataset data = Dataset::load(options({root_ / "d"}), byte_encoder());
  ASSERT_EQ(data.size(), 4);
  const Ids firsts{tokens(data, 0)[0], tokens(data, 1)[0], tokens(data, 2)[0], tokens(data, 3)[0]};
  EXPECT_EQ(firsts, (Ids{'a', 'b', 'x', 'y'}));
  EXPECT_EQ(data.sample(3).document, 3);
}

TEST_F(Data, LinksInADirectoryAreFollowed) {
  write("d/a.txt", "a");
  write("other/b.txt", "b");
  fs::create_directory_symlink(root_ / "other", root_ / "d/link");
  const Dataset data = Dataset::load(options({root_ / "d"}), byte_encoder());
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(tokens(data, 1)[0], 'b');
  fs::create_directory_symlink(root_ / "d", root_ / "other/back");
  EXPECT_TRUE(has(refusal(options({root_ / "d"})), "d/link/back leads back to"));
  fs::remove(root_ / "other/back");
  fs::create_symlink(root_ / "nothing.txt", root_ / "d/dangling.txt");
  EXPECT_TRUE(has(refusal(options({root_ / "d"})), "dangling.txt"));
}

TEST_F(Data, APipeIsRefusedNotWaitedFor) {
  const fs::path pipe = root_ / "pipe.txt";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(has(refusal(options({pipe})), "pipe.txt is no regular file"));
  EXPECT_TRUE(has(refusal(options({root_})), "pipe.txt is no regular file"));
}

TEST_F(Data, BytesWithoutATokenAreCounted) {
  TextEncoder encoder = byte_encoder();
  encoder.missing_bytes = {0x07, 0xFF};
  const fs::path text = write("a.txt", "a long enough line\x07\xFF");
  const fs::path lines = write("b.jsonl", R"({"prompt":"\u0007","completion":"b\u0007"})");
  const Dataset data = Dataset::load(options({text, lines}), encoder);
  EXPECT_EQ(data.summary().missing_bytes, 3);
  EXPECT_TRUE(has(describe(data.summary()),
                  "; 1 byte not UTF-8, read as U+FFFD; 3 bytes that no token stands for"));
}

TEST_F(Data, RefusesFilesByName) {
  EXPECT_TRUE(has(refusal(options({write("a.pdf", "x")})), "a.pdf has the extension '.pdf'"));
  EXPECT_TRUE(has(refusal(options({write("a.p\x1B", "x")})), "has the extension '.p\\x1B'"));
  EXPECT_TRUE(has(refusal(options({root_ / "none.txt"})), "none.txt does not exist"));
  fs::create_directories(root_ / "empty");
  EXPECT_TRUE(has(refusal(options({root_ / "empty"})), "holds no files"));
}

TEST_F(Data, RefusesWhatIsNoText) {
  EXPECT_TRUE(has(refusal(options({write("a.txt", "")})), "a.txt holds no text"));
  EXPECT_TRUE(has(refusal(options({write("b.txt", " \n\t")})), "b.txt holds no text"));
  EXPECT_TRUE(has(refusal(options({write("c.txt", std::string("ab\0c", 4))})), "byte 2 is NUL"));
  EXPECT_TRUE(has(refusal(options({write("d.txt", "\xFF\xFE\xFD\xFC")})),
                  "4 of its 4 bytes belong to no character"));
  EXPECT_TRUE(has(refusal(options({write("e.jsonl", "\n \n")})), "holds no lines of JSON"));
  EXPECT_TRUE(has(refusal(options({write("f.jsonl", std::string("\0\1\2", 3))})),
                  "f.jsonl:1: is no valid JSON"));
}

TEST_F(Data, AFewInvalidBytesAreReadAndCounted) {
  const Dataset data =
      Dataset::load(options({write("a.txt", "a long enough line\xFF")}), byte_encoder());
  EXPECT_EQ(data.summary().invalid_bytes, 1);
  EXPECT_TRUE(has(describe(data.summary()), "1 byte not UTF-8, read as U+FFFD"));
}

TEST_F(Data, AByteOrderMarkIsNoText) {
  const fs::path text = write("a.txt",
                              "\xEF\xBB\xBF"
                              "ab");
  const fs::path lines = write("b.jsonl", "\xEF\xBB\xBF{\"text\":\"ab\"}\n");
  const Dataset data = Dataset::load(options({text, lines}), byte_encoder());
  EXPECT_EQ(tokens(data, 0), (Ids{'a', 'b', kEos}));
  EXPECT_EQ(tokens(data, 1), (Ids{'a', 'b', kEos}));
}

TEST_F(Data, RefusesLinesByNumber) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"text\":", ":1: is no valid JSON at byte"},
      {"[1]", ":1 is array, not an object"},
      {"{\"text\":3}", ":1: \"text\" is number, not a string"},
      {"{\"prompt\":\"a\"}", ":1 must have \"text\", or \"prompt\" and \"completion\""},
      {"{\"text\":\"a\",\"completion\":\"b\"}", ":1 must have"},
      {"{\"text\":\"a\",\"prompt\":\"b\",\"completion\":\"c\"}", ":1 must have"},
      {"{\"text\":\"\xFF\"}", ":1: is no valid JSON"},
      {"{\"text\":\"a\",\"text\":\"b\"}", ":1: has key 'text' twice"},
      {"{\"text\":\"a\",\"x\":1e999}", ":1: holds a number"},
  };
  for (const auto& [line, message] : cases) {
    EXPECT_TRUE(has(refusal(options({write("a.jsonl", line)})), "a.jsonl" + message))
        << line << " gives " << refusal(options({root_ / "a.jsonl"}));
  }
}

TEST_F(Data, CapsTheLengthOfALine) {
  DataOptions wanted = options({write("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"abcdefgh\"}\n")});
  wanted.documents.longest_line = 12;
  EXPECT_TRUE(has(refusal(wanted), "a.jsonl:2 is longer than 12 B"));
  wanted = options({write("b.txt", "abcdefgh")});
  wanted.documents.longest_file = 7;
  EXPECT_TRUE(has(refusal(wanted), "b.txt is longer than 7 B"));
}

TEST_F(Data, LinesLongerThanAReadBlockAreWhole) {
  const std::string text(700'000, 'x');
  const Dataset data = Dataset::load(
      options({write("a.jsonl", "{\"text\":\"" + text + "\"}\n{\"text\":\"ab\"}")}, 1'000'000),
      byte_encoder());
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(data.sample(0).tokens.size(), 700'001U);
  EXPECT_GE(data.host_bytes(), 4 * 700'004);
}

TEST_F(Data, TheFingerprintTellsDataSetsApart) {
  const auto print = [&](const std::string& text, std::int64_t context) {
    return Dataset::load(options({write("a.txt", text)}, context), byte_encoder()).fingerprint();
  };
  EXPECT_EQ(print("abcdef", 4), print("abcdef", 4));
  EXPECT_NE(print("abcdef", 4), print("abcdeg", 4));
  EXPECT_NE(print("abcdef", 4), print("abcdef", 5));
}

TEST_F(Data, RefusesAContextWithoutRoomForATarget) {
  EXPECT_TRUE(has(refusal(options({write("a.txt", "abc")}, 1), ErrorCode::kInvalidArgument),
                  "--context 1 is not in 2 .. 2147483647"));
  EXPECT_TRUE(has(
      refusal(options({write("a.txt", "abc")}, std::int64_t{1} << 31), ErrorCode::kInvalidArgument),
      "--context 2147483648 is not in 2 .. 2147483647"));
}

}  // namespace
}  // namespace longtune
