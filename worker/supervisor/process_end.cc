// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/process_end.h"

#include <csignal>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "worker/process/exit_codes.h"

namespace fairway {

std::string Cause(const ProcessEnd& end) {
  if (end.signal != 0) {
    const char* name = sigabbrev_np(end.signal);
    return name != nullptr ? fmt::format("killed by SIG{}", name)
                           : fmt::format("killed by signal {}", end.signal);
  }
  const std::string_view meaning = Meaning(end.exit_code);
  return meaning.empty() ? fmt::format("exited with code {}", end.exit_code)
                         : fmt::format("exited with code {} ({})", end.exit_code, meaning);
}

}  // namespace fairway
