// SPDX-License-Identifier: Apache-2.0
// Errors are values: nothing in this library throws.
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_STATUS_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_STATUS_H_

#include <optional>
#include <string>
#include <utility>

#include "fairway/export.h"

namespace fairway::client {

// The numbers of gRPC and of google.rpc.Code.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,  // the session was closed
  kUnknown = 2,
  kInvalidArgument = 3,  // a request that can never be right
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,   // the request does not fit
  kFailedPrecondition = 9,  // an array was deleted or donated; versions do not fit
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,  // the controller is gone, or no island is up
  kDataLoss = 15,     // an executor was lost, and the array with it
  kUnauthenticated = 16,
};

// OK, or a code and a text for people. A value.
class Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "INVALID_ARGUMENT: text", or "OK".
  FAIRWAY_API std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Prints the error and ends the process.
[[noreturn]] FAIRWAY_API void DieOf(const Status& status);

// A T or the error in its place.
template <typename T>
class Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: a value is a result
  // `status` is not OK.
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: so is an error

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Ends the process with the error's text if this is an error. Check ok() first, unless that is
  // intended.
  const T& value() const& {
    if (!ok()) DieOf(status_);
    return *value_;
  }
  T& value() & {
    if (!ok()) DieOf(status_);
    return *value_;
  }
  T&& value() && {
    if (!ok()) DieOf(status_);
    return *std::move(value_);
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_STATUS_H_
