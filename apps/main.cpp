#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/command.h"

namespace {

// By default OpenMP's threads wait for each other spinning, for milliseconds; where other work
// wants the same cores, that time is lost to all. libgomp reads its settings before main begins, so
// the program starts itself again with a short wait, unless the user has chosen. Where that fails,
// it goes on as it is.
void wait_politely(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr && std::getenv("GOMP_SPINCOUNT") == nullptr) {
    setenv("GOMP_SPINCOUNT", "10000", 0);
    // By its own path: "/proc/self/exe" would be the name that process lists show.
    std::error_code ignored;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    execv(self.c_str(), argv);
  }
}

}  // namespace

int main(int argc, char** argv) {
  wait_politely(argv);
  // A write past the file size limit, or to a reader that has gone, then fails with a reason
  // instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  return longtune::cli::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
