// SPDX-License-Identifier: Apache-2.0
// The shared library is made of fairway_client_static; CMake wants one source of its own.
#include "fairway/fairway.h"
