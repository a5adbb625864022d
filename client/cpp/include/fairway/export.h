// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXPORT_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXPORT_H_

// Marks the symbols of the shared library.
#define FAIRWAY_API __attribute__((visibility("default")))

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXPORT_H_
