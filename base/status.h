// SPDX-License-Identifier: Apache-2.0
// Errors are values: absl::Status with text built by fmt. Debian's absl::string_view is not
// std::string_view, so these helpers are the one place that converts.
#ifndef FAIRWAY_BASE_STATUS_H_
#define FAIRWAY_BASE_STATUS_H_

#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

namespace fairway {

// absl::Status with formatted text: Error(absl::StatusCode::kNotFound, "array {}", handle).
template <typename... Args>
absl::Status Error(absl::StatusCode code, fmt::format_string<Args...> text, Args&&... args) {
  return absl::Status(code, fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
absl::Status InvalidArgument(fmt::format_string<Args...> text, Args&&... args) {
  return Error(absl::StatusCode::kInvalidArgument, text, std::forward<Args>(args)...);
}

// `status` with "where: " before its text; code and payloads are kept. OK stays OK.
inline absl::Status Annotate(absl::Status status, std::string_view where) {
  if (status.ok()) return status;
  absl::Status out(status.code(), fmt::format("{}: {}", where, std::string(status.message())));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { out.SetPayload(url, value); });
  return out;
}

inline constexpr size_t kMaxErrorText = 4096;
inline constexpr size_t kTextBytes = 16 << 20;  // of the errors of one message, about

// An error as others may be told of it: texts and payloads of clients, programs and workers travel
// in commands and lie in arrays. A text of more than kMaxErrorText bytes is cut in its middle,
// which it then says; payloads of more bytes are dropped.
absl::Status Bounded(absl::Status status, size_t most = kMaxErrorText);
// Such a text: of one that has come the rest is never copied.
std::string BoundedText(std::string_view text, size_t most = kMaxErrorText);
// How much of its text each of so many errors of one message may have; 64 bytes at least.
size_t TextShare(size_t errors);

// The message as std::string (absl's own view type does not mix with fmt here).
inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

// "DATA_LOSS: text" for logs.
inline std::string Describe(const absl::Status& status) {
  return status.ok() ? "OK"
                     : fmt::format("{}: {}", absl::StatusCodeToString(status.code()), Text(status));
}

}  // namespace fairway

#define FAIRWAY_CONCAT_(a, b) a##b
#define FAIRWAY_CONCAT(a, b) FAIRWAY_CONCAT_(a, b)

// Returns from the enclosing function if `expression` is not OK.
#define FAIRWAY_RETURN_IF_ERROR(expression)            \
  do {                                                 \
    absl::Status fairway_status_ = (expression);       \
    if (!fairway_status_.ok()) return fairway_status_; \
  } while (false)

// FAIRWAY_ASSIGN_OR_RETURN(auto x, F()): x is the value of F(), or its error is returned.
#define FAIRWAY_ASSIGN_OR_RETURN(left, expression) \
  FAIRWAY_ASSIGN_OR_RETURN_(FAIRWAY_CONCAT(fairway_or_, __LINE__), left, expression)
#define FAIRWAY_ASSIGN_OR_RETURN_(tmp, left, expression) \
  auto tmp = (expression);                               \
  if (!tmp.ok()) return std::move(tmp).status();         \
  left = *std::move(tmp)

#endif  // FAIRWAY_BASE_STATUS_H_
