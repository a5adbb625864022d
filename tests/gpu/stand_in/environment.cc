// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/stand_in/environment.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace fairway::stand_in {
namespace {

// Writes "NAME=VALUE"; lists have commas.
void Write(std::ostream& out, const PJRT_NamedValue& option) {
  out << std::string_view(option.name, option.name_size) << '=';
  switch (option.type) {
    case PJRT_NamedValue_kString:
      out << std::string_view(option.string_value, option.value_size);
      break;
    case PJRT_NamedValue_kInt64:
      out << option.int64_value;
      break;
    case PJRT_NamedValue_kInt64List:
      for (size_t i = 0; i < option.value_size; ++i)
        out << (i > 0 ? "," : "") << option.int64_array_value[i];
      break;
    case PJRT_NamedValue_kFloat:
      out << option.float_value;
      break;
    case PJRT_NamedValue_kBool:
      out << (option.bool_value ? "true" : "false");
      break;
  }
}

}  // namespace

int Gpus() {
  const char* text = std::getenv("FAIRWAY_STAND_IN_GPUS");
  return text != nullptr ? std::atoi(text) : 8;
}

std::string_view ClientKind() {
  const char* text = std::getenv("FAIRWAY_STAND_IN_KIND");
  return text != nullptr ? text : "NVIDIA H200";
}

bool There(const char* variable) {
  const char* path = std::getenv(variable);
  return path != nullptr && ::access(path, F_OK) == 0;
}

void WaitWhileThere(const char* variable) {
  while (There(variable)) ::poll(nullptr, 0, 10);
}

void Note(const char* variable, const std::string& line) {
  const char* path = std::getenv(variable);
  FILE* file = path == nullptr ? nullptr : std::fopen(path, "a");
  if (file == nullptr) return;
  std::fputs((line + "\n").c_str(), file);
  std::fclose(file);
}

void NoteClient(const PJRT_Client_Create_Args& args) {
  const char* folder = std::getenv("TMPDIR");
  if (folder == nullptr) return;
  std::ostringstream line;
  line << "client";
  for (size_t i = 0; i < args.num_options; ++i) Write(line << ' ', args.create_options[i]);
  line << '\n';
  const std::string path = std::string(folder) + "/stand-in-clients", text = line.str();
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  (void)!::write(file, text.data(), text.size());
  ::close(file);
}

}  // namespace fairway::stand_in
