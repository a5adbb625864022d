// SPDX-License-Identifier: Apache-2.0
// Dataflow programs as files: fairway.v1.Program (proto/fairway/v1/program.proto).
#ifndef FAIRWAY_CLIENT_CLI_PROGRAM_FILE_H_
#define FAIRWAY_CLIENT_CLI_PROGRAM_FILE_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "fairway/v1/program.pb.h"

namespace fairway {

// In protobuf's text format, or its JSON if the name ends with ".json". Nodes without a source get
// "FILE:LINE" (of JSON: "FILE"), so that messages about them say where they are. NOT_FOUND: no such
// file; INVALID_ARGUMENT: it does not parse, with file, line and column.
absl::StatusOr<v1::Program> ReadProgramFile(const std::string& path);

// Puts code from files into computations: "NAME=FILE", StableHLO. INVALID_ARGUMENT: no computation
// of that name; NOT_FOUND: no such file.
absl::Status AddCode(const std::vector<std::string>& given, v1::Program& program);

// How the arguments of a program, and its results, are called: by the name of their node, or by
// their number where that is empty or not theirs alone.
std::vector<std::string> ArgumentNames(const v1::Program& program);
std::vector<std::string> ResultNames(const v1::Program& program);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PROGRAM_FILE_H_
