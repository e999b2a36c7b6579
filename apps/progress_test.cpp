#include "apps/progress.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/bytes.h"

namespace longtune::cli {
namespace {

using std::chrono::milliseconds;

/// What `body` prints.
std::string printed(ProgressMode mode,
                    milliseconds interval,
                    const std::function<void(Progress&)>& body) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, mode, interval);
    body(progress);
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

void two_updates(Progress& progress) {
  progress.update("one");
  progress.update("two");
  progress.note("noted");
  progress.last("three");
}

TEST(Progress, ATerminalLineIsRewrittenInPlace) {
  EXPECT_EQ(printed(ProgressMode::kTerminal, milliseconds(0), two_updates),
            "\rone\x1b[K\rtwo\x1b[K\nnoted\n\rthree\x1b[K\n");
}

TEST(Progress, ATerminalLineIsNotRewrittenByItself) {
  EXPECT_EQ(printed(ProgressMode::kTerminal,
                    milliseconds(0),
                    [](Progress& progress) {
                      progress.update("one");
                      progress.update("one");
                    }),
            "\rone\x1b[K\n");
}

TEST(Progress, ATerminalLineNeverWraps) {
  const std::string text =
      printed(ProgressMode::kTerminal, milliseconds(0), [](Progress& progress) {
        progress.update(std::string(200, 'x'));
      });
  EXPECT_EQ(std::count(text.begin(), text.end(), 'x'), 79);
}

TEST(Progress, SharesTakeALineATenthAtMost) {
  const auto load = [](Progress& progress) {
    for (int i = 1; i <= 1000; ++i) {
      progress.share("loading", i / 1000.0);
    }
  };
  const std::string text = printed(ProgressMode::kVerbose, milliseconds(0), load);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_TRUE(text.ends_with("loading: 100 %\n"));
}

TEST(Progress, PlainLinesComeNowAndThenAndTheLastAlways) {
  EXPECT_EQ(printed(ProgressMode::kPlain, std::chrono::hours(1), two_updates),
            "one\nnoted\nthree\n");
  EXPECT_EQ(printed(ProgressMode::kPlain, milliseconds(0), two_updates),
            "one\ntwo\nnoted\nthree\n");
  EXPECT_EQ(printed(ProgressMode::kVerbose, std::chrono::hours(1), two_updates),
            "one\ntwo\nnoted\nthree\n");
}

TEST(Progress, QuietPrintsNothing) {
  EXPECT_EQ(printed(ProgressMode::kQuiet, milliseconds(0), two_updates), "");
}

TEST(Progress, AStepsLineNamesWhatMatters) {
  StepReport report;
  report.step = 12;
  report.loss = 2.34512;
  report.lr = 1.9e-4;
  report.tokens = 2048;
  report.seconds = 4;
  report.flops = 2e12;
  StepContext context;
  context.steps = 100;
  context.peak_flops = 1e12;
  context.device_bytes = 900 * kMiB;
  context.host_bytes = 200 * kMiB;
  context.budgets.device = kGiB;
  context.seconds_left = 352;
  EXPECT_EQ(step_line(report, context),
            "step 12/100  5:52 left  loss 2.3451  lr 0.00019  512 tokens/s  50 % of limit  "
            "device 900.0 MiB of 1.00 GiB  host 200.0 MiB");
  report.step = 100;
  context.peak_flops = 0;
  EXPECT_EQ(step_line(report, context),
            "step 100/100  loss 2.3451  lr 0.00019  512 tokens/s  device 900.0 MiB of 1.00 GiB  "
            "host 200.0 MiB");
}

TEST(Progress, DurationsReadWell) {
  EXPECT_EQ(duration_text(-1), "0 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(3723), "1:02:03");
}

}  // namespace
}  // namespace longtune::cli
