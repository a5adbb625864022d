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

}  // namespace fairway

#endif  // FAIRWAY_BASE_SANITIZED_FOR_TEST_H_
