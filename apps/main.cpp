#include <csignal>
#include <string>
#include <vector>

#include "apps/command.h"

int main(int argc, char** argv) {
  // A write past the file size limit, or to a reader that has gone, then fails with a reason
  // instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  return longtune::cli::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
