// SPDX-License-Identifier: Apache-2.0
// Values of arrays on the command line: "1.5" goes in, "[1, 2, 3]" comes out.
#ifndef FAIRWAY_CLIENT_CLI_VALUES_H_
#define FAIRWAY_CLIENT_CLI_VALUES_H_

#include <string>

#include "base/status.h"
#include "fairway/types.h"

namespace fairway {

// An array that has this value everywhere. INVALID_ARGUMENT: it is not a number, not a value of the
// type, or the type has only zeros here (floats of 16 and fewer bits, complex numbers, sub-byte
// integers). RESOURCE_EXHAUSTED: there is no memory.
absl::StatusOr<client::HostArray> Filled(client::DType dtype, const client::Shape& shape,
                                         const std::string& value);

// Its first elements: "[0, 0.5, 1, ...]". Types that have only zeros above are shown as bytes.
std::string FirstValues(const client::HostArray& array);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_VALUES_H_
