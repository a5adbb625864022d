// SPDX-License-Identifier: Apache-2.0
// Converts v1.Program (proto/fairway/v1/program.proto) to a Program (graph/program.h).
#ifndef FAIRWAY_WIRE_PROGRAM_CODEC_H_
#define FAIRWAY_WIRE_PROGRAM_CODEC_H_

#include "fairway/v1/program.pb.h"
#include "graph/program.h"

namespace fairway {

// INVALID_ARGUMENT: an invalid type, a node of an unknown kind, more than kMaxNodes nodes, or more
// shardings than can be held (kMaxPositions positions in all). CheckProgram checks the meaning.
absl::StatusOr<Program> ProgramFromProto(const v1::Program& in);
// Returns about the bytes of memory that the message and its program take together, with its types.
size_t ProgramBytes(const v1::Program& in);
void ToProto(const Program& program, v1::Program* out);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_PROGRAM_CODEC_H_
