// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kinds.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest.h"
#include "client/cli/printable.h"

namespace fairway {

std::string NoSuch(std::string_view what, std::string_view word,
                   const std::vector<std::string>& known) {
  constexpr size_t kMostNamed = 10;
  // Of numbers none is near another.
  const bool number = word.find_first_not_of("0123456789") == std::string_view::npos;
  const std::string near = number ? "" : Nearest(word, known);
  std::string out = fmt::format("no {} '{}'", what, Printable(word));
  if (!near.empty()) out += fmt::format("; did you mean {}?", Printable(near));
  if (known.empty()) return out + " (there is none)";
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(known.size(), kMostNamed); ++i)
    named.push_back(Printable(known[i]));
  out += fmt::format(" (there {} {}", known.size() == 1 ? "is" : "are", fmt::join(named, ", "));
  if (known.size() > named.size()) out += fmt::format(" and {} more", known.size() - named.size());
  return out + ")";
}

}  // namespace fairway
