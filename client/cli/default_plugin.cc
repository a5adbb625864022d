// SPDX-License-Identifier: Apache-2.0
#include "client/cli/default_plugin.h"

#include <glob.h>

#include <filesystem>

#include "client/cli/process.h"

namespace fairway {

std::string DefaultPlugin() {
  const std::string pattern =
      ProgramDirectory() +
      "/../../../.venv/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so";
  std::string found;
  glob_t result{};
  if (::glob(pattern.c_str(), 0, nullptr, &result) == 0 && result.gl_pathc > 0) {
    found = std::filesystem::canonical(result.gl_pathv[0]).string();
  }
  ::globfree(&result);
  return found;
}

}  // namespace fairway
