// SPDX-License-Identifier: Apache-2.0
// The exit codes of fairway-worker and its children.
#ifndef FAIRWAY_WORKER_PROCESS_EXIT_CODES_H_
#define FAIRWAY_WORKER_PROCESS_EXIT_CODES_H_

#include <string_view>

namespace fairway {

enum ExitCode : int {
  kExitOk = 0,            // drained, told to stop, or the parent ended
  kExitInternal = 1,      // a fault of ours; the log says which
  kExitBadFlags = 2,      // unknown or wrong flags
  kExitNoPlugin = 3,      // the plugin cannot be loaded, or gives no devices
  kExitFenced = 4,        // the controller refused this process or declared it lost
  kExitPortTaken = 5,     // the data port is in use
  kExitDrainTimeout = 6,  // told to stop, and work in flight did not end in time
  kExitDevicesLost = 7,   // its devices cannot be used any more; a new process can use them
  kExitStartLimit = 8,    // creating the plugin's client took longer than --start-limit
  kExitAsked = 9,         // an operator asked for it; another one is to be started
};

constexpr std::string_view Meaning(int code) {
  switch (code) {
    case kExitOk:
      return "stopped";
    case kExitInternal:
      return "an internal error";
    case kExitBadFlags:
      return "bad flags";
    case kExitNoPlugin:
      return "the plugin cannot be loaded";
    case kExitFenced:
      return "fenced by the controller";
    case kExitPortTaken:
      return "the port is taken";
    case kExitDrainTimeout:
      return "work in flight did not end in time";
    case kExitDevicesLost:
      return "its devices failed";
    case kExitStartLimit:
      return "the plugin did not start in time";
    case kExitAsked:
      return "an operator asked for it";
    default:
      return "";
  }
}

}  // namespace fairway

#endif  // FAIRWAY_WORKER_PROCESS_EXIT_CODES_H_
