// SPDX-License-Identifier: Apache-2.0
#include "client/cli/logs.h"

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/config.h"
#include "client/cli/admin_client.h"
#include "client/cli/printable.h"
#include "client/cli/reach.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;

}  // namespace

LogsPrinter::LogsPrinter(Form form, std::function<void(const std::string&)> out,
                         std::function<void(const std::string&)> error)
    : form_(form), out_(std::move(out)), error_(std::move(error)) {}

void LogsPrinter::Take(const v1::LogLine& line) {
  all_ = all_ && !line.failed();
  if (form_ == Form::kJson) {
    if (processes_.empty() || processes_.back()["process"] != line.process()) {
      processes_.push_back({{"process", line.process()},
                            {"host", line.host()},
                            {"path", line.path()},
                            {"older", line.older()},
                            {"error", line.failed() ? line.line() : ""},
                            {"lines", Json::array()}});
    }
    if (!line.failed()) processes_.back()["lines"].push_back(line.line());
    return;
  }
  if (line.failed()) return error_(fmt::format("fairway logs: {}\n", Printable(line.line())));
  if (line.older()) {
    error_(fmt::format("fairway logs: older lines of {} are on its host {} only\n",
                       Printable(line.process()), Printable(line.host())));
  }
  const std::string text = Printable(line.line());
  out_(form_ == Form::kLines ? text + "\n"
                             : fmt::format("{:<10} {}\n", Printable(line.process()), text));
}

bool LogsPrinter::End() {
  if (form_ == Form::kJson) out_(JsonText({{"processes", processes_}}));
  return all_;
}

int RunLogs(int argc, const char* const* argv) {
  Reach reach;
  std::string process, output = "text";
  int lines = 100;
  Config config("fairway logs",
                "Shows the last log lines of the controller and the workers, on whatever hosts "
                "they are. What looks like a secret is left out.");
  DeclareReach(config, &reach);
  config.Flag("lines", &lines, "At most so many lines of each process");
  config.ShortName("lines", 'n');
  config.Flag("output", &output, "text or json");
  config.ShortName("output", 'o');
  config.Positional("WORKER", &process, "Only this worker, or 'controller'");
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (lines < 1) {
    fmt::print(stderr, "fairway logs: --lines must be at least 1, not {}\n", lines);
    return kExitUsage;
  }
  if (output != "text" && output != "json") {
    fmt::print(stderr, "fairway logs: --output must be text or json, not '{}'\n", output);
    return kExitUsage;
  }
  v1::GetLogsRequest request;
  request.set_process(process);
  request.set_max_lines(lines);
  request.set_anywhere(true);
  using Form = LogsPrinter::Form;
  const Form form = output == "json" ? Form::kJson : process.empty() ? Form::kNamed : Form::kLines;
  LogsPrinter printer(
      form, [](const std::string& text) { fmt::print("{}", text); },
      [](const std::string& text) { fmt::print(stderr, "{}", text); });
  const absl::Status status =
      AdminClient(reach).GetLogs(request, [&](const v1::LogLine& line) { printer.Take(line); });
  if (!status.ok()) {
    fmt::print(stderr, "fairway logs: {}\n", Printable(Text(status)));
    return kExitFailed;
  }
  return printer.End() ? 0 : kExitSomeLogs;
}

}  // namespace fairway
