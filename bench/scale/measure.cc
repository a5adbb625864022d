// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/measure.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "controller/cluster/inspection.h"

namespace fairway::scale {
namespace {

constexpr Nanos kNoTime = 1'000;            // a computation that takes no time
constexpr Nanos kForEver = Nanos{1} << 50;  // a computation that does not end: twelve days
constexpr Nanos kLongest = 10'000'000'000;  // the longest that is tried
constexpr double kPrecision = 1.05;
constexpr int kItems = 64;  // their memory is measured together, and divided by this

absl::StatusOr<Result> RunOnce(const Options& options) {
  Model model(options);
  FAIRWAY_RETURN_IF_ERROR(model.Start());
  Result result = model.Run();
  if (!result.error.empty()) return absl::InternalError(result.error);
  return result;
}

absl::Status Ping(Model& model) {
  v1::Request ping;
  ping.mutable_ping();
  return model.Ask({ping});
}

// Queues calls behind one that does not end, to see how much each of them holds.
absl::Status QueueCalls(Model& model, uint64_t first, int count) {
  std::vector<v1::Request> calls;
  for (int i = 0; i < count; ++i) calls.push_back(model.CallRequest(first + i));
  // Their answers never come; the answer to the ping says that all have been handled.
  model.Tell(std::move(calls));
  return Ping(model);
}

}  // namespace

absl::StatusOr<Parity> FindParity(Options options) {
  Parity out;
  const auto holds = [&](Nanos computation) -> absl::StatusOr<bool> {
    options.computation = computation;
    FAIRWAY_ASSIGN_OR_RETURN(Result result, RunOnce(options));
    out.points.push_back({computation, result});
    return result.parity(computation) >= kParity;
  };
  FAIRWAY_RETURN_IF_ERROR(holds(kNoTime).status());
  out.fastest_period = out.points[0].result.period;
  Nanos low = out.fastest_period;  // a shorter one cannot hold
  Nanos high = low;
  while (true) {
    FAIRWAY_ASSIGN_OR_RETURN(const bool held, holds(high));
    if (held) break;
    if (high > kLongest)
      return Error(absl::StatusCode::kInternal, "no computation up to {} s reaches parity",
                   kLongest / 1e9);
    low = high;
    high = high * 2;
  }
  while (static_cast<double>(high) > static_cast<double>(low) * kPrecision) {
    const auto middle =
        static_cast<Nanos>(std::sqrt(static_cast<double>(low) * static_cast<double>(high)));
    FAIRWAY_ASSIGN_OR_RETURN(const bool held, holds(middle));
    (held ? high : low) = middle;
  }
  out.computation = high;
  return out;
}

absl::StatusOr<Memory> MeasureMemory(Options options) {
  options.computation = kForEver;
  options.chain = 1;
  Model model(options);
  Memory out;
  FAIRWAY_RETURN_IF_ERROR(model.Register());
  out.host = static_cast<double>(model.controller().allocated()) / options.hosts;
  FAIRWAY_RETURN_IF_ERROR(model.Compile());
  const uint64_t far = uint64_t{1} << 32;  // handles that the chain does not use
  for (int i = 0; i < kItems / 2; ++i) FAIRWAY_RETURN_IF_ERROR(model.Put(far + i));
  const int64_t some = model.controller().allocated();
  for (int i = kItems / 2; i < kItems + kItems / 2; ++i)
    FAIRWAY_RETURN_IF_ERROR(model.Put(far + i));
  out.array = static_cast<double>(model.controller().allocated() - some) / kItems;
  FAIRWAY_RETURN_IF_ERROR(model.Start());
  FAIRWAY_RETURN_IF_ERROR(QueueCalls(model, 1, kItems));
  const int64_t begun = model.controller().allocated();
  FAIRWAY_RETURN_IF_ERROR(QueueCalls(model, 1 + kItems, kItems));
  out.gang = static_cast<double>(model.controller().allocated() - begun) / kItems;
  return out;
}

absl::StatusOr<ProgramSize> MeasureProgram(Options options) {
  options.chain = 2;
  ProgramSize out;
  out.graph_nodes = 4;
  {
    options.computation = kForEver;
    Model model(options);
    FAIRWAY_RETURN_IF_ERROR(model.Start());
    FAIRWAY_RETURN_IF_ERROR(QueueCalls(model, 1, kItems));
    const uint64_t nodes = model.controller().cluster().inspection().counts().nodes_made;
    const int64_t held = model.controller().allocated();
    FAIRWAY_RETURN_IF_ERROR(QueueCalls(model, 1 + kItems, kItems));
    out.controller_nodes =
        static_cast<double>(model.controller().cluster().inspection().counts().nodes_made - nodes) /
        kItems;
    out.controller_memory = static_cast<double>(model.controller().allocated() - held) / kItems;
  }
  options.computation = 100'000;
  options.ahead = 16;
  options.gangs = kItems;
  Model model(options);
  FAIRWAY_RETURN_IF_ERROR(model.Start());
  const Model::Traffic before = model.traffic();
  const Result result = model.Run();
  if (!result.error.empty()) return absl::InternalError(result.error);
  const Model::Traffic after = model.traffic();
  const double runs = options.ahead + options.gangs + options.ahead;
  out.client_bytes = static_cast<double>(after.client_bytes - before.client_bytes) / runs;
  const double each = runs * options.hosts;
  out.frames_per_host = static_cast<double>(after.frames_out - before.frames_out) / each;
  out.bytes_per_host = static_cast<double>(after.bytes_out - before.bytes_out) / each;
  out.reports_per_host = static_cast<double>(after.bytes_in - before.bytes_in) / each;
  return out;
}

}  // namespace fairway::scale
