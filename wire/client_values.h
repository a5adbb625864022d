// SPDX-License-Identifier: Apache-2.0
// Converts values of fairway.v1.Client to core values and back. Checks everything from outside. The
// lengths of lists in the same message bound all sizes.
#ifndef FAIRWAY_WIRE_CLIENT_VALUES_H_
#define FAIRWAY_WIRE_CLIENT_VALUES_H_

#include "base/status.h"
#include "core/sharding.h"
#include "fairway/v1/client.pb.h"

namespace fairway {

// INVALID_ARGUMENT: an unknown element type or one without bytes, or an impossible shape.
absl::StatusOr<ArraySpec> ArraySpecFromProto(const v1::ArraySpec& proto);
// Writes only shardings that clients can name (one device, replicated, tiled); of others it writes
// the devices.
void ArraySpecToProto(const ArraySpec& spec, v1::ArraySpec* proto);

// `rank`: of the arrays to cut. INVALID_ARGUMENT: no device, or one named twice; tiles that do not
// fit the rank or the devices.
absl::StatusOr<Sharding> ShardingFromProto(const v1::Sharding& proto, int rank);
void ShardingToProto(const Sharding& sharding, v1::Sharding* proto);

// UNKNOWN for code 0 and for numbers that are not a code. The text is bounded (BoundedText) and
// becomes valid UTF-8.
absl::Status StatusFromError(const v1::Error& error);
// `status` is not OK. Its text becomes valid UTF-8.
void ErrorFromStatus(const absl::Status& status, v1::Error* error);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_CLIENT_VALUES_H_
