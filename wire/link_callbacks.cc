// SPDX-License-Identifier: Apache-2.0
// link_codec.h: calls of clients' functions.
#include <utility>

#include "wire/limits.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

void Put(const CallbackArray& array, v1::LinkCallbackArray* out) {
  out->set_dtype(static_cast<int32_t>(array.dtype));
  out->mutable_dims()->Assign(array.shape.dims.begin(), array.shape.dims.end());
  if (array.bytes != nullptr) out->set_data(array.bytes->data(), array.bytes->size());
}

absl::StatusOr<std::shared_ptr<const Blob>> BlobOf(const std::string& bytes) {
  std::shared_ptr<const Blob> blob = Blob::Copy(bytes);
  if (blob != nullptr) return blob;
  return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes of a callback",
               bytes.size());
}

absl::StatusOr<CallbackArray> ArrayFromProto(const v1::LinkCallbackArray& in) {
  const std::optional<DType> dtype = DTypeFromNumber(in.dtype());
  if (!dtype.has_value() || BytesPerElement(*dtype) == 0)
    return InvalidArgument("an array of a callback has element type {}", in.dtype());
  if (in.dims_size() > kMaxRank)
    return InvalidArgument("an array of a callback has {} dimensions", in.dims_size());
  CallbackArray out{*dtype, Shape{{in.dims().begin(), in.dims().end()}}, nullptr};
  FAIRWAY_RETURN_IF_ERROR(ByteSize(out.dtype, out.shape).status());
  return out;
}

}  // namespace

void ToProto(const CallbackCall& call, v1::LinkCallback* out) {
  for (const CallbackArray& array : call.arguments)
    if (array.bytes == nullptr) out->set_pulled(true);
  out->set_call(call.call);
  out->set_launch_id(call.launch.value);
  out->set_function(call.function);
  out->set_device(call.device);
  for (const CallbackArray& array : call.arguments) Put(array, out->add_arguments());
  for (const CallbackArray& array : call.results) Put(array, out->add_results());
}

absl::StatusOr<CallbackCall> CallbackFromProto(const v1::LinkCallback& in) {
  if (in.arguments_size() > kMaxCallbackArrays || in.results_size() > kMaxCallbackArrays)
    return InvalidArgument("a callback with {} arguments and {} results", in.arguments_size(),
                           in.results_size());
  CallbackCall out{in.call(), LaunchId(in.launch_id()), in.function(), in.device(), {}, {}};
  for (const v1::LinkCallbackArray& proto : in.arguments()) {
    FAIRWAY_ASSIGN_OR_RETURN(CallbackArray array, ArrayFromProto(proto));
    const int64_t size = *ByteSize(array.dtype, array.shape);
    if (in.pulled()) {
      if (!proto.data().empty())
        return InvalidArgument("an argument of a callback with bytes that is to be pulled");
      if (size == 0) array.bytes = Blob::Make(0);
      out.arguments.push_back(std::move(array));
      continue;
    }
    if (static_cast<int64_t>(proto.data().size()) != size)
      return InvalidArgument("{} bytes for an argument {} of a callback", proto.data().size(),
                             ToString(array.dtype, array.shape));
    FAIRWAY_ASSIGN_OR_RETURN(array.bytes, BlobOf(proto.data()));
    out.arguments.push_back(std::move(array));
  }
  for (const v1::LinkCallbackArray& proto : in.results()) {
    FAIRWAY_ASSIGN_OR_RETURN(out.results.emplace_back(), ArrayFromProto(proto));
  }
  return out;
}

void ToProto(const CallbackAnswer& answer, v1::LinkCallbackAnswer* out) {
  out->set_call(answer.call);
  *out->mutable_status() = ToProto(answer.status);
  for (const auto& bytes : answer.results) out->add_results(bytes->data(), bytes->size());
  out->set_transfer(answer.transfer.value);
  out->set_ticket_first(answer.ticket.first);
  out->set_ticket_second(answer.ticket.second);
}

absl::StatusOr<CallbackAnswer> CallbackAnswerFromProto(const v1::LinkCallbackAnswer& in) {
  if (in.results_size() > kMaxCallbackArrays || in.status().message().size() > 2 * kMaxErrorText)
    return InvalidArgument("an answer to a callback with {} results and {} bytes of text",
                           in.results_size(), in.status().message().size());
  if (in.transfer() != 0 && !IsCallback(TransferId(in.transfer())))
    return InvalidArgument("the results of a callback in transfer {}", in.transfer());
  CallbackAnswer out{in.call(),
                     StatusFromProto(in.status()),
                     {},
                     TransferId(in.transfer()),
                     {in.ticket_first(), in.ticket_second()}};
  if (out.transfer && !out.ticket)
    return InvalidArgument("the results of a callback are to be pulled without a ticket");
  for (const std::string& bytes : in.results()) {
    FAIRWAY_ASSIGN_OR_RETURN(out.results.emplace_back(), BlobOf(bytes));
  }
  return out;
}

}  // namespace fairway
