// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/host/all_reduce.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/executor/runtime/host/kernels.h"
#include "worker/executor/runtime/reduce.h"

namespace fairway {
namespace {

using Bytes = std::shared_ptr<Blob>;

// Writes the sum of `own` and the bytes of the other members to `out`, in the order of the members.
void Sum(const Exchange& exchange, DType dtype, std::string_view own,
         const std::vector<Bytes>& theirs, char* out) {
  size_t next = 0;
  for (size_t m = 0; m < exchange.members(); ++m) {
    const char* from = m == exchange.self() ? own.data() : theirs[next++]->data();
    if (m == 0) {
      std::copy_n(from, own.size(), out);
    } else {
      kernels::AddInto(dtype, out, from, static_cast<int64_t>(own.size()));
    }
  }
}

}  // namespace

absl::StatusOr<Bytes> AllReduceOver(Exchange& exchange, uint64_t launch, uint32_t round,
                                    DType dtype, Bytes partial, int64_t push_bytes) {
  const auto size = static_cast<int64_t>(partial->size());
  if (size <= std::min<int64_t>(push_bytes, Exchange::kMaxPushBytes)) {
    return ReducePushed(
        exchange, launch, round, std::move(partial),
        [&](char* into, const char* more) { kernels::AddInto(dtype, into, more, size); });
  }
  const std::vector<size_t> others = OtherMembers(exchange);
  Bytes sum = Blob::Make(partial->size());
  if (sum == nullptr)
    return Error(absl::StatusCode::kResourceExhausted, "no memory for a sum of {} bytes", size);
  const auto members = static_cast<int64_t>(exchange.members());
  std::vector<Exchange::Wanted> wanted;
  // With two members the slices would take as many bytes, and one round trip more.
  if (members == 2) {
    exchange.Offer(launch, round, 0, {partial->view(), partial}, others);
    for (const size_t m : others) wanted.push_back({m, 0, size});
    FAIRWAY_ASSIGN_OR_RETURN(const auto theirs, exchange.Take(launch, round, wanted));
    Sum(exchange, dtype, partial->view(), theirs, sum->data());
    return sum;
  }
  const int64_t element = BytesPerElement(dtype);
  const int64_t count = size / element;
  const auto begin = [&](size_t m) { return count * static_cast<int64_t>(m) / members * element; };
  const auto slice = [&](const Bytes& of, size_t m) {
    return of->view().substr(static_cast<size_t>(begin(m)),
                             static_cast<size_t>(begin(m + 1) - begin(m)));
  };
  const size_t self = exchange.self();
  const std::string_view own = slice(partial, self);
  for (const size_t m : others) {
    exchange.Offer(launch, round, static_cast<int32_t>(m), {slice(partial, m), partial}, {m});
    wanted.push_back({m, static_cast<int32_t>(self), static_cast<int64_t>(own.size())});
  }
  FAIRWAY_ASSIGN_OR_RETURN(auto theirs, exchange.Take(launch, round, wanted));
  Sum(exchange, dtype, own, theirs, sum->data() + begin(self));
  const auto summed = static_cast<int32_t>(members);
  exchange.Offer(launch, round, summed, {slice(sum, self), sum}, others);
  wanted.clear();
  for (const size_t m : others) {
    wanted.push_back({m, summed, static_cast<int64_t>(slice(sum, m).size())});
  }
  FAIRWAY_ASSIGN_OR_RETURN(theirs, exchange.Take(launch, round, wanted));
  for (size_t i = 0; i < others.size(); ++i) {
    std::copy_n(theirs[i]->data(), theirs[i]->size(), sum->data() + begin(others[i]));
  }
  return sum;
}

}  // namespace fairway
