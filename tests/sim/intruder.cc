// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/intruder.h"

#include "tests/sim/controller.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

namespace fairway::sim {

PullRequest Intruder::Ask(const PortKey& key, TransferId transfer) {
  PullRequest request;
  request.transfer = transfer;
  request.from = Incarnation(1 + random_.Below(20));
  const TransferId next(transfer.value + 1);
  switch (random_.Below(5)) {
    case 0:  // it has none
      break;
    case 1:
      request.ticket = {random_.Next(), random_.Next()};
      break;
    case 2:
      request.ticket = TicketFor(key, next, request.from);
      break;
    case 3:
      request.ticket = TicketFor(key, transfer, Incarnation(request.from.value + 1));
      break;
    default:
      request.ticket =
          TicketFor(KeyOf(request.from.value + (uint64_t{1} << 40)), transfer, request.from);
  }
  return request;
}

void Intruder::Told(const char* whom, TransferId transfer, const absl::StatusOr<uint64_t>& answer) {
  if (answer.ok())
    return world_.Broken("T2", "{} gives bytes of transfer {} to whom has no ticket for them", whom,
                         transfer);
  world_.Count(answer.status().code() == absl::StatusCode::kPermissionDenied
                   ? "intruder refused"
                   : "intruder finds nobody");
}

void Intruder::AskMachine(Machine& source, TransferId transfer) {
  if (!Comes()) return;
  const Incarnation incarnation = source.incarnation();
  const PullRequest request = Ask(KeyOf(incarnation.value), transfer);
  world_.queue.After(random_.Between(1, 2 * world_.config.data_delay), [=, this, at = &source] {
    at->Pull(incarnation, request, [=, this](const absl::StatusOr<uint64_t>& answer) {
      Told("a machine", transfer, answer);
    });
  });
}

void Intruder::AskController(TransferId transfer) {
  if (!Comes()) return;
  const PullRequest request = Ask(KeyOfController(world_.epoch), transfer);
  world_.queue.After(
      random_.Between(1, 2 * world_.config.data_delay), [=, this, epoch = world_.epoch] {
        if (world_.controller == nullptr || world_.epoch != epoch) return;
        world_.controller->PullUpload(request, [=, this](const absl::StatusOr<uint64_t>& answer) {
          Told("the controller", transfer, answer);
        });
      });
}

}  // namespace fairway::sim
