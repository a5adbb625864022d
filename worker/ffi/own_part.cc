// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>

#include "worker/ffi/kernels.h"

namespace fairway::ffi {

absl::Status OwnPart::Check(const Call& call) {
  FAIRWAY_RETURN_IF_ERROR(CheckCounts(call, 1, 1));
  const Value &x = call.args[0], &part = call.rets[0];
  if (x.dtype > DType::kC128 || BytesPerElement(x.dtype) == 0) {  // or less than a byte
    return InvalidArgument("operand 0 is of {}, which is not served", Name(x.dtype));
  }
  if (x.dtype == part.dtype && std::ranges::equal(x.dims, part.dims)) return absl::OkStatus();
  return InvalidArgument("operand and result differ in shape or element type ({}, {})",
                         Name(x.dtype), Name(part.dtype));
}

void OwnPart::Run(const Call& call) {
  int64_t bytes = BytesPerElement(call.args[0].dtype);
  for (int64_t extent : call.args[0].dims) bytes *= extent;
  const std::string word = "devices" + std::to_string(call.device / 64);
  const auto mask = static_cast<uint64_t>(AttributeOr(call, word, 0));
  if (call.device >= 0 && (mask >> (call.device % 64) & 1) != 0) return CopyToResult(call, 0, 0);
  if (bytes > 0) std::memset(call.rets[0].data, 0, static_cast<size_t>(bytes));
}

}  // namespace fairway::ffi
