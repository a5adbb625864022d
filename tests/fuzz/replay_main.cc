// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on files, without libFuzzer: `replay_NAME PATH...`, files or folders of files.
// Exits with 1 if there is none.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

int Run(const std::filesystem::path& path, bool verbose) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return 0;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (verbose) std::fprintf(stderr, "%s (%zu bytes)\n", path.c_str(), bytes.size());
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      count += Run(argv[i], true);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      count += Run(entry.path(), false);
  }
  std::printf("%d inputs\n", count);
  return count > 0 ? 0 : 1;
}
