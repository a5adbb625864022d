// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_BASE_NEAREST_H_
#define FAIRWAY_BASE_NEAREST_H_

#include <span>
#include <string>
#include <string_view>

namespace fairway {

// Returns the candidate that somebody who typed `word` probably meant: it begins with `word`, or
// differs from it by few letters (2, or a third of the word). Empty: none is near.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace fairway

#endif  // FAIRWAY_BASE_NEAREST_H_
