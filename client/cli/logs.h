// SPDX-License-Identifier: Apache-2.0
// fairway logs: the last lines that the controller and the workers have logged, whatever host they
// are on.
#ifndef FAIRWAY_CLIENT_CLI_LOGS_H_
#define FAIRWAY_CLIENT_CLI_LOGS_H_

#include <functional>
#include <string>

#include "client/cli/json_text.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

// Puts what the controller sends into a form, message by message.
class LogsPrinter {
 public:
  enum class Form : uint8_t {
    kNamed,  // NAME LINE
    kLines,  // of one process: its lines alone
    kJson,   // one object for all, at the end
  };
  // `out` and `error` take text that ends with a newline.
  LogsPrinter(Form form, std::function<void(const std::string&)> out,
              std::function<void(const std::string&)> error);
  void Take(const v1::LogLine& line);
  // All have come. Returns whether something was had of each process.
  bool End();

 private:
  const Form form_;
  const std::function<void(const std::string&)> out_, error_;
  bool all_ = true;
  Json processes_ = Json::array();
};

// With which `fairway logs` ends if of some process nothing could be had, and the others' lines
// were printed.
inline constexpr int kExitSomeLogs = 4;

int RunLogs(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_LOGS_H_
