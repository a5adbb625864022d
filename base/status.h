// SPDX-License-Identifier: Apache-2.0
// Errors are values: absl::Status with text built by fmt. Only these helpers convert between
// Debian's absl::string_view and std::string_view, which are different types.
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

// Returns `status` with "where: " before its text; keeps code and payloads. OK stays OK.
inline absl::Status Annotate(absl::Status status, std::string_view where) {
  if (status.ok()) return status;
  absl::Status out(status.code(), fmt::format("{}: {}", where, std::string(status.message())));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { out.SetPayload(url, value); });
  return out;
}

inline constexpr size_t kMaxErrorText = 4096;
// approximate; of the errors of one message together
inline constexpr size_t kTextBytes = 16 << 20;

// Returns an error in the form in which others get it. Texts and payloads come from clients,
// programs and workers, travel in commands and lie in arrays. So a text of more than kMaxErrorText
// bytes is cut in its middle, and says so; larger payloads are dropped.
absl::Status Bounded(absl::Status status, size_t most = kMaxErrorText);
// Returns such a text alone, without copying more of it than it returns.
std::string BoundedText(std::string_view text, size_t most = kMaxErrorText);
// Returns how many bytes of text each of `errors` errors in one message may have; at least 64.
size_t TextShare(size_t errors);

// Returns the message as std::string (absl's own view type does not mix with fmt here).
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
