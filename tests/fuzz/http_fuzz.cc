// SPDX-License-Identifier: Apache-2.0
// What strangers send to a port of HTTP that begins as HTTP/2: each record is what comes at a time.
// What is answered is bounded by what came, and a connection that is over stays so.
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "transport/grpc_health.h"

namespace fairway::fuzz {

const google::protobuf::Message* Prototype(uint8_t) { return nullptr; }

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway;
  size_t came = 0, sent = 0;
  GrpcHealth health([&] { return came % 2 == 0; });
  for (const fuzz::Record& record : fuzz::Cut({reinterpret_cast<const char*>(data), size})) {
    came += record.payload.size();
    const size_t before = health.answered();
    const bool well = health.Take(record.payload).ok();
    sent += health.Send().size();
    // A frame has nine bytes, and a call at least one such frame of the client's.
    FUZZ_CHECK(health.answered() - before <= record.payload.size());
    if (!well) FUZZ_CHECK(health.over());
    if (!well) break;
  }
  FUZZ_CHECK(sent <= 1024 + 64 * came);
  return 0;
}
