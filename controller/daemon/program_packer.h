// SPDX-License-Identifier: Apache-2.0
// Packs programs into the messages that ask a worker to compile them.
#ifndef FAIRWAY_CONTROLLER_DAEMON_PROGRAM_PACKER_H_
#define FAIRWAY_CONTROLLER_DAEMON_PROGRAM_PACKER_H_

#include <memory>
#include <string>

#include <absl/functional/any_invocable.h>

#include "async/blocking_pool.h"
#include "async/loop.h"
#include "base/ids.h"
#include "fairway/v1/executable.pb.h"
#include "transport/link.h"

namespace fairway {

// Loop-confined. Packing copies the program and sums it up, a millisecond per MiB, so a thread
// packs those of more than kPackedAtOnce. There sessions take turns: the program of another session
// waits for one program at most, however many a session has queued.
class ProgramPacker {
 public:
  static constexpr size_t kPackedAtOnce = size_t{64} << 10;
  // `request`: as PackCompileRequest returns it.
  using Packed = absl::AnyInvocable<void(Frame request)>;

  // `pool`, of one thread, and `loop` must outlive the closures in the pool.
  ProgramPacker(Loop& loop, BlockingPool& pool) : loop_(loop), pool_(pool) {}

  // Packs a program of `session`. `packed` runs in the loop, once, within this call if the program
  // is short, perhaps after the packer is gone. The loop, not the thread, destroys the program.
  void Pack(SessionId session, std::shared_ptr<const std::string> program,
            v1::CompileOptions options, Packed packed);

 private:
  Loop& loop_;
  BlockingPool& pool_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_PROGRAM_PACKER_H_
