// SPDX-License-Identifier: Apache-2.0
// Lists of handles in requests. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_IFRT_HANDLES_H_
#define FAIRWAY_CONTROLLER_IFRT_HANDLES_H_

#include <cstdint>
#include <vector>

#include <google/protobuf/repeated_field.h>

namespace fairway {

using HandleList = google::protobuf::RepeatedField<uint64_t>;

inline std::vector<uint64_t> ToVector(const HandleList& handles) {
  return {handles.begin(), handles.end()};
}

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_HANDLES_H_
