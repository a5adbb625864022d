// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/runtime_conformance.h"

namespace fairway::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(All, RuntimeConformance, ::testing::ValuesIn(Backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairway::conformance
