// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_BASE_SANITIZED_FOR_TEST_H_
#define FAIRWAY_BASE_SANITIZED_FOR_TEST_H_

namespace fairway {

// Whether a sanitizer is compiled in. Everything takes some thirty times as long then, and what is
// large may be smaller; such a test has the label unit-both (cmake/FairwayTargets.cmake).
#ifdef FAIRWAY_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// Why a test skips that goes up to a limit too large for a sanitizer: `if (kSanitized) GTEST_SKIP()
// << kTooLarge;`.
inline constexpr char kTooLarge[] =
    "with a sanitizer this takes tens of seconds; it runs without one";

}  // namespace fairway

#endif  // FAIRWAY_BASE_SANITIZED_FOR_TEST_H_
