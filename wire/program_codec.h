// SPDX-License-Identifier: Apache-2.0
// v1.Program (proto/fairway/v1/program.proto) <-> Program (graph/program.h).
#ifndef FAIRWAY_WIRE_PROGRAM_CODEC_H_
#define FAIRWAY_WIRE_PROGRAM_CODEC_H_

#include "fairway/v1/program.pb.h"
#include "graph/program.h"

namespace fairway {

// INVALID_ARGUMENT: a type that is none, a node of a kind that this version does not know, more
// than kMaxNodes nodes, or shardings that are too many to hold (kMaxPositions positions in all).
// What it means is for CheckProgram.
absl::StatusOr<Program> ProgramFromProto(const v1::Program& in);
// Bytes of memory that the message and the program that it becomes take together, with its types,
// about.
size_t ProgramBytes(const v1::Program& in);
void ToProto(const Program& program, v1::Program* out);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_PROGRAM_CODEC_H_
