// SPDX-License-Identifier: Apache-2.0
// A compile helper for compiler_process_test: the real one, or one whose program text says how it
// misbehaves.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "worker/compiler/checksum.h"
#include "worker/compiler/compiler_process.h"
#include "worker/compiler/run_compiler_process.h"

namespace fairway {
namespace {

// "abort", "exit 3", "hang", "echo TEXT", "corrupt"
class UnrulyCompiler final : public Compiler {
 public:
  absl::StatusOr<CompileResult> Compile(const std::string& program,
                                        const v1::CompileOptions&) override {
    if (program == "abort") std::abort();
    if (program == "exit 3") std::_Exit(3);
    while (program == "hang") pause();
    CompileResult result;
    result.code = program;
    result.checksum = Sha256Hex(program == "corrupt" ? "other bytes" : program);
    return result;
  }
};

}  // namespace
}  // namespace fairway

// A supervisor with a helper that hangs; tells the helper's process id and waits to be killed.
int Supervise(const char* self) {
  fairway::CompilerProcess::Options options;
  options.argv = {self, "unruly"};
  auto process = fairway::CompilerProcess::Start(std::move(options));
  if (!process.ok()) return 1;
  (*process)->Compile("hang", {}, std::chrono::milliseconds(0), [](auto) {});
  std::printf("%d\n", (*process)->pid());
  std::fflush(stdout);
  while (true) pause();
}

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "supervise") == 0) return Supervise(argv[0]);
  if (argc == 2 && std::strcmp(argv[1], "unruly") == 0) {
    fairway::UnrulyCompiler compiler;
    return fairway::ServeCompiler(fairway::kCompileLinkFd, fairway::kCompileLinkFd, &compiler);
  }
  fairway::PjrtConfig config;
  config.plugin_path = argc > 1 ? argv[1] : "";
  config.num_devices = 4;
  return fairway::RunCompilerProcess(fairway::kCompileLinkFd, fairway::kCompileLinkFd, config);
}
