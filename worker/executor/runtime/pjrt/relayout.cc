// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/relayout.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/blob.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/call.h"

namespace fairway::pjrt {
namespace {

// Returns the bytes from one element to the next along each dimension.
std::vector<int64_t> Strides(const DimensionOrder& order, const std::vector<int64_t>& dims,
                             int64_t width) {
  const size_t rank = dims.size();
  std::vector<int64_t> strides(rank);
  int64_t stride = width;
  for (size_t i = 0; i < rank; ++i) {
    const size_t d = order.empty() ? rank - 1 - i : static_cast<size_t>(order[i]);
    strides[d] = stride;
    stride *= dims[d];
  }
  return strides;
}

// Returns the dimension along which elements lie closest together, among those with more than one
// element; dims.size() if there is none.
size_t Fastest(const std::vector<int64_t>& strides, const std::vector<int64_t>& dims) {
  size_t fastest = dims.size();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 1) continue;
    if (fastest == dims.size() || strides[d] < strides[fastest]) fastest = d;
  }
  return fastest;
}

// Exchanges two dimensions. `from` has `rows` rows of `cols` elements, `from_row` bytes apart; `to`
// has `cols` rows of `rows` elements, `to_row` bytes apart. A Width that the compiler knows makes
// each copy a move.
template <typename Width>
void Transpose(const char* from, int64_t from_row, int64_t rows, char* to, int64_t to_row,
               int64_t cols, Width width) {
  // copies in squares, so that each cache line is used while it is near
  constexpr int64_t kSide = 16;
  for (int64_t row = 0; row < rows; row += kSide) {
    const int64_t row_end = std::min(row + kSide, rows);
    for (int64_t col = 0; col < cols; col += kSide) {
      const int64_t col_end = std::min(col + kSide, cols);
      for (int64_t c = col; c < col_end; ++c) {
        for (int64_t r = row; r < row_end; ++r) {
          std::memcpy(to + c * to_row + r * width, from + r * from_row + c * width,
                      static_cast<size_t>(width));
        }
      }
    }
  }
}

template <int64_t kWidth>
using Constant = std::integral_constant<int64_t, kWidth>;

}  // namespace

void CopyElements(const char* from, const DimensionOrder& source, char* to,
                  const DimensionOrder& target, const std::vector<int64_t>& dims, int64_t width) {
  for (const int64_t extent : dims) {
    if (extent == 0) return;
  }
  const std::vector<int64_t> in = Strides(source, dims, width);
  const std::vector<int64_t> out = Strides(target, dims, width);
  std::vector<int64_t> extents = dims;
  size_t col = Fastest(in, extents), row = Fastest(out, extents);
  // A dimension that lies closest on both sides makes the elements larger.
  for (; col == row && col < dims.size(); col = Fastest(in, extents), row = Fastest(out, extents)) {
    width *= std::exchange(extents[col], 1);
  }
  if (col == dims.size()) {
    std::memcpy(to, from, static_cast<size_t>(width));
    return;
  }
  const int64_t rows = std::exchange(extents[row], 1), cols = std::exchange(extents[col], 1);
  const auto transpose = [&](auto constant) {
    Transpose(from, in[row], rows, to, out[col], cols, constant);
  };
  std::vector<int64_t> index(dims.size(), 0);
  for (;;) {
    switch (width) {
      case 1:
        transpose(Constant<1>());
        break;
      case 2:
        transpose(Constant<2>());
        break;
      case 4:
        transpose(Constant<4>());
        break;
      case 8:
        transpose(Constant<8>());
        break;
      case 16:
        transpose(Constant<16>());
        break;
      default:
        transpose(width);
    }
    size_t d = dims.size();
    // Counts to the next index like an odometer; the addresses follow.
    for (; d > 0; --d) {
      from += in[d - 1];
      to += out[d - 1];
      if (++index[d - 1] < extents[d - 1]) break;
      from -= in[d - 1] * extents[d - 1];
      to -= out[d - 1] * extents[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

absl::StatusOr<std::shared_ptr<RawBuffer>> CopyInOrder(const Buffer& buffer,
                                                       const std::shared_ptr<RawBuffer>& raw,
                                                       const DimensionOrder& order) {
  const Buffer::Spec& spec = buffer.spec();
  const Client& client = raw->client();
  if (!client.is_cpu() || PackedBits(spec.dtype) > 0) {
    return Error(absl::StatusCode::kUnimplemented, "another layout of {} on device {}",
                 ToString(spec.dtype, spec.shape), spec.device);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(spec.dtype, spec.shape));
  FAIRWAY_ASSIGN_OR_RETURN(PJRT_Memory * memory, client.memory(spec.device, spec.memory_kind));
  std::shared_ptr<Blob> blob = Blob::Make(static_cast<size_t>(size));
  if (blob == nullptr) {
    return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes", size);
  }
  if (size > 0) {
    FAIRWAY_ASSIGN_OR_RETURN(const char* bytes, raw->Address());
    CopyElements(bytes, spec.order, blob->data(), order, spec.shape.dims,
                 BytesPerElement(spec.dtype));
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < spec.shape.dims.size(); ++i) {
    const size_t last = spec.shape.dims.size() - 1 - i;
    dims.push_back(spec.shape.dims[order.empty() ? i : static_cast<size_t>(order[last])]);
  }
  Padded<PJRT_Client_BufferFromHostBuffer_Args> args;
  args->client = client.raw();
  args->data = blob->data();
  args->type = static_cast<PJRT_Buffer_Type>(*PjrtTypeOf(spec.dtype));
  args->dims = dims.data();
  args->num_dims = dims.size();
  args->host_buffer_semantics = PJRT_HostBufferSemantics_kMutableZeroCopy;
  args->device = client.device(spec.device);
  args->memory = memory;
  FAIRWAY_RETURN_IF_ERROR(Call(client.api(), client.api()->PJRT_Client_BufferFromHostBuffer, args));
  // Holds the block until the buffer is gone, or the output that took it over.
  WhenReady(client.api(), args->done_with_host_buffer,
            [blob = std::move(blob)](absl::Status) mutable { blob.reset(); });
  return std::make_shared<RawBuffer>(raw->shared_client(), args->buffer);
}

}  // namespace fairway::pjrt
