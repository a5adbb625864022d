// SPDX-License-Identifier: Apache-2.0
// The C++ client of Fairway: one include. CMake: find_package(Fairway), link Fairway::client.
//
//   auto session = fairway::Connect("127.0.0.1:29000").value();
//   fairway::NativeProgram twice("twice");
//   twice.Result(twice.Scale(twice.Parameter(fairway::DType::kF32, {3}), 2.0));
//   auto program = session.Compile(twice, {0}).Get().value();
//   auto x = session.Put(std::vector<float>{1, 2, 3}, {3}, fairway::Sharding::Single(0));
//   auto y = program.Call({x})[0];                 // at once
//   auto host = y.ToHost().Get();                  // waits; an error is a value
//   if (host.ok()) for (float v : host->values<float>()) std::cout << v << "\n";
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_FAIRWAY_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_FAIRWAY_H_

#include "fairway/array.h"
#include "fairway/executable.h"
#include "fairway/future.h"
#include "fairway/native.h"
#include "fairway/program.h"
#include "fairway/session.h"
#include "fairway/status.h"
#include "fairway/types.h"

namespace fairway {
using namespace client;  // fairway::Session is fairway::client::Session
}

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_FAIRWAY_H_
