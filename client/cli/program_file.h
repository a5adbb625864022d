// SPDX-License-Identifier: Apache-2.0
// Dataflow programs as files: fairway.v1.Program (proto/fairway/v1/program.proto).
#ifndef FAIRWAY_CLIENT_CLI_PROGRAM_FILE_H_
#define FAIRWAY_CLIENT_CLI_PROGRAM_FILE_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "fairway/v1/program.pb.h"

namespace fairway {

// Reads protobuf's text format, or its JSON if the name ends with ".json". Nodes without a source
// get "FILE:LINE" (in JSON: "FILE"), so that messages about them tell where they are. NOT_FOUND: no
// such file; INVALID_ARGUMENT: it does not parse; the text has file, line and column.
absl::StatusOr<v1::Program> ReadProgramFile(const std::string& path);

// Puts code from files into computations. Each of `given` is "NAME=FILE", with StableHLO.
// INVALID_ARGUMENT: no computation has that name; NOT_FOUND: no such file.
absl::Status AddCode(const std::vector<std::string>& given, v1::Program& program);

// The names of a program's arguments and results: the name of their node, or their number where
// that name is empty or not unique.
std::vector<std::string> ArgumentNames(const v1::Program& program);
std::vector<std::string> ResultNames(const v1::Program& program);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PROGRAM_FILE_H_
