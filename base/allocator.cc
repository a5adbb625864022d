// SPDX-License-Identifier: Apache-2.0
// Configures jemalloc, which the daemons are linked with; MALLOC_CONF in the environment overrides
// it. Linked into each executable as a source, because jemalloc looks the symbol up.
//
// - Few arenas, so that one thread reuses the memory that another one freed. One thread makes the
//   objects of a step and another destroys them, and every run allocates a program's temporaries
//   anew.
// - Blocks of any size are kept for ten seconds: pages fresh from the kernel cost more than copying
//   into them. Blocks that are unused for that long go back, also if the process is idle. In the
//   controller it is a quarter of a second: its memory is bounded while any number of bytes passes
//   through it.
// - A thread of the allocator's own gives memory back to the system, which takes a millisecond for
//   some MiB; the threads that free it go on. So no size goes back at once (oversize_threshold; the
//   first arena, which the main thread uses, is made before that option is read).
#include <jemalloc/jemalloc.h>

#include <cstddef>
#include <cstdint>

#ifdef FAIRWAY_RETURNS_SOON
#define FAIRWAY_KEPT_FOR "250"
#else
#define FAIRWAY_KEPT_FOR "10000"
#endif
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:4,oversize_threshold:0,dirty_decay_ms:" FAIRWAY_KEPT_FOR
                          ",background_thread:true,max_background_threads:1";
}

#ifdef FAIRWAY_RETURNS_SOON
namespace {

[[gnu::constructor]] void KeepLargeBlocksOfTheFirstArena() {
  size_t never = SIZE_MAX;
  mallctl("arena.0.oversize_threshold", nullptr, nullptr, &never, sizeof(never));
}

}  // namespace
#endif
