#include "apps/option_set.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune::cli {
namespace {

enum class Colour : std::uint8_t { kRed, kBlue };

/// A command with an option of each sort.
struct Example {
  std::int64_t steps = 10;
  double rate = 0.5;
  std::string prompt;
  std::optional<Size> memory;
  std::vector<std::filesystem::path> data;
  bool resume = false;
  Colour colour = Colour::kRed;
  std::int64_t chunks = 8;
  OptionSet options{"paint [options]", "Paints"};

  Example() {
    options.group("Main");
    options.add({"steps", "N", "how many"}, steps);
    options.add({"rate", "X", "how fast"}, rate);
    options.add({"prompt", "TEXT", "what to say"}, prompt);
    options.add({"memory", "SIZE", "how much"}, memory);
    options.add_list({"data", "PATH...", "what to read"}, data);
    options.add({"resume", "", "go on", "", false}, resume);
    options.group("More");
    options.add_choice(
        {"colour", "NAME", "which"}, colour, {{"red", Colour::kRed}, {"blue", Colour::kBlue}});
    options.add({"hga.chunks", "N", "chunks"}, chunks);
  }

  void parse(std::vector<std::string> arguments) { (void)options.parse(arguments); }
};

void expect_usage(std::vector<std::string> arguments, std::string_view message) {
  Example example;
  expect_error([&] { example.parse(std::move(arguments)); }, ErrorCode::kInvalidArgument, message);
}

TEST(OptionSet, ReadsEverySort) {
  Example example;
  example.parse({"--steps",
                 "3",
                 "--rate=2e-4",
                 "--prompt",
                 "--x",
                 "--memory",
                 "1GiB",
                 "--data",
                 "a",
                 "b",
                 "--resume",
                 "--colour",
                 "blue",
                 "--hga.chunks",
                 "4"});
  EXPECT_EQ(example.steps, 3);
  EXPECT_EQ(example.rate, 2e-4);
  EXPECT_EQ(example.prompt, "--x");
  EXPECT_EQ(example.memory->bytes, 1 << 30);
  EXPECT_EQ(example.data, (std::vector<std::filesystem::path>{"a", "b"}));
  EXPECT_TRUE(example.resume);
  EXPECT_EQ(example.colour, Colour::kBlue);
  EXPECT_EQ(example.chunks, 4);
  EXPECT_EQ(example.options.origin("steps"), Origin::kCommandLine);
}

TEST(OptionSet, TextsArriveAsTheyAre) {
  for (const std::string text : {"", "{}", "[a,b]", "-5", "a b", "%%"}) {
    Example example;
    example.parse({"--prompt", text});
    EXPECT_EQ(example.prompt, text);
  }
}

TEST(OptionSet, DefaultsStay) {
  Example example;
  example.parse({});
  EXPECT_EQ(example.steps, 10);
  EXPECT_FALSE(example.memory.has_value());
  EXPECT_FALSE(example.resume);
  EXPECT_EQ(example.options.origin("steps"), Origin::kDefault);
}

TEST(OptionSet, RefusalsNameOptionAndValue) {
  expect_usage({"--steps", "x"}, "--steps: 'x' is no whole number");
  expect_usage({"--steps"}, "--steps takes one value");
  expect_usage({"--steps", "1", "--steps", "2"}, "--steps takes one value");
  expect_usage({"--data"}, "--data takes at least one value");
  expect_usage({"--memory", "1gig"}, "--memory: '1gig' is no size");
  expect_usage({"--colour", "green"}, "--colour: 'green' is not one of red, blue");
  expect_usage({"--step", "5"}, "unknown option '--step'; did you mean --steps?");
  expect_usage({"--hga.chunk=5"}, "did you mean --hga.chunks?");
  expect_usage({"-q"}, "unknown option '-q'");
  expect_usage({"--", "--"}, "");
  expect_usage({"file"}, "unexpected argument 'file'");
  expect_usage({"--resume=maybe"}, "--resume: 'maybe' is neither true nor false");
  expect_usage({"--resume", "true"}, "unexpected argument 'true'");
}

TEST(OptionSet, AFileIsReadAndTheCommandLineWins) {
  const TemporaryDirectory scratch;
  const auto file = scratch.write("run.toml",
                                  "steps = 7\nrate = 1\nmemory = \"2GiB\"\ndata = [\"a\"]\n"
                                  "resume = true\ncolour = \"blue\"\n[hga]\nchunks = 2\n");
  Example example;
  example.parse({"--config", file.string(), "--steps", "9"});
  EXPECT_EQ(example.steps, 9);
  EXPECT_EQ(example.rate, 1.0);
  EXPECT_EQ(example.memory->bytes, std::int64_t{2} << 30);
  EXPECT_EQ(example.data.size(), 1U);
  EXPECT_TRUE(example.resume);
  EXPECT_EQ(example.colour, Colour::kBlue);
  EXPECT_EQ(example.chunks, 2);
  EXPECT_EQ(example.options.origin("rate"), Origin::kFile);
  Example other;
  other.parse({"--config", file.string(), "--resume=false"});
  EXPECT_FALSE(other.resume);
}

TEST(OptionSet, AFilesFaultsAreNamedByLine) {
  const TemporaryDirectory scratch;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"rate = 1\nsteps = \"many\"", "a.toml:2: steps: 'many' is no whole number"},
      {"step = 1", "a.toml:1: unknown option 'step'; did you mean steps?"},
      {"[hga]\nx = 1", "a.toml:2: unknown option 'hga.x'"},
      {"steps = [1]", "a.toml:1: steps takes one value"},
      {"data = []", "a.toml:1: data takes at least one value"},
      {"config = \"b.toml\"", "a.toml:1: unknown option 'config'"},
  };
  for (const auto& [text, message] : cases) {
    expect_usage({"--config", scratch.write("a.toml", text).string()}, message);
  }
  Example example;
  const std::string broken = scratch.write("b.toml", "a = 1\nb = = 2").string();
  expect_error([&] { example.parse({"--config", broken}); }, ErrorCode::kBadInput, "b.toml:2");
  Example dated;
  const std::string date = scratch.write("c.toml", "steps = 2020-01-01").string();
  expect_error([&] { dated.parse({"--config", date}); }, ErrorCode::kBadInput, "c.toml:1: steps");
}

TEST(OptionSet, TheResolvedConfigurationIsReadBackTheSame) {
  const TemporaryDirectory scratch;
  Example first;
  first.parse({"--steps",
               "3",
               "--rate",
               "2e-4",
               "--prompt",
               "say \"hi\"\n\\",
               "--memory",
               "1GiB",
               "--data",
               "a b",
               "c",
               "--resume",
               "--colour",
               "blue",
               "--hga.chunks",
               "4"});
  const std::string text = first.options.toml();
  Example second;
  second.parse({"--config", scratch.write("run.toml", text).string()});
  EXPECT_EQ(second.options.toml(), text);
  EXPECT_EQ(second.prompt, first.prompt);
  EXPECT_EQ(second.rate, first.rate);
  EXPECT_FALSE(second.resume) << "is not remembered";
}

TEST(OptionSet, OneArgumentMayStandWithoutItsName) {
  Example example;
  example.options.allow_positional("prompt");
  example.parse({"hello"});
  EXPECT_EQ(example.prompt, "hello");
  Example twice;
  twice.options.allow_positional("prompt");
  expect_error([&] { twice.parse({"a", "b"}); }, ErrorCode::kInvalidArgument, "argument 'b'");
}

TEST(OptionSet, RequiredAndExcludingOptions) {
  Example example;
  example.parse({"--steps", "1", "--rate", "2"});
  expect_error([&] { example.options.require("prompt"); },
               ErrorCode::kInvalidArgument,
               "--prompt TEXT is needed: what to say");
  EXPECT_NO_THROW(example.options.require("steps"));
  expect_error([&] { (void)example.options.choose("steps", "rate"); },
               ErrorCode::kInvalidArgument,
               "--steps and --rate exclude each other");
  EXPECT_EQ(example.options.choose("steps", "prompt"), "steps");
  EXPECT_FALSE(example.options.choose("prompt", "memory").has_value());
  const TemporaryDirectory scratch;
  Example file;
  file.parse({"--rate", "2", "--config", scratch.write("a.toml", "steps = 7").string()});
  EXPECT_EQ(file.options.choose("steps", "rate"), "rate");
}

TEST(OptionSet, NumbersBeyondTomlsSurviveTheFile) {
  const TemporaryDirectory scratch;
  for (const std::uint64_t wanted : {std::uint64_t{7}, ~std::uint64_t{0}}) {
    std::uint64_t seed = wanted;
    OptionSet written("", "");
    written.add({"seed", "N", "of the draws"}, seed);
    const std::string path = scratch.write("a.toml", written.toml()).string();
    std::uint64_t read = 0;
    OptionSet options("", "");
    options.add({"seed", "N", "of the draws"}, read);
    EXPECT_TRUE(options.parse({"--config", path}));
    EXPECT_EQ(read, wanted) << written.toml();
  }
}

TEST(OptionSet, OptionsOfAnotherCommandMayStandInTheFileAlone) {
  const TemporaryDirectory scratch;
  const std::string path = scratch.write("a.toml", "steps = 3\nlr = 2\n").string();
  expect_usage({"--config", path}, "a.toml:2: unknown option 'lr'");
  Example example;
  example.options.ignore_in_file({"lr", "steps"});
  example.parse({"--config", path});
  EXPECT_EQ(example.steps, 3);
  Example typed;
  typed.options.ignore_in_file({"lr"});
  expect_error(
      [&] {
        typed.parse({"--lr", "2"});
      },
      ErrorCode::kInvalidArgument,
      "unknown option '--lr'");
}

TEST(OptionSet, HelpShowsGroupsAndDefaults) {
  Example example;
  EXPECT_FALSE(example.options.parse({"--help"}));
  const std::string help = example.options.help();
  EXPECT_NE(help.find("usage: longtune paint [options]"), std::string::npos);
  EXPECT_NE(help.find("\nMore\n  --colour NAME             which [red]\n"), std::string::npos)
      << help;
  EXPECT_NE(help.find("  --steps N                 how many [10]\n"), std::string::npos) << help;
}

}  // namespace
}  // namespace longtune::cli
