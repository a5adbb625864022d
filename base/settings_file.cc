// SPDX-License-Identifier: Apache-2.0
#include "base/settings_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

// Garbage fails assertions of version 3.3, and is found to be an error behind them all the same.
// With NDEBUG it would tell the compiler that they hold.
#undef NDEBUG
#define TOML_ASSERT(expression) (void)0
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "base/nearest.h"

namespace fairway {
namespace {

constexpr size_t kLongestFile = size_t{1} << 20;

size_t LineOf(const toml::source_region& source) { return source.begin.line; }

std::string TableNames() {
  std::string out;
  for (const std::string_view name : kSettingsTables)
    out += fmt::format("{}[{}]", out.empty() ? "" : ", ", name);
  return out;
}

// Returns the text that a flag would have; nullopt: the node is no string, number or boolean.
std::optional<std::string> ScalarText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

absl::StatusOr<FileSetting> ParseSetting(std::string_view name, const toml::node& node) {
  FileSetting out{.name = std::string(name), .line = LineOf(node.source())};
  const auto wrong = [&] {
    return InvalidArgument(
        "{}: {} is neither a string, a number, true or false, nor an array of them", out.line,
        name);
  };
  if (const toml::array* array = node.as_array()) {
    out.array = true;
    for (const toml::node& element : *array) {
      std::optional<std::string> text = ScalarText(element);
      if (!text) return wrong();
      out.values.push_back(*std::move(text));
    }
    return out;
  }
  std::optional<std::string> text = ScalarText(node);
  if (!text) return wrong();
  out.values.push_back(*std::move(text));
  return out;
}

absl::Status UnknownTable(std::string_view name, const toml::node& node) {
  const std::vector<std::string> known(std::begin(kSettingsTables), std::end(kSettingsTables));
  if (!node.is_table()) {
    return InvalidArgument("{}: '{}' is outside of a table; settings stand below one of {}",
                           LineOf(node.source()), name, TableNames());
  }
  const std::string nearest = Nearest(name, known);
  return InvalidArgument("{}: unknown table [{}]{} (there are {})", LineOf(node.source()), name,
                         nearest.empty() ? "" : fmt::format("; did you mean [{}]?", nearest),
                         TableNames());
}

}  // namespace

absl::StatusOr<SettingsTables> ParseSettings(std::string_view text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return InvalidArgument("{}: {}", LineOf(parsed.error().source()), parsed.error().description());
  }
  SettingsTables out;
  for (const auto& [key, node] : parsed.table()) {
    const std::string_view name = key.str();
    const toml::table* const table = node.as_table();
    const bool known = std::find(std::begin(kSettingsTables), std::end(kSettingsTables), name) !=
                       std::end(kSettingsTables);
    if (table == nullptr || !known) return UnknownTable(name, node);
    std::vector<FileSetting>& settings = out[std::string(name)];
    for (const auto& [setting, value] : *table) {
      FAIRWAY_ASSIGN_OR_RETURN(FileSetting read, ParseSetting(setting.str(), value));
      settings.push_back(std::move(read));
    }
  }
  return out;
}

absl::StatusOr<std::string> ReadTrusted(const std::string& path) {
  const auto failed = [&](int error) {
    return InvalidArgument("{}: cannot be read: {}", path, std::strerror(error));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return failed(errno);
  const struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } closer{file};
  struct stat facts {};
  if (::fstat(file, &facts) != 0) return failed(errno);
  if (!S_ISREG(facts.st_mode)) return InvalidArgument("{}: is no regular file", path);
  if (facts.st_uid != 0 && facts.st_uid != ::geteuid()) {
    return InvalidArgument(
        "{}: belongs to user {}, who could have the daemons load code; expected root or the user "
        "who runs them: chown it",
        path, facts.st_uid);
  }
  if ((facts.st_mode & S_IWOTH) != 0) {
    return InvalidArgument(
        "{}: other users may write it, who could have the daemons load code; chmod o-w it", path);
  }
  std::string out(kLongestFile + 1, '\0');
  size_t size = 0;
  while (size < out.size()) {
    const ssize_t got = ::read(file, out.data() + size, out.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kLongestFile)
    return InvalidArgument("{}: has more than 1 MiB, which no settings file needs", path);
  out.resize(size);
  return out;
}

absl::StatusOr<SettingsTables> ReadSettings(const std::string& path) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string text, ReadTrusted(path));
  absl::StatusOr<SettingsTables> out = ParseSettings(text);
  if (!out.ok()) return InvalidArgument("{}:{}", path, BoundedText(Text(out.status())));
  return out;
}

}  // namespace fairway
