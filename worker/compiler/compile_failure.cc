// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/compile_failure.h"

#include <algorithm>
#include <cctype>
#include <csignal>

#include "worker/compiler/checksum.h"

namespace fairway {
namespace {

constexpr size_t kDigestShown = 12;
constexpr size_t kLongestName = 80;

// Finds a module's name, which is text also in MLIR bytecode: "jit_f", "pmap_f"; "module @f" in
// text.
std::string NameIn(std::string_view program) {
  for (const std::string_view mark : {"module @", "jit_", "pmap_"}) {
    size_t at = program.find(mark);
    if (at == std::string_view::npos) continue;
    if (mark.back() == '@') at += mark.size();
    size_t end = at;
    const auto part = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
    while (end < program.size() && end - at < kLongestName && part(program[end])) ++end;
    if (end > at) return std::string(program.substr(at, end - at));
  }
  return "program";
}

}  // namespace

std::string ProgramTitle(std::string_view program) {
  return fmt::format("{} ({} bytes, SHA-256 {}...)", NameIn(program), program.size(),
                     Sha256Hex(program).substr(0, kDigestShown));
}

absl::Status CompileFailure(const ChildEnd& end, const CompileLimits& limits,
                            std::string_view title) {
  if (end.signal == SIGXCPU) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "compiling {} took more than {} s of CPU time, the limit of this worker "
                 "(--compile-cpu-limit raises it)",
                 title, limits.cpu.count());
  }
  if (end.exit_code == kExitOutOfMemory) {
    return Error(
        absl::StatusCode::kResourceExhausted,
        "compiling {} needed more than {} bytes of memory, the limit of this worker "
        "(--compile-memory-limit raises it). Large constants are a common cause: pass them "
        "as arguments",
        title, limits.memory);
  }
  std::string hint = "The program or the compiler is at fault; nothing else is affected";
  if (end.signal == SIGABRT && limits.memory > 0) {
    hint += fmt::format(
        ". XLA also aborts when it gets no memory: the limit is {} bytes "
        "(--compile-memory-limit)",
        limits.memory);
  }
  if (end.signal == SIGKILL) hint = "Nobody here killed it: the host may have run out of memory";
  return Error(absl::StatusCode::kInternal, "the process that compiled {} was {}. {}", title,
               end.signal != 0 ? end.text : "gone (" + end.text + ")", hint);
}

absl::Status CompileTooLate(std::chrono::milliseconds limit, bool started, std::string_view title) {
  if (!started) {
    return Error(absl::StatusCode::kDeadlineExceeded,
                 "compiling {} did not begin within {} ms: other programs were being compiled "
                 "(--compile-limit, --compile-processes of the worker)",
                 title, limit.count());
  }
  return Error(
      absl::StatusCode::kDeadlineExceeded,
      "compiling {} was not done after {} ms and was ended (--compile-limit of the worker)", title,
      limit.count());
}

}  // namespace fairway
