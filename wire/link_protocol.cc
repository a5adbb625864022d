// SPDX-License-Identifier: Apache-2.0
#include "wire/link_protocol.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace fairway {
namespace {

constexpr uint32_t kSaysNothing =
    13;  // the last version whose controller does not say what it took

std::string Range(uint32_t oldest, uint32_t newest) {
  return oldest == newest ? fmt::format("{}", oldest) : fmt::format("{} to {}", oldest, newest);
}

}  // namespace

absl::StatusOr<uint32_t> AgreeOnLinkProtocol(uint32_t oldest, uint32_t newest,
                                             std::string_view who) {
  newest = std::max(oldest, newest);
  if (oldest <= kLinkProtocol && newest >= kOldestLinkProtocol)
    return std::min(newest, kLinkProtocol);
  return Error(absl::StatusCode::kFailedPrecondition,
               "this controller speaks link protocols {}, {} speaks {}: {} (docs/upgrade.md)",
               Range(kOldestLinkProtocol, kLinkProtocol), who, Range(oldest, newest),
               newest < kOldestLinkProtocol ? "upgrade the worker to the controller's version"
                                            : "upgrade the controller first, then the workers");
}

absl::StatusOr<uint32_t> TakenLinkProtocol(uint32_t said) {
  const uint32_t taken = said == 0 ? kSaysNothing : said;
  if (taken >= kOldestLinkProtocol && taken <= kLinkProtocol) return taken;
  return Error(absl::StatusCode::kFailedPrecondition,
               "the controller took link protocol {}, this worker offered {}", taken,
               Range(kOldestLinkProtocol, kLinkProtocol));
}

}  // namespace fairway
