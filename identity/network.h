// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_IDENTITY_NETWORK_H_
#define FAIRWAY_IDENTITY_NETWORK_H_

#include <string>

namespace fairway {

// What counts as one sender: an IPv4 address, or the first 64 bits of an IPv6 one
// ("2001:db8::/64"), since whoever has one address there has all of them. `host` has no port:
// "127.0.0.1", "::1",
// "[fe80::1%eth0]". Other text is returned as it is.
std::string NetworkOf(std::string host);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_NETWORK_H_
