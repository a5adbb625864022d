// SPDX-License-Identifier: Apache-2.0
// Two links joined within one loop, for tests.
#ifndef FAIRWAY_TRANSPORT_IN_PROCESS_H_
#define FAIRWAY_TRANSPORT_IN_PROCESS_H_

#include <memory>
#include <string>
#include <utility>

#include "transport/link.h"

namespace fairway {

// Each receives the frames of the other in a later turn of the loop, in order. If one is destroyed
// or closed, the other closes with OK. `peers`: the peer() of the first and of the second.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> MakeLinkPair(
    EventLoop& loop, std::pair<std::string, std::string> peers = {"second", "first"});

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_IN_PROCESS_H_
