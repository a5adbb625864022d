// SPDX-License-Identifier: Apache-2.0
// Text of others for a terminal.
#ifndef FAIRWAY_CLIENT_CLI_PRINTABLE_H_
#define FAIRWAY_CLIENT_CLI_PRINTABLE_H_

#include <string>
#include <string_view>

namespace fairway {

// `text` in one line, with '?' for each character that controls a terminal, changes the direction
// of what follows, or is no UTF-8.
std::string Printable(std::string_view text);
// The same of each of its lines.
std::string PrintableLines(std::string_view text);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_PRINTABLE_H_
