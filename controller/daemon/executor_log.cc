// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/executor_log.h"

#include <deque>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace fairway {
namespace {

constexpr size_t kMaxLogLines = 8;

// The text of a log line; of our own lines, without time and origin. Empty: not worth showing. A
// line may be any bytes that a library wrote, cut at some length. The text must be valid UTF-8,
// because it goes into protobuf strings.
std::string LineText(const std::string& line) {
  if (line.starts_with("WARNING: All log messages before absl::InitializeLog")) return {};
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("msg") || !json["msg"].is_string())
    return ValidUtf8(line);
  // Other libraries also write JSON, some with a number as the level.
  const auto level = json.find("level");
  return fmt::format(
      "{}: {}",
      level != json.end() && level->is_string() ? level->get<std::string>() : std::string("info"),
      json["msg"].get<std::string>());
}

}  // namespace

std::string LogText(const v1::ExecutorDied& died) {
  if (died.signal() == 0 && died.exit_code() == 0) return {};
  std::deque<std::string> lines;
  for (const std::string& line : died.last_lines()) {
    if (std::string text = LineText(line); !text.empty()) lines.push_back(std::move(text));
    if (lines.size() > kMaxLogLines) lines.pop_front();
  }
  if (lines.empty()) return {};
  return fmt::format("; the last lines of its log:\n  {}", fmt::join(lines, "\n  "));
}

}  // namespace fairway
