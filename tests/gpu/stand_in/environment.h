// SPDX-License-Identifier: Apache-2.0
// What the environment tells the stand-in plugin, and the files in which it takes notes. The
// variables are listed in plugin.cc. Thread-safe.
#ifndef FAIRWAY_TESTS_GPU_STAND_IN_ENVIRONMENT_H_
#define FAIRWAY_TESTS_GPU_STAND_IN_ENVIRONMENT_H_

#include <string>
#include <string_view>

#include "pjrt_c_api.h"

namespace fairway::stand_in {

// The number of GPUs.
int Gpus();

// The kind of a client's GPUs; lives as long as the process.
std::string_view ClientKind();

// Whether the file that the variable names exists.
bool There(const char* variable);

// Returns once the file that the variable names does not exist.
void WaitWhileThere(const char* variable);

// Appends a line to the file that the variable names.
void Note(const char* variable, const std::string& line);

// Appends a line about a client with these options to TMPDIR/stand-in-clients, if that exists.
void NoteClient(const PJRT_Client_Create_Args& args);

}  // namespace fairway::stand_in

#endif  // FAIRWAY_TESTS_GPU_STAND_IN_ENVIRONMENT_H_
