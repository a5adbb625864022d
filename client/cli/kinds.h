// SPDX-License-Identifier: Apache-2.0
// Words that a user chooses from a list: kinds, names, forms of output.
#ifndef FAIRWAY_CLIENT_CLI_KINDS_H_
#define FAIRWAY_CLIENT_CLI_KINDS_H_

#include <string>
#include <string_view>
#include <vector>

namespace fairway {

// "no kind 'iland'; did you mean islands? (there are islands, workers)": `what` is "kind", and
// `word` is none of `known`. Of many that are known, the first ones are named.
std::string NoSuch(std::string_view what, std::string_view word,
                   const std::vector<std::string>& known);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_KINDS_H_
