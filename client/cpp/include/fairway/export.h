// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXPORT_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXPORT_H_

// What the shared library shows.
#define FAIRWAY_API __attribute__((visibility("default")))

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXPORT_H_
