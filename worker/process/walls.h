// SPDX-License-Identifier: Apache-2.0
// Walls around a process of the worker: which files it opens, and which system calls it makes. A
// wall holds for the calling thread and for what it starts later, and never comes down.
#ifndef FAIRWAY_WORKER_PROCESS_WALLS_H_
#define FAIRWAY_WORKER_PROCESS_WALLS_H_

#include <linux/filter.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fairway {

// Files, and folders with all that is in them. A path that does not exist permits nothing.
struct FileRights {
  std::vector<std::string> read;
  std::vector<std::string> write;    // and read, make, rename, remove
  std::vector<std::string> execute;  // and read
};

// Opens no other files from now on (Landlock, Linux 5.13 or newer). Files that are open stay so.
// The dynamic loader may be executed, too, since the kernel executes it for every program. Call it
// while the process has one thread. Gives up new privileges. Returns false if the kernel cannot.
bool ConfineFiles(const FileRights& rights);

// System calls that no process of the worker makes, and that would reach the kernel's settings, the
// machine's mounts, keys, or other processes' memory.
std::span<const uint32_t> AdministrativeCalls();

// A filter that refuses `calls` with EPERM, all calls of another architecture, new namespaces by
// clone, and signals to others by fcntl and ioctl. What is appended
// to it runs for the others, with the call's number in the accumulator.
std::vector<sock_filter> RefuseCalls(std::span<const uint32_t> calls);

// Puts `filter` in force for all threads, and permits what it does not decide. Needs no_new_privs.
// Returns false if the kernel cannot, or if the architecture is neither x86-64 nor AArch64.
bool FilterCalls(std::vector<sock_filter> filter);

// For an executor, which runs clients' compiled code: no new privileges, no core files, none of the
// administrative calls, and no other programs unless `executes`. Call it before the runtime is
// opened. Returns what the system refused, in words; empty: everything is in force.
std::string WallExecutor(bool executes);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_PROCESS_WALLS_H_
