// SPDX-License-Identifier: Apache-2.0
#include "client/cli/state_root.h"

#include <cstdlib>

namespace fairway {

std::string StateRoot() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0') {
    return std::string(state) + "/fairway";
  }
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "/tmp") + "/.local/state/fairway";
}

}  // namespace fairway
