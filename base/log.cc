// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace fairway {
namespace {

// Their first letters differ (LogLevelOf).
constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warn", "error"};

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
}

class JsonFormatter final : public spdlog::formatter {
 public:
  explicit JsonFormatter(LogIdentity identity) : identity_(std::move(identity)) {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto micros =
        std::chrono::duration_cast<std::chrono::microseconds>(message.time.time_since_epoch())
            .count();
    const auto level = spdlog::level::to_string_view(message.level);
    std::string line = JsonLogLine(identity_, {level.data(), level.size()},
                                   {message.payload.data(), message.payload.size()}, micros);
    line += '\n';
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>(identity_);
  }

 private:
  const LogIdentity identity_;
};

class RecentSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit RecentSink(std::shared_ptr<RecentLines> lines) : lines_(std::move(lines)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    lines_->Add({line.data(), line.size() - 1});  // without its newline
  }
  void flush_() override {}

  const std::shared_ptr<RecentLines> lines_;
};

}  // namespace

std::string JsonLogLine(const LogIdentity& identity, std::string_view level, std::string_view text,
                        int64_t unix_micros) {
  std::string out =
      fmt::format("{{\"ts\":{}.{:06d},\"level\":", unix_micros / 1000000, unix_micros % 1000000);
  AppendJsonString(out, level);
  const auto field = [&](std::string_view key, const std::string& value) {
    if (value.empty()) return;
    out += fmt::format(",\"{}\":", key);
    AppendJsonString(out, value);
  };
  field("component", identity.component);
  field("island", identity.island);
  field("worker", identity.worker);
  out += ",\"msg\":";
  AppendJsonString(out, text);
  out += '}';
  return out;
}

absl::Status CheckLogLevel(std::string_view level) {
  for (const std::string_view known : kLevels) {
    if (level == known) return absl::OkStatus();
  }
  return InvalidArgument(
      "--log-level (or FAIRWAY_LOG_LEVEL): '{}' is none of trace, debug, info, warn and error",
      level);
}

std::string_view LogLevelOf(char letter) {
  for (const std::string_view known : kLevels) {
    if (letter == known.front()) return known;
  }
  return "";
}

void InitLogging(const LogIdentity& identity, std::string_view level,
                 std::shared_ptr<RecentLines> recent) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  std::shared_ptr<spdlog::logger> logger;
  if (terminal) {
    logger = std::make_shared<spdlog::logger>(
        "fairway", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    std::string who = identity.component;
    if (!identity.worker.empty()) who += " " + identity.worker;
    logger->set_pattern("%H:%M:%S.%e %^%L%$ [" + who + "] %v");
  } else {
    logger = std::make_shared<spdlog::logger>("fairway",
                                              std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_formatter(std::make_unique<JsonFormatter>(identity));
  }
  if (recent != nullptr) {
    logger->sinks().push_back(std::make_shared<RecentSink>(std::move(recent)));
    logger->sinks().back()->set_formatter(std::make_unique<JsonFormatter>(identity));
  }
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  SetLogLevel(level);
}

void SetLogLevel(std::string_view level) {
  spdlog::default_logger()->set_level(spdlog::level::from_str(std::string(level)));
}

}  // namespace fairway
