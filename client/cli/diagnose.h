// SPDX-License-Identifier: Apache-2.0
// `fairway diagnose`: one archive for a report of a fault (docs/operate.md).
#ifndef FAIRWAY_CLIENT_CLI_DIAGNOSE_H_
#define FAIRWAY_CLIENT_CLI_DIAGNOSE_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace fairway {

// A file of the archive, and how it is made.
struct Part {
  std::string name;
  std::string what;  // a command, or where it is from; for the index
  std::chrono::milliseconds limit{};
  // Blocks; on a thread of its own. It owns what it uses, since it may never end.
  std::function<absl::StatusOr<std::string>()> make;
};

// What became of a part.
struct Made {
  std::string name;
  std::string what;
  std::string text;   // without secrets; of a part that could not be had: empty
  std::string fault;  // why it could not be had, or what of it is missing; empty: all is there
};

// Makes all parts at one time, each on a thread of its own. Takes no longer than the longest limit
// says; a part that has not been made by then has that as its fault. `all_ended`: else the process
// must be ended by _exit.
std::vector<Made> MakeParts(std::vector<Part> parts, bool* all_ended);

// The first file of the archive: a line for each part.
std::string IndexText(const std::vector<Made>& parts);

int RunDiagnose(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_DIAGNOSE_H_
