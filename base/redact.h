// SPDX-License-Identifier: Apache-2.0
// What daemons and commands show of logs and settings has passed through this.
#ifndef FAIRWAY_BASE_REDACT_H_
#define FAIRWAY_BASE_REDACT_H_

#include <string>
#include <string_view>

namespace fairway {

// `text` without secrets and what looks like one: tokens of Fairway and of well-known services,
// private keys in PEM, also if they are cut off, passwords in addresses, values whose names say
// that they are secret, and long words of random characters. What it leaves out it names in
// brackets. Takes time in proportion to the text. It takes too much rather than too little: hashes
// go, too.
std::string WithoutSecrets(std::string_view text);

}  // namespace fairway

#endif  // FAIRWAY_BASE_REDACT_H_
