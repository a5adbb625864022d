// SPDX-License-Identifier: Apache-2.0
// Text for protobuf's string fields: if one is not UTF-8, the receiver drops the whole message.
#ifndef FAIRWAY_BASE_UTF8_H_
#define FAIRWAY_BASE_UTF8_H_

#include <string>
#include <string_view>

namespace fairway {

// Returns `text` with '?' for every byte that belongs to no well-formed UTF-8 sequence.
std::string ValidUtf8(std::string_view text);

}  // namespace fairway

#endif  // FAIRWAY_BASE_UTF8_H_
